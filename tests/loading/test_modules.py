from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from cimtool.base.errors import CimError
from cimtool.ir.source import BatchNorm
from cimtool.loading.modules import model_from_modules
from cimtool.loading.score import ScoreOptions
from cimtool.reference.surrogate import Polynomial
from cimtool.training.models.trunk import TrunkProjector
from cimtool.training.towers import TwoTower


def test_modules_without_files(
    trunks: TwoTower, branches: TwoTower, polynomial: Polynomial
) -> None:
    model = model_from_modules(
        trunks.text_proj, trunks.video_proj, ScoreOptions(polynomial=polynomial, a=0.7), name="mine"
    )
    assert (model.name, model.layout, model.files) == ("mine", "trunk", ())
    assert (model.a, model.b, model.samples) == (0.7, 0.5, 10)
    branch = model_from_modules(
        branches.text_proj, branches.video_proj, ScoreOptions(polynomial=polynomial)
    )
    assert (branch.layout, branch.head.polynomial.scale_ed) == ("two-branch", 5.0)


def test_modules_keep_their_mode_and_statistics(trunks: TwoTower, polynomial: Polynomial) -> None:
    trunks.train()
    trunks.text_proj.trunk[1].eval()
    before = {key: value.clone() for key, value in trunks.state_dict().items()}
    model_from_modules(trunks.text_proj, trunks.video_proj, ScoreOptions(polynomial=polynomial))
    assert trunks.text_proj.training
    assert not trunks.text_proj.trunk[1].training
    assert all(torch.equal(before[key], value) for key, value in trunks.state_dict().items())


def test_eps_of_a_module_is_its_own(trunks: TwoTower, polynomial: Polynomial) -> None:
    trunks.text_proj.trunk[1].eps = 0.3
    model = model_from_modules(
        trunks.text_proj, trunks.video_proj, ScoreOptions(polynomial=polynomial)
    )
    text, other = model.program.text.by_name["bn1"].op, model.program.text.by_name["bn2"].op
    assert isinstance(text, BatchNorm)
    assert isinstance(other, BatchNorm)
    assert (text.eps, other.eps) == (0.3, 1e-5)


class Sigma(TrunkProjector):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mu, logvar = super().forward(x)
        return mu, (0.5 * logvar).exp()


class MeanOnly(TrunkProjector):
    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x)[0]


def test_what_weights_do_not_show_is_found_by_running(
    trunks: TwoTower, polynomial: Polynomial
) -> None:
    trunks.text_proj.trunk[2] = nn.GELU()
    with pytest.raises(CimError, match=r"text module .* computes another mu"):
        model_from_modules(trunks.text_proj, trunks.video_proj, ScoreOptions(polynomial=polynomial))
    with pytest.raises(CimError, match=r"text module .* computes another logvar"):
        model_from_modules(
            Sigma(4, 6, 5).eval(), trunks.video_proj, ScoreOptions(polynomial=polynomial)
        )
    with pytest.raises(CimError, match=r"text module returns a Tensor; expected \(mu, logvar\)"):
        model_from_modules(
            MeanOnly(4, 6, 5).eval(), trunks.video_proj, ScoreOptions(polynomial=polynomial)
        )
