"""The choice of a layer's fused kernel: the fastest one with the right integers on this CPU."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from types import ModuleType
from typing import Any

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.base.errors import CimWarning
from cimtool.base.threads import map_rows
from cimtool.hardware.contract import layer_mvm
from cimtool.hardware.converted_layer import ConvertedLayer
from cimtool.simulation.kernels import amx, dot, paired, popcount
from cimtool.simulation.kernels.fused import (
    Layer,
    exact_layer,
    fused_layer,
    modulo_int32,
)

Kernel = Callable[..., Array]
Kind = type[np.int32] | type[np.int64]

FUSED_KERNELS: dict[str, ModuleType] = {
    "AMX": amx, "two cycles": paired, "popcount": popcount, "dot product": dot,
}  # fmt: skip
"""The fused kernels: modules with `fits`, `pack` and `run`, the fastest first (measured on each
instruction set by `benchmarks/kernels.py`)."""

CHECKED_ROWS, CHECKED_COLUMNS = 130, 40
"""A kernel must be right about this many rows and columns, more than a tile, before it is used."""

ROW_BLOCK = 128
"""Rows per call of a kernel. Their digits and totals stay in a core's cache."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A layer for the fused kernels, and a part of it, `small`, that checks a kernel.

    The part is packed for the least and largest cell of the whole layer, so that both have the same
    form. `reference` computes the part with the readable operation, for inputs within `limits`.
    """

    layer: Layer
    small: Layer
    limits: tuple[int, int]
    reference: Callable[[IntArray], IntArray]

    @cached_property
    def rows(self) -> IntArray:
        """Inputs [rows, K of `small`]: extreme ones and random ones."""
        return extreme_rows(self.limits, int(self.small.group_ends[-1, 1]))

    @cached_property
    def expected(self) -> Array:
        """The outputs of `small` for these inputs, modulo 2^32."""
        return modulo_int32(self.reference(self.rows))


def candidate_of(
    layer: ConvertedLayer, bounds: tuple[IntArray, IntArray] | None = None
) -> Candidate | None:
    """Prepare a converted layer for the fused kernels; None if none can take it.

    `bounds` are proved bounds of the outputs [N]. Without them the codes' limits are used.
    """
    whole, corner = fused_layer(layer, bounds), layer.corner(CHECKED_COLUMNS)
    small = None if whole is None else fused_layer(corner, (corner.bias, corner.bias))
    if whole is None or small is None:
        return None
    code = layer.crossbar.inputs
    limits = code.limits(code.bits)
    small = small._replace(cell_limits=whole.cell_limits)
    return Candidate(whole, small, limits, lambda x: layer_mvm(x, corner))


def fused_cells(
    layer: ConvertedLayer,
    bounds: tuple[IntArray, IntArray] | None = None,
    kind: Kind = np.int64,
) -> Kernel | None:
    """A fused kernel for a converted layer; None if none takes it. `bounds`: see `candidate_of`."""
    candidate = candidate_of(layer, bounds)
    return None if candidate is None else choose(candidate, kind)


def exact_product(
    weight: IntArray, bias: IntArray, limits: tuple[int, int], kind: Kind = np.int64
) -> Kernel | None:
    """A fused kernel for `x @ weight + bias` modulo 2^32, x within limits; None if none fits."""
    few = weight[:CHECKED_ROWS, :CHECKED_COLUMNS]
    layer = exact_layer(weight, bias, limits)
    small = exact_layer(few, np.zeros(few.shape[1], np.int64), limits)._replace(
        cell_limits=layer.cell_limits
    )
    return choose(Candidate(layer, small, limits, lambda x: x @ few), kind)


def choose(candidate: Candidate, kind: Kind = np.int64) -> Kernel | None:
    """The first kernel that takes the layer and computes its part correctly; None if there is none.

    `kind` is the type of the outputs.
    """
    for name, kernel in FUSED_KERNELS.items():
        if kernel.fits(candidate.layer):
            part = fused(kernel, candidate.small, np.int32)
            if np.array_equal(candidate.expected, part(candidate.rows)):
                return fused(kernel, candidate.layer, kind)
            warn_of(name)
    return None


def warn_of(name: str) -> bool:
    """Warn that a kernel is not used because its integers are wrong. Returns False."""
    warnings.warn(
        f"the {name} kernel does not give the reference's integers on this CPU;"
        " a slower one is used",
        CimWarning,
        stacklevel=2,
    )
    return False


def extreme_rows(limits: tuple[int, int], width: int) -> IntArray:
    """Inputs [rows, width]: some drive sums to their extremes, the others are random."""
    return _extreme_rows(*limits, width).copy()


@cache
def _extreme_rows(lo: int, hi: int, width: int) -> IntArray:
    rows = [np.full(width, lo), np.full(width, hi), np.resize([lo, hi], width), np.zeros(width)]
    drawn = np.random.default_rng(0).integers(lo, hi, (9, width), endpoint=True)
    return np.concatenate([np.array(rows, np.int64), drawn])


def fused(kernel: ModuleType, layer: Layer, kind: Kind) -> Kernel:
    """Pack a layer for a fused kernel. The result maps inputs [n, K] to outputs [n, N]."""
    # `fill` must not hold the layer: its int64 cells take eight times the packed memory.
    bounds, drive, epilogue, columns = layer.group_ends, layer.drive, layer.epilogue, layer.columns
    packed = kernel.pack(layer)

    def fill(x: Array, out: Array) -> None:
        in_int32(kernel.run, x, bounds, drive, epilogue, packed, out)

    return in_blocks(fill, columns, kind)


def in_int32(run: Callable[..., None], x: Array, *more: Any) -> None:
    """Call a compiled kernel with int32 inputs and outputs; the outputs [n, N] come last.

    Other types are converted, because each pair of types would compile the kernel again.
    """
    *layer, out = more
    made = out if out.dtype == np.int32 else np.empty(out.shape, np.int32)
    run(np.ascontiguousarray(x, np.int32), *layer, made)
    if made is not out:
        out[:] = made


def in_blocks(
    fill: Callable[[Array, Array], None], columns: int, kind: type[np.number[Any]]
) -> Kernel:
    """A kernel that calls `fill(inputs [n, K], outputs [n, N])` on blocks of rows in parallel."""

    def run(x: Array) -> Array:
        out = np.empty((len(x), columns), kind)
        map_rows(lambda block: fill(x[block], out[block]), len(x), ROW_BLOCK)
        return out

    return run
