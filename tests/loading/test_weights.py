"""Checkpoints whose weights are kept as something else: norms, masks, adapters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune, spectral_norm, weight_norm

from cimtool.base.errors import CimError
from cimtool.bundle.inspect import describe_checkpoint
from cimtool.loading.checkpoint import read_checkpoint
from cimtool.loading.source import ModelSource
from cimtool.training.fine_tune import tensor_keys
from cimtool.training.towers import TwoTower

Change = Callable[[nn.Linear], nn.Module]


def saved(towers: TwoTower, change: Change, file: Path) -> list[np.ndarray]:
    """Write towers with a change of their first layers; the weights that torch makes of these."""
    layers = []
    for tower in (towers.text_proj, towers.video_proj):
        tower.trunk[0] = change(tower.trunk[0])
        tower.trunk[0](torch.ones(1, tower.trunk[0].in_features))
        layers.append(tower.trunk[0].weight.detach().numpy())
    torch.save(towers.state_dict(), file)
    return layers


def of_one_length(layer: nn.Linear) -> nn.Module:
    return parametrizations.weight_norm(layer, dim=None)


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
@pytest.mark.parametrize("norm", [weight_norm, parametrizations.weight_norm, of_one_length])
def test_a_weight_norm_is_the_weight_that_it_makes(
    trunks: TwoTower, poly_file: Path, tmp_path: Path, norm: Change
) -> None:
    for tower in (trunks.text_proj, trunks.video_proj):
        tower.trunk[0].weight.data[1] *= 3
    wanted = saved(trunks, norm, tmp_path / "m.pth")
    assert describe_checkpoint(read_checkpoint(tmp_path / "m.pth"))["text"]["dtype"] == "float32"
    model = ModelSource(tmp_path / "m.pth", poly_file).load()
    assert model.layout == "trunk"
    assert sum("have the keys of weight norms" in one for one in model.warnings) == 1
    for tower, weight in zip(model.towers, wanted, strict=True):
        found = tower.by_name["fc1"].op.weight.T  # type: ignore[attr-defined]
        np.testing.assert_allclose(found, weight, rtol=1e-6)
    with pytest.raises(CimError, match=r"text\.fc1 has no weight \[out, in\] in the file"):
        tensor_keys(model, "m.pth")


def pruned(layer: nn.Linear) -> nn.Module:
    return prune.l1_unstructured(layer, "weight", 0.5)


def pruned_bias(layer: nn.Linear) -> nn.Module:
    return prune.l1_unstructured(layer, "bias", 0.5)


class Positive(nn.Module):
    def forward(self, bias: torch.Tensor) -> torch.Tensor:
        return bias.exp()


def parametrized_bias(layer: nn.Linear) -> nn.Module:
    parametrize.register_parametrization(layer, "bias", Positive())
    return layer


class Adapted(nn.Module):
    """A layer with an adapter, with peft's names."""

    def __init__(self, layer: nn.Linear):
        super().__init__()
        self.base_layer, self.in_features = layer, layer.in_features
        self.lora_A = nn.ModuleDict({"default": nn.Linear(layer.in_features, 2, bias=False)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base_layer(x)

    @property
    def weight(self) -> torch.Tensor:
        return self.base_layer.weight


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            spectral_norm,
            r"0\.weight_u belongs to a spectral norm; .*remove_spectral_norm\(layer\), "
            r"or",
        ),
        (
            parametrizations.spectral_norm,
            r"0\._u belongs to a spectral norm; "
            r".*remove_parametrizations",
        ),
        (
            parametrizations.orthogonal,
            r"belongs to a parametrized weight; "
            r".*remove_parametrizations",
        ),
        (
            pruned,
            r"text_proj\.trunk\.0\.weight_mask is the mask of a pruned layer; .*prune\.remove",
        ),
        (
            pruned_bias,
            r"trunk\.0\.bias_mask is the mask of a pruned layer; expected its bias: "
            r'.*prune\.remove\(layer, "bias"\)',
        ),
        (
            parametrized_bias,
            r"trunk\.0\.parametrizations\.bias\.original belongs to a parametrized bias; expected "
            r'the bias itself: .*remove_parametrizations\(layer, "bias"\)',
        ),
        (
            Adapted,
            r"trunk\.0\.base_layer\.weight belongs to an adapter \(LoRA\) "
            r".*merge_and_unload\(\)",
        ),
    ],
)
def test_another_form_of_a_weight_is_named_with_what_works(
    trunks: TwoTower, poly_file: Path, tmp_path: Path, change: Change, sentence: str
) -> None:
    saved(trunks, change, tmp_path / "m.pth")
    with pytest.raises(CimError, match=sentence + r".*, or both projectors as ONNX"):
        ModelSource(tmp_path / "m.pth", poly_file).load()


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
def test_directions_of_zeros_are_refused(trunks: TwoTower, poly_file: Path, tmp_path: Path) -> None:
    saved(trunks, weight_norm, tmp_path / "m.pth")
    state = torch.load(tmp_path / "m.pth")
    state["text_proj.trunk.0.weight_v"][2] = 0
    torch.save(state, tmp_path / "m.pth")
    with pytest.raises(CimError, match=r"trunk\.0\.weight_v has a direction of zeros, and a"):
        ModelSource(tmp_path / "m.pth", poly_file).load()


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
@pytest.mark.parametrize("beside", ["weight", "parametrizations.weight.original"])
def test_a_weight_in_two_forms_is_refused(
    trunks: TwoTower, poly_file: Path, tmp_path: Path, beside: str
) -> None:
    plain = {key: tensor.clone() for key, tensor in trunks.state_dict().items()}
    saved(trunks, weight_norm, tmp_path / "m.pth")
    state, layer = torch.load(tmp_path / "m.pth"), "text_proj.trunk.0."
    if beside == "weight":
        state[f"{layer}weight"] = plain[f"{layer}weight"]
    else:
        state[f"{layer}{beside}0"] = state[f"{layer}weight_g"]
        state[f"{layer}{beside}1"] = plain[f"{layer}weight"]
    torch.save(state, tmp_path / "m.pth")
    with pytest.raises(CimError, match=r"trunk\.0\.weight .*in two forms; expected one of them"):
        ModelSource(tmp_path / "m.pth", poly_file).load()


def test_lengths_beyond_float32_are_refused(
    trunks: TwoTower, poly_file: Path, tmp_path: Path
) -> None:
    saved(trunks, parametrizations.weight_norm, tmp_path / "m.pth")
    state = torch.load(tmp_path / "m.pth")
    length = "text_proj.trunk.0.parametrizations.weight.original0"
    state[length] = state[length].double() * 1e300
    torch.save(state, tmp_path / "m.pth")
    with pytest.raises(CimError, match=r"original1 makes weights beyond float32; expected a norm"):
        ModelSource(tmp_path / "m.pth", poly_file).load()
