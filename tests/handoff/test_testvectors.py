"""Test vectors: taps that follow from each other, ends that are the simulator's and ONNX's."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ranges_apart import with_ranges_apart

from cimtool import api
from cimtool.base.arrays import Array, IntArray
from cimtool.base.errors import CimError
from cimtool.bundle.bundle import Bundle, read_bundle
from cimtool.bundle.exporters import Request, export_bundle
from cimtool.demo.data import DemoFiles
from cimtool.emit.runtime import Session
from cimtool.handoff.formats import hex_lines
from cimtool.handoff.stimuli import FIXED_ROWS, RANDOM_ROWS, REAL_ROWS, input_limits
from cimtool.handoff.taps import layer_sum, taps
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.integer import Dequantize, Quantize
from cimtool.loading.embeddings import read_embeddings
from cimtool.simulation.simulator import Simulator


class Exported:
    """A folder of test vectors, read back."""

    def __init__(self, folder: Path, bundle: Bundle):
        self.folder, self.bundle = folder, bundle
        self.layout: dict[str, Any] = json.loads((folder / "layout.json").read_text())

    def __getitem__(self, name: str) -> IntArray:
        values: IntArray = np.load(self.folder / f"{name}.npy").astype(np.int64)
        return values


@pytest.fixture(scope="module")
def exported(
    small_bundle: Path, small_trunk: DemoFiles, tmp_path_factory: pytest.TempPathFactory
) -> Exported:
    bundle = read_bundle(small_bundle)
    folder = tmp_path_factory.mktemp("vectors") / "here"
    inputs = read_embeddings(small_trunk.eval)
    written = export_bundle(bundle, "testvectors", folder, Request(inputs=inputs))
    assert {file.name for file in written} == {file.name for file in folder.iterdir()}
    return Exported(folder, bundle)


def read_hex(data: bytes, bits: int, signed: bool) -> IntArray:
    """The numbers of `hex_lines`."""
    values = np.array([int(line, 16) for line in data.split()], np.uint64).astype(np.int64)
    if signed and bits < 64:
        values = values - ((values >> bits - 1) << bits)
    return values


def layers(bundle: Bundle) -> dict[str, CrossbarMvm]:
    graphs = (bundle.program.text, bundle.program.video)
    found = ((g.layer(n), n.op) for g in graphs for n in g.nodes)
    return {name: op for name, op in found if isinstance(op, CrossbarMvm)}


@given(st.integers(2, 64), st.booleans(), st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_hex_lines_are_read_back(bits: int, signed: bool, numbers: list[int]) -> None:
    lo, hi = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << min(bits, 63)) - 1)
    values = np.array([lo + number % (hi - lo + 1) for number in numbers])
    lines = hex_lines(values[:, None], bits)
    assert {len(line) for line in lines.split()} == {-(-bits // 4)}
    np.testing.assert_array_equal(read_hex(lines, bits, signed), values)


def test_hex_is_twos_complement() -> None:
    assert hex_lines(np.array([[-1], [3], [-8], [7]]), 4) == b"f\n3\n8\n7\n"
    assert hex_lines(np.array([[-2], [511]]), 10) == b"3fe\n1ff\n"


def test_every_array_is_there_twice_and_fits_its_bits(exported: Exported) -> None:
    names = {file.name for file in exported.folder.iterdir()}
    described = exported.layout["files"]
    expected = {f"{name}.{kind}" for name in described for kind in ("npy", "mem")}
    assert names == expected | {"layout.json", "README.txt"}
    readme = (exported.folder / "README.txt").read_text()
    for name, one in described.items():
        values = exported[name]
        assert list(values.shape) == one["shape"]
        assert len(one["axes"]) == values.ndim
        lines = (exported.folder / f"{name}.mem").read_bytes()
        read = read_hex(lines, one["bits"], one["signed"])
        np.testing.assert_array_equal(read.reshape(values.shape), values, err_msg=name)
        assert f"{name}: " in readme


def test_the_layout_says_whose_vectors_these_are(exported: Exported) -> None:
    assert exported.layout["format_version"] == 2
    manifest = (exported.bundle.folder / "manifest.json").read_bytes()
    assert exported.layout["manifest_sha256"] == hashlib.sha256(manifest).hexdigest()
    for name, op in layers(exported.bundle).items():
        cycles = exported.layout["layers"][name]["cycles"]
        assert [one["bits"] for one in cycles] == [one.bits for one in op.crossbar.cycles]


def test_the_taps_of_each_layer_are_those_of_the_reference(exported: Exported) -> None:
    for name, op in layers(exported.bundle).items():
        x = exported[f"{name}.inputs"]
        found = taps(op, x)
        for tap in ("digits", "sums", "codes", "shift_add"):
            np.testing.assert_array_equal(exported[f"{name}.{tap}"], getattr(found, tap))
        total = exported[f"{name}.layer_sum"]
        added = exported[f"{name}.shift_add"].sum(axis=1)
        places = exported.layout["layers"][name]["places"]
        digits = added + (1 << places >> 1) >> places
        np.testing.assert_array_equal(total, digits + exported[f"{name}.bias"])
        np.testing.assert_array_equal(total, layer_sum(op, exported[f"{name}.shift_add"]))
        np.testing.assert_array_equal(total, op.run(x))


def requantised_tap(found: Exported, layer: str) -> str:
    """The name of the one requantised value of a layer."""
    named = [n for n in found.layout["files"] if n.startswith(f"{layer}.requantised.")]
    (tap,) = (n for n in named if found.layout["files"][n]["what"].startswith("tap 5"))
    return tap


def test_requantised_taps_are_values_of_the_program(
    exported: Exported, small_trunk: DemoFiles
) -> None:
    """For real rows they are what the simulator has at that place."""
    rows, simulator = read_embeddings(small_trunk.eval), Simulator(exported.bundle.program)
    for name in layers(exported.bundle):
        tap = requantised_tap(exported, name)
        modality, node = name.split(".")[0], tap.removeprefix(f"{name}.requantised.")
        reals = {"text": rows.text, "video": rows.video}[modality][:REAL_ROWS]
        seen = simulator.values(modality, reals, [node])[node]
        np.testing.assert_array_equal(exported[tap][-REAL_ROWS:], seen)


def test_constants_before_tap_5_make_it(exported: Exported) -> None:
    for name in layers(exported.bundle):
        tap = requantised_tap(exported, name)
        total = exported[f"{name}.layer_sum"]
        if f"{tap}.affine" in exported.layout["files"]:
            for factor, addend, lo, hi in exported[f"{tap}.affine"].transpose(0, 2, 1):
                total = np.clip(total * factor + addend, lo, hi)
        by, shift, lo, hi = (
            exported[f"{tap}.{one}"] for one in ("multiplier", "shift", "lo", "hi")
        )
        rounded = total * by + (1 << shift >> 1) >> shift
        np.testing.assert_array_equal(np.clip(rounded, lo, hi), exported[tap])


def test_digits_and_cells_make_the_column_sums(exported: Exported) -> None:
    for name, op in layers(exported.bundle).items():
        known, digits = exported.layout["layers"][name], exported[f"{name}.digits"]
        cells = exported[f"{name}.cells"][..., 0] - op.crossbar.weights.baseline
        for r, (start, stop) in enumerate(known["row_groups"]):
            # Columns of each slice one after another.
            column = cells[start:stop].transpose(0, 2, 1).reshape(stop - start, -1)
            sums = digits[:, :, start:stop] @ column
            np.testing.assert_array_equal(sums, exported[f"{name}.sums"][:, r])


@pytest.mark.thorough("more of the same kind", quick=("None",))
@pytest.mark.parametrize("adc_bits", [None, 2])
def test_a_lossless_slice_has_the_step_0(
    small_trunk: DemoFiles, tmp_path: Path, adc_bits: int | None
) -> None:
    flags = {} if adc_bits is None else {"adc_bits": adc_bits}
    bundle = api.compile(
        small_trunk.projectors, small_trunk.poly, calibration=small_trunk.calibration,
        drift="given", target="isaac-rram-128", output=tmp_path / "bundle", **flags,
    )  # fmt: skip
    export_bundle(bundle, "testvectors", tmp_path / "vectors", Request(layers="text.mu"))
    found = Exported(tmp_path / "vectors", bundle)
    op = layers(bundle)["text.mu"]
    steps = [one["step"] for one in found.layout["layers"]["text.mu"]["slices"]]
    assert steps == [0 if one is None else one.step.item() for one in op.references]
    assert (steps == [0] * len(steps)) == (adc_bits is None)


def shift_added(found: Exported, name: str) -> IntArray:
    """Codes to sums of row groups by the layout alone, for offset-flip on signed inputs."""
    known = found.layout["layers"][name]
    assert known["crossbar"]["weights"]["name"] == "offset-flip"
    codes, digits, flipped = (found[f"{name}.{tap}"] for tap in ("codes", "digits", "flipped"))
    width, most = known["columns"], (1 << known["crossbar"]["weights"]["cell_bits"]) - 1
    offsets = np.zeros((len(known["row_groups"]), len(known["slices"]), 1, 1), np.int64)
    if f"{name}.offsets" in found.layout["files"]:
        offsets = found[f"{name}.offsets"]
        if "cycle" not in found.layout["files"][f"{name}.offsets"]["axes"]:
            offsets = offsets[:, :, None]
    totals, places = [], known["places"]
    for r, (start, stop) in enumerate(known["row_groups"]):
        total = np.zeros((len(codes), width), np.int64)
        for c, cycle in enumerate(known["cycles"]):
            ones = digits[:, c, start:stop].sum(axis=1, keepdims=True) << places
            for k, cut in enumerate(known["slices"]):
                step = cut["step"][c] if isinstance(cut["step"], list) else cut["step"]
                value = codes[:, r, c, k * width : (k + 1) * width]
                own = offsets[r, k, c % offsets.shape[2]]
                if step is None:
                    step = found[f"{name}.steps"][r, k]
                value = np.where(step == 0, value << places, value * step + own)
                value = np.where(flipped[r, k], most * ones - value, value)
                total += cycle["sign"] * cut["sign"] * value << cycle["shift"] + cut["shift"]
            half = known["crossbar"]["weights"]["bits"] - 1 + cycle["shift"]
            total -= cycle["sign"] * ones << half
        totals.append(total)
    return np.stack(totals, axis=1)


def test_what_the_layout_says_is_enough_for_shift_and_add(exported: Exported) -> None:
    for name in exported.layout["layers"]:
        found = shift_added(exported, name)
        np.testing.assert_array_equal(exported[f"{name}.shift_add"], found)


@pytest.mark.thorough("more of the same kind", quick=("slice",))
@pytest.mark.parametrize("kind", ["slice", "column", "gain", "cycle"])
def test_references_that_are_set_are_in_the_layout(
    small_trunk: DemoFiles, tmp_path: Path, kind: str
) -> None:
    """Steps and offsets of the files take codes back to what the array adds."""
    api.compile(
        small_trunk.projectors, small_trunk.poly, calibration=small_trunk.calibration,
        drift="given", target="isaac-rram-128", adc_bits=2, references=kind,
        output=tmp_path / "bundle",
    )  # fmt: skip
    bundle = read_bundle(tmp_path / "bundle")
    export_bundle(bundle, "testvectors", tmp_path / "vectors", Request(layers="*.mu"))
    found, offsets = Exported(tmp_path / "vectors", bundle), 0
    for name, known in found.layout["layers"].items():
        said, own = found.layout["files"][f"{name}.offsets"], found[f"{name}.offsets"]
        lines = (found.folder / f"{name}.offsets.mem").read_bytes()
        assert read_hex(lines, said["bits"], True).tolist() == own.ravel().tolist()
        assert list(own.shape) == said["shape"]
        cycles = [len(known["cycles"])] if kind == "cycle" else []
        assert said["shape"][2:-1] == cycles
        np.testing.assert_array_equal(found[f"{name}.shift_add"], shift_added(found, name))
        offsets += np.count_nonzero(own)
    assert offsets
    if kind == "gain":
        with pytest.raises(CimError, match='references = "gain" sets a step for each column, and'):
            export_bundle(bundle, "handoff", tmp_path / "handoff", Request())
        assert not (tmp_path / "handoff").exists()


def test_stimuli_are_what_they_are_called(exported: Exported, small_trunk: DemoFiles) -> None:
    rows = read_embeddings(small_trunk.eval)
    simulator = Simulator(exported.bundle.program)
    for graph in (exported.bundle.program.text, exported.bundle.program.video):
        reals = {"text": rows.text, "video": rows.video}[graph.name][:REAL_ROWS]
        for node in graph.nodes:
            if not isinstance(node.op, CrossbarMvm):
                continue
            name = graph.layer(node)
            known = graph.types[node.inputs[0]]
            lo, hi = int(known.lo.max()), int(known.hi.min())
            x = exported[f"{name}.inputs"]
            assert len(x) == FIXED_ROWS + RANDOM_ROWS + REAL_ROWS
            by_name = dict(zip(exported.layout["stimuli"][name], x, strict=True))
            assert not by_name["zero"].any()
            assert set(by_name["largest"]) == {hi}
            assert set(by_name["smallest"]) == {lo}
            assert np.flatnonzero(by_name["one hot, last row"]).tolist() == [
                len(node.op.weight) - 1
            ]
            assert by_name["checkerboard, odd rows"][:3].tolist() == [lo, hi, lo]
            best = exported[f"{name}.sums"].max(axis=(1, 2, 3)).argmax()
            assert exported.layout["stimuli"][name][best] in ("worst-case column", "largest")
            seen = simulator.values(graph.name, reals, [node.inputs[0]])[node.inputs[0]]
            np.testing.assert_array_equal(x[-REAL_ROWS:], seen)


def embeddings(exported: Exported, modality: str) -> Array:
    graph = getattr(exported.bundle.program, modality)
    op = next(node.op for node in graph.nodes if isinstance(node.op, Quantize))
    rows: Array = (exported[f"{modality}.codes"] * op.scale).astype(np.float32)
    return rows


def test_the_ends_are_those_of_the_simulator_and_of_onnx(exported: Exported) -> None:
    bundle, feeds, features = exported.bundle, {}, {}
    for modality in ("text", "video"):
        rows = embeddings(exported, modality)
        features[modality] = Simulator(bundle.program).encode(modality, rows)
        session = Session((bundle.folder / f"{modality}.onnx").read_bytes())
        for name, values in session.run({"x": rows}).items():
            np.testing.assert_array_equal(exported[f"{modality}.{name}"], values)
            np.testing.assert_array_equal(exported[f"{modality}.{name}"], features[modality][name])
            feeds[f"{modality}_{name}"] = values
    score = bundle.program.score
    op = score.by_name[score.outputs["logit"]].op
    assert isinstance(op, Dequantize)
    session = Session((bundle.folder / "score.onnx").read_bytes())
    logit = exported["score.logit"] * op.scale
    np.testing.assert_array_equal(logit.astype(np.float32), session.run(feeds)["logit"])
    np.testing.assert_array_equal(
        logit, Simulator(bundle.program).score(features["text"], features["video"])
    )


def test_levels_say_what_codes_are(small_trunk: DemoFiles, tmp_path: Path) -> None:
    bundle = api.compile(
        small_trunk.projectors, small_trunk.poly,
        calibration=small_trunk.calibration,
        drift="given", output=tmp_path / "small", target="isaac-rram-128", adc_bits=4,
        references="levels",
    )  # fmt: skip
    export_bundle(bundle, "testvectors", tmp_path / "made", Request(layers="text.fc1"))
    found = Exported(tmp_path / "made", bundle)
    op = layers(bundle)["text.fc1"]
    width, place = op.weight.shape[1], 1 << op.crossbar.reference_bits
    assert all(one is not None for one in op.references)
    for k, one in enumerate(op.references):
        assert one is not None
        own = slice(k * width, (k + 1) * width)
        above = found["text.fc1.sums"][..., own] * place - found["text.fc1.offsets"][:, None, k]
        edges = found["text.fc1.thresholds"][k] * one.step.item()
        codes = (above[..., None] >= edges).sum(axis=-1)
        np.testing.assert_array_equal(codes, found["text.fc1.codes"][..., own])
        assert one.levels is not None
        np.testing.assert_array_equal(found["text.fc1.levels"][k], one.levels.levels)


def test_layers_are_chosen_by_a_pattern(small_bundle: Path, tmp_path: Path) -> None:
    bundle = read_bundle(small_bundle)
    said = list[str]()
    request = Request(layers="text.*u", say=said.append)
    export_bundle(bundle, "testvectors", tmp_path / "one", request)
    assert said == [
        "takes about 49.2 kB: text.mu 49.2 kB",
        "text.mu: written, layer 1 of 1",
        "writing codes, features and logits of embeddings",
    ]
    found = Exported(tmp_path / "one", bundle)
    assert list(found.layout["layers"]) == ["text.mu"]
    again = export_bundle(bundle, "testvectors", tmp_path / "one", request)
    assert again
    assert (tmp_path / "one.previous").is_dir()
    with pytest.raises(CimError, match=r'^layers "txt.mu" matches no layer; .*"text\.mu"'):
        export_bundle(bundle, "testvectors", tmp_path / "none", Request(layers="txt.mu"))
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("kind", ["testvectors", "conductances", "onnx", "handoff"])
def test_an_export_too_large_names_the_way_out(
    kind: str, small_bundle: Path, tmp_path: Path
) -> None:
    with pytest.raises(
        CimError, match=r"takes about .*, more than max_size of 10\.0 kB; expected f"
    ):
        export_bundle(read_bundle(small_bundle), kind, tmp_path / "large", Request(max_size=10_000))
    assert list(tmp_path.iterdir()) == []


def test_a_leaking_design_exports_as_well(small_trunk: DemoFiles, tmp_path: Path) -> None:
    api.compile(
        small_trunk.projectors,
        small_trunk.poly,
        calibration=small_trunk.calibration,
        drift="given",
        target="isaac-rram-128",
        output=tmp_path / "leaking",
        adc_bits=6,
        on_off_ratio=20.0,
        unused_rows="driven",
    )
    bundle = read_bundle(tmp_path / "leaking")
    export_bundle(bundle, "testvectors", tmp_path / "vectors", Request(layers="video.logvar"))
    found = Exported(tmp_path / "vectors", bundle)
    op = layers(bundle)["video.logvar"]
    assert op.crossbar.fraction_bits == 12
    x = found["video.logvar.inputs"]
    np.testing.assert_array_equal(found["video.logvar.layer_sum"], op.run(x))


@pytest.mark.thorough("a bundle more")
def test_channels_whose_ranges_do_not_overlap(narrow_trunk: DemoFiles, tmp_path: Path) -> None:
    files = with_ranges_apart(narrow_trunk, tmp_path)
    bundle = api.compile(
        files.projectors, files.poly, calibration=files.calibration, target="isaac-rram-128",
        drift="given", output=tmp_path / "bundle", adc_bits=4,
    )  # fmt: skip
    export_bundle(bundle, "testvectors", tmp_path / "here")
    exported = Exported(tmp_path / "here", bundle)
    graph = bundle.program.text
    node = graph.by_name["mu"]
    assert isinstance(node.op, CrossbarMvm)
    lo, hi = input_limits(graph, node, node.op)
    assert lo.max() > hi.min()
    x = exported["text.mu.inputs"]
    assert ((x >= lo) & (x <= hi)).all()
    by_name = dict(zip(exported.layout["stimuli"]["text.mu"], x, strict=True))
    np.testing.assert_array_equal(by_name["largest"], hi)
    np.testing.assert_array_equal(by_name["smallest"], lo)
    np.testing.assert_array_equal(by_name["zero"], lo)
    odd = np.arange(len(lo)) % 2 == 1
    np.testing.assert_array_equal(by_name["checkerboard, odd rows"], np.where(odd, hi, lo))
    drawn = np.random.default_rng(1).integers(lo, hi, (500, len(lo)), endpoint=True)
    reached = taps(node.op, by_name["worst-case column"][None]).sums.max()
    assert taps(node.op, drawn).sums.max() <= reached
