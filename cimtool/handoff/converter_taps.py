"""The numbers on the way through one layer, at the taps where a chip can be probed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise, product

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.hardware.contract import group_sums
from cimtool.hardware.converted_layer import ConvertedLayer
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.noise.mvm import NoisyMvm


@dataclass(frozen=True)
class Taps:
    """The numbers of one layer for inputs [n, K]; sums count 2^-fraction_bits of a digit.

    `digits` [n, cycles, K] are driven; `sums` and `codes` [n, groups, cycles, columns] are those of
    every slice's N columns and then of the unit column, if there is one; codes of a lossless column
    are its sums. `shift_add` [n, groups, N] is what each row group adds to the layer's sum, in
    2^-places of a digit.
    """

    digits: IntArray
    sums: IntArray
    codes: IntArray
    shift_add: IntArray


def taps(op: CrossbarMvm, x: IntArray) -> Taps:
    """Compute the taps of a layer for integer inputs `x` [n, K]."""
    crossbar, layer = op.crossbar, op.layer
    sums, codes, places = _room(layer, x)

    def probed(p: IntArray, r: int, k: int, c: int) -> IntArray:
        at = crossbar.reference_of(k, c)
        column, place = layer.columns[at], places[at]
        sums[:, r, c, place] = codes[:, r, c, place] = p
        if column.law is not None:
            codes[:, r, c, place] = column.codes(p << crossbar.reference_bits, r)
        return crossbar.read(p, op.references[at], r)

    added = group_sums(x, layer, probed)
    shift_add = np.stack(list(added), axis=1)
    return Taps(crossbar.digits(x).transpose(1, 0, 2), sums, codes, shift_add)


def die_reads(op: NoisyMvm, x: IntArray) -> tuple[IntArray, IntArray]:
    """Sums and codes [n, groups, cycles, columns] of a layer on a die for inputs `x` [n, K].

    Sums, with the noise of reads, count 2^-fraction_bits of a digit in the places of the die's
    cells. Codes are as in `Taps`.
    """
    crossbar, layer, carried = op.crossbar, op.layer, op.carried(x)
    sums, codes, places = _room(layer, x)

    def probed(p: IntArray, r: int, k: int, c: int) -> IntArray:
        at = crossbar.reference_of(k, c)
        column, place = layer.columns[at], places[at]
        p = carried(p, r, k, c)
        sums[:, r, c, place] = codes[:, r, c, place] = p
        if column.law is not None:
            codes[:, r, c, place] = column.codes(op.seen(p, r, k, c), r)
        return p << crossbar.reference_bits

    for _ in group_sums(x, layer, probed):
        pass
    return sums, codes


def _room(layer: ConvertedLayer, x: IntArray) -> tuple[IntArray, IntArray, list[slice]]:
    """Room for sums and for codes, and the places in it of the layer's columns."""
    places = column_places(layer)
    cycles = len(layer.crossbar.cycles)
    shape = len(x), len(layer.cells.groups), cycles, places[-1].stop
    return np.zeros(shape, np.int64), np.zeros(shape, np.int64), places


def column_places(layer: ConvertedLayer) -> list[slice]:
    """The places of each of a layer's columns in `Taps.codes`."""
    again = layer.crossbar.reference_cycles
    ends = accumulate((one.cells.digits.shape[1] for one in layer.columns[::again]), initial=0)
    return [slice(*ends_of) for ends_of in pairwise(ends) for _ in range(again)]


def layer_sum(op: CrossbarMvm, shift_add: IntArray) -> IntArray:
    """The layer's output [n, N] from what its row groups add."""
    places = op.crossbar.places
    total: IntArray = shift_add.sum(axis=1) + (1 << places >> 1) >> places
    return total + op.layer.bias


def worst_column(op: CrossbarMvm, lo: IntArray, hi: IntArray) -> IntArray:
    """The input [K] of lo..hi [K] that makes the largest column sum that any input can make.

    Of all slices, columns, row groups and cycles; rows of other groups are as near to zero as
    their limits allow.
    """
    zero: IntArray = np.clip(0, lo, hi)
    largest, worst = None, zero
    for most, x_most, least, x_least in _driven_ends(op, lo, hi):
        for column, group in product(op.stored.cells.slices, op.stored.groups):
            digits = column.digits[group].astype(np.int64)
            upward, downward = (limit(digits, 0) for limit in (np.maximum, np.minimum))
            sums = most[group] @ upward + least[group] @ downward
            j = int(sums.argmax())
            if largest is None or sums[j] > largest:
                largest, worst = int(sums[j]), zero.copy()
                worst[group] = np.where(digits[:, j] > 0, x_most[group], x_least[group])
    return worst


def _driven_ends(
    op: CrossbarMvm, lo: IntArray, hi: IntArray
) -> Iterator[tuple[IntArray, IntArray, IntArray, IntArray]]:
    """Yield for each cycle the largest digit [K] of an input of lo..hi, that input, and the least.

    The least digit is followed by its input as well.
    """
    start = int(lo.min())
    ranges, row = np.unique(np.stack([lo, hi + 1]) - start, axis=1, return_inverse=True)
    values = np.arange(start, int(hi.max()) + 1)
    for driven in op.crossbar.digits(values[:, None])[:, :, 0]:
        most, least = (
            np.array([at + end(driven[at:to]) for at, to in ranges.T], np.int64)[row.ravel()]
            for end in (np.argmax, np.argmin)
        )
        yield driven[most].astype(np.int64), values[most], driven[least], values[least]


def sum_bits(op: CrossbarMvm) -> int:
    """Bits of two's complement that hold every column sum, whatever the inputs."""
    crossbar, layer = op.crossbar, op.layer
    largest = max(column.reach for column in layer.of_slices)
    unit = max(map(abs, crossbar.digit_limits)) * len(op.weight) if crossbar.unit_column else 0
    return max(largest, unit).bit_length() + 1
