"""Models, layers and modalities of any names compile: the bundle's names keep the rule."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from c_tools import differing
from onnx import TensorProto, helper, numpy_helper

import cimtool as library
from cimtool.base.escapes import NAME
from cimtool.bundle.bundle import Bundle, read_bundle
from cimtool.bundle.exporters import Request, export_bundle
from cimtool.cli import run
from cimtool.loading.source import ModelSource

WIDTH = 12
LAYERS = ("/a/l", "/b/l", "/l_3", "/dot.l.2", "/" + "x" * 300, '/\u0441\u043b\u043e\u0439 "*/')
"""Names of layers: some are alike as names of C, one is long, one is no name of C at all."""


def write_tower(file: Path, seed: int) -> None:
    """A projector of layers with these names."""
    rng, nodes, weights, value = np.random.default_rng(seed), [], [], "x"
    for index, name in enumerate(LAYERS):
        weight = rng.normal(0, 0.4, (WIDTH, WIDTH)).astype(np.float32)
        weights.append(numpy_helper.from_array(weight, f"w{index}"))
        nodes.append(helper.make_node("MatMul", [value, f"w{index}"], [f"h{index}"], name))
        nodes.append(helper.make_node("Relu", [f"h{index}"], [f"{name}!"], f"{name}/Relu"))
        value = f"{name}!"
    nodes.append(helper.make_node("MatMul", [value, "w0"], ["mu"], "last"))
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ("n", WIDTH)) for name in ("x", "mu")
    ]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(file))


@pytest.fixture(scope="module")
def towers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("towers")
    files = folder / "le mod\u00e8le@1.onnx", folder / "$(id) ; x.onnx"
    for seed, file in enumerate(files):
        write_tower(file, seed)
    return files


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(3)
    common = rng.normal(size=(64, WIDTH))
    noise = rng.normal(0, 0.1, (2, 64, WIDTH))
    text, video = (common + noise).astype(np.float32)
    file = tmp_path_factory.mktemp("rows") / "rows.npz"
    np.savez(file, text=text, video=video)
    return file


def compiled(towers: tuple[Path, Path], rows: Path, output: Path | None = None) -> Bundle:
    return library.compile(
        towers,
        calibration=rows,
        drift="given",
        target="isaac-rram-128",
        head="cosine",
        adc_bits=4,
        output=output,
    )


def names_of(bundle: Bundle) -> list[str]:
    """Every name in a bundle that was read."""
    graphs = [graph for stage in bundle.stages for graph in stage.program.graphs]
    inner = [name for g in graphs for name in (*g.inputs, *g.outputs, *g.by_name)]
    return [bundle.model.name, bundle.target.name, *bundle.model.called, *inner]


@pytest.mark.thorough("a bundle more")
def test_towers_of_any_names_compile_to_names(
    towers: tuple[Path, Path], rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = compiled(towers, rows)
    bundle = read_bundle(made.folder)
    assert all(map(NAME.fullmatch, names_of(bundle)))
    assert bundle.model.name == "le_mod_le_1-_id_x-a19cc342"
    assert made.folder == Path("exports") / f"{bundle.model.name}@isaac-rram-128"
    again = compiled(towers, rows, tmp_path / "again")
    assert {one.name: one.read_bytes() for one in made.folder.iterdir()} == {
        one.name: one.read_bytes() for one in again.folder.iterdir()
    }
    layers = [name for name in bundle.program.text.by_name if name.startswith(("l", "dot"))]
    assert {"l", "l.3", "l_3", "dot_l_2"} <= set(layers)


@pytest.mark.thorough("more circuits and faults; each simulator has one in the first tier")
def test_its_hand_off_compiles_and_no_value_differs(
    towers: tuple[Path, Path], rows: Path, tmp_path: Path
) -> None:
    bundle = compiled(towers, rows, tmp_path / "bundle")
    export_bundle(bundle, "handoff", tmp_path / "out", Request(layers="text.l*"))
    compared, wrong = differing(tmp_path / "out")
    assert compared > 1000
    assert wrong == 0


def test_files_whose_names_look_alike_make_two_models(
    towers: tuple[Path, Path], tmp_path: Path
) -> None:
    names = set()
    for name in ("a b.onnx", "a_b.onnx", "a@b.onnx", "a/b.onnx"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        os.link(towers[0], file)
        names.add(ModelSource((file, file), head="cosine").load().name)
    assert len(names) == 4


def test_a_bundle_reads_the_modalities_of_its_data_by_their_own_names(tmp_path: Path) -> None:
    pair = ("\u0442\u0435\u043a\u0441\u0442", "video clips <b>")
    rng = np.random.default_rng(0)
    common = rng.normal(size=(60, 6))
    held = {name: (common + 0.5 * rng.normal(size=(60, 6))).astype(np.float32) for name in pair}
    right = np.arange(60)[::-1].copy()
    data = tmp_path / "rows.npz"
    np.savez(data, **held, other=np.eye(3), **{f"{pair[0]}_to_{pair[1]}": right})
    options = {"model": "two-branch", "epochs": 1, "batch": 16, "options": {"model.hidden": 8}}
    library.train(data, tmp_path / "run", modalities=pair, **options)
    made = library.compile(
        tmp_path / "run/model.pth",
        calibration=data,
        drift="given",
        target="ideal",
        head="cosine",
        output=tmp_path / "bundle",
    )
    bundle = read_bundle(made.folder)
    assert bundle.model.modalities == bundle.model.called
    assert all(map(NAME.fullmatch, bundle.model.called))
    matcher = library.load(bundle.folder)
    first, second = held.values()
    scores = matcher.score(matcher.encode_text(first), matcher.encode_video(second))
    np.testing.assert_array_equal(matcher.scores(data), scores)
    found = library.evaluate(data, bundle.folder, calibration_rows="allow", resamples=2)
    assert {one.modalities for one in found.scores} == {pair}
    simulate = ["simulate", str(bundle.folder), "--inputs", str(data), "-o"]
    assert run([*simulate, str(tmp_path / "scores.npz")]) == 0
    assert (
        run(["verify", str(bundle.folder), "--data", str(data), "--calibration-rows", "allow"]) == 0
    )
    page = (bundle.folder / "report.html").read_text("utf-8")
    assert "video clips &lt;b&gt;" in page
    assert "<b>" not in page
