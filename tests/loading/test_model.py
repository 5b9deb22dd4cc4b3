from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import NodeProto, helper
from safetensors.torch import save_file

from cimtool import api
from cimtool.base.errors import CimError
from cimtool.emit.onnx import onnx_files
from cimtool.emit.runtime import Session
from cimtool.hardware.settings import resolve
from cimtool.hardware.target import load_target
from cimtool.ir.arithmetic import Mvm
from cimtool.ir.heads import dimension
from cimtool.ir.program import MODALITIES, Graph, Program
from cimtool.ir.surrogate import Polynomial, exponents
from cimtool.loading.checkpoint import read_checkpoint
from cimtool.loading.model import Model
from cimtool.loading.onnx.graph import read_onnx_graph
from cimtool.loading.onnx.towers import translate
from cimtool.loading.source import ModelSource
from cimtool.passes.base import Job
from cimtool.passes.fold import FoldPass
from cimtool.simulation.simulator import Simulator
from cimtool.training.fine_tune import with_tensors
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
        found = graph.run({"x": x.astype(np.float64)})
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
    own = replace(polynomial, a=0.2, b=0.3, K=None)
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
    text = program.text.run({"x": rng.normal(size=(3, 6))})
    video = program.video.run({"x": rng.normal(size=(4, 8))})
    inputs = {f"text.{k}": v for k, v in text.items()} | {f"video.{k}": v for k, v in video.items()}
    delta = text["mu"][:, None] - video["mu"]
    s = text["s"][:, None] + video["s"]
    ed, vd = (delta**2 + s).sum(-1), (2 * s**2 + 4 * delta**2 * s).sum(-1)
    wanted = polynomial.evaluate(ed, vd)
    np.testing.assert_allclose(program.score.run(inputs)["logit"], wanted, rtol=1e-9)


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
        (shaped("text_proj.extra.weight", 5, 5), r"3 Linear before the heads .*and layout trunk 2"),
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
    with pytest.raises(CimError, match='text has layout "trunk" and video has "two-branch"'):
        ModelSource(path, poly_file).load()
    other = trunks.video_proj.state_dict()
    other |= {"mu.weight": torch.ones(4, 9), "logvar.weight": torch.ones(4, 9)}
    other |= {"mu.bias": torch.ones(4), "logvar.bias": torch.ones(4)}
    torch.save({"text": trunks.text_proj.state_dict(), "video": other}, path)
    with pytest.raises(CimError, match="text gives 5 dimensions and video 4"):
        ModelSource(path, poly_file).load()
    torch.save({"text": {"w.weight": torch.ones(2, 2)}, "video": {"w.weight": torch.ones(2)}}, path)
    with pytest.raises(
        CimError,
        match=r"text has no known layout \(its layers: w\); export .*\(2, WIDTH\).*; or in Python "
        r".*; or .* with layer_map, if it is of a layout \(.*trunk, two-branch\)",
    ):
        ModelSource(path, poly_file).load()


WriteOnnx = Callable[..., Path]
node = helper.make_node


def export(module: torch.nn.Module, width: int, path: Path) -> Path:
    """Write a module that returns (mu, logvar) as torch's users do."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # this exporter is said to be an old one
        torch.onnx.export(
            module, (torch.zeros(2, width),), str(path), dynamo=False, input_names=["x"],
            output_names=["mu", "logvar"], dynamic_axes={"x": {0: "n"}},
        )  # fmt: skip
    return path


def export_both(towers: TwoTower, widths: tuple[int, int], folder: Path) -> tuple[Path, Path]:
    text = export(towers.text_proj, widths[0], folder / "text.onnx")
    return text, export(towers.video_proj, widths[1], folder / "video.onnx")


def folded(program: Program, rows: list[np.ndarray]) -> list[Mvm]:
    """The layers of both projectors after `fold`."""
    job = Job(resolve(load_target("ideal"), None, {}), rows[0], rows[1], lambda line: None)
    graphs = FoldPass().apply(program, job)
    return [n.op for g in (graphs.text, graphs.video) for n in g.nodes if isinstance(n.op, Mvm)]


def test_an_exported_trunk_folds_to_the_numbers_of_its_checkpoint(
    tmp_path: Path, trunks: TwoTower, poly_file: Path
) -> None:
    torch.save(trunks.state_dict(), tmp_path / "net.pth")
    files = export_both(trunks, (6, 8), tmp_path)
    models = (
        ModelSource(tmp_path / "net.pth", poly_file).load(),
        ModelSource(files, poly_file).load(),
    )
    assert (models[1].name, models[1].layout) == ("text-video", "onnx")
    assert [Path(file).name for file, _ in models[1].files] == [
        "text.onnx", "video.onnx", poly_file.name
    ]  # fmt: skip
    assert models[0].dimension == models[1].dimension == D
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(20, width)).astype(np.float32) for width in (6, 8)]
    layers = [folded(model.program, rows) for model in models]
    assert len(layers[0]) == len(layers[1]) == 8
    for ours, theirs in zip(*layers, strict=True):
        np.testing.assert_allclose(ours.weight, theirs.weight, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(ours.bias, theirs.bias, rtol=1e-6, atol=1e-6)
    logits = [Simulator(model.program).scores(*rows) for model in models]
    np.testing.assert_allclose(*logits, rtol=1e-6)


def test_an_exported_two_branch_model_keeps_its_residual_and_norm(
    tmp_path: Path, branches: TwoTower, poly_file: Path
) -> None:
    files = export_both(branches, (D, D), tmp_path)
    x = np.random.default_rng(0).normal(size=(7, D)).astype(np.float32)
    found = Simulator(ModelSource(files).load_projectors().program).encode("text", x)
    with torch.no_grad():
        mu, logvar = branches.text_proj(torch.from_numpy(x))
    np.testing.assert_allclose(found["mu"], mu, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["s"], np.exp(logvar), rtol=1e-5)


@pytest.mark.thorough("the newer exporter is in the first tier by onnx/test_architectures.py")
def test_the_newer_exporter_of_torch(tmp_path: Path, trunks: TwoTower) -> None:
    pytest.importorskip("onnxscript")
    torch.onnx.export(
        trunks.text_proj, (torch.zeros(2, 6),), str(tmp_path / "t.onnx"), dynamo=True,
        input_names=["x"], output_names=["mu", "logvar"], external_data=False,
        dynamic_shapes={"x": {0: torch.export.Dim("n")}}, verbose=False,
    )  # fmt: skip
    assert dimension(translate(read_onnx_graph(tmp_path / "t.onnx"))) == D


def activated(seed: int) -> tuple[list[NodeProto], dict[str, np.ndarray]]:
    """A projector by hand with every activation: its nodes and weights."""
    rng = np.random.default_rng(seed)
    shapes = {"W1": (6, 9), "W2": (9, 9), "W3": (9, 9), "W4": (9, 9), "Wm": (9, D), "Wl": (9, D)}
    weights = {name: rng.normal(size=s).astype(np.float32) / 2 for name, s in shapes.items()}
    weights |= {f"b{i}": rng.normal(size=9).astype(np.float32) for i in range(1, 5)}
    weights["variance"] = rng.uniform(0.5, 2, 9).astype(np.float32)
    weights |= {"low": np.float32(-3), "high": np.float32(2), "six": np.float32(6)}
    nodes = [
        node("Gemm", ["x", "W1", "b1"], ["h1"]),
        node("BatchNormalization", ["h1", "b1", "b2", "b3", "variance"], ["n1"]),
        node("LeakyRelu", ["n1"], ["a1"], alpha=0.1),
        node("MatMul", ["a1", "W2"], ["p2"]), node("Add", ["p2", "b2"], ["h2"]),
        node("Tanh", ["h2"], ["a2"]),
        node("Gemm", ["a2", "W3", "b3"], ["h3"]), node("Sigmoid", ["h3"], ["a3"]),
        node("Gemm", ["a3", "W4", "b4"], ["h4"]), node("Clip", ["h4", "low", "six"], ["a4"]),
        node("Add", ["a3", "a4"], ["a5"]),
        node("MatMul", ["a5", "Wm"], ["mu"]),
        node("MatMul", ["a3", "Wl"], ["raw"]), node("Clip", ["raw", "low", "high"], ["logvar"]),
    ]  # fmt: skip
    return nodes, weights


@pytest.fixture
def by_hand(write_onnx: WriteOnnx) -> tuple[Path, Path]:
    return (
        write_onnx(*activated(1), name="text.onnx"),
        write_onnx(*activated(2), name="video.onnx"),
    )


@pytest.fixture
def rows() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    return {modality: rng.normal(size=(60, 6)).astype(np.float32) for modality in MODALITIES}


def test_the_real_program_is_what_the_file_computes(
    by_hand: tuple[Path, Path], rows: dict[str, np.ndarray]
) -> None:
    simulator = Simulator(ModelSource(by_hand).load_projectors().program)
    for modality, file in zip(MODALITIES, by_hand, strict=True):
        session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
        mu, logvar = session.run(["mu", "logvar"], {"x": rows[modality]})
        found = simulator.encode(modality, rows[modality])
        np.testing.assert_allclose(found["mu"], mu, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(found["s"], np.exp(logvar), rtol=1e-5)


@pytest.mark.parametrize("target", ["ideal", "isaac-rram-128"])
def test_what_is_compiled_is_the_same_to_the_last_bit(
    by_hand: tuple[Path, Path], rows: dict[str, np.ndarray], poly_file: Path, target: str
) -> None:
    compiled = api.prepare(by_hand, poly_file, calibration=rows, drift="given", target=target)
    stages = {stage.name: stage.program for stage in compiled.stages}
    final = compiled.stages[-1].program
    files = onnx_files(final, stages["calibrated"])
    simulator = Simulator(final)
    features = {modality: simulator.encode(modality, rows[modality]) for modality in MODALITIES}
    for modality, own in features.items():
        for name, value in Session(files[f"{modality}.onnx"]).encode(rows[modality]).items():
            np.testing.assert_array_equal(value, own[name])
    logits = simulator.score(features["text"], features["video"])
    score = Session(files["score.onnx"]).score(features["text"], features["video"])
    np.testing.assert_array_equal(score, logits)
    plain = Session(files["float.onnx"]).run(rows)["logit"]
    trained = Simulator(stages["trained"]).scores(rows["text"], rows["video"])
    np.testing.assert_allclose(plain, trained, rtol=1e-4, atol=1e-4 * np.abs(trained).max())
    notes = "\n".join(compiled.notes)
    assert "text.a2: tanh on [-" in notes
    assert "video.a3: sigmoid on [-" in notes


def layer_normed(seed: int) -> tuple[list[NodeProto], dict[str, np.ndarray]]:
    """A projector whose log-variance is bounded by its layer norm alone, far beyond what it is."""
    rng = np.random.default_rng(seed)
    shapes = {"W1": (6, 256), "Wm": (256, D), "Wl": (256, D)}
    weights = {name: rng.normal(size=s).astype(np.float32) / 16 for name, s in shapes.items()}
    weights |= {"gain": np.ones(256, np.float32), "offset": np.zeros(256, np.float32)}
    nodes = [
        node("MatMul", ["x", "W1"], ["h"]),
        node("LayerNormalization", ["h", "gain", "offset"], ["n"], axis=-1),
        node("MatMul", ["n", "Wm"], ["mu"]),
        node("MatMul", ["n", "Wl"], ["logvar"]),
    ]  # fmt: skip
    return nodes, weights


@pytest.mark.thorough("more of the same kind", quick=("1",))
@pytest.mark.parametrize("degree", [1, 2, 3, 4])
def test_the_float_file_is_centred_on_the_calibrated_range(
    write_onnx: WriteOnnx, rows: dict[str, np.ndarray], tmp_path: Path, degree: int
) -> None:
    """Proved bounds of exp after a layer norm are finite, and no place to centre powers on."""
    files = (
        write_onnx(*layer_normed(1), name="text.onnx"),
        write_onnx(*layer_normed(2), name="video.onnx"),
    )
    coeff = tuple(0.3 ** (k + 1) for k in range(len(exponents(degree))))
    poly = tmp_path / "poly.json"
    poly.write_text(json.dumps({"degree": degree, "coeff": coeff, "bias": -1.0, "scale_ed": 1e3}))
    bundle = api.compile(
        files, poly, calibration=rows, drift="given", target="ideal", output=tmp_path / "bundle"
    )
    trained = Simulator(bundle.stages[0].program)
    assert np.max(trained.program.score.types["vd"].hi) > 1e20
    plain = Session(bundle.folder / "float.onnx").run(rows)["logit"]
    expected = trained.scores(rows["text"], rows["video"])
    np.testing.assert_allclose(plain, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


def test_two_projectors_meet_in_one_space(
    write_onnx: WriteOnnx, by_hand: tuple[Path, Path], poly_file: Path
) -> None:
    nodes = [node("Identity", ["x"], ["mu"]), node("Identity", ["x"], ["logvar"])]
    other = write_onnx(nodes, {}, name="other.onnx")
    with pytest.raises(
        CimError, match=r"text\.onnx gives 5 dimensions and .*other\.onnx 6; expected the same"
    ):
        ModelSource((by_hand[0], other), poly_file).load()


def test_what_two_files_lack_or_have_no_use_for(
    by_hand: tuple[Path, Path], poly_file: Path, tmp_path: Path
) -> None:
    with pytest.raises(CimError, match=r"text\.onnx, .*video\.onnx: holds no polynomial; .*poly"):
        ModelSource(by_hand).load()
    with pytest.raises(CimError, match=r"map\.toml: a map names the layers of a checkpoint"):
        ModelSource(by_hand, poly_file, layer_map=tmp_path / "map.toml").load()
    with pytest.raises(
        CimError, match=r"text\.onnx: is one projector; expected a checkpoint of both"
    ):
        ModelSource(by_hand[0], poly_file).load()


def test_points_need_a_head_that_takes_them(write_onnx: WriteOnnx, poly_file: Path) -> None:
    point = write_onnx([node("Tanh", ["x"], ["embedding"])], {}, outputs=("embedding",))
    with pytest.raises(CimError, match=r"give points without a variance, and no head is named"):
        ModelSource((point, point), poly_file).load()
    with pytest.raises(CimError, match=r'head "pcme-poly" needs a variance'):
        ModelSource((point, point), poly_file, head="pcme-poly").load()
    x = np.random.default_rng(0).normal(size=(3, 6)).astype(np.float32)
    program = ModelSource((point, point), head="cosine").load().program
    assert np.diag(Simulator(program).scores(x, x)) == pytest.approx(1)


EIGHTS = "e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0fnu"


@pytest.mark.parametrize(
    ("kind", "suffix"),
    [*((kind, "pth") for kind in EIGHTS), *((kind, "safetensors") for kind in EIGHTS[:2])],
)
@pytest.mark.parametrize("key", ["text_projection.weight", "text_projection", "text_proj.0.weight"])
def test_float8_weights_are_refused(key: str, kind: str, suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"m.{suffix}"
    video = key.replace("text_projection", "visual_projection").replace("text_proj.", "video_proj.")
    codes = torch.ones(5, 6).to(getattr(torch, f"float8_{kind}"))
    held = {key: codes, video: torch.ones(5, 6)}
    (save_file if suffix == "safetensors" else torch.save)(held, file)
    sentence = rf"{key} holds float8_{kind} numbers, whose scale is not known; expected floating"
    with pytest.raises(CimError, match=sentence):
        ModelSource(file, head="cosine").load()


@pytest.mark.parametrize("scale", ["weight_scale", "weight_scale_inv", "input_scale"])
def test_a_scale_beside_a_projection_is_named(scale: str, tmp_path: Path) -> None:
    file = tmp_path / "m.safetensors"
    held = {f"{name}.weight": torch.ones(5, 6) for name in ("text_projection", "visual_projection")}
    save_file({**held, f"text_projection.{scale}": torch.ones(1)}, file)
    with pytest.raises(
        CimError, match=rf"text_projection\.{scale} belongs to a quantized weight; expec"
    ):
        ModelSource(file, head="cosine").load()


def test_float8_tensors_of_an_encoder_are_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "m.pth"
    held = {f"{name}.weight": torch.ones(5, 6) for name in ("text_projection", "visual_projection")}
    torch.save({**held, "encoder.weight": torch.ones(5, 6).to(torch.float8_e4m3fn)}, file)
    assert ModelSource(file, head="cosine").load().text_width == 6
    saved = with_tensors(read_checkpoint(file).content, {})
    assert saved["encoder.weight"].dtype == torch.float32
