"""Speed of the layers on a die, beside the same layers without noise.

Programming error and drift are frozen: only the cells differ. Fresh read noise is drawn for every
conversion, of a product (`mvm`) or a cycle. The layers and two of the arrays of `projector.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import Row, arguments, report, side_by_side, use_threads
from layers import BUILDS, inputs, kernels, limits, operations, run_all

from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.noise.die import Arrays, Die
from cimtool.hardware.noise.mvm import NoisyMvm
from cimtool.hardware.noise.spec import Noise
from cimtool.ir.types import integer
from cimtool.simulation.die_program import Conditions, LayerOnArrays, noisy_layer
from cimtool.simulation.kernels.operations import fast_kernel

FROZEN = {
    "source": "a benchmark",
    "g_max": 25.0,
    "t0": 20.0,
    "programming": {"sigma": [0.26348, 1.965, -1.1731]},
    "drift": {
        "mean": {"log": [-0.0155, 0.0244], "clamp": [0.049, 0.1]},
        "sigma": {"log": [-0.0125, -0.0059], "clamp": [0.008, 0.045]},
    },
}
NOISES: dict[str, dict[str, Any]] = {
    "programming error and drift": FROZEN,
    "and fresh read noise a cycle": {**FROZEN, "read": {"sigma": 0.01, "redraw": "cycle"}},
    "and fresh read noise a product": {**FROZEN, "read": {"sigma": 0.01, "redraw": "mvm"}},
}
LEAST = {
    "1 slice, 1 cycle": (0.3, 0.05, 0.05),
    "4 slices, 8 cycles": (0.3, 0.02, 0.02),
}
"""At least so many times the speed without noise."""

SECONDS = 3600.0

Array = np.ndarray[Any, Any]


def die_operations(ops: list[CrossbarMvm], noise: Noise) -> tuple[list[NoisyMvm], float]:
    """The layers on one die, and the seconds that drawing it took."""
    lo, hi = limits(ops[0].crossbar)
    conditions, die = Conditions(noise, SECONDS), Die(0, 0, SECONDS)
    started = time.perf_counter()
    drawn = [
        noisy_layer(
            op,
            integer(("n", len(op.weight)), lo, hi, 1.0),
            LayerOnArrays(f"layer{index}", f"layer{index}", Arrays(None, "columns", None)),
            conditions,
            die,
        )
        for index, op in enumerate(ops)
    ]
    return drawn, time.perf_counter() - started


def die_kernels(ops: list[CrossbarMvm], noise: Noise) -> tuple[list[Callable[..., Array]], float]:
    """The kernels of those layers, and the seconds."""
    drawn, taken = die_operations(ops, noise)
    return [fast_kernel(op, ()) for op in drawn], taken


def measured(name: str, rounds: int) -> list[Row]:
    """One array: each kind of noise beside none."""
    ops = operations(BUILDS[name])
    given = inputs(ops)
    plain = kernels(ops)
    dies = {kind: die_kernels(ops, Noise.model_validate(keys)) for kind, keys in NOISES.items()}
    candidates: dict[str, Callable[[], object]] = {"": lambda: run_all(plain, given)}
    for kind, (layers, _) in dies.items():
        candidates[kind] = lambda layers=layers: run_all(layers, given)  # type: ignore[misc]
    taken = side_by_side(candidates, rounds)
    return [
        {
            "array": name,
            "die": kind,
            "v/s": round(len(given[0]) / taken[kind]),
            "without noise, v/s": round(len(given[0]) / taken[""]),
            "of its speed": taken[""] / taken[kind],
            "at least": least,
            "drawn in, s": dies[kind][1],
        }
        for kind, least in zip(NOISES, LEAST[name], strict=True)
    ]


def main() -> None:
    options = arguments(str(__doc__), rounds=5)
    use_threads()
    rows = [row for name in LEAST for row in measured(name, options.rounds)]
    report("dies", rows, options.json)


if __name__ == "__main__":
    main()
