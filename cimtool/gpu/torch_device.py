"""The integer operations on torch tensors: the same numbers on a CUDA device, bit for bit.

Products run in float32 or float64 if every partial sum is exact there (below 2^24 or 2^53).
Otherwise they run in parts. All else is int64. TensorFloat-32 is never used: it would round.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from cimtool.base.arrays import Array
from cimtool.base.errors import ArgumentError
from cimtool.hardware.cell_distance import CellDistance, rising_planes
from cimtool.hardware.converted_layer import ConvertedColumns
from cimtool.hardware.converters import StaircaseLaw
from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.arithmetic import Add, Arrange, Axis, BatchMatMul, Clip, MatMul, SumOfMaxima
from cimtool.ir.backends import TORCH
from cimtool.ir.integer import Dequantize, Quantize, Requant
from cimtool.ir.op import Arithmetic, Op
from cimtool.ir.types import Type, Types

Tensor = torch.Tensor
TorchKernel = Callable[..., Tensor]


def device_of(name: str) -> torch.device:
    """The torch device `cpu`, `cuda` or `cuda:N`. Raises CimError if torch has no such device."""
    named = re.fullmatch(r"cpu|cuda(?::(0|[1-9][0-9]{0,8}))?", str(name))
    if named is None:
        raise ArgumentError('{device} is "{}"; expected cpu, cuda or cuda:N', name)
    if named[0] != "cpu":
        count = torch.cuda.device_count()
        if int(named[1] or 0) >= count:  # torch would keep only the last byte of a large number
            raise ArgumentError(
                '{device} is "{}"; this machine has {} CUDA device{} that torch can use',
                name,
                count or "no",
                "" if count == 1 else "s",
            )
        if torch.backends.cuda.matmul.allow_tf32:
            raise ArgumentError(
                '{device} is "{}"; torch.backends.cuda.matmul.allow_tf32 is on, and would round '
                "products; expected it off",
                name,
            )
    return torch.device(name)


def to_tensor(array: Array, device: torch.device) -> Tensor:
    """Move an array to the device."""
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)


def to_array(value: Tensor, known: Type) -> Array:
    """Move a value of a known type back, integers in the narrowest type that holds them."""
    if known.is_integer:
        value = value.to(_narrowest(known))
    array: Array = value.cpu().numpy()
    return array


def _narrowest(known: Type) -> torch.dtype:
    """The narrowest type that holds the integers."""
    kinds = torch.int8, torch.int16, torch.int32
    return next((one for one in kinds if known.magnitude <= torch.iinfo(one).max), torch.int64)


def _constant(value: Any, device: torch.device) -> Tensor:
    return torch.from_numpy(np.array(value)).to(device)


@TORCH.rule(Quantize)
def _quantize(op: Quantize, types: Types, device: torch.device) -> TorchKernel:
    scale = _constant(np.asarray(op.scale, np.float32), device)
    return lambda x: torch.round(x.to(torch.float32) / scale).clamp(op.lo, op.hi).to(torch.int64)


@TORCH.rule(Requant)
def _requant(op: Requant, types: Types, device: torch.device) -> TorchKernel:
    half = _constant(np.left_shift(np.int64(1), np.asarray(op.shift, np.int64) - 1), device)
    multiplier, shift = _constant(op.multiplier, device), _constant(op.shift, device)
    return lambda x: ((x * multiplier + half) >> shift).clamp(op.lo, op.hi)


@TORCH.rule(Dequantize)
def _dequantize(op: Dequantize, types: Types, device: torch.device) -> TorchKernel:
    scale = _constant(np.asarray(op.scale, np.float64), device)
    return lambda x: x * scale


@TORCH.rule(Clip)
def _clip(op: Clip, types: Types, device: torch.device) -> TorchKernel:
    lo, hi = (_constant(np.asarray(end, np.int64), device) for end in (op.lo, op.hi))
    return lambda x: torch.minimum(torch.maximum(x, lo), hi)


@TORCH.rule(Add)
def _add(op: Add, types: Types, device: torch.device) -> TorchKernel:
    factors = [_constant(factor, device) for factor in op.factors]
    offset = _constant(op.offset, device)

    def run(*inputs: Tensor) -> Tensor:
        total = offset
        for factor, x in zip(factors, inputs, strict=True):
            total = total + factor * x
        return total

    return run


@TORCH.rule(Arithmetic)
def _as_defined(op: Op, types: Types, device: torch.device) -> Any:
    """The operation itself: its definition also takes tensors."""
    return op.run


@TORCH.rule(Axis)
def _axis(op: Axis, types: Types, device: torch.device) -> TorchKernel:
    return lambda x: x.unsqueeze(op.axis)


@TORCH.rule(SumOfMaxima)
def _sum_of_maxima(op: SumOfMaxima, types: Types, device: torch.device) -> TorchKernel:
    """`run`, whose largest number of a row torch gives with its place."""

    def run(x: Tensor) -> Tensor:
        largest = x.reshape(len(x), -1, op.columns).amax(2)
        return largest.reshape(-1, op.rows, largest.shape[1]).sum(1)

    return run


@TORCH.rule(MatMul)
def _matmul(op: MatMul, types: Types, device: torch.device) -> TorchKernel:
    a, b = types
    product = integer_product(int(a.magnitude), int(b.magnitude), int(a.shape[-1]))
    return lambda x, y: product(x, y.T)


@TORCH.rule(BatchMatMul)
def _batch_matmul(op: BatchMatMul, types: Types, device: torch.device) -> TorchKernel:
    """Multiply and sum elementwise, because torch has no integer matrix product on a GPU."""
    width = int(types[0].shape[-1])

    def run(x: Tensor, y: Tensor) -> Tensor:
        products = x.reshape(-1, op.rows, 1, width) * y.reshape(-1, 1, op.columns, width)
        return products.sum(-1).reshape(-1, op.columns)

    return run


@TORCH.rule(Arrange)
def _arrange(op: Arrange, types: Types, device: torch.device) -> TorchKernel:
    places = _constant(op.places.reshape(-1), device)
    width = int(types[0].shape[-1])
    return lambda x: x.reshape(-1, op.rows * width)[:, places].reshape(-1, op.places.shape[1])


def integer_product(a: int, b: int, width: int) -> TorchKernel:
    """An exact `x @ y` of int64 tensors [n, width] and [width, m] with |x| <= a and |y| <= b."""
    if width * a * b < 1 << 53:
        kind = torch.float32 if width * a * b < 1 << 24 else torch.float64
        return lambda x, y: (x.to(kind) @ y.to(kind)).to(torch.int64)
    if a < b:
        turned = integer_product(b, a, width)
        return lambda x, y: turned(y.T, x.T).T
    # x = high << half + low: two products of fewer bits each.
    half = a.bit_length() // 2
    high = integer_product((a >> half) + 1, b, width)
    low = integer_product((1 << half) - 1, b, width)

    def parted(x: Tensor, y: Tensor) -> Tensor:
        above = x >> half
        return (high(above, y) << half) + low(x - (above << half), y)

    return parted


@TORCH.rule(CellDistance)
def _cell_distance(op: CellDistance, types: Types, device: torch.device) -> TorchKernel:
    product = integer_product(1, int(op.table.max()), op.cells << op.bits)
    planes = [
        (one.word, _constant(one.steps, device), _constant(one.least, device))
        for one in rising_planes(op, op.words)
    ]

    def run(x: Tensor) -> Tensor:
        total = torch.zeros(len(x), len(op.stored), dtype=torch.int64, device=device)
        for word, steps, least in planes:
            marks = torch.cat([x[:, word] >= k for k in range(1, 1 << op.bits)], dim=1)
            partial = product(marks.to(torch.int64), steps) + least
            codes = torch.div(partial, op.step, rounding_mode="floor")
            total += codes if op.top is None else codes.clamp(max=op.top)
        return total

    return run


@TORCH.rule(CrossbarMvm)
def _crossbar_mvm(op: CrossbarMvm, types: Types, device: torch.device) -> TorchKernel:
    if op.exact:
        largest = int(np.abs(op.weight).max(initial=0))
        product = integer_product(int(types[0].magnitude), largest, op.weight.shape[0])
        weight, bias = _constant(op.weight, device), _constant(op.bias, device)
        return lambda x: product(x, weight) + bias
    return _on_tensor_cores(op, types[0], device) or _converted(op, device)


def _on_tensor_cores(op: CrossbarMvm, x: Type, device: torch.device) -> TorchKernel | None:
    """A layer with converters by the Triton kernels; None if they cannot take it."""
    # Triton compiles only for GPUs. Its interpreter, if switched on, runs anywhere.
    if device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        return None
    try:
        from cimtool.gpu import triton_layers
    except ImportError:
        return None
    from cimtool.simulation.kernels.choice import candidate_of

    reached = op.infer(x)
    candidate = candidate_of(op.layer, (reached.lo, reached.hi))
    return None if candidate is None else triton_layers.checked(candidate, device)


def _converted(op: CrossbarMvm, device: torch.device) -> TorchKernel:
    """A layer with converters by torch's operations, with its cells on the device."""
    layer, crossbar = op.layer, op.crossbar
    cells, places = layer.cells, layer.cells.places
    again = crossbar.reference_cycles
    held = [one.cells.digits.astype(np.int64) for one in layer.columns[::again]]
    largest = max(int(np.abs(digits).max()) for digits in held)
    drawn = max(map(abs, crossbar.digit_limits))
    product = integer_product(drawn, largest, int(cells.heights.max()))
    stored, bias = [_constant(digits, device) for digits in held], _constant(layer.bias, device)
    factors = [_constant(one.factors, device) for one in layer.columns[::again]]
    row_factors, start = _constant(layer.row_factors, device), _constant(layer.start, device)
    columns = [(one, _converter(one, crossbar.reference_bits, device)) for one in layer.columns]
    idle, lift = cells.idle_sums.tolist(), crossbar.inputs.lift

    def run(x: Tensor) -> Tensor:
        total = start.expand(len(x), -1).clone()
        driven = _digits(x, crossbar)
        for r, group in enumerate(cells.groups):
            for i, (column, convert) in enumerate(columns):
                digits, counts = stored[i // again][group], factors[i // again][r]
                for c in column.cycles:
                    p = product(driven[c][:, group], digits) + idle[r][c]
                    total += crossbar.cycles[c].factor * convert(p, r) * counts
            total += (x[:, group] + lift).sum(1, keepdim=True) * row_factors[r]
        return (total + (1 << places >> 1) >> places) + bias

    return run


def _digits(x: Tensor, crossbar: Crossbar) -> list[Tensor]:
    """The digits [n, K] of each cycle, as in `Crossbar.digits`."""
    x = x + crossbar.inputs.lift
    sign = torch.ones_like(x)
    if crossbar.inputs.sign_magnitude:
        sign, x = torch.sign(x), torch.abs(x)
    return [sign * (x >> cycle.shift & cycle.mask) for cycle in crossbar.cycles]


def _converter(
    column: ConvertedColumns, rise: int, device: torch.device
) -> Callable[[Tensor, int], Tensor]:
    """Convert int64 column sums of a row group to values, as `Crossbar.read` does."""
    law, steps, offsets = column.law, *(_constant(a, device) for a in (column.step, column.offset))
    if law is None:
        return lambda p, group: p << rise
    if isinstance(law, StaircaseLaw):
        edges, levels = _constant(law.thresholds, device), _constant(law.levels, device)

    def convert(p: Tensor, group: int) -> Tensor:
        step, offset = steps[group], offsets[group]
        p = (p << rise) - offset
        if isinstance(law, StaircaseLaw):
            fine = torch.div(p << law.places, step, rounding_mode="floor")
            return levels[torch.bucketize(fine, edges, right=True)] * step + offset
        moved = p + (step >> 1 if law.half else 0)
        codes = torch.div(moved, step, rounding_mode="floor")
        if law.to_even:
            tied = (codes * step == moved) & (step % 2 == 0)
            codes = torch.where(tied, codes & -2, codes)
        return codes.clamp(law.lo, law.hi) * step + offset

    return convert
