"""A bench of a hand-off in Python: it reads files alone, drives arrays, and counts what differs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.hardware.image_file import ImagesFile


def numbers(file: Path) -> IntArray:
    """The numbers of a file with one a line, 64 bits of two's complement."""
    return np.array([int(line, 16) for line in file.read_text().split()], np.uint64).view(np.int64)


def bus(file: Path, bits: int) -> IntArray:
    """The lanes [lines, lanes] of bus-wide lines."""
    digits, lines = bits // 4, file.read_text().split()
    lanes = [
        [int(line[end - digits : end], 16) for end in range(len(line), 0, -digits)]
        for line in lines
    ]
    values = np.array(lanes, np.uint64)
    return (values << np.uint64(64 - bits)).view(np.int64) >> 64 - bits


class Bench:
    """One array that is programmed and read as `steps.txt` says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.images = ImagesFile.model_validate_json((folder / "images/images.json").read_text())
        self.compared: Counter[str] = Counter()
        self.differing: Counter[str] = Counter()
        self.of_layer: dict[str, list[int]] = {}
        self.slices: list[list[int]] = []
        self.cycles: list[list[int]] = []

    def run(self) -> None:
        """Run all steps to their end."""
        ended = False
        for line in (self.folder / "steps.txt").read_text().splitlines():
            word, *rest = line.split()
            ended = word == "end"
            getattr(self, f"do_{word}")(*rest)
        assert ended

    def compare(self, tap: str, found: IntArray, expected: IntArray) -> None:
        assert found.shape == expected.shape, tap
        self.compared[tap] += found.size
        self.differing[tap] += int((found != expected).sum())

    def do_handoff(self, version: str) -> None:
        assert version == "4"

    def do_array(self, rows: str, columns: str) -> None:
        self.extents = int(rows), int(columns)

    def do_lanes(self, *bits: str) -> None:
        self.inputs_bits, self.digits_bits, self.sums_bits = map(int, bits)

    def do_layer(self, name: str, *rest: str) -> None:
        self.name, self.slices, self.cycles = name, [], []
        _, self.rows, self.columns, self.vectors, _, self.k, self.c = map(int, rest)
        self.total = np.zeros((self.vectors, self.columns), np.int64)

    def do_cells(self, _: str, *rest: str) -> None:
        values = list(map(int, rest))
        self.cell_bits, self.polarities, self.rows_per_weight, self.across = values[:4]
        self.baseline, self.complement, self.offset = values[4:7]
        self.unit, self.reference, self.flips, self.by_polarity = values[7:]

    def do_inputs(self, _: str, *rest: str) -> None:
        self.input_bits, self.lift, self.magnitude = map(int, rest)

    def do_converter(self, _: str, *rest: str) -> None:
        values = list(map(int, rest))
        self.kind, self.lo, self.hi, self.rounding = values[:4]
        self.fraction, self.fine, self.table_places, self.reference_cycles, self.leak = values[4:]

    def do_write_verify(self, layer: str, *rest: str) -> None:
        _, tolerance, _, _, erased, digits = map(int, rest)
        shown = numbers(self.folder / "constants" / layer / "write_bounds.hex").reshape(digits, 3)
        target = shown[:, 0]
        ends = np.maximum(target - tolerance, 0), target + tolerance
        assert erased == target[0]
        assert (ends[1][:-1] < ends[0][1:]).all()
        self.compare("write bounds", np.stack([target, *ends], axis=1), shown)

    def do_slice(self, _: str, *rest: str) -> None:
        self.slices.append(list(map(int, rest)))

    def do_cycle(self, _: str, *rest: str) -> None:
        self.cycles.append(list(map(int, rest)))

    def do_program(self, array: str, *_: str) -> None:
        order, folder = self.images.order, self.folder / "images" / array
        text = (folder / f"cells.{order.suffix}").read_bytes()
        cells = order.in_rows(order.cells(text, *self.extents, self.cell_bits)).astype(np.int64)
        high, slices = self.rows_per_weight, self.k // (1 + self.by_polarity)
        own = self.across * slices * self.polarities // high
        # [rows, polarities in rows, columns] -> [rows, weight, slice, polarity]
        height = self.extents[0] // high
        weights = cells[: height * high, :own].reshape(height, high, own)
        shape = (self.across, slices, self.polarities // high)
        axes = (0, 2, 3, 1, 4)
        if order.columns == "slice-major":
            shape, axes = (slices, self.across, self.polarities // high), (0, 3, 2, 1, 4)
        held = weights.reshape(height, high, *shape).transpose(axes)
        held = held.reshape(height, self.across, slices, self.polarities)
        self.held = held[..., ::-1] if order.pair == "negative-first" else held
        self.beside = cells[: height * high : high, own : own + self.unit + self.reference]
        self.flags = None
        if self.flips:
            text = (folder / f"flipped.{order.suffix}").read_bytes()
            lanes = self.across * slices
            groups = len(text) // order.line_bytes(lanes)
            self.flags = order.cells(text, groups, lanes, 1).astype(bool)

    def do_read(self, array: str, group: str, row: str, *rest: str) -> None:
        first, stop, idle, column, end = map(int, rest)
        taps, g = self.folder / "taps", int(group[1:])
        x = bus(taps / row / f"{group}.inputs.hex", self.inputs_bits)[:, first:stop]
        digits = self.drive(x)
        shown = bus(taps / row / f"{group}.digits.hex", self.digits_bits)
        self.compare("digits", digits.reshape(-1, stop - first), shown[:, first:stop])
        cells = self.lanes_of(first, stop)
        zero = np.array([one[4] for one in self.cycles])
        summed = digits.sum(axis=2)
        leaked = self.leak * (summed + idle * zero)
        sums = (digits @ cells << self.fraction) + leaked[..., None]
        if self.unit:
            unit = self.beside[first:stop, 0] - self.baseline
            sums[..., -1] = digits @ unit
        used = self.used(end - column)
        kept = [*np.flatnonzero(used), *range(len(used), sums.shape[-1])]
        shape = (-1, sums.shape[-1])
        shown = bus(taps / array / f"{group}.sums.hex", self.sums_bits)
        self.compare("sums", sums.reshape(shape)[:, kept], shown[:, kept])
        codes, values = self.convert(sums, array, group)
        shown = bus(taps / array / f"{group}.codes.hex", self.sums_bits)
        self.compare("codes", codes.reshape(shape)[:, kept], shown[:, kept])
        added = self.add(values, summed, leaked, g)[:, : end - column]
        shown = bus(taps / array / f"{group}.shift_add.hex", 64)
        self.compare("shift_add", added, shown[:, : end - column])
        self.total[:, column:end] += added

    def drive(self, x: IntArray) -> IntArray:
        """The digits [vectors, cycles, rows]."""
        lifted = x + self.lift
        sign, size = (np.sign(lifted), np.abs(lifted)) if self.magnitude else (1, lifted)
        masks = [(1 << bits) - 1 if bits else -1 for _, _, bits, _, _ in self.cycles]
        parts = [
            sign * (size >> one[1] & mask) for one, mask in zip(self.cycles, masks, strict=True)
        ]
        return np.stack(parts, axis=1)

    def lane(self, weights: IntArray) -> IntArray:
        """Values [.., weight, slice, polarity] in the order of lanes."""
        if self.images.order.columns == "slice-major":
            weights = weights.swapaxes(-3, -2)
        if self.images.order.pair == "negative-first":
            weights = weights[..., ::-1]
        return weights.reshape(*weights.shape[:-3], -1)

    def lanes_of(self, first: int, stop: int) -> IntArray:
        """The digits [rows, lanes] that converted columns hold in some rows."""
        held = self.held[first:stop]
        signed = np.array([one[3] for one in self.slices[:: 1 + self.by_polarity]])
        half = 1 << self.cell_bits - 1
        held = np.where(signed[:, None], (held ^ half) - half, held)
        if self.polarities == 2 and not self.by_polarity:
            held = held[..., :1] - held[..., 1:]
        common = self.beside[first:stop, -1:] if self.reference else np.zeros((1, 1), np.int64)
        lanes = self.lane(held) - common
        return np.hstack([lanes, np.zeros((stop - first, self.unit), np.int64)])

    def used(self, weights: int) -> IntArray:
        """The lanes that have one of so many weights."""
        shape = (self.across, self.k // (1 + self.by_polarity), 1 + self.by_polarity)
        return self.lane(np.broadcast_to(np.arange(self.across)[:, None, None], shape)) < weights

    def convert(self, sums: IntArray, array: str, group: str) -> tuple[IntArray, IntArray]:
        """The codes, and the values [vectors, cycles, lanes] that they stand for, finer."""
        fine = sums << self.fine
        if self.kind == 0:
            return sums, fine
        constants = self.folder / "constants"
        steps = numbers(constants / self.name / "steps.hex").reshape(-1, self.reference_cycles)
        shape = (self.across, self.k // (1 + self.by_polarity), 1 + self.by_polarity)
        slice_of = self.lane(np.broadcast_to(np.arange(self.k).reshape(shape[1:]), shape))
        which = np.concatenate([slice_of, np.full(self.unit, self.k)])
        file = constants / array / f"{group}.offsets.hex"
        offsets = bus(file, 64) if file.exists() else np.zeros((1, sums.shape[-1]), np.int64)
        tables = [
            numbers(constants / self.name / f"{name}.hex").reshape(-1, width)
            for name, width in (
                ("thresholds", self.hi - self.lo),
                ("levels", self.hi - self.lo + 1),
            )
            if self.kind > 1
        ]
        codes, values = sums.copy(), fine.copy()
        for lane, k in enumerate(which):
            for c in range(self.c):
                at = c % self.reference_cycles
                step = steps[k, at]
                if not step:
                    continue
                offset = offsets[at % len(offsets), lane]
                p = fine[:, c, lane] - offset
                if self.kind == 1:
                    code = self.rounded(p, step)
                    value = code * step
                else:
                    rows = [one[k if self.kind == 3 else 0] for one in tables]
                    code = self.lo + np.searchsorted(
                        rows[0] * step, p << self.table_places, side="right"
                    )
                    value = rows[1][code - self.lo] * step
                codes[:, c, lane], values[:, c, lane] = code, value + offset
        return codes, values

    def rounded(self, p: IntArray, step: int) -> IntArray:
        """`p` / `step` in a converter's rounding, clipped."""
        whole, rest = p // step, p % step
        up = {
            0: 2 * rest >= step,
            1: (2 * rest > step) | ((2 * rest == step) & (whole % 2 == 1)),
            2: np.zeros(p.shape, bool),
        }[self.rounding]
        return np.clip(whole + up, self.lo, self.hi)

    def add(self, values: IntArray, summed: IntArray, leaked: IntArray, g: int) -> IntArray:
        """The numbers that a row group adds to each weight's sum [vectors, across]."""
        places = self.fraction + self.fine
        own, shape = values[..., : values.shape[-1] - self.unit], values.shape[:2]
        slices, polarities = self.k // (1 + self.by_polarity), 1 + self.by_polarity
        major = self.images.order.columns == "slice-major"
        order = (slices, self.across) if major else (self.across, slices)
        weights = own.reshape(*shape, *order, polarities)
        weights = weights.swapaxes(2, 3) if major else weights
        if self.images.order.pair == "negative-first":
            weights = weights[..., ::-1]
        weights = weights - (leaked << self.fine)[..., None, None, None]
        row_sum = (values[..., -1] << self.fraction) if self.unit else (summed << places)
        if self.flags is not None:
            flags = self.flags[g].reshape(order)
            flags = (flags.T if major else flags)[..., None]
            whole = (self.complement * row_sum)[..., None, None, None]
            weights = np.where(flags, whole - weights, weights)
        total = np.zeros((shape[0], self.across), np.int64)
        for c, (_, shift, _, sign, _) in enumerate(self.cycles):
            for k, (_, slice_shift, slice_sign, _, factor) in enumerate(self.slices):
                part = weights[:, c, :, k // polarities, k % polarities]
                total += sign * slice_sign * factor * part << shift + slice_shift
            total -= (sign * self.offset * row_sum[:, c] << shift)[:, None]
        return total

    def do_direct(self, name: str, *wanted: str) -> None:
        folder = self.folder / "directed" / name
        for file, lines in zip(("converter", "counts"), wanted, strict=True):
            text = folder / f"{file}.txt"
            if folder.exists():
                found = text.read_text("utf-8").splitlines() if text.exists() else []
                assert len(found) == int(lines)

    def do_sum(self, name: str) -> None:
        places = self.fraction + self.fine
        bias = numbers(self.folder / "constants" / name / "bias.hex")
        self.sums = (self.total + (1 << places >> 1) >> places) + bias
        shown = numbers(self.folder / "taps" / name / "layer_sum.hex")
        self.compare("layer sums", self.sums, shown.reshape(self.sums.shape))

    def do_requantise(self, place: str, _: str, stages: str) -> None:
        constants, total, shape = self.folder / "constants" / place, self.sums, self.sums.shape
        if int(stages):
            affine = numbers(constants / "affine.hex").reshape(int(stages), self.columns, 4)
            for factor, offset, lo, hi in affine.transpose(0, 2, 1):
                total = np.clip(total * factor + offset, lo, hi)
        names = ("multiplier", "shift", "lo", "hi")
        multiplier, shift, lo, hi = (numbers(constants / f"{one}.hex") for one in names)
        total = np.clip(total * multiplier + (1 << shift - 1) >> shift, lo, hi)
        shown = numbers(self.folder / "taps" / place / "requantised.hex")
        self.compare("requantised", total, shown.reshape(shape))

    def do_search(self, name: str, *rest: str) -> None:
        self.items, _, _, bits, self.distance, self.step, self.top, self.length = map(int, rest)
        self.most, self.cell_lane = (1 << bits) - 1, -(-(bits + 1) // 4) * 4
        self.found: dict[int, IntArray] = {}

    def do_store(self, name: str, words: str, *_: str) -> None:
        self.words = bus(self.folder / "cam" / name / words / "cells.hex", self.cell_lane)

    def do_match(self, name: str, words: str, segment: str, first: str, end: str) -> None:
        folder, items = self.folder / "cam" / name, int(end) - int(first)
        query = bus(folder / f"{segment}.queries.hex", self.cell_lane)[:, None]
        apart = np.where(self.words < 0, 0, np.abs(query - self.words))
        distances = [np.minimum(apart, 1), apart, apart**2][self.distance].sum(axis=2)
        codes = np.minimum(distances // self.step, self.top)
        longest = self.words.shape[1] * [1, self.most, self.most**2][self.distance]
        bits = -(-(longest.bit_length() + 1) // 4) * 4
        for tap, values in (("distances", distances), ("codes", codes)):
            shown = bus(folder / words / f"{tap}.hex", bits)
            self.compare(f"cam {tap}", values[:, :items], shown[:, :items])
        sums = self.found.get(int(first), 0)
        self.found[int(first)] = sums + codes[:, :items]

    def do_rank(self, name: str) -> None:
        folder = self.folder / "cam" / name
        sums = np.hstack([self.found[first] for first in sorted(self.found)])
        factor, offset = (numbers(folder / f"{one}.hex") for one in ("factor", "offset"))
        estimates = sums * factor + offset
        listed = np.lexsort((np.broadcast_to(np.arange(self.items), sums.shape), estimates))
        for tap, values in (
            ("sums", sums),
            ("estimates", estimates),
            ("shortlist", listed[:, : self.length]),
        ):
            shown = numbers(folder / f"{tap}.hex")
            self.compare(f"cam {tap}", values, shown.reshape(values.shape))

    def do_end(self, lines: str) -> None:
        assert int(lines) == len((self.folder / "steps.txt").read_text("utf-8").splitlines())
