"""Layout `trunk`: the activation that no weight shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from cimtool.base.errors import CimError
from cimtool.ir.program import MODALITIES
from cimtool.loading.source import ModelSource
from cimtool.simulation.simulator import Simulator
from cimtool.training.models.trunk import TrunkProjector
from cimtool.training.models.two_branch import TwoBranchProjector

WIDTH, HIDDEN, D = 6, 9, 5

PROJECTORS: dict[str, Callable[[str], nn.Module]] = {
    "trunk": lambda activation: TrunkProjector(WIDTH, HIDDEN, D, activation=activation),
    "two-branch": lambda activation: TwoBranchProjector(WIDTH, HIDDEN, activation=activation),
}


def saved(file: Path, layout: str, computed: str, **values: Any) -> dict[str, nn.Module]:
    """Write a checkpoint of both projectors, with plain values; returns the modules."""
    torch.manual_seed(3)
    modules = {m: PROJECTORS[layout](computed).eval() for m in MODALITIES}
    torch.save({**{f"{m}_proj": one.state_dict() for m, one in modules.items()}, **values}, file)
    return modules


@pytest.mark.parametrize("layout", PROJECTORS)
@pytest.mark.parametrize("activation", ["relu", "tanh", "leaky-relu", "none"])
def test_an_activation_that_is_said_is_computed(
    layout: str, activation: str, tmp_path: Path
) -> None:
    modules = saved(tmp_path / "net.pth", layout, activation, activation=activation)
    model = ModelSource(tmp_path / "net.pth").load_projectors()
    assert model.warnings == ()
    rows = np.random.default_rng(0).normal(size=(7, WIDTH)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    for modality, module in modules.items():
        with torch.no_grad():
            mu, logvar = module(torch.from_numpy(rows))
        found = Simulator(model.program).encode(modality, rows)
        np.testing.assert_allclose(found["mu"], mu, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found["s"], logvar.exp(), rtol=1e-4)


def test_an_activation_that_is_assumed_is_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "net.pth"
    saved(file, "trunk", "relu")
    (warning,) = ModelSource(file).load_projectors().warnings
    assert warning.startswith(
        f"{file} does not say its activation, and weights do not show it: layout "
    )
    layer_map = tmp_path / "map.toml"
    layer_map.write_text('[text]\nactivation = "relu"\n[video]\nactivation = "relu"\n')
    assert ModelSource(file, layer_map=layer_map).load_projectors().warnings == ()


def test_the_activation_of_two_branch_is_known(tmp_path: Path) -> None:
    modules = saved(tmp_path / "net.pth", "two-branch", "relu")
    model = ModelSource(tmp_path / "net.pth").load_projectors()
    assert model.warnings == ()
    rows = np.eye(WIDTH, dtype=np.float32)
    for modality, module in modules.items():
        with torch.no_grad():
            mu, _ = module(torch.from_numpy(rows))
        found = Simulator(model.program).encode(modality, rows)["mu"]
        np.testing.assert_allclose(found, mu, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layout", PROJECTORS)
def test_an_activation_that_no_hardware_has_is_refused(layout: str, tmp_path: Path) -> None:
    file = tmp_path / "net.pth"
    saved(file, layout, "relu", activation="gelu")
    with pytest.raises(CimError, match=r'net\.pth: activation "gelu" is not known'):
        ModelSource(file).load_projectors()


def test_modules_are_run_so_that_nothing_is_assumed() -> None:
    modules = PROJECTORS["trunk"]("relu").eval(), PROJECTORS["trunk"]("relu").eval()
    assert ModelSource(modules).load_projectors().warnings == ()
    other = PROJECTORS["trunk"]("tanh").eval(), PROJECTORS["trunk"]("tanh").eval()
    model = ModelSource(other).load_projectors()
    assert model.layout == "onnx"
    assert "tanh" in {node.op.name for node in model.towers[0].nodes}


@pytest.mark.parametrize("key", ["fc1.weight", "bn1.weight", "fc2.weight", "bn2.weight"])
def test_a_parameter_of_no_extent_is_one_sentence(key: str, tmp_path: Path) -> None:
    file = tmp_path / "m.pth"
    saved(file, "trunk", "relu")
    content = torch.load(file, weights_only=True)
    content["text_proj"][key] = torch.ones(())
    torch.save(content, file)
    with pytest.raises(CimError, match=r"m\.pth: text_proj\.") as caught:
        ModelSource(file, head="cosine").load()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (lambda w: w[:0], r"mu\.weight has shape \[0, \d+\], which is empty"),
        (lambda w: torch.ones(()), r"mu\.weight has shape \[\]; expected \[any, any\]"),
        (lambda w: w[0], r"mu\.weight has shape \[\d+\]; expected \[any, any\]"),
        (lambda w: w[..., None], r"mu\.weight has shape \[\d+, \d+, 1\]; expected \[any, any\]"),
    ],
)
def test_a_head_of_another_shape_is_named(
    changed: Callable[[torch.Tensor], torch.Tensor], sentence: str, tmp_path: Path
) -> None:
    file = tmp_path / "m.pth"
    saved(file, "trunk", "relu")
    content = torch.load(file, weights_only=True)
    content["text_proj"]["mu.weight"] = changed(content["text_proj"]["mu.weight"]).clone()
    torch.save(content, file)
    with pytest.raises(CimError, match=r"m\.pth: text_proj\." + sentence):
        ModelSource(file, head="cosine").load()
