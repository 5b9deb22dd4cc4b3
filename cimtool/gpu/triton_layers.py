"""Layers with converters on a GPU: two Triton kernels do the steps of the fused CPU kernels.

Digits and cells are signed bytes. The tensor cores add their products exactly in int32. A program
converts the sums of a block in registers and adds the codes to totals modulo 2^32. That is exact if
the proved range of the layer's output fits 32 bits. Triton comes with a torch that has CUDA.
"""

from __future__ import annotations

import subprocess
import warnings
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl

from cimtool.base.arrays import Array
from cimtool.base.errors import CimWarning
from cimtool.simulation.kernels.choice import Candidate
from cimtool.simulation.kernels.dot import byte_parts, in_bytes
from cimtool.simulation.kernels.fused import Layer, modulo_int32

LEAST_DEPTH, MOST_DEPTH = 32, 256
"""The fewest and most rows of cells per load."""


@dataclass(frozen=True)
class Extents:
    """Inputs and columns per program, its warps, and its pipelined loads."""

    rows: int
    columns: int
    warps: int
    stages: int

    def programs(self, rows: int, columns: int) -> int:
        """Programs that these rows of inputs and columns need."""
        return -(-rows // self.rows) * -(-columns // self.columns)


WIDE, NARROW = Extents(64, 128, 4, 2), Extents(64, 64, 4, 3)
"""The fastest of 17 on an H200: WIDE for many inputs, NARROW if WIDE would not fill the GPU."""

CUT_ROWS = 16
"""Inputs per program that cuts digits."""


FAULTS = triton.TritonError, RuntimeError, OSError, AssertionError, subprocess.SubprocessError
"""Triton raises these if it finds no compiler, no driver library or no folder for its code."""


def checked(candidate: Candidate, device: torch.device) -> TensorCoreLayer | None:
    """The layer on a device; None if its digits or cells do not fit bytes.

    Also None, with a warning, if Triton cannot compile or run it there, or gives wrong integers.
    """
    layer = candidate.layer
    if not in_bytes(layer) or byte_parts(layer.cell_limits)[1] > 1:
        return None
    rows = torch.from_numpy(candidate.rows).to(device)
    part = candidate.small._replace(
        digit_limits=layer.digit_limits, cell_limits=layer.cell_limits
    )  # as the whole
    try:
        small = TensorCoreLayer(part, device)
        found = [small.run(rows, blocks).cpu().numpy() for blocks in (WIDE, NARROW)]
    except FAULTS as error:
        said = next(iter(str(error).splitlines()), type(error).__name__)
        reason = f"cannot run ({said})"
    else:
        if all(np.array_equal(candidate.expected, one) for one in found):
            return TensorCoreLayer(layer, device)
        reason = "does not give the reference's integers"
    warnings.warn(
        f"the Triton kernel {reason} on {device}; torch's operations are used, which are slower",
        CimWarning,
        stacklevel=2,
    )
    return None


class TensorCoreLayer:
    """A layer on a device. It maps int64 inputs [n, K] to int64 outputs [n, N]."""

    def __init__(self, layer: Layer, device: torch.device):
        epilogue, drive, heights = layer.epilogue, layer.drive, np.diff(layer.group_ends)
        tallest = int(heights.max())
        self._depth = min(max(1 << (tallest - 1).bit_length(), LEAST_DEPTH), MOST_DEPTH)
        self._chunks = -(-tallest // self._depth)
        (moved, _), (middle, _) = byte_parts(layer.digit_limits), byte_parts(layer.cell_limits)
        packed = self._packed(layer, middle)
        columns = np.zeros((*packed.shape[:2], len(epilogue.start)), np.int64)
        columns[..., : layer.columns] = moved * packed.sum(axis=-1, dtype=np.int64)

        def there(array: Array) -> torch.Tensor:
            return torch.from_numpy(np.ascontiguousarray(array)).to(device)

        group_ends = layer.group_ends.astype(np.int32)
        self._drive = [there(a) for a in (group_ends, drive.shifts, drive.masks, drive.factors)]
        self._tables = [
            there(array)
            for array in (
                packed,
                modulo_int32(columns),
                *(epilogue.adc, epilogue.addends, epilogue.tables, epilogue.entries),
                *(epilogue.values, epilogue.signs, epilogue.row_factors, epilogue.start),
            )
        ]
        self._groups, self._cycles, self._columns = len(heights), len(drive.factors), layer.columns
        self._lift, self._moved, self._sign_magnitude = drive.lift, moved, drive.sign_magnitude
        self._numbers = (
            *(len(epilogue.start), len(heights), len(drive.factors), len(layer.slices)),
            *(epilogue.adc.shape[1], middle, epilogue.unit, epilogue.places, self._chunks),
        )
        self._form = {
            "DEPTH": self._depth,
            "ONE_CHUNK": self._chunks == 1,
            "SET": epilogue.addends.size > 0,
            "LEVELS": epilogue.tables.size > 0,
            "TO_EVEN": epilogue.addends.size == 0 and bool(epilogue.adc[..., 2].any()),
            "MIDDLE": middle != 0,
            "SUMMED": bool(epilogue.row_factors.any()),
        }
        self._processors = _processors(device)

    def _packed(self, layer: Layer, middle: int) -> Array:
        """Cells minus `middle` [groups, slices, N, rows], zero-padded to whole chunks of rows."""
        rows = self._chunks * self._depth
        packed = np.zeros((len(layer.group_ends), len(layer.slices), layer.columns, rows), np.int8)
        for g, (first, last) in enumerate(layer.group_ends):
            for s, one in enumerate(layer.slices):
                packed[g, s, :, : last - first] = (
                    one.digits[first:last].astype(np.int64) - middle
                ).T
        return packed

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the layer's outputs [n, N]."""
        filled = WIDE.programs(len(x), self._columns) >= self._processors
        return self.run(x, WIDE if filled else NARROW)

    def run(self, x: torch.Tensor, blocks: Extents) -> torch.Tensor:
        """Compute the outputs in blocks of this size."""
        # Triton launches on torch's current device, which may differ from the inputs' device.
        with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]
            return self._run(x, blocks)

    def _run(self, x: torch.Tensor, blocks: Extents) -> torch.Tensor:
        rows, lines = len(x), (self._groups, self._cycles, len(x))

        def room(*shape: int, kind: torch.dtype) -> torch.Tensor:
            return torch.empty(shape, dtype=kind, device=x.device)

        digits = room(*lines, self._depth * self._chunks, kind=torch.int8)
        sums = room(*lines, kind=torch.int32)
        weighed = room(self._groups, rows, kind=torch.int32)
        out = room(rows, self._columns, kind=torch.int64)
        if not rows:
            return out
        _cut[(-(-rows // CUT_ROWS), self._groups)](
            *(x.contiguous(), digits, sums, weighed, *self._drive),
            *(rows, x.shape[1], self._cycles, self._lift, self._moved, self._chunks),
            DEPTH=self._depth,
            SIGN_MAGNITUDE=self._sign_magnitude,
            CUT_ROWS=CUT_ROWS,
        )
        _multiply[(blocks.programs(rows, self._columns),)](
            *(digits, sums, weighed, *self._tables, out),
            *(rows, self._columns, *self._numbers),
            BLOCK_ROWS=blocks.rows,
            BLOCK_COLUMNS=blocks.columns,
            num_warps=blocks.warps,
            num_stages=blocks.stages,
            **self._form,
        )
        return out


def _processors(device: torch.device) -> int:
    """Count the programs that fill the device."""
    if device.type != "cuda":
        return 1
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


# Without this, Triton compiles again if a number is 1 or a multiple of 16.
_CUT_NUMBERS = "rows", "width", "cycles", "lift", "moved", "chunks"


@triton.jit(do_not_specialize=_CUT_NUMBERS)  # type: ignore[untyped-decorator]
def _cut(  # type: ignore[no-untyped-def]
    x, digits, sums, weighed, bounds, shifts, masks, factors,
    rows, width, cycles, lift, moved, chunks,
    DEPTH: tl.constexpr, SIGN_MAGNITUDE: tl.constexpr, CUT_ROWS: tl.constexpr,
):  # fmt: skip
    """Cut inputs [n, K] into digits and write digits - `moved` [groups, cycles, n, rows].

    Also write the digits' `sums` [groups, cycles, n], and the sums `weighed` by the cycles' factors
    [groups, n].
    """
    g = tl.program_id(1)
    m = tl.program_id(0) * CUT_ROWS + tl.arange(0, CUT_ROWS)
    first, last = tl.load(bounds + 2 * g), tl.load(bounds + 2 * g + 1)
    there = m < rows
    from_row = x + m.to(tl.int64)[:, None] * width
    over_cycles = tl.zeros([CUT_ROWS], tl.int32)
    for c in range(cycles):
        shift, mask = tl.load(shifts + c), tl.load(masks + c)
        line = (g * cycles + c) * rows.to(tl.int64) + m
        total = tl.zeros([CUT_ROWS], tl.int32)
        for chunk in range(chunks):
            k = chunk * DEPTH + tl.arange(0, DEPTH)
            held = there[:, None] & (first + k < last)[None, :]
            value = tl.load(from_row + (first + k)[None, :], mask=held, other=0).to(tl.int32) + lift
            if SIGN_MAGNITUDE:
                digit = (tl.abs(value) >> shift) & mask
                digit = tl.where(value < 0, -digit, digit)
            else:
                digit = (value >> shift) & mask
            digit = tl.where(held, digit, 0)
            total += tl.sum(digit, 1)
            place = digits + line[:, None] * (chunks * DEPTH) + k[None, :]
            tl.store(place, (digit - moved).to(tl.int8), mask=there[:, None])
        tl.store(sums + line, total, mask=there)
        over_cycles += total * tl.load(factors + c)
    tl.store(weighed + g * rows.to(tl.int64) + m, over_cycles, mask=there)


_MULTIPLY_NUMBERS = (
    *("rows", "width", "stride", "groups", "cycles", "slices"),
    *("references", "middle", "unit", "places", "chunks"),
)


@triton.jit(do_not_specialize=_MULTIPLY_NUMBERS)  # type: ignore[untyped-decorator]
def _multiply(  # type: ignore[no-untyped-def]
    digits, sums, weighed, cells, columns, adc, addends, tables, entries,
    values, signs, row_factors, start, out,
    rows, width, stride, groups, cycles, slices, references, middle, unit, places,
    chunks,
    DEPTH: tl.constexpr, ONE_CHUNK: tl.constexpr, SET: tl.constexpr, LEVELS: tl.constexpr,
    TO_EVEN: tl.constexpr, MIDDLE: tl.constexpr, SUMMED: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute a block of outputs: products, conversions (`tiles.convert`), and `fused.finish`."""
    down = tl.cdiv(rows, BLOCK_ROWS)
    block = tl.program_id(0)
    m = block % down * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    n = block // down * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    # Beyond the last row and column, the last one is computed again and not stored.
    own, column = tl.minimum(m, rows - 1), tl.minimum(n, width - 1)
    k = tl.arange(0, DEPTH)
    of_row = own.to(tl.int64)[:, None] * (chunks * DEPTH) + k[None, :]
    of_column = column.to(tl.int64)[:, None] * (chunks * DEPTH) + k[None, :]
    size = tl.cast(rows, tl.int64) * (chunks * DEPTH)
    extent = tl.cast(width, tl.int64) * (chunks * DEPTH)
    total = tl.zeros([BLOCK_ROWS, BLOCK_COLUMNS], tl.int32)
    for i in range(groups * cycles * slices):
        s, c, g = i % slices, i // slices % cycles, i // (slices * cycles)
        driven = digits + (g * cycles + c) * size + of_row
        held = cells + (g * slices + s) * extent + of_column
        p = tl.zeros([BLOCK_ROWS, BLOCK_COLUMNS], tl.int32)
        if ONE_CHUNK:
            p = tl.dot(tl.load(driven), tl.load(held).T, p, out_dtype=tl.int32)
        else:
            for chunk in range(chunks):
                some = tl.load(driven + chunk * DEPTH), tl.load(held + chunk * DEPTH)
                p = tl.dot(some[0], some[1].T, p, out_dtype=tl.int32)
        at = (g * slices + s) * stride + column
        p += tl.load(columns + at)[None, :]
        if MIDDLE:
            p += (middle * tl.load(sums + (g * cycles + c) * rows + own))[:, None]
        r = tl.minimum(c, references - 1)
        numbers = adc + (s * references + r) * 5
        one, two, three = tl.load(numbers), tl.load(numbers + 1), tl.load(numbers + 2)
        four, five = tl.load(numbers + 3), tl.load(numbers + 4)
        if SET:
            added = tl.load(addends + ((g * slices + s) * references + r) * stride + column)
            p = tl.minimum(tl.maximum((p << one) + added[None, :], 0), two) >> three
            code = ((p.to(tl.uint32) * four.to(tl.uint32)) >> five.to(tl.uint32)).to(tl.int32)
            if LEVELS:
                table = tl.load(tables + s * references + r)
                if table >= 0:
                    code = tl.load(entries + table + code)
        else:
            if TO_EVEN:
                p += (p >> two) & three
            code = tl.minimum(tl.maximum((p + one) >> two, four), five)
        total += code * (tl.load(values + s * cycles + c) * tl.load(signs + at))[None, :]
    total = total * unit + tl.load(start + column)[None, :]
    if SUMMED:
        for g in range(groups):
            row_sums = tl.load(weighed + g * rows + own)
            total += row_sums[:, None] * tl.load(row_factors + g * stride + column)[None, :]
    total = (total + ((1 << places) >> 1)) >> places
    there = (m < rows)[:, None] & (n < width)[None, :]
    place = out + m.to(tl.int64)[:, None] * width + n[None, :]
    tl.store(place, total.to(tl.int64), mask=there)
