"""Layers and stores of models that were trained as integers and bring their formats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace

import numpy as np

from cimtool.base.arrays import Array, FloatArray, IntArray
from cimtool.ir import format as fixed
from cimtool.ir.arithmetic import Add, Arrange, Clip, Mvm, Store
from cimtool.ir.op import Level
from cimtool.ir.program import Node
from cimtool.ir.types import Type, real


@dataclass(frozen=True, eq=False)
class QuantizedMvm(Mvm, name="quantized_mvm", levels=Level.TRAINED.to(Level.MAC)):
    """A layer with whole weights: `weight` [K, N] is `codes * weight_scale` in real numbers.

    `weight_scale` [N] is the real value of one unit of each column, above 0; `weight_bits` are its
    quantizer's. A zero point is taken off the codes.
    """

    _: KW_ONLY
    weight_scale: Array
    weight_bits: int

    @property
    def codes(self) -> IntArray:
        """The weights [K, N] as integers: the rounding undoes the rounding of the products."""
        return np.rint(self.weight / self.weight_scale).astype(np.int64)


BIAS_FRACTION_BITS = 8
"""Bits of a bias behind the unit of a layer of whole weights."""


def is_whole(bias: FloatArray) -> bool:
    """True if biases in units of their layer are whole, to BIAS_FRACTION_BITS."""
    fine = fixed.round_half_up(np.ldexp(bias, BIAS_FRACTION_BITS))
    return not (fine % (1 << BIAS_FRACTION_BITS)).any()


@dataclass(frozen=True, eq=False)
class FractionalBias(Add, name="fractional_bias", levels={Level.MAC}):
    """The bias of a layer of whole weights, if it is no whole number of units: added in finer
    units.

    The runtime of such a model adds it in float32. Rounded to the units of few bits, it would move
    the value that is stored after the layer.
    """


@dataclass(frozen=True)
class QuantizedStore(Store, name="quantized_store", levels=Level.TRAINED.to(Level.MAC)):
    """A place where a value is kept in the integers of its model's quantizer, at every level.

    In float32, as ONNX's QuantizeLinear: `clip(rint(x / scale), lo, hi) * scale`, halves to even.
    The quantizer's zero point is taken off its limits; `bits` hold `hi - lo`.
    """

    _: KW_ONLY
    scale: float
    lo: int
    hi: int

    def infer(self, *inputs: Type) -> Type:
        return real(inputs[0].shape, self.lo * self.scale, self.hi * self.scale)

    def run(self, *inputs: Array) -> Array:
        return fixed.quantize(inputs[0], np.asarray(self.scale), self.lo, self.hi) * self.scale


def quantizer_of(nodes: Mapping[str, Node], value: str) -> QuantizedStore | None:
    """The quantizer whose codes a value is: as it stores them, arranged, or within whole limits.

    None of any other value.
    """
    node = nodes.get(value)
    if node is not None and isinstance(node.op, QuantizedStore):
        return node.op
    if node is None or not isinstance(node.op, Arrange | Clip):
        return None
    quantizer = quantizer_of(nodes, node.inputs[0])
    if quantizer is None or isinstance(node.op, Arrange):
        return quantizer
    return _limited(quantizer, node.op)


def _limited(store: QuantizedStore, clip: Clip) -> QuantizedStore | None:
    """The quantizer of codes within limits; None if a limit is no whole code, or leaves one."""
    if clip.lo.ndim or clip.hi.ndim:
        return None
    limits = np.clip(np.array([clip.lo, clip.hi]) / store.scale, store.lo, store.hi)
    lo, hi = (int(limit) for limit in fixed.round_half_up(limits))
    if not is_whole(limits) or not lo < hi:
        return None
    return replace(store, lo=lo, hi=hi, bits=(hi - lo).bit_length())
