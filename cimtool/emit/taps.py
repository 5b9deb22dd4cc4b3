"""The numbers on the way through one layer, at the taps where a chip can be probed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise, product

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.hardware.crossbar import group_sums
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.noise.mvm import NoisyMvm
from cimtool.hardware.references import AdcReferences


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
    crossbar, stored, columns = op.crossbar, op.stored, converted_columns(op)
    shape = len(x), len(stored.groups), len(crossbar.cycles), columns[-1][0].stop
    sums, codes = np.zeros(shape, np.int64), np.zeros(shape, np.int64)

    def probed(p: IntArray, r: int, k: int, c: int) -> IntArray:
        column, references = columns[crossbar.reference_of(k, c)]
        sums[:, r, c, column] = codes[:, r, c, column] = p
        if references is not None and crossbar.law is not None:
            fine = p << crossbar.reference_bits
            codes[:, r, c, column] = references.codes(crossbar.law, fine, r)
        return crossbar.read(p, references, r)

    added = group_sums(x, stored.cells, op.references, probed)
    shift_add = np.stack(list(added), axis=1)
    return Taps(crossbar.digits(x).transpose(1, 0, 2), sums, codes, shift_add)


def die_reads(op: NoisyMvm, x: IntArray) -> tuple[IntArray, IntArray]:
    """Sums and codes [n, groups, cycles, columns] of a layer on a die for inputs `x` [n, K].

    Sums, with the noise of reads, count 2^-fraction_bits of a digit in the places of the die's
    cells. Codes are as in `Taps`.
    """
    crossbar, columns, carried = op.crossbar, converted_columns(op.perfect), op.carried(x)
    groups = len(op.cells.groups)
    shape = len(x), groups, len(crossbar.cycles), columns[-1][0].stop
    sums, codes = np.zeros(shape, np.int64), np.zeros(shape, np.int64)

    def probed(p: IntArray, r: int, k: int, c: int) -> IntArray:
        place = crossbar.reference_of(k, c)
        column, references = columns[place][0], op.fine_references[place]
        p = carried(p, r, k, c)
        sums[:, r, c, column] = codes[:, r, c, column] = p
        if references is not None and crossbar.law is not None:
            codes[:, r, c, column] = references.codes(crossbar.law, op.seen(p, r, k, c), r)
        return p << crossbar.reference_bits

    for _ in group_sums(x, op.cells, op.references, probed):
        pass
    return sums, codes


def converted_columns(op: CrossbarMvm) -> list[tuple[slice, AdcReferences | None]]:
    """The columns of each of `op.columns` in `Taps.codes`, and their references."""
    columns, again = op.columns, op.crossbar.reference_cycles
    ends = accumulate((one.cells.digits.shape[1] for one in columns[::again]), initial=0)
    places = [slice(*ends_of) for ends_of in pairwise(ends) for _ in range(again)]
    return [(place, one.references) for place, one in zip(places, columns, strict=True)]


def layer_sum(op: CrossbarMvm, shift_add: IntArray) -> IntArray:
    """The layer's output [n, N] from what its row groups add."""
    places = op.crossbar.places
    total: IntArray = shift_add.sum(axis=1) + (1 << places >> 1) >> places
    return total + op.bias - op.stored.correction


def worst_column(op: CrossbarMvm, lo: int, hi: int) -> IntArray:
    """The input [K] of lo..hi that makes the largest column sum of all that any input can make.

    Of all slices, columns, row groups and cycles; rows of other groups are zero.
    """
    values = np.arange(lo, hi + 1)
    best: tuple[int, Array] = (-1, np.zeros(len(op.weight), np.int64))
    for driven in op.crossbar.digits(values[:, None])[:, :, 0]:
        ends = driven.argmax(), driven.argmin()
        (most, x_most), (least, x_least) = ((int(driven[i]), values[i]) for i in ends)
        for column, group in product(op.stored.cells.slices, op.stored.groups):
            digits = column.digits[group].astype(np.int64)
            upward, downward = (limit(digits, 0).sum(axis=0) for limit in (np.maximum, np.minimum))
            sums = most * upward + least * downward
            j = int(sums.argmax())
            if sums[j] > best[0]:
                x = np.full(len(op.weight), min(max(0, lo), hi))
                x[group] = np.where(digits[:, j] > 0, x_most, x_least)
                best = int(sums[j]), x
    return best[1]


def sum_bits(op: CrossbarMvm) -> int:
    """Bits of two's complement that hold every column sum, whatever the inputs."""
    crossbar, stored = op.crossbar, op.stored
    largest = max(int(np.abs(edge).max()) for pair in stored.bounds for edge in pair)
    unit = max(map(abs, crossbar.digit_limits)) * len(op.weight) if crossbar.unit_column else 0
    return max(largest, unit).bit_length() + 1
