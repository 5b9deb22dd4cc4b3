"""One output of a layer worked by hand, from its inputs to its requantised value, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.handoff.layers import DrivenLayer
from cimtool.handoff.taps import Taps, column_places, layer_sum, taps
from cimtool.hardware.stored import cell_digits

SHOWN = 4
"""Terms of a sum that are shown at most."""


@dataclass(frozen=True, eq=False)
class Worked:
    """Column 0 of a layer, in its first row group, for one of its inputs."""

    layer: DrivenLayer

    @cached_property
    def seen(self) -> Taps:
        """The taps of all inputs."""
        return taps(self.layer.op, self.layer.x)

    @cached_property
    def vector(self) -> int:
        """The input with the fewest rows in the group, of those for which a sum is not 0."""
        rows = np.count_nonzero(self.layer.x[:, self.group], axis=1)
        width = self.layer.op.weight.shape[1]
        own = self.seen.sums[:, 0, :, : width * self.layer.op.crossbar.slices : width]
        shown = (rows > 0) & own.any(axis=(1, 2))
        return int(np.where(shown, rows, rows + len(self.layer.x[0])).argmin())

    @property
    def group(self) -> slice:
        """The rows of the group."""
        return self.layer.op.layer.cells.groups[0]

    @cached_property
    def cycle(self) -> int:
        """The first of the cycles with the largest sum."""
        return int(np.abs(self.seen.sums[self.vector, 0, :, 0]).argmax())

    @cached_property
    def digits(self) -> IntArray:
        """The digits [cycles, rows] of the group."""
        digits: IntArray = self.seen.digits[self.vector][:, self.group].astype(np.int64)
        return digits

    def row_sum(self, c: int) -> int:
        """The sum of the digits as the digital side has it, in its binary places."""
        op, crossbar = self.layer.op, self.layer.op.crossbar
        if crossbar.unit_column:
            return self.value(crossbar.slices, c) << op.layer.cells.fraction_bits
        return int(self.digits[c].sum()) << op.layer.cells.places

    def leak(self, c: int) -> int:
        """The conductance of erased cells, in the binary places of values."""
        held, crossbar = self.layer.op.layer.cells, self.layer.op.crossbar
        conducting = self.digits[c].sum() + held.idle_rows[0] * crossbar.zero_digits[c]
        return int(held.leak * conducting) << crossbar.reference_bits

    def converter(self, k: int, c: int) -> tuple[int, int, int, int]:
        """The sum, step, offset and code of a slice in a cycle; `slices` is the unit column."""
        crossbar, layer = self.layer.op.crossbar, self.layer.op.layer
        at = crossbar.reference_of(k, c)
        column, place = layer.columns[at], column_places(layer)[at].start
        where = self.vector, 0, c, place
        offset = int(column.offset[0, 0])
        total, step, code = self.seen.sums[where], column.step[0, 0], self.seen.codes[where]
        return int(total), int(step), offset, int(code)

    def value(self, k: int, c: int) -> int:
        """The value that a code stands for, in the binary places of values."""
        crossbar = self.layer.op.crossbar
        column = self.layer.op.layer.columns[crossbar.reference_of(k, c)]
        _, step, offset, code = self.converter(k, c)
        if column.law is None:
            return code << crossbar.reference_bits
        return int(column.law.values(np.array(code), step)) + offset

    def corrected(self, k: int, c: int) -> int:
        """A value less the leak, and as its column's complement if it is flagged."""
        read = self.value(k, c) - self.leak(c)
        one = self.layer.op.layer.cells.slices[k]
        flagged = bool(one.flipped[0, 0])
        return self.layer.image.complement * self.row_sum(c) - read if flagged else read

    def part(self, c: int) -> int:
        """The addition of a cycle, before its own shift and sign."""
        slices = self.layer.op.layer.cells.slices
        total = sum(one.worth * self.corrected(k, c) for k, one in enumerate(slices))
        return int(total) - self.layer.image.offset * self.row_sum(c)

    def lines(self) -> Iterator[str]:
        """The paragraphs and tables, each a text of its own."""
        layer, op, crossbar = self.layer, self.layer.op, self.layer.op.crossbar
        v, c, x = self.vector, self.cycle, layer.x[self.vector, self.group]
        driven = np.flatnonzero(x)
        row = int(np.flatnonzero(self.digits[c])[0]) if self.digits[c].any() else 0
        rest = f", and {len(driven) - SHOWN} more" if len(driven) > SHOWN else ""
        given = ", ".join(f"{x[r]} in row {r}" for r in driven[:SHOWN]) or "none"
        yield (
            f"Layer `{layer.name}`, vector {v} (`{layer.stimuli[v]}`), row group g0 of array r0.c0,"
            f" column 0. Inputs that are not 0: {given}{rest}."
        )
        lift = crossbar.inputs.lift
        yield (
            f"**Digits** of row {row}, whose input is {x[row]}, and {x[row] + lift} with the "
            f"addend {lift}:"
        )
        rows = [
            (
                n,
                one.shift,
                one.bits or "all above",
                one.sign,
                self.digits[n, row],
                self.digits[n].sum(),
            )
            for n, one in enumerate(crossbar.cycles)
        ]
        yield _table(
            ("cycle", "shift", "bits", "sign", f"digit of row {row}", "all digits, D"), rows
        )
        yield from self._converters(row)
        parts = [
            f"{'+' if one.sign > 0 else '-'} ({self.part(n)} << {one.shift})"
            for n, one in enumerate(crossbar.cycles)
            if self.part(n)
        ]
        shown = int(self.seen.shift_add[v, 0, 0])
        yield (
            f"**Shift-and-add** over the cycles that are not 0: {' '.join(parts) or '0'} = "
            f"{shown}, lane 0 of line {v + 1} of `taps/{layer.name}/r0.c0/g0.shift_add.hex`."
        )
        groups = self.seen.shift_add[v, :, 0].tolist()
        listed = " + ".join(f"({n})" for n in groups[:SHOWN])
        more = f" + {len(groups) - SHOWN} more" if len(groups) > SHOWN else ""
        places, total = op.layer.cells.places, sum(groups)
        half = 1 << places >> 1
        summed = layer_sum(op, self.seen.shift_add)
        width = summed.shape[1]
        yield (
            f"**Layer sum**: of all row groups {listed}{more} = {total}; ({total} + {half}) >> "
            f"{places} = {total + half >> places}; with the bias {op.layer.bias[0]} it is "
            f"{summed[v, 0]}, line {v * width + 1} of `taps/{layer.name}/layer_sum.hex`."
        )
        for place in layer.requantisations:
            yield self._requantised(place, int(summed[v, 0]), v * width + 1)

    def _converters(self, row: int) -> Iterator[str]:
        """The sums, codes and values of the cycle that is shown."""
        layer, crossbar, c = self.layer, self.layer.op.crossbar, self.cycle
        held = cell_digits(layer.op.stored, slice(row, row + 1))[0, 0]
        yield (
            f"**Sums, codes and values** of cycle {c}: D = {self.digits[c].sum()}, R = "
            f"{self.row_sum(c)}, L << reference_places = {self.leak(c)}. Row {row} holds "
            "the cells below, of a pair the positive one first."
        )
        rows = []
        numbers = np.arange(len(layer.op.layer.cells.slices) * layer.op.weight.shape[1])
        width = layer.op.weight.shape[1]
        count = len(numbers) + crossbar.unit_column
        order = layer.of_arrays(np.arange(1, count + 1)[None])[0, 0]
        for k, one in enumerate(layer.op.layer.cells.slices):
            lane = int(np.flatnonzero(order == k * width + 1)[0])
            total, step, offset, code = self.converter(k, c)
            cells = " and ".join(map(str, held[k // layer.polarities].tolist()))
            flag = int(bool(one.flipped[0, 0]))
            rows.append(
                (k, lane, cells, total, offset, step, code, self.value(k, c), flag,
                 self.corrected(k, c), int(one.worth), int(one.worth) * self.corrected(k, c))
            )  # fmt: skip
        head = ("slice", "lane", "cells", "sum", "offset", "step", "code", "value", "flag")
        yield _table((*head, "corrected", "counts", "adds"), rows)
        if crossbar.unit_column:
            total, step, offset, code = self.converter(crossbar.slices, c)
            yield (
                f"The unit column, the last lane, has the sum {total}, offset {offset}, "
                f"step {step}, code {code} and value {self.value(crossbar.slices, c)}."
            )
        yield (
            f"The cycle adds {self.part(c)}: the last column, less the offset of weights "
            f"{layer.image.offset} times R."
        )

    def _requantised(self, place: str, x: int, line: int) -> str:
        after, steps = self.layer.requantisations[place], []
        for factor, offset, lo, hi in after.affine[:, 0].tolist():
            x = min(max(x * factor + offset, lo), hi)
            steps.append(f"times {factor} plus {offset}, within {lo} to {hi}, is {x}; ")
        m, s, lo, hi = (int(one[0]) for one in (after.multiplier, after.shift, after.lo, after.hi))
        found = x * m + (1 << s - 1) >> s
        return (
            f"**Requantisation** `{place}`: {''.join(steps)}({x} * {m} + {1 << s - 1}) >> {s} = "
            f"{found}; limited to {lo} to {hi}, it is {min(max(found, lo), hi)}, line {line} of "
            f"`taps/{place}/requantised.hex`."
        )


def _table(head: tuple[object, ...], rows: Sequence[tuple[object, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)
