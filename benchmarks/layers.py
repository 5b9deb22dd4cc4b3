"""Four layers of one projector on each kind of array, as the benchmarks of layers take them.

Layers 1024x2048, 2048x2048 and two of 2048x1024, 8 bits, batch 256, 256 rows a group; the layers
alone, on inputs that are given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cimtool.base.threads import map_rows
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
    """An array, and the exponent of its converters' step in digits (None: lossless)."""

    crossbar: Crossbar
    step: int | None

    @property
    def references(self) -> tuple[AdcReferences | None, ...]:
        """The references of each slice."""
        one = None if self.step is None else AdcReferences.from_zero(1 << self.step)
        return (one,) * self.crossbar.slices


BUILDS = {
    "lossless, unsigned": Build(array(TwosComplement(BITS, BITS), converter=LOSSLESS), None),
    "lossless, signed": Build(
        array(TwosComplement(BITS, BITS), TwosComplementInput(BITS, BITS), LOSSLESS), None
    ),
    "1 slice, 1 cycle": Build(array(Differential(BITS, BITS)), 13),
    "4 slices, 1 cycle": Build(array(Offset(BITS, 2)), 9),
    "4 slices, 8 cycles": Build(array(Offset(BITS, 2), Unsigned(BITS, 1)), 2),
    "4 slices flipped, 8 cycles, signed": Build(
        array(OffsetFlip(BITS, 2), TwosComplementInput(BITS, 1)), 2
    ),
}


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


def run_all(run: Sequence[Callable[[Array], Array]], given: Sequence[Array]) -> list[list[Array]]:
    """All layers on their inputs: the outputs of blocks of rows, which run side by side.

    The simulator leaves them so between layers.
    """
    return map_rows(
        lambda rows: [kernel(x[rows]) for kernel, x in zip(run, given, strict=True)],
        BATCH,
        THREAD_ROWS,
    )


def joined(blocks: Sequence[Sequence[Array]]) -> list[Array]:
    """The outputs of each layer, of all rows."""
    return [np.concatenate(parts) for parts in zip(*blocks, strict=True)]


def differing(ops: list[CrossbarMvm], found: list[Array], given: list[Array]) -> int:
    """Count of integers of the first rows that are not those of the readable reference."""
    return sum(
        int((y[:CHECKED_ROWS] != op.run(x[:CHECKED_ROWS].astype(np.int64))).sum())
        for op, y, x in zip(ops, found, given, strict=True)
    )
