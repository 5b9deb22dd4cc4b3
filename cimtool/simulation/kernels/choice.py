"""The choice of a layer's fused kernel: the fastest whose integers are right on this CPU."""

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

KERNELS: dict[str, ModuleType] = {
    "AMX": amx, "two cycles": paired, "popcount": popcount, "dot product": dot,
}  # fmt: skip
"""The fused kernels: modules with `fits`, `pack` and `run`, the fastest first (measured on each
instruction set by `benchmarks/kernels.py`)."""

CHECKED_ROWS, CHECKED_COLUMNS = 130, 40
"""Rows and columns of weights that a kernel must get right before it is used: more than a tile."""

ROW_BLOCK = 128
"""Rows that a kernel takes at a time: their digits and totals stay in a core's cache."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A layer for the fused kernels, and a part of it, `small`, by which a kernel is checked.

    The part is packed as the layer is: for the layer's least and largest cell, which the part may
    lack. `reference` is what the readable operation makes of the part, from inputs within `limits`.
    """

    layer: Layer
    small: Layer
    limits: tuple[int, int]
    reference: Callable[[IntArray], IntArray]

    @cached_property
    def rows(self) -> IntArray:
        """Inputs [rows, K of the part] that drive sums to their ends, and random ones."""
        return extreme_rows(self.limits, int(self.small.bounds[-1, 1]))

    @cached_property
    def expected(self) -> Array:
        """The part's outputs of those inputs, modulo 2^32."""
        return modulo_int32(self.reference(self.rows))


def candidate_of(
    layer: ConvertedLayer, bounds: tuple[IntArray, IntArray] | None = None
) -> Candidate | None:
    """A converted layer for fused kernels; None where none can take it.

    `bounds` are those proved of the outputs [N]; without them the codes' limits must do.
    """
    whole, corner = fused_layer(layer, bounds), layer.corner(CHECKED_COLUMNS)
    small = None if whole is None else fused_layer(corner, (corner.bias, corner.bias))
    if whole is None or small is None:
        return None
    code = layer.crossbar.inputs
    limits = code.limits(code.bits)
    small = small._replace(cells=whole.cells)
    return Candidate(whole, small, limits, lambda x: layer_mvm(x, corner))


def fused_cells(
    layer: ConvertedLayer,
    bounds: tuple[IntArray, IntArray] | None = None,
    kind: Kind = np.int64,
) -> Kernel | None:
    """A fused kernel of a converted layer; None where none takes it. `bounds`: `candidate_of`."""
    candidate = candidate_of(layer, bounds)
    return None if candidate is None else choose(candidate, kind)


def exact_product(
    weight: IntArray, bias: IntArray, limits: tuple[int, int], kind: Kind = np.int64
) -> Kernel | None:
    """`x @ weight + bias`, modulo 2^32, of inputs within limits, by a fused kernel; or None."""
    few = weight[:CHECKED_ROWS, :CHECKED_COLUMNS]
    layer = exact_layer(weight, bias, limits)
    small = exact_layer(few, np.zeros(few.shape[1], np.int64), limits)._replace(cells=layer.cells)
    return choose(Candidate(layer, small, limits, lambda x: x @ few), kind)


def choose(candidate: Candidate, kind: Kind = np.int64) -> Kernel | None:
    """The first kernel that takes a layer and is right about a part of it; or None.

    `kind` is the type of the outputs.
    """
    for name, kernel in KERNELS.items():
        if kernel.fits(candidate.layer):
            part = fused(kernel, candidate.small, np.int32)
            if np.array_equal(candidate.expected, part(candidate.rows)):
                return fused(kernel, candidate.layer, kind)
            warn_of(name)
    return None


def warn_of(name: str) -> bool:
    """Say that a kernel is left out; False, for it is not right."""
    warnings.warn(
        f"the {name} kernel does not give the reference's integers on this CPU;"
        " a slower one is used",
        CimWarning,
        stacklevel=2,
    )
    return False


def extreme_rows(limits: tuple[int, int], width: int) -> IntArray:
    """Inputs [rows, width] that drive sums to their ends, and random ones."""
    return _extreme_rows(*limits, width).copy()


@cache
def _extreme_rows(lo: int, hi: int, width: int) -> IntArray:
    rows = [np.full(width, lo), np.full(width, hi), np.resize([lo, hi], width), np.zeros(width)]
    drawn = np.random.default_rng(0).integers(lo, hi, (9, width), endpoint=True)
    return np.concatenate([np.array(rows, np.int64), drawn])


def fused(kernel: ModuleType, layer: Layer, kind: Kind) -> Kernel:
    """A layer packed for one of the `KERNELS`: a function of inputs [n, K] to outputs [n, N]."""
    # Not the layer itself: its cells as int64 take eight times what is packed.
    bounds, drive, epilogue, columns = layer.bounds, layer.drive, layer.epilogue, layer.columns
    packed = kernel.pack(layer)

    def fill(x: Array, out: Array) -> None:
        in_int32(kernel.run, x, bounds, drive, epilogue, packed, out)

    return in_blocks(fill, columns, kind)


def in_int32(run: Callable[..., None], x: Array, *more: Any) -> None:
    """Call a compiled kernel, whose last argument is the array of outputs [n, N], as compiled.

    With inputs and outputs of int32: for each other pair all would be compiled once more.
    """
    *layer, out = more
    made = out if out.dtype == np.int32 else np.empty(out.shape, np.int32)
    run(np.ascontiguousarray(x, np.int32), *layer, made)
    if made is not out:
        out[:] = made


def in_blocks(
    fill: Callable[[Array, Array], None], columns: int, kind: type[np.number[Any]]
) -> Kernel:
    """A kernel on blocks of rows, side by side: `fill` writes outputs [n, N] of inputs [n, K]."""

    def run(x: Array) -> Array:
        out = np.empty((len(x), columns), kind)
        map_rows(lambda block: fill(x[block], out[block]), len(x), ROW_BLOCK)
        return out

    return run
