from __future__ import annotations

from pathlib import Path

import torch

from cimtool.training.models import Trunk, TwoBranch, TwoTower, two_branch_checkpoint


def test_trunk_has_the_layers_and_the_start_of_the_layout() -> None:
    towers = TwoTower(Trunk(6, 8, 4), Trunk(6, 8, 4))
    shapes = {key: tuple(tensor.shape) for key, tensor in towers.state_dict().items()}
    assert all(key.startswith(("text_proj.", "video_proj.")) for key in shapes)
    weights = [shape for key, shape in shapes.items() if key.endswith("weight")]
    one = [(8, 6), (8,), (8, 8), (8,), (4, 8), (4, 8)]
    assert weights == one * 2
    assert (towers.text_proj.state_dict()["logvar.bias"] == -3.0).all()
    mu, logvar = towers.eval().text_proj(torch.randn(3, 6))
    assert mu.shape == logvar.shape == (3, 4)


def test_two_branch_follows_its_layout() -> None:
    model = TwoBranch(6, 8, dropout=0.5).eval()
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
        _, logvar = TwoBranch(64, 128, logvar_start=start).eval()(x)
        assert abs(logvar.mean() - start) < 0.1


def test_a_two_branch_checkpoint_loads_with_weights_only(tmp_path: Path) -> None:
    towers = TwoTower(TwoBranch(6, 8), TwoBranch(6, 8))
    saved = two_branch_checkpoint(towers, [0.1, -1 / 3], 0.5, 1, {"lr": 1e-4}, epoch=3, loss=0.25)
    torch.save(saved, tmp_path / "model.pth")
    loaded = torch.load(tmp_path / "model.pth", weights_only=True)
    assert set(loaded) == {"text_proj", "video_proj", "poly", "config", "epoch", "loss"}
    assert loaded["poly"]["coeff"].tolist() == [0.1, -1 / 3]
    assert (loaded["poly"]["degree"], loaded["poly"]["bias"]) == (1, 0.5)
    TwoBranch(6, 8).load_state_dict(loaded["text_proj"])
