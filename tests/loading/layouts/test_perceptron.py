from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from cimtool.base.errors import CimError
from cimtool.ir.heads import dimension
from cimtool.loading.checkpoint import Checkpoint, read_checkpoint
from cimtool.loading.layer_map import LayerMap, ModalityMap, read_layer_map
from cimtool.loading.model import read_towers
from cimtool.loading.onnx.modules import model_from_modules
from cimtool.loading.score import ScoreOptions
from cimtool.loading.source import ModelSource
from cimtool.training.models.perceptron import perceptron

WIDTH, HIDDEN, D = 6, 9, 4


class Gaussian(nn.Module):
    """An encoder of two layers with heads for mu and logvar."""

    def __init__(self, activation: str) -> None:
        super().__init__()
        self.layers = perceptron((WIDTH, HIDDEN, HIDDEN), activation, activation)
        self.mu = nn.Linear(HIDDEN, D)
        self.logvar = nn.Linear(HIDDEN, D, bias=False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.layers(x)
        return self.mu(hidden), self.logvar(hidden)


def arrays(module: nn.Module) -> dict[str, np.ndarray]:
    return {key: tensor.numpy() for key, tensor in module.state_dict().items()}


def checkpoint(module: nn.Module, **values: Any) -> Checkpoint:
    return Checkpoint("m.pth", {"text": arrays(module), "video": arrays(module), **values})


def of_tower(held: Checkpoint, rows: torch.Tensor) -> dict[str, np.ndarray]:
    _, (tower, _) = read_towers(held)
    return tower.run({"x": rows.double().numpy()})


@pytest.fixture
def rows() -> torch.Tensor:
    return torch.randn(5, WIDTH, generator=torch.Generator().manual_seed(3))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("activation", ["relu", "tanh", "leaky-relu", "none"])
@pytest.mark.parametrize("last", ["tanh", "none"])
@pytest.mark.parametrize("hidden", [(), (HIDDEN,), (HIDDEN, HIDDEN + 1)])
def test_a_chain_computes_what_torch_computes(
    rows: torch.Tensor, activation: str, last: str, hidden: tuple[int, ...]
) -> None:
    module = perceptron((WIDTH, *hidden, D), activation, last)
    held = checkpoint(module, activation=activation, output_activation=last)
    found = of_tower(held, rows)
    assert list(found) == ["mu"]
    np.testing.assert_allclose(found["mu"], module(rows).detach().numpy(), atol=1e-6)


@pytest.mark.parametrize("activation", ["relu", "tanh", "leaky-relu"])
def test_heads_follow_the_last_activation(rows: torch.Tensor, activation: str) -> None:
    module = Gaussian(activation)
    found = of_tower(checkpoint(module, activation=activation), rows)
    mu, logvar = (one.detach().numpy() for one in module(rows))
    np.testing.assert_allclose(found["mu"], mu, atol=1e-6)
    np.testing.assert_allclose(found["s"], np.exp(logvar), rtol=1e-5)


def test_the_slope_is_the_one_that_is_said(rows: torch.Tensor) -> None:
    module = nn.Sequential(nn.Linear(WIDTH, D), nn.LeakyReLU(0.3), nn.Linear(D, D))
    held = checkpoint(module, activation="leaky-relu", negative_slope=0.3)
    wanted = module(rows).detach().numpy()
    np.testing.assert_allclose(of_tower(held, rows)["mu"], wanted, atol=1e-6)


def test_extents_of_a_tower() -> None:
    for module in (perceptron((WIDTH, D), "tanh", "tanh"), Gaussian("tanh")):
        layout, (tower, _) = read_towers(checkpoint(module, activation="tanh"))
        assert (layout.name, tower.extent("x"), dimension(tower)) == ("perceptron", WIDTH, D)


def test_a_map_says_the_activation_and_names_the_heads(tmp_path: Path, rows: torch.Tensor) -> None:
    module = Gaussian("tanh")
    names = {"mu.": "head_a.", "logvar.": "head_b."}
    state = arrays(module)
    for old, new in names.items():
        state = {key.replace(old, new): value for key, value in state.items()}
    held = Checkpoint("m.pth", {"text": state, "video": state})
    with pytest.raises(CimError, match=r"has no known layout.*activation.*layer_map.*perceptron"):
        read_towers(held)
    text = 'activation = "tanh"\nmu = "head_a"\nlogvar = "head_b"\n'
    (tmp_path / "map.toml").write_text(f"[text]\n{text}[video]\n{text}")
    _, (tower, _) = read_towers(held, read_layer_map(tmp_path / "map.toml"))
    found = tower.run({"x": rows.double().numpy()})
    np.testing.assert_allclose(found["mu"], module(rows)[0].detach().numpy(), atol=1e-6)


def test_a_file_is_read_with_its_head(tmp_path: Path) -> None:
    module = perceptron((WIDTH, HIDDEN, D), "tanh", "tanh")
    state = {"text_proj": module.state_dict(), "video_proj": module.state_dict()}
    values = {"activation": "tanh", "output_activation": "tanh", "head": "euclidean"}
    torch.save({**state, **values}, tmp_path / "m.pth")
    model = ModelSource(tmp_path / "m.pth").load()
    assert (model.layout, model.head.name, model.dimension) == ("perceptron", "euclidean", D)
    kinds = [node.op.name for node in model.program.text.nodes[:4]]
    assert kinds == ["mvm", "tanh", "mvm", "tanh"]


def said(**values: Any) -> LayerMap:
    return dict.fromkeys(("text", "video"), ModalityMap(values=values))


def test_a_sorted_file_needs_numbered_names(tmp_path: Path) -> None:
    module = perceptron((WIDTH, WIDTH, WIDTH), "tanh", "none")
    for names, told in ((("0", "2"), True), (("first", "other"), False)):
        renamed = {
            f"{part}.{name}.{key}": tensor.clone()
            for part in ("text", "video")
            for name, layer in zip(names, (module[0], module[2]), strict=True)
            for key, tensor in layer.state_dict().items()
        }
        save_file(renamed, tmp_path / "m.safetensors")
        held = read_checkpoint(tmp_path / "m.safetensors")
        if told:
            _, (tower, _) = read_towers(held, said(activation="tanh"))
            assert dimension(tower) == WIDTH
        else:
            with pytest.raises(CimError, match=r"order of the layers first, other is not known"):
                read_towers(held, said(activation="tanh"))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"activation": "tahn"}, r'm\.pth: activation "tahn" is not known: .*mean "tanh"\?'),
        ({"activation": 3}, r'm\.pth: activation "3" is not known: leaky-relu, none, relu, tanh'),
        ({"activation": "relu", "output_activation": "gelu"}, r'output_activation "gelu" is not'),
        (
            {"activation": "leaky-relu", "negative_slope": "steep"},
            r"m\.pth: negative_slope is steep; expected a number between 0 and 1",
        ),
        ({"activation": "leaky-relu", "negative_slope": 0.0}, r"negative_slope is 0\.0; expected"),
    ],
)
def test_values_that_cannot_be_taken(values: dict[str, Any], message: str) -> None:
    with pytest.raises(CimError, match=message):
        read_towers(checkpoint(perceptron((WIDTH, HIDDEN, D), "relu", "none"), **values))


def test_a_mistake_in_the_map_names_the_map(tmp_path: Path) -> None:
    held = checkpoint(perceptron((WIDTH, D), "relu", "none"), activation="relu")
    (tmp_path / "map.toml").write_text("[text]\nactivation = 3\n")
    with pytest.raises(CimError, match=r'map\.toml: activation "3" is not known'):
        read_towers(held, read_layer_map(tmp_path / "map.toml"))


def test_modules_in_memory_are_compared_with_what_was_said() -> None:
    modules = [perceptron((WIDTH, HIDDEN, D), "tanh", "none") for _ in range(2)]
    model = model_from_modules(
        *modules, ScoreOptions(head="euclidean"), layer_map=said(activation="tanh")
    )
    assert model.layout == "perceptron"
    with pytest.raises(CimError, match='read by layout "perceptron" but computes another mu'):
        model_from_modules(
            *modules, ScoreOptions(head="euclidean"), layer_map=said(activation="relu")
        )


def test_layers_that_do_not_chain() -> None:
    module = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN + 1, D))
    message = r"text\.1\.weight has shape \[4, 10\]; expected \[any, 9\]"
    with pytest.raises(CimError, match=message):
        read_towers(checkpoint(module, activation="tanh"))


def test_heads_have_no_activation_behind_them() -> None:
    held = checkpoint(Gaussian("tanh"), activation="tanh", output_activation="tanh")
    with pytest.raises(CimError, match=r"output_activation is tanh, and the heads mu and logvar"):
        read_towers(held)


def test_other_layers_are_not_a_perceptron() -> None:
    module = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, D))
    with pytest.raises(CimError, match="has no known layout"):
        read_towers(checkpoint(module, activation="tanh"))
