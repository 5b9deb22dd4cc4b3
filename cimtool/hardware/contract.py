"""The integer contract of a crossbar, readable: encodings, conversions, shift-and-add in int64.

    mvm(x, W) = sum over row groups r, slices k, cycles c of
                worth_k * sign_c * ( read_k(x_c[r] . W_k[r]) << shift_c )

`read` is the value that the digital side adds for a column sum, through its converter
(`references`). With `adc_on = polarity` each polarity of a slice is a term k. With
`shift_add = analog` the sum over c is inside the converter. If erased cells leak, sums count in
2^-LEAK_BITS of a digit.

This file is the definition (docs/integer-contract.md works one tile by hand); the kernels and the
emitted ONNX are tested against it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import numpy as np

from cimtool.base.arrays import FLOAT_BITS, SINGLE_BITS, IntArray
from cimtool.hardware.converted_layer import ConvertedLayer

Convert = Callable[[IntArray, int, int, int], IntArray]
"""Converts (column sums [n, N], row group, slice, cycle) to the values that the digital side adds.

A value has `reference_bits` more binary places than a sum. The unit column, if there is one, counts
as the slice after the last.
"""


def layer_mvm(x: IntArray, layer: ConvertedLayer, convert: Convert | None = None) -> IntArray:
    """The outputs [n, N] of a layer for integer inputs [n, K].

    `convert` replaces the converters of the contract.
    """
    places = layer.cells.places
    total = np.zeros((x.shape[0], len(layer.bias)), np.int64)
    for part in group_sums(x, layer, convert):
        total += part
    return (total + (1 << places >> 1) >> places) + layer.bias


def group_sums(
    x: IntArray, layer: ConvertedLayer, convert: Convert | None = None
) -> Iterator[IntArray]:
    """Yield the addition of each row group to the outputs [n, N], in 2^-places of a digit."""
    cells, crossbar, code = layer.cells, layer.crossbar, layer.crossbar.weights

    def read(p: IntArray, r: int, k: int, c: int) -> IntArray:
        return crossbar.read(p, layer.references[crossbar.reference_of(k, c)], r)

    converted = convert or read
    driving = list(zip(crossbar.digits(x), crossbar.zero_digits, crossbar.cycles, strict=True))
    for r, group in enumerate(cells.groups):
        total = np.zeros((x.shape[0], len(layer.bias)), np.int64)
        products = [_product_with(column.digits[group]) for column in cells.slices]
        for c, (digits, zero, cycle) in enumerate(driving):
            driven = digits[:, group]
            summed = driven.sum(axis=1, keepdims=True)
            unused = cells.leak * cells.idle_rows[r] * zero
            leak = cells.leak * summed + unused << crossbar.reference_bits
            if crossbar.unit_column:
                row_sum = converted(summed, r, len(cells.slices), c) << cells.fraction_bits
            else:
                row_sum = summed << cells.places
            for k, column in enumerate(cells.slices):
                p = converted(products[k](driven) + unused, r, k, c) - leak
                if column.flipped[r].any():
                    p = np.where(column.flipped[r], code.complement * row_sum - p, p)
                total += cycle.factor * column.worth * p
            total -= cycle.factor * code.offset * row_sum
        yield total


def _product_with(cells: IntArray) -> Callable[[IntArray], IntArray]:
    """`x @ cells` of any x, in floats if every sum is exact there: integers have no BLAS."""
    most = _largest(cells) * len(cells)
    factor = cache(cells.astype)

    def product(x: IntArray) -> IntArray:
        reach = _largest(x) * most
        kind = "float32" if reach < 1 << SINGLE_BITS else "float64"
        if reach >= 1 << FLOAT_BITS:
            kind = "int64"
        found: IntArray = (x.astype(kind) @ factor(kind)).astype(np.int64, copy=False)
        return found

    return product


def _largest(numbers: IntArray) -> int:
    return max(int(numbers.max(initial=0)), -int(numbers.min(initial=0)))
