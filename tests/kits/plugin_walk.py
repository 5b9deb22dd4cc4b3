"""The command line and random layers with a plug-in, in a process of their own.

    python plugin_walk.py FOLDER

writes `walk.json`: what each command printed and ended with, and which layers were compared.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Self

import numpy as np
from rules import missing_rules
from safetensors.numpy import save_file

from cimtool.base.arrays import Array
from cimtool.cli import run as command_line
from cimtool.emit.onnx import file_bytes, onnx_model
from cimtool.emit.runtime import Session
from cimtool.hardware.converters import (
    THRESHOLD_BITS,
    Converter,
    ConverterKeys,
    StaircaseLaw,
    UniformLaw,
)
from cimtool.hardware.keys import Keys
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.references import AdcReferences
from cimtool.hardware.settings import resolve
from cimtool.hardware.stored import StoredWeights
from cimtool.hardware.target import load_target
from cimtool.ir.format import adc_limits
from cimtool.ir.integer import Quantize
from cimtool.ir.program import Builder
from cimtool.ir.types import real
from cimtool.simulation.simulator import Runner

WIDTH, HIDDEN, D = 16, 20, 8
LAYERS = 6


@dataclass(frozen=True)
class DeadZone(Converter, name="dead-zone"):
    """A formula whose lowest code is missing: of unsigned sums, the one of zero."""

    bits: int

    @classmethod
    def of(cls, bits: int, keys: ConverterKeys) -> Self:
        return cls(bits)

    def law(self, signed: bool) -> UniformLaw:
        lo, hi = adc_limits(self.bits, signed)
        return UniformLaw(lo + 1, hi, "half-up")


@dataclass(frozen=True)
class DeadStairs(DeadZone, name="dead-stairs"):
    """The same as a staircase."""

    def law(self, signed: bool) -> StaircaseLaw:  # type: ignore[override]
        levels = np.arange(*adc_limits(self.bits, signed)) + 1
        return StaircaseLaw(int(levels[0]), (levels[:-1] << THRESHOLD_BITS) + 8, levels)


def main(folder: Path) -> None:
    """Make a model and its data, walk, compare, and write down what came."""
    make_model(np.random.default_rng(3), folder)
    bundle, data = str(folder / "bundle"), str(folder / "eval.npz")
    model, rows = str(folder / "hard.safetensors"), str(folder / "calibration.npz")
    given = ["--calibration", rows, "--head", "laplacian-kernel", "-o"]
    compile_it = ["compile", "--projectors", model, "--target", "acme-ternary", *given, bundle]
    simulate_it = ["simulate", bundle, "--inputs", data, "-o"]
    export_it = ["export", bundle, "-o", str(folder / "cells"), "--format"]
    hand_off = ["export", bundle, "-o", str(folder / "handoff"), "--format", "handoff"]
    commands = {
        "help": ["compile", "--help"],
        "list": ["targets", "list"],
        "show": ["targets", "show", "acme-ladder"],
        "check": ["targets", "check", "acme-ternary", "acme-ladder"],
        "compile": compile_it,
        "misspelt": [*compile_it, "--encoding", "non-adjecent"],
        "refused": [*compile_it, "--adc-bits", "8"],
        "in memory": [*compile_it, "--score-mapping", "in-memory"],
        "halfway": ["halfway" if word == "laplacian-kernel" else word for word in compile_it],
        "simulate": [*simulate_it, str(folder / "simulate.npz")],
        "torch": [*simulate_it, str(folder / "torch.npz"), "--device", "cpu"],
        "verify": ["verify", bundle, "--data", data, "--noise", "--trials", "2"],
        "cost": ["cost", bundle],
        "evaluate": ["evaluate", "--data", data, "--head", "laplacian-kernel"],
        "export": [*export_it, "acme-cells"],
        "handoff": hand_off,
        "unknown format": [*export_it, "acme-cell"],
        "train": [
            *("train", "--hardware", "acme-ternary", "--start", model, "--data", rows),
            *("--epochs", "1", "--batch", "16", *given, str(folder / "tuned")),
        ],
    }
    walked: dict[str, Any] = {name: printed(command) for name, command in commands.items()}
    log, ladder = (resolve(load_target(f"acme-{name}"), None, {}) for name in ("ternary", "ladder"))
    walked["layers"] = {"ternary": compare(log), "ladder": compare(ladder)}
    for kind, encoding in product(("dead-zone", "dead-stairs"), ("non-adjacent", "offset")):
        own = {"adc_kind": kind, "adc_parameters": None, "encoding": encoding}
        walked["layers"][f"{kind} {encoding}"] = compare(log.model_copy(update=own))
    walked["missing rules"] = missing_rules()
    (folder / "walk.json").write_text(json.dumps(walked), "utf-8")


def make_model(rng: np.random.Generator, folder: Path) -> None:
    """A checkpoint of the plug-in's layout, rows to calibrate on and rows to measure on."""
    state: dict[str, Array] = {}
    for name, shape in {"cells_in": (HIDDEN, WIDTH), "cells_out": (D, HIDDEN)}.items():
        weight = rng.normal(0, 0.25, shape)
        for modality in ("text", "video"):
            moved = weight + rng.normal(0, 0.01, shape)
            state[f"{modality}_proj.{name}.weight"] = moved.astype(np.float32)
            state[f"{modality}_proj.{name}.bias"] = rng.normal(0, 0.1, shape[0]).astype(np.float32)
    save_file(state, folder / "hard.safetensors")
    for name, count in (("calibration", 64), ("eval", 24)):
        text = rng.normal(size=(count, WIDTH)).astype(np.float32)
        video = (text + rng.normal(0, 0.1, text.shape)).astype(np.float32)
        np.savez(folder / f"{name}.npz", text=text, video=video)


def printed(command: list[str]) -> dict[str, Any]:
    """The status of a command, and what it prints with --json where it succeeds."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = command_line([*command, "--json"])
    return {"status": status, "out": out.getvalue(), "err": err.getvalue()}


def compare(keys: Keys) -> int:
    """Compare all walkers of random layers on such arrays; count outputs that are rounded."""
    rng, moved = np.random.default_rng(11), 0
    for _ in range(LAYERS):
        layer, (lo, hi) = random_layer(rng, keys)
        builder = Builder("text", {"x": real(("n", len(layer.weight)))})
        codes = builder.add("x.codes", Quantize(np.ones(()), lo, hi), "x")
        graph = builder.graph({"sums": builder.add("fc", layer, codes)})
        x = rng.integers(lo, hi, (5, len(layer.weight)), endpoint=True).astype(np.float32)
        expected = graph.run({"x": x})["sums"]
        onnx = Session(file_bytes(onnx_model(graph))).run({"x": x})
        fast, torch = (Runner(graph, device=device).run({"x": x}) for device in (None, "cpu"))
        for found in (onnx, fast, torch):
            np.testing.assert_array_equal(found["sums"], expected)
        exact = x.astype(np.int64) @ layer.weight + layer.bias
        moved += int((expected != exact).sum())
        plain = CrossbarMvm(layer.stored, layer.bias, layer.scale, layer.crossbar.no_references)
        np.testing.assert_array_equal(plain.run(x.astype(np.int64)), exact)
    return moved


def random_layer(rng: np.random.Generator, keys: Keys) -> tuple[CrossbarMvm, tuple[int, int]]:
    """A layer of any weights that the code holds, some at their limits, and its inputs' limits."""
    rows, columns, bits = int(rng.integers(1, 80)), 3, keys.weight_bits
    code = keys.input_code(real(("n", rows), -1.0, 1.0))
    inputs = type(code)(keys.input_bits, keys.dac_bits)
    crossbar = keys.crossbar(inputs)
    top = 1 << bits - 1
    weight = rng.integers(1 - top, top, (rows, columns))
    weight[rng.random(weight.shape) < 0.3] = top - 1
    drawn = rng.integers(-1, 4, crossbar.slices).tolist()
    steps = tuple(None if e < 0 else AdcReferences.from_zero(1 << e) for e in drawn)
    bias = rng.integers(-100, 100, columns)
    stored = StoredWeights(weight, crossbar)
    return CrossbarMvm(stored, bias, np.ones(columns), steps), inputs.limits(inputs.bits)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
