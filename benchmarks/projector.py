"""Speed of one projector's four layers on each kind of array, beside its peers and limits.

Layers 1024x2048, 2048x2048 and two of 2048x1024, 8 bits, batch 256, 256 rows a group; the layers
alone, on inputs that are given. All of cimtool's integers are compared with the readable reference.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from harness import (
    Row,
    forget_peak,
    in_child,
    parser,
    peak_bytes,
    report,
    side_by_side,
    trimmed_bytes,
    use_threads,
)
from onnx import TensorProto, helper, numpy_helper
from peers import int8_session, torch_loops

from cimtool.base.compiled import map_rows
from cimtool.hardware.converters import LOSSLESS, Converter, Formula
from cimtool.hardware.crossbar import Crossbar, RowTiling
from cimtool.hardware.input_codes import InputCode, TwosComplementInput, Unsigned
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.references import AdcReferences
from cimtool.hardware.stored import StoredWeights
from cimtool.hardware.weight_codes import (
    Differential,
    Offset,
    OffsetFlip,
    TwosComplement,
    WeightCode,
)
from cimtool.ir.types import integer
from cimtool.simulation.kernels.operations import fast_kernel
from cimtool.simulation.simulator import THREAD_ROWS

LAYERS = ((1024, 2048), (2048, 2048), (2048, 1024), (2048, 1024))
BATCH, ROWS, BITS = 256, 256, 8
CHECKED_ROWS = 4
"""Rows of a batch that the readable reference computes as well: it is slow."""

Array = np.ndarray[Any, Any]

CONVERTER = Formula(8, "half-up")


def array(
    weights: WeightCode, inputs: InputCode | None = None, converter: Converter = CONVERTER
) -> Crossbar:
    """An array of 256 rows; inputs are unsigned and driven in one cycle unless said."""
    inputs = inputs or Unsigned(BITS, BITS)
    return Crossbar(weights, inputs, 62, converter, RowTiling(ROWS))


@dataclass(frozen=True)
class Build:
    """An array, its converters' step (None: lossless), what it is beside and its least ratio.

    The step counts 2^-places of a digit.
    """

    crossbar: Crossbar
    step: int | None
    beside: str
    least: float

    @property
    def references(self) -> tuple[AdcReferences | None, ...]:
        """The references of each slice."""
        one = None if self.step is None else AdcReferences.from_zero(self.step)
        return (one,) * self.crossbar.slices


BUILDS = {
    "lossless, unsigned": Build(
        array(TwosComplement(BITS, BITS), converter=LOSSLESS), None, "onnxruntime int8", 0.5
    ),
    "lossless, signed": Build(
        array(TwosComplement(BITS, BITS), TwosComplementInput(BITS, BITS), LOSSLESS),
        None, "onnxruntime int8", 0.5,
    ),
    "1 slice, 1 cycle": Build(array(Differential(BITS, BITS)), 1 << 13, "torch loops", 4),
    "4 slices, 1 cycle": Build(array(Offset(BITS, 2)), 1 << 9, "torch loops", 1),
    "4 slices, 8 cycles": Build(array(Offset(BITS, 2), Unsigned(BITS, 1)), 4, "torch loops", 20),
    "4 slices flipped, 8 cycles, signed": Build(
        array(OffsetFlip(BITS, 2), TwosComplementInput(BITS, 1)), 4, "torch loops", 20
    ),
}  # fmt: skip


MEASURED = ("lossless, unsigned", "1 slice, 1 cycle", "4 slices, 8 cycles")
"""Arrays whose memory is measured."""


def limits(crossbar: Crossbar) -> tuple[int, int]:
    """Least and largest input."""
    half = 1 << BITS - 1
    return (1 - half, half - 1) if crossbar.inputs.signed else (0, 2 * half - 1)


def operations(build: Build) -> list[CrossbarMvm]:
    """The four layers, with random weights."""
    rng = np.random.default_rng(0)
    top = (1 << BITS - 1) - 1
    return [
        CrossbarMvm(
            StoredWeights(
                rng.integers(-top, top, (height, width), endpoint=True), build.crossbar
            ),
            np.zeros(width, np.int64), np.ones(width), build.references,
        )
        for height, width in LAYERS
    ]  # fmt: skip


def inputs(ops: list[CrossbarMvm]) -> list[Array]:
    """Random inputs of each layer."""
    rng = np.random.default_rng(1)
    lo, hi = limits(ops[0].crossbar)
    kind = np.uint8 if lo == 0 else np.int8
    return [rng.integers(lo, hi, (BATCH, len(op.weight)), kind, endpoint=True) for op in ops]


def kernels(ops: list[CrossbarMvm]) -> list[Callable[[Array], Array]]:
    """cimtool's form of each layer, as the simulator has it."""
    lo, hi = limits(ops[0].crossbar)
    types = [(integer(("n", len(op.weight)), lo, hi, 1.0),) for op in ops]
    return [fast_kernel(op, known, op.infer(*known)) for op, known in zip(ops, types, strict=True)]


def run_all(run: Sequence[Callable[[Array], Array]], given: Sequence[Array]) -> list[Array]:
    """All layers on their inputs, blocks of rows side by side, as the simulator does it."""
    blocks = map_rows(
        lambda rows: [kernel(x[rows]) for kernel, x in zip(run, given, strict=True)],
        BATCH,
        THREAD_ROWS,
    )
    return [np.concatenate(parts) for parts in zip(*blocks, strict=True)]


def differing(ops: list[CrossbarMvm], found: list[Array], given: list[Array]) -> int:
    """Count of integers of the first rows that are not those of the readable reference."""
    return sum(
        int((y[:CHECKED_ROWS] != op.run(x[:CHECKED_ROWS].astype(np.int64))).sum())
        for op, y, x in zip(ops, found, given, strict=True)
    )


def rate(build: Build) -> float:
    """Operations of a batch: slices x cycles x 2 B K N, or 2 B K N where lossless."""
    crossbar = build.crossbar
    count = 1 if build.step is None else crossbar.slices * len(crossbar.cycles)
    return float(count * sum(2 * BATCH * height * width for height, width in LAYERS))


def machine_limits() -> dict[str, float]:
    """Operations a second of large int8 products: the best that libraries get."""
    rows, width = 1024, 2048
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-127, 128, (n, width)).astype(np.int8) for n in (rows, width))
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w"], ["y"])], "limit",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [rows, width])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [rows, width])],
        [numpy_helper.from_array(w, "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    unsigned, tensors = x.view(np.uint8), (torch.from_numpy(x), torch.from_numpy(w))
    onnx.checker.check_model(model)
    static = int8_session([rng.integers(-127, 128, shape) for shape in LAYERS], 0)
    narrow = np.ascontiguousarray(unsigned[:, : LAYERS[0][0]])
    taken = side_by_side(
        {
            "torch._int_mm": lambda: torch._int_mm(*tensors),
            "MatMulInteger": lambda: session.run(None, {"x": unsigned}),
            "onnxruntime int8, static": lambda: static(narrow),
        },
        10,
    )
    macs = dict.fromkeys(taken, width * width)
    macs["onnxruntime int8, static"] = sum(height * across for height, across in LAYERS)
    return {name: 2.0 * rows * macs[name] / t for name, t in taken.items()}


def one(name: str, build: Build, rounds: int, limit: float) -> Row:
    """One row of the table."""
    ops = operations(build)
    given, run = inputs(ops), kernels(ops)
    wide = [x.astype(np.int64) for x in given]
    candidates: dict[str, Callable[[], object]] = {"cimtool": lambda: run_all(run, given)}
    if build.beside == "torch loops":
        plain = [torch_loops(op, x) for op, x in zip(ops, wide, strict=True)]
        candidates["peer"] = lambda: [loop() for loop in plain]
    else:
        session = int8_session([op.weight for op in ops], 0 if given[0].dtype == np.uint8 else 128)
        candidates["peer"] = lambda: session(given[0].view(np.uint8))
    with torch.inference_mode():
        taken = side_by_side(candidates, rounds)
    found = run_all(run, given)
    speed = rate(build) / taken["cimtool"]
    return {
        "array": name,
        "cimtool v/s": round(BATCH / taken["cimtool"]),
        "GOP/s": round(speed / 1e9),
        "of int8 limit": f"{speed / limit:.0%}",
        "beside": build.beside,
        "its v/s": round(BATCH / taken["peer"]),
        "times faster": taken["peer"] / taken["cimtool"],
        "at least": build.least,
        "differing": differing(ops, found, given),
    }


def aihwkit_row(python: str | None, rounds: int) -> Row:
    """One slice, one cycle beside aihwkit in its own interpreter, turn by turn."""
    build = BUILDS["1 slice, 1 cycle"]
    ops = operations(build)
    given, run = inputs(ops), kernels(ops)
    ours = {"cimtool": lambda: run_all(run, given)}
    row: dict[str, Any] = {
        "array": "1 slice, 1 cycle", "cimtool v/s": "", "GOP/s": "", "of int8 limit": "",
        "beside": "aihwkit TorchInferenceRPUConfig", "its v/s": "not installed",
        "times faster": "", "at least": 5, "differing": "",
    }  # fmt: skip
    if python is None:
        return row
    best = theirs = float("inf")
    for _ in range(rounds):
        best = min(best, side_by_side(ours, 5)["cimtool"])
        theirs = min(theirs, _aihwkit_seconds(python))
    row |= {"cimtool v/s": round(BATCH / best), "its v/s": round(BATCH / theirs)}
    return row | {"times faster": theirs / best}


def _aihwkit_seconds(python: str) -> float:
    script = Path(__file__).with_name("aihwkit_peer.py")
    shape = json.dumps({"layers": LAYERS, "batch": BATCH, "rows": ROWS, "bits": BITS})
    done = subprocess.run([python, script, shape], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{python} cannot run aihwkit: {done.stderr.strip().splitlines()[-1]}")
    return float(done.stdout)


def memory(build: Build) -> tuple[int, int]:
    """Bytes of one 2048x2048 layer's packed weights, and what a batch holds at most, with them."""
    use_threads()
    (layer,) = operations(build)[1:2]
    corner = StoredWeights(layer.weight[:ROWS, :64], layer.crossbar)
    few = replace(layer, stored=corner, bias=layer.bias[:64], scale=layer.scale[:64])
    kernels([few])[0](np.zeros((2, ROWS), np.uint8))  # compiles
    (x,) = inputs([layer])
    before = trimmed_bytes()
    run = kernels([layer])
    trimmed_bytes()
    forget_peak()
    run_all(run, [x])
    crossbar = layer.crossbar
    cells = 1.0 if build.step is None else crossbar.slices * crossbar.weights.cell_bits / 8
    return int(layer.weight.size * cells), peak_bytes() - before


def memory_rows(names: Sequence[str]) -> list[str]:
    """Memory of a batch, beside three times the packed weights plus the batch in and out."""
    batch = BATCH * (LAYERS[1][0] + 8 * LAYERS[1][1])
    lines = []
    for name in names:
        packed, held = in_child(memory, BUILDS[name])
        share = held / (3 * packed + batch)
        lines.append(
            f"memory, {name}: {held / 1e6:.1f} MB with {packed / 1e6:.1f} MB of packed weights,"
            f" {share:.0%} of three times these and the batch"
        )
    return lines


def main() -> None:
    own: argparse.ArgumentParser = parser(str(__doc__), rounds=5)
    own.add_argument("--only", metavar="TEXT", default="", help="arrays whose name has this")
    own.add_argument("--aihwkit", metavar="PYTHON", help="an interpreter that has aihwkit")
    options = own.parse_args()
    use_threads()
    found = machine_limits()
    limit = max(found.values())
    rows = [
        one(name, build, options.rounds, limit)
        for name, build in BUILDS.items()
        if options.only in name
    ]
    rows.append(aihwkit_row(options.aihwkit, options.rounds))
    shown = ", ".join(f"{name} {value / 1e9:.0f}" for name, value in found.items())
    notes = [f"int8 limits, GOP/s: {shown}", *memory_rows(MEASURED)]
    report("projector", rows, options.json, notes)


if __name__ == "__main__":
    main()
