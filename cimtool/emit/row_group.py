"""A crossbar layer as ONNX nodes: one call of a local function for each row group.

Only uint8 x uint8 products (zero points 0 and 128) appear: they are exact on every CPU.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from cimtool.arrays import Array, IntArray
from cimtool.emit.functions import Conversion, row_group_adc, row_group_mvm
from cimtool.emit.writer import GraphWriter
from cimtool.errors import CimError
from cimtool.hardware.crossbar import (
    Crossbar,
    Slice,
    column_bounds,
    correction,
    encode_weights,
    input_cycles,
)
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.arithmetic import byte_planes, mvm_bounds, zero_point
from cimtool.ir.types import Type, integer

INT32 = np.iinfo(np.int32)
BYTE_ROWS = 1 << 15
"""Rows whose byte products add up in int32, whatever the bytes."""


def emit_mvm(writer: GraphWriter, op: CrossbarMvm, x_type: Type, x: str) -> str:
    """Append `crossbar.mvm(x) + bias`: a call a row group, then the digital sum, int64 [n, N].

    Raises CimError where a row group has more rows than byte products add up in 32 bits.
    """
    tallest = max(group.stop - group.start for group in op.crossbar.groups(op.weight.shape[0]))
    if tallest > BYTE_ROWS:
        raise CimError(
            f"array rows: a row group of {tallest} rows cannot be emitted as integer ONNX; "
            f"expected at most {BYTE_ROWS} rows"
        )
    if op.exact:
        return _exact(writer, op, x_type, x)
    return _converted(writer, op, x)


def _exact(writer: GraphWriter, op: CrossbarMvm, x_type: Type, x: str) -> str:
    """Lossless converters: slices and cycles merge into one integer product a row group."""
    lo, hi = mvm_bounds(op.weight, np.zeros_like(op.bias), x_type)
    wide = bool(max(hi.max(), -lo.min()) > INT32.max)
    planes = byte_planes(writer, x_type, x)
    weights = constant_planes(op.weight)
    function = row_group_mvm(len(planes), len(weights), wide)
    values = _plane_values(writer, planes, weights, wide)
    values["axis"] = writer.constant(np.array([1]))
    outputs = _row_groups(writer, op.crossbar, function, values, [weights] * op.groups_count)
    return _digital_sum(writer, outputs, wide, op.bias, "")


def _converted(writer: GraphWriter, op: CrossbarMvm, x: str) -> str:
    """Converters that round or clip: every slice and cycle of every row group as it is."""
    crossbar = op.crossbar
    slices, cycles = encode_weights(op.weight, crossbar), input_cycles(crossbar)
    groups = crossbar.groups(op.weight.shape[0])
    wide = _reach(op, slices) > INT32.max
    planes = _input_digits(writer, crossbar, x)
    weights = constant_planes(np.hstack([cells.digits for cells in slices]))
    factors = _slice_factors(slices)
    form = Conversion(
        inputs=len(planes),
        weights=len(weights),
        slices=len(slices),
        cycles=len(cycles),
        rounding=crossbar.rounding,
        signed=crossbar.signed_sums,
        scaled=bool((factors != 1).any()),
        wide=wide,
    )
    values = _plane_values(writer, planes, weights, wide)
    values |= _converter_values(writer, op, wide)
    ...
