from __future__ import annotations

import pytest
import torch

from cimtool.base.errors import CimError
from cimtool.training.models.two_branch import TwoBranchModel, TwoBranchProjector


def test_two_branch_follows_its_layout() -> None:
    model = TwoBranchProjector(6, 8, dropout=0.5).eval()
    assert list(model.state_dict()) == [
        f"{branch}.{layer}.{kind}"
        for branch in ("mu_proj", "logvar_proj")
        for layer in (0, 3)
        for kind in ("weight", "bias")
    ]
    x = torch.nn.functional.normalize(torch.randn(5, 6), dim=1)
    mu, logvar = model(100 * x)
    torch.testing.assert_close(mu.norm(dim=1), torch.ones(5))
    with torch.no_grad():
        model.logvar_proj[3].bias.copy_(torch.tensor([-99.0, 99.0, 0, 0, 0, 0]))
    _, logvar = model(x)
    assert (logvar[:, 0] == -5).all()
    assert (logvar[:, 1] == 2).all()


def test_two_branch_starts_from_the_variances_that_are_asked_for() -> None:
    x = torch.nn.functional.normalize(torch.randn(5, 64), dim=1)
    for start in (0.0, -4.0):
        _, logvar = TwoBranchProjector(64, 128, logvar_start=start).eval()(x)
        assert abs(logvar.mean() - start) < 0.1


def test_the_model_builds_what_its_options_say_and_reads_them_back() -> None:
    towers = TwoBranchModel(hidden=8).build(6, 6)
    assert towers(torch.randn(3, 6), torch.randn(2, 6))[1].mu.shape == (2, 6)
    state = {key: value.numpy() for key, value in towers.text_proj.state_dict().items()}
    assert TwoBranchModel.options_of(state, state) == {"hidden": 8}
    assert TwoBranchModel.options_of({}, {}) == {}


def test_bad_options_and_widths() -> None:
    with pytest.raises(CimError, match=r"model.dropout is 1; expected 0 or more, and below 1"):
        TwoBranchModel(dropout=1.0)
    with pytest.raises(CimError, match="the two sides have rows of 6 and 5 numbers; model"):
        TwoBranchModel().build(6, 5)
