"""Little work runs in the readable form, without compiled kernels, and gives the same integers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cimtool.bundle.bundle import read_bundle
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.arithmetic import MatMul, Mul
from cimtool.ir.program import Builder
from cimtool.ir.types import integer
from cimtool.simulation.simulator import Simulator
from cimtool.simulation.work import readable_work

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "exports" / "reference-small@isaac-rram-128"
COMPILES = "cimtool.simulation.kernels.operations.fast_kernel"


def rows(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, 16)).astype(np.float32)


def no_kernel(*_: object) -> None:
    raise AssertionError("a kernel was prepared")


def test_the_work_of_pairs_is_counted_by_hand() -> None:
    types = {"a": integer(("n", 5), -3, 3, 1.0), "b": integer(("m", 5), -3, 3, 1.0)}
    builder = Builder("score", types)
    builder.add("square", Mul(), "a", "a")
    builder.add("product", MatMul(), "square", "b")
    graph = builder.graph({"logit": "product"})
    assert readable_work(graph, {"n": 7, "m": 11}) == 7 * 5 + 7 * 11 * 5


def test_the_work_of_a_layer_counts_its_slices_and_cycles() -> None:
    graph = read_bundle(REFERENCE).program.text
    layers = graph.operations(CrossbarMvm)
    macs = sum(op.weight.size for op in layers.values() if not op.exact)
    crossbars = [op.crossbar for op in layers.values() if not op.exact]
    assert {(one.slices, len(one.cycles)) for one in crossbars} == {(4, 8)}
    others = sum(
        int(np.prod(graph.types[node.name].shape[1:], dtype=int))
        for node in graph.nodes
        if node.name not in layers
    )
    assert readable_work(graph, {"n": 3}) == 3 * (32 * macs + others)


def test_little_work_prepares_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    program = read_bundle(REFERENCE).program
    expected = Simulator(program).scores(rows(20, 0), rows(30, 1))
    monkeypatch.setattr(COMPILES, no_kernel)
    simulator = Simulator(program, little=True)
    np.testing.assert_array_equal(simulator.scores(rows(20, 0), rows(30, 1)), expected)
    with pytest.raises(AssertionError, match="a kernel was prepared"):
        Simulator(program).encode("text", rows(1, 0))


def test_much_work_takes_kernels_also_in_little_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    program = read_bundle(REFERENCE).program
    simulator, x = Simulator(program, little=True), rows(20, 0)
    expected = simulator.encode("text", x)
    limit = 3 * readable_work(program.text, {"n": 20})
    monkeypatch.setattr("cimtool.simulation.simulator.LITTLE", limit)
    with monkeypatch.context() as patched:
        patched.setattr(COMPILES, no_kernel)
        for _ in range(2):
            simulator.encode("text", x)
        with pytest.raises(AssertionError, match="a kernel was prepared"):
            simulator.encode("text", x)
    for name, value in simulator.encode("text", x).items():
        np.testing.assert_array_equal(value, expected[name])


def test_the_first_use_of_a_small_bundle_compiles_nothing(tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", text=rows(20, 0), video=rows(30, 1))
    kept = tmp_path / "kept"
    command = [sys.executable, "-m", "cimtool", "simulate", str(REFERENCE)]
    command += ["--inputs", str(tmp_path / "rows.npz"), "-o", str(tmp_path / "scores.npz")]
    environment = os.environ | {"NUMBA_CACHE_DIR": str(kept), "PYTHONPATH": str(ROOT)}
    subprocess.run(command, env=environment, check=True, capture_output=True)
    assert [file for file in kept.rglob("*") if file.is_file()] == []
    with np.load(tmp_path / "scores.npz") as found:
        expected = Simulator(read_bundle(REFERENCE).program).scores(rows(20, 0), rows(30, 1))
        np.testing.assert_array_equal(found["scores"], expected.astype(np.float32))
