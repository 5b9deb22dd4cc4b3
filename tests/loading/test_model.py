from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from cimtool.base.errors import CimError
from cimtool.ir.program import Graph
from cimtool.loading.model import Model
from cimtool.loading.source import ModelSource
from cimtool.reference.surrogate import Polynomial
from cimtool.simulation.simulator import run_graph
from cimtool.training.towers import TwoTower

D = 5


def assert_same_as_torch(model: Model, towers: TwoTower, unit: bool = False) -> None:
    rng = np.random.default_rng(3)
    pairs: tuple[tuple[Graph, torch.nn.Module], ...] = (
        (model.program.text, towers.text_proj),
        (model.program.video, towers.video_proj),
    )
    for graph, module in pairs:
        x = rng.normal(size=(7, int(graph.inputs["x"].shape[1]))).astype(np.float32)
        if unit:
            x /= np.linalg.norm(x, axis=1, keepdims=True)
        with torch.no_grad():
            mu, logvar = module(torch.from_numpy(x))
        found = run_graph(graph, {"x": x.astype(np.float64)})
        np.testing.assert_allclose(found["mu"], mu.numpy(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found["s"], np.exp(logvar.numpy()), rtol=1e-5, atol=1e-6)


def nested(towers: TwoTower, text: str, video: str) -> dict[str, Any]:
    return {text: towers.text_proj.state_dict(), video: towers.video_proj.state_dict()}


FORMS: dict[str, Callable[[TwoTower], dict[str, Any]]] = {
    "prefixes": lambda t: t.state_dict(),
    "nested": lambda t: nested(t, "text_proj", "video_proj"),
    "short": lambda t: nested(t, "text", "video"),
    "images": lambda t: nested(t, "text_projector", "image_projector"),
    "wrapped": lambda t: {"epoch": 3, "state_dict": t.state_dict(), "optimizer": {"lr": 0.1}},
    "model_state_dict": lambda t: {"model_state_dict": nested(t, "txt", "img")},
    "parallel": lambda t: {f"module.{k}": v for k, v in t.state_dict().items()},
    "parallel inside": lambda t: {
        part: {f"module.{k}": v for k, v in state.items()}
        for part, state in nested(t, "text_proj", "video_proj").items()
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_trunk_computes_what_torch_does(
    tmp_path: Path, trunks: TwoTower, poly_file: Path, polynomial: Polynomial, form: str
) -> None:
    path = tmp_path / "net.pth"
    torch.save(FORMS[form](trunks), path)
    model = ModelSource(path, poly_file).load()
    assert_same_as_torch(model, trunks)
    assert (model.name, model.layout, model.unit_rows) == ("net", "trunk", False)
    assert (model.text_width, model.video_width, model.dimension) == (6, 8, D)
    assert model.head.polynomial == polynomial
    assert (model.a, model.b, model.samples) == (0.1, 0.5, 10)
    names = [node.name for node in model.program.text.nodes[:9]]
    assert names == ["fc1", "bn1", "relu1", "fc2", "bn2", "relu2", "mu", "logvar", "s"]
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert model.files[0] == (str(path), digest)


def test_safetensors(tmp_path: Path, trunks: TwoTower, poly_file: Path) -> None:
    save_file(trunks.state_dict(), tmp_path / "net.safetensors")
    assert_same_as_torch(ModelSource(tmp_path / "net.safetensors", poly_file).load(), trunks)


def test_two_branch_brings_its_polynomial_in_its_own_statistics(
    tmp_path: Path, branches: TwoTower, branch_content: dict[str, Any], polynomial: Polynomial
) -> None:
    torch.save(branch_content, tmp_path / "net.pth")
    model = ModelSource(tmp_path / "net.pth", a=0.2, b=0.3).load()
    assert_same_as_torch(model, branches, unit=True)
    assert (model.layout, model.unit_rows, model.dimension) == ("two-branch", True, D)
    assert (model.a, model.b, model.samples) == (0.2, 0.3, None)
    own = replace(polynomial, a=None, b=None, K=None)
    assert model.head.polynomial == replace(own, scale_ed=D, scale_vd=D * D)
    ed, vd = np.linspace(1, 4, 9), np.linspace(2, 7, 9)
    np.testing.assert_allclose(
        model.head.polynomial.evaluate(ed, vd), own.evaluate(ed / D, vd / D**2), rtol=1e-12
    )
    names = [node.name for node in model.program.text.nodes[:10]]
    assert names == [
        *("mu_proj.0", "mu_proj.relu", "mu_proj.3", "mu_sum", "mu"),
        *("logvar_proj.0", "logvar_proj.relu", "logvar_proj.3", "logvar", "s"),
    ]


def test_the_score_is_the_polynomial_of_the_statistics(
    tmp_path: Path, trunks: TwoTower, poly_file: Path, polynomial: Polynomial
) -> None:
    torch.save(trunks.state_dict(), tmp_path / "net.pth")
    program = ModelSource(tmp_path / "net.pth", poly_file).load().program
    rng = np.random.default_rng(0)
    text = run_graph(program.text, {"x": rng.normal(size=(3, 6))})
    video = run_graph(program.video, {"x": rng.normal(size=(4, 8))})
    inputs = {f"text.{k}": v for k, v in text.items()} | {f"video.{k}": v for k, v in video.items()}
    delta = text["mu"][:, None] - video["mu"]
    s = text["s"][:, None] + video["s"]
    ed, vd = (delta**2 + s).sum(-1), (2 * s**2 + 4 * delta**2 * s).sum(-1)
    wanted = polynomial.evaluate(ed, vd)
    np.testing.assert_allclose(run_graph(program.score, inputs)["logit"], wanted, rtol=1e-9)


def test_without_a_polynomial_the_way_out_is_named(tmp_path: Path, trunks: TwoTower) -> None:
    torch.save(trunks.state_dict(), tmp_path / "net.pth")
    with pytest.raises(CimError, match=r"net\.pth: holds no polynomial; .*`cimtool fit`"):
        ModelSource(tmp_path / "net.pth").load()


def test_a_probability_stays_one(tmp_path: Path, branch_content: dict[str, Any]) -> None:
    branch_content["poly"]["fit_logit"] = False
    torch.save(branch_content, tmp_path / "net.pth")
    assert not ModelSource(tmp_path / "net.pth").load().head.polynomial.fit_logit


def without(key: str) -> Callable[[dict[str, Any]], None]:
    return lambda state: state.pop(key)


def shaped(key: str, *shape: int) -> Callable[[dict[str, Any]], None]:
    return lambda state: state.update({key: torch.ones(shape)})


def filled(key: str, value: float) -> Callable[[dict[str, Any]], None]:
    return lambda state: state.update({key: torch.full_like(state[key], value)})


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (without("text_proj.trunk.0.bias"), r"net\.pth: text_proj\.trunk\.0\.bias is missing"),
        (without("text_proj.trunk.3.weight"), r"text_proj\.trunk\.3\.weight is missing"),
        (without("text_proj.mu.weight"), r"text_proj\.mu\.weight is missing"),
        (without("video_proj.logvar.bias"), r"video_proj\.logvar\.bias is missing"),
        (without("text_proj.trunk.4.running_var"), r"trunk\.4\.running_var is missing"),
        (without("text_proj.trunk.1.weight"), r"trunk\.1\.weight is missing .*shape \[9\]"),
        (
            shaped("text_proj.trunk.3.weight", 9, 8),
            r"net\.pth: text_proj\.trunk\.3\.weight has shape \[9, 8\]; expected \[any, 9\]",
        ),
        (shaped("text_proj.trunk.1.running_mean", 4), r"running_mean has shape \[4\]; .*\[9\]"),
        (shaped("text_proj.mu.bias", 4), r"text_proj\.mu\.bias has shape \[4\]; expected \[5\]"),
        (shaped("text_proj.logvar.weight", 4, 9), r"shape \[4, 9\]; expected \[5, 9\]"),
        (filled("text_proj.mu.bias", np.nan), r"net\.pth: text_proj\.mu\.bias holds nan"),
        (filled("video_proj.trunk.1.running_var", np.inf), r"running_var holds inf"),
        (filled("text_proj.trunk.1.running_var", -1.0), r"running_var holds -1\.0; expected"),
        (shaped("text_proj.scale", 1), r'text_proj\.scale is not part of layout "trunk"'),
        (shaped("text_proj.mu.weight_g", 5), r"text_proj\.mu\.weight_g is not part of layout"),
        (shaped("text_proj.extra.weight", 5, 5), r"3 Linear before the heads .*expected 2"),
        (
            shaped("text.mu.weight", 5, 5),
            r"under text_proj and under text; say which with layer_map",
        ),
    ],
)
def test_a_wrong_trunk_is_one_sentence(
    tmp_path: Path,
    trunks: TwoTower,
    poly_file: Path,
    spoil: Callable[[dict[str, Any]], None],
    message: str,
) -> None:
    state = dict(trunks.state_dict())
    spoil(state)
    torch.save(state, tmp_path / "net.pth")
    with pytest.raises(CimError, match=message) as caught:
        ModelSource(tmp_path / "net.pth", poly_file).load()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (without("text_proj.mu_proj.3.bias"), r"net\.pth: text_proj\.mu_proj\.3\.bias is missing"),
        (
            shaped("text_proj.mu_proj.3.weight", 4, 9),
            r"mu_proj\.3\.weight has shape \[4, 9\]; expected \[5, 9\]",
        ),
        (shaped("text_proj.logvar_proj.0.weight", 9, 4), r"shape \[9, 4\]; expected \[any, 5\]"),
        (shaped("text_proj.norm.weight", 5), r"text_proj\.norm\.weight is not part of layout"),
    ],
)
def test_a_wrong_two_branch_is_one_sentence(
    tmp_path: Path,
    branches: TwoTower,
    poly_file: Path,
    spoil: Callable[[dict[str, Any]], None],
    message: str,
) -> None:
    state = dict(branches.state_dict())
    spoil(state)
    torch.save(state, tmp_path / "net.pth")
    with pytest.raises(CimError, match=message):
        ModelSource(tmp_path / "net.pth", poly_file).load()


def test_both_modalities_are_wanted_in_one_layout_and_one_space(
    tmp_path: Path, trunks: TwoTower, branches: TwoTower, poly_file: Path
) -> None:
    path = tmp_path / "net.pth"
    torch.save({"text": trunks.text_proj.state_dict()}, path)
    with pytest.raises(CimError, match=r'holds no weights under "video_proj\."; .*layer_map'):
        ModelSource(path, poly_file).load()
    mixed = {"text": trunks.text_proj.state_dict(), "video": branches.video_proj.state_dict()}
    torch.save(mixed, path)
    with pytest.raises(CimError, match='text is of layout "trunk" and video of "two-branch"'):
        ModelSource(path, poly_file).load()
    other = trunks.video_proj.state_dict()
    other |= {"mu.weight": torch.ones(4, 9), "logvar.weight": torch.ones(4, 9)}
    other |= {"mu.bias": torch.ones(4), "logvar.bias": torch.ones(4)}
    torch.save({"text": trunks.text_proj.state_dict(), "video": other}, path)
    with pytest.raises(CimError, match="text gives 5 dimensions and video 4"):
        ModelSource(path, poly_file).load()
    torch.save({"text": {"w.weight": torch.ones(2, 2)}, "video": {"w.weight": torch.ones(2)}}, path)
    with pytest.raises(CimError, match=r"is of no known layout .* expected .*trunk: .*two-branch:"):
        ModelSource(path, poly_file).load()
