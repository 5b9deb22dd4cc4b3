from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import cimtool
from cimtool.base.errors import CimError
from cimtool.training.loss import Batch, Task
from cimtool.training.losses.constraints import Reconstruction, kl_to_standard
from cimtool.training.towers import Encoded

ROWS = torch.tensor([[1.0, 2.0], [0.0, -2.0]])


def test_it_is_half_the_squared_error_and_no_label_takes_part() -> None:
    made = Reconstruction().objective(Task(2, decoder=nn.Identity()))
    code = Encoded(ROWS / 2)
    terms = made(code, code, Batch(ROWS, ROWS))
    assert {name: term.item() for name, term in terms.loss.items()} == {
        "reconstruction": pytest.approx((5 + 4) / 4 / 2 / 2)
    }
    wanted = -(ROWS[:, None] - ROWS[None]).square().sum(2) / 4
    torch.testing.assert_close(made.scores(code, code), wanted)


def test_of_gaussians_their_divergence_is_added() -> None:
    made = Reconstruction(kl=0.5).objective(Task(2, decoder=nn.Identity()))
    code = Encoded(ROWS, torch.full_like(ROWS, -40.0))
    terms = made(code, code, Batch(ROWS, ROWS)).loss
    assert terms["reconstruction"].item() == pytest.approx(0.0, abs=1e-6)
    torch.testing.assert_close(terms["kl"], 0.5 * kl_to_standard(*code.gaussian))


def test_a_plain_autoencoder_learns_its_rows_and_others_have_no_decoder(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    rows = rng.normal(size=(3, 8))[labels] + rng.normal(size=(60, 8)) / 4
    data = {"rows": rows, "labels": labels}
    options = {"model.hidden": "16", "model.width": 2}
    given = {"loss": "reconstruction", "batch": 18, "held_out": 0.3, "learning_rate": 1e-2}
    run = cimtool.train(
        data, tmp_path / "run", model="autoencoder", epochs=8, options=options, **given
    )
    first, *_, last = run.history[1:]
    assert list(last.terms) == ["reconstruction"]
    assert last.terms["reconstruction"] < 0.7 * first.terms["reconstruction"]
    with pytest.raises(CimError, match=r'"reconstruction" needs a decoder, and the model has none'):
        cimtool.train({"text": rows, "video": rows}, tmp_path / "other", **given)
    assert not (tmp_path / "other").exists()
