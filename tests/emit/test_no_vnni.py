"""Results on an emulated CPU without VNNI, where uint8 x int8 products saturate."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from crossbars import at_steps, changed, crossbar_of
from onnx import TensorProto, helper, numpy_helper
from programs import installed

from cimtool.base.arrays import Array
from cimtool.bundle.bundle import Bundle, read_bundle
from cimtool.demo.data import DemoFiles
from cimtool.emit.onnx import file_bytes, onnx_model
from cimtool.emit.runtime import Session
from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.stored import StoredWeights
from cimtool.ir.integer import Quantize
from cimtool.ir.program import MODALITIES, Builder
from cimtool.ir.types import real
from cimtool.simulation.simulator import Simulator

SCRIPT = Path(__file__).parents[1] / "no_vnni.py"
K, N, ROWS = 300, 24, 9


def run_without_vnni(folder: Path) -> dict[str, tuple[int, int]]:
    """Values compared and differing by file, from the script under an emulated Haswell."""
    qemu = installed("qemu-x86_64", "CIMTOOL_REQUIRE_COMPILERS")
    done = subprocess.run(
        [qemu, "-cpu", "Haswell", sys.executable, str(SCRIPT), str(folder)],
        capture_output=True,
        text=True,
        timeout=180,
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines, done.stderr
    return {name: (int(compared), int(wrong)) for name, compared, wrong in lines}


Arrays = dict[str, Array]


def store(folder: Path, name: str, data: bytes, inputs: Arrays, outputs: Arrays) -> None:
    (folder / f"{name}.onnx").write_bytes(data)
    arrays = {f"in.{k}": v for k, v in inputs.items()} | {f"out.{k}": v for k, v in outputs.items()}
    np.savez(folder / f"{name}.npz", **arrays)


def store_layer(folder: Path, name: str, crossbar: Crossbar, step: int | None) -> None:
    """A layer with full-range weights and inputs, and what the readable reference computes."""
    rng = np.random.default_rng(3)
    top = 1 << crossbar.weights.bits - 1
    weight = rng.choice(np.array([1 - top, top - 1, 5]), (K, N))
    steps, bias = (step,) * crossbar.slices, np.zeros(N, np.int64)
    references = at_steps(crossbar, steps, step)
    layer = CrossbarMvm(StoredWeights(weight, crossbar), bias, np.ones(N), references)
    signed = crossbar.inputs.name != "unsigned"
    lo, hi = (-127, 127) if signed else (0, 255)
    x = rng.choice(np.array([lo, hi, 3]), (ROWS, K)).astype(np.float32)
    builder = Builder("text", {"x": real(("n", K))})
    codes = builder.add("codes", Quantize(np.ones(()), lo, hi), "x")
    graph = builder.graph({"sums": builder.add("fc", layer, codes)})
    store(folder, name, file_bytes(onnx_model(graph)), {"x": x}, graph.run({"x": x}))


def store_product(folder: Path, name: str, signed: bool, zeros: tuple[int, int]) -> None:
    """One MatMulInteger with full-range operands: uint8 x uint8, or uint8 x int8 if `signed`."""
    rng = np.random.default_rng(4)
    kind = np.int8 if signed else np.uint8
    x = rng.choice(np.array([255, 254, 3]), (ROWS, K)).astype(np.uint8)
    weight = rng.choice(np.array([-128, 127] if signed else [0, 255]), (K, N)).astype(kind)
    constants = {"w": weight, "a": np.uint8(zeros[0]), "b": kind(zeros[1])}
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w", "a", "b"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, ["n", K])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, ["n", N])],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    wide = weight.astype(np.int64) - zeros[1]
    y = (x.astype(np.int64) - zeros[0]) @ wide
    store(folder, name, model.SerializeToString(), {"x": x}, {"y": y.astype(np.int32)})


def store_bundle(folder: Path, bundle: Bundle, data: Path) -> None:
    """A bundle's integer files, and what the simulator computes."""
    simulator, feeds = Simulator(bundle.program), {}
    features = {}
    with np.load(data) as stored:
        for modality in MODALITIES:
            x = stored[modality][:ROWS]
            features[modality] = simulator.encode(modality, x)
            file = bundle.folder / f"{modality}.onnx"
            store(folder, modality, file.read_bytes(), {"x": x}, features[modality])
            feeds |= {f"{modality}_{name}": v for name, v in features[modality].items()}
    file = bundle.folder / "score.onnx"
    kinds = Session(file).inputs
    logit = simulator.score(features["text"], features["video"]).astype(np.float32)
    narrow = {name: value.astype(kinds[name]) for name, value in feeds.items()}
    store(folder, "score", file.read_bytes(), narrow, {"logit": logit})


@pytest.mark.thorough("QEMU is slow")
def test_files_are_exact_without_vnni(
    tmp_path: Path, small_bundle: Path, small_trunk: DemoFiles
) -> None:
    exact = crossbar_of(128, 2, 1, "offset-flip", 8, "unsigned", 8, None, "half-up", 32)
    store_layer(tmp_path, "exact-unsigned", exact, None)
    signed = crossbar_of(None, 8, 8, "differential", 8, "bipolar", 8, None, "half-up", 32)
    store_layer(tmp_path, "exact-signed", signed, None)
    sliced = crossbar_of(128, 2, 1, "offset-flip", 8, "twos-complement", 8, 6, "half-up", 32)
    store_layer(tmp_path, "converted-sliced", sliced, 2)
    analog = crossbar_of(128, 8, 8, "differential", 8, "bipolar", 8, 8, "half-even", 32)
    store_layer(tmp_path, "converted-differential", analog, 11)
    leaking = changed(sliced, leak=900, unused_rows="driven", input_encoding="offset")
    store_layer(tmp_path, "converted-leaking", leaking, 13)
    store_layer(tmp_path, "converted-unit", changed(sliced, offset_sum="unit-column"), 2)
    whole = changed(analog, shift_add="analog", adc_on="polarity", dac_bits=1)
    store_layer(tmp_path, "converted-polarities", whole, 12)
    table = changed(analog, rounding=None, transfer=tuple(range(5, 255 * 16, 16)))
    store_layer(tmp_path, "converted-table", table, 11)
    for zeros in ((0, 0), (0, 128), (128, 128)):
        store_product(tmp_path, f"product-{zeros[0]}-{zeros[1]}", signed=False, zeros=zeros)
    store_product(tmp_path, "signed-product", signed=True, zeros=(0, 0))
    store_bundle(tmp_path, read_bundle(small_bundle), small_trunk.eval)
    found = run_without_vnni(tmp_path)
    # uint8 x int8 shows that the emulated CPU has the trap that the emitted files avoid.
    assert found.pop("signed-product")[1] > 0
    assert len(found) == 14
    for name, (compared, wrong) in found.items():
        assert compared >= ROWS * ROWS, name
        assert wrong == 0, name
