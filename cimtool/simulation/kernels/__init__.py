"""The same integers as the readable operations, fast: what the simulator runs.

A layer with converters goes to the first kernel that takes it: bits counted (few-bit digits and
cells), products of bytes (VNNI), or the floating-point BLAS, which runs everywhere. A kernel that
does not give the readable reference's integers on this CPU is left out, with a warning.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.hardware.crossbar import (
    Cells,
    Crossbar,
    cells_mvm,
    correction,
    perfect_cells,
)
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.arithmetic import MatMul, Mvm
from cimtool.ir.op import Op
from cimtool.ir.types import Type
from cimtool.simulation.kernels.choice import Kernel, Kind, choose, in_blocks
from cimtool.simulation.kernels.elementwise import narrow, widened
from cimtool.simulation.kernels.fused import (
    converted_layer,
    input_limits,
    is_narrow,
)
from cimtool.simulation.kernels.portable import Converted, absolute_bound, product_kind
from cimtool.simulation.kernels.products import PairProduct, weight_product

__all__ = ["absolute_bound", "fused_cells", "prepare", "prepare_narrow", "product_kind"]

CHECKED_COLUMNS = 40
"""Columns of a layer that a kernel must get right before it is used: more than a tile."""


def prepare(op: Op, types: tuple[Type, ...]) -> Kernel:
    """The fastest form of an operation on inputs of these types; constants are packed once."""
    return _product(op, types, np.int64) or op.kernel() or op.run


def prepare_narrow(op: Op, types: tuple[Type, ...], known: Type) -> Kernel:
    """As `prepare`, but integers come and go in types as narrow as their proved ranges allow."""
    if not known.is_integer and not any(one.is_integer for one in types):
        return op.run
    kind = np.int32 if known.is_integer and is_narrow(known) else np.int64
    return _product(op, types, kind) or narrow(op, known) or widened(op.kernel() or op.run)


def _product(op: Op, types: tuple[Type, ...], kind: Kind) -> Kernel | None:
    if not types or not all(known.is_integer for known in types):
        return None
    if isinstance(op, MatMul):
        return PairProduct(types, kind)
    if isinstance(op, Mvm) or (isinstance(op, CrossbarMvm) and op.exact):
        return weight_product(op, types[0], kind)
    return _converted(op, types[0], kind) if isinstance(op, CrossbarMvm) else None


def _converted(op: CrossbarMvm, x: Type, kind: Kind) -> Kernel:
    if op.unit_step is None:
        cells = perfect_cells(op.weight, op.crossbar)
        offset, known = op.bias - correction(op.weight, op.crossbar), op.infer(x)
        bounds = (known.lo, known.hi)
        kernel = fused_cells(cells, op.crossbar, op.steps, offset, bounds, kind)
        if kernel is not None:
            return kernel
    return in_blocks(Converted(op))


def fused_cells(
    cells: Cells,
    crossbar: Crossbar,
    steps: tuple[int | None, ...],
    offset: IntArray,
    bounds: tuple[IntArray, IntArray] | None = None,
    kind: Kind = np.int64,
) -> Kernel | None:
    """`cells_mvm(x, cells, crossbar, steps) + offset` by a fused kernel; None where none takes it.

    `bounds` are those proved of the outputs [N]; without them the codes' limits must do.
    """
    layer = converted_layer(cells, crossbar, steps, offset, bounds)
    if layer is None:
        return None
    few, added = _first_group(cells, crossbar), offset[:CHECKED_COLUMNS]
    small = converted_layer(few, crossbar, steps, added, (added, added))

    def reference(x: IntArray) -> IntArray:
        return cells_mvm(x, few, crossbar, steps) + added

    return choose(layer, small, input_limits(crossbar), reference, kind)


def _first_group(cells: Cells, crossbar: Crossbar) -> Cells:
    """The cells of the first row group, in a few columns."""
    group = crossbar.groups(len(cells.slices[0].digits))[0]
    few = slice(0, CHECKED_COLUMNS)
    slices = [
        replace(s, digits=s.digits[group, few], flipped=s.flipped[:1, few]) for s in cells.slices
    ]
    return replace(cells, slices=tuple(slices))
