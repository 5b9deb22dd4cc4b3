"""The same integers as the readable operations, fast: what the simulator runs.

A layer with converters goes to the first kernel that takes it: bits counted (few-bit digits and
cells), products of bytes (VNNI), or the floating-point BLAS, which runs everywhere. A kernel that
does not give the readable reference's integers on this CPU is left out, with a warning.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.noise.mvm import NoisyMvm
from cimtool.ir.arithmetic import MatMul, Mul, Mvm
from cimtool.ir.backends import KERNELS
from cimtool.ir.integer import Quantize, Requant
from cimtool.ir.op import Op
from cimtool.ir.types import Type
from cimtool.simulation.kernels.choice import Kernel, Kind, fused_cells, in_blocks
from cimtool.simulation.kernels.elementwise import multiplied, quantized, requantized, widened
from cimtool.simulation.kernels.fused import is_narrow
from cimtool.simulation.kernels.noisy import noisy_kernel
from cimtool.simulation.kernels.portable import Converted
from cimtool.simulation.kernels.products import PairProduct, weight_product

Types = tuple[Type, ...]


def prepare(op: Op, types: Types, known: Type | None = None) -> Kernel:
    """The fastest form of an operation on inputs of these types; constants are packed once.

    Integers are int64. With `known`, the type of the result, they come and go in types as narrow
    as their proved ranges allow.
    """
    return KERNELS.of(op)(op, types, known)


@KERNELS.rule(Op)
def _readable(op: Op, types: Types, known: Type | None) -> Kernel:
    return op.run if known is None else widened(op.run)


@KERNELS.rule(MatMul)
def _matmul(op: MatMul, types: Types, known: Type | None) -> Kernel:
    if not all(one.is_integer for one in types):
        return op.run
    return PairProduct(types, _kind(known))


@KERNELS.rule(Mvm)
def _mvm(op: Mvm, types: Types, known: Type | None) -> Kernel:
    return weight_product(op, types[0], _kind(known)) if types[0].is_integer else op.run


@KERNELS.rule(CrossbarMvm)
def _crossbar_mvm(op: CrossbarMvm, types: Types, known: Type | None) -> Kernel:
    if op.exact:
        return weight_product(op, types[0], _kind(known))
    if op.unit_step is None:
        offset, reached = op.bias - op.stored.correction, op.infer(types[0])
        bounds = (reached.lo, reached.hi)
        kernel = fused_cells(op.stored.cells, op.crossbar, op.steps, offset, bounds, _kind(known))
        if kernel is not None:
            return kernel
    return in_blocks(Converted(op))


@KERNELS.rule(NoisyMvm)
def _noisy_mvm(op: NoisyMvm, types: Types, known: Type | None) -> Kernel:
    kernel = noisy_kernel(op)
    return kernel if known is None else widened(kernel)


def _kind(known: Type | None) -> Kind:
    """The type in which a product's results are made."""
    narrow = known is not None and known.is_integer and is_narrow(known)
    return np.int32 if narrow else np.int64


def _narrow(form: Callable[..., Kernel]) -> Callable[..., Kernel]:
    """The rule that gives an operation a form of its own for narrow integers alone."""

    def rule(op: Op, types: Types, known: Type | None) -> Kernel:
        if known is None or not known.is_integer:
            return _readable(op, types, known)
        return form(op, known)

    return rule


KERNELS.rule(Requant)(_narrow(requantized))
KERNELS.rule(Quantize)(_narrow(quantized))
KERNELS.rule(Mul)(_narrow(multiplied))
