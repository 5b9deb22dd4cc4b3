"""The choice of a layer's fused kernel: the fastest whose integers are right on this CPU."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from types import ModuleType

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.base.compiled import map_rows
from cimtool.hardware.crossbar import Cells, cells_mvm
from cimtool.hardware.references import AdcReferences
from cimtool.simulation.kernels import dot, popcount
from cimtool.simulation.kernels.fused import Layer, converted_layer, modulo_int32

Kernel = Callable[..., Array]
Kind = type[np.int32] | type[np.int64]

KERNELS: dict[str, ModuleType] = {"popcount": popcount, "dot product": dot}
"""The fused kernels, fastest first: modules with `fits`, `pack` and `run`."""

CHECKED_COLUMNS = 40
"""Columns of a layer that a kernel must get right before it is used: more than a tile."""

ROW_BLOCK = 128
"""Rows that a kernel takes at a time: their digits and totals stay in a core's cache."""


def fused_cells(
    cells: Cells,
    references: Sequence[AdcReferences | None],
    offset: IntArray,
    bounds: tuple[IntArray, IntArray] | None = None,
    kind: Kind = np.int64,
) -> Kernel | None:
    """`cells_mvm(x, cells, references) + offset` by a fused kernel; None where none takes it.

    `bounds` are those proved of the outputs [N]; without them the codes' limits must do.
    """
    layer = converted_layer(cells, references, offset, bounds)
    if layer is None:
        return None
    first, columns = cells.groups[0], slice(0, CHECKED_COLUMNS)
    slices = [
        replace(s, digits=s.digits[first, columns], flipped=s.flipped[:1, columns])
        for s in cells.slices
    ]
    few, added = replace(cells, slices=tuple(slices)), offset[columns]
    own = [None if one is None else one.among(columns) for one in references]
    small = converted_layer(few, own, added, (added, added))
    code = cells.crossbar.inputs

    def reference(x: IntArray) -> IntArray:
        return cells_mvm(x, few, own) + added

    return choose(layer, small, code.limits(code.bits), reference, kind)


def choose(
    layer: Layer,
    small: Layer | None,
    limits: tuple[int, int],
    reference: Callable[[IntArray], IntArray],
    kind: Kind = np.int64,
) -> Kernel | None:
    """The first kernel that takes a layer and is right about `small`, a part of it; or None.

    `reference` is what the readable operation makes of the part, from inputs within `limits`;
    `kind` is the type of the outputs.
    """
    if small is None:
        return None
    x = extreme_rows(limits, int(small.bounds[-1, 1]))
    expected = modulo_int32(reference(x))
    for name, kernel in KERNELS.items():
        if kernel.fits(layer):
            if np.array_equal(expected, _fused(kernel, small, np.int32)(x)):
                return _fused(kernel, layer, kind)
            warn_of(name)
    return None


def warn_of(name: str) -> bool:
    """Say that a kernel is left out; False, for it is not right."""
    warnings.warn(
        f"the {name} kernel does not give the reference's integers on this CPU;"
        " a slower one is used",
        RuntimeWarning,
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


def _fused(kernel: ModuleType, layer: Layer, kind: Kind) -> Kernel:
    # Not the layer itself: its cells as int64 take eight times what is packed.
    bounds, drive, epilogue, columns = layer.bounds, layer.drive, layer.epilogue, layer.columns
    packed = kernel.pack(layer)

    def run(x: Array) -> Array:
        # Inputs and outputs of one type: for each other pair all would be compiled once more.
        out = np.empty((len(x), columns), np.int32)
        kernel.run(x.astype(np.int32), bounds, drive, epilogue, packed, out)
        return out.astype(kind, copy=False)

    return in_blocks(run)


def in_blocks(kernel: Kernel) -> Kernel:
    """The kernel on blocks of rows, side by side."""

    def run(x: Array) -> Array:
        parts = map_rows(lambda block: kernel(x[block]), len(x), ROW_BLOCK)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    return run
