"""Nodes that depend on constants alone, computed while a file is read.

Exporters leave `exp` of a logit scale, transposes of weights and computations of shapes in a graph.
Operators are numpy's; all results of a file have LARGEST_RESULTS bytes together, counted before
they are computed, so that no small file asks for all of memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from cimtool.base.arrays import Array
from cimtool.base.errors import CimError
from cimtool.loading.onnx_graph import OnnxNode

LARGEST_RESULTS = 1 << 30
"""Bytes that the computed constants of a file may have together, beside its quantized ones."""

QUANTIZED_STEPS = 4
"""Times that a number of a file may be quantized, limited, dequantized or turned for that."""

VIEWS = ("Identity", "Shape", "Slice", "Squeeze", "Transpose", "Unsqueeze")
"""Operators whose results take no memory of their own."""

BROADCAST = ("Add", "Div", "Mod", "Mul", "Pow", "Sub")

Fold = Callable[[Mapping[str, Any], list[Array]], Array]


def _integers(array: Array) -> list[int]:
    return [int(number) for number in array.reshape(-1)]


def _axes(attributes: Mapping[str, Any], inputs: list[Array]) -> list[int]:
    """Axes as an input or (before operator set 13) an attribute."""
    return _integers(inputs[1]) if len(inputs) > 1 else list(attributes.get("axes", ()))


def _cast(attributes: Mapping[str, Any], inputs: list[Array]) -> Array:
    from onnx import helper

    return inputs[0].astype(helper.tensor_dtype_to_np_dtype(attributes["to"]))


def _divide(attributes: Mapping[str, Any], inputs: list[Array]) -> Array:
    a, b = inputs
    if a.dtype.kind in "iu" and b.dtype.kind in "iu":
        return np.asarray(a // b)
    return np.asarray(a / b)


def _gather(attributes: Mapping[str, Any], inputs: list[Array]) -> Array:
    return np.take(inputs[0], inputs[1].astype(np.int64), axis=attributes.get("axis", 0))


def _reshape(attributes: Mapping[str, Any], inputs: list[Array]) -> Array:
    array, shape = inputs[0], _integers(inputs[1])
    if not attributes.get("allowzero", 0):
        shape = [array.shape[i] if size == 0 else size for i, size in enumerate(shape)]
    return array.reshape(shape)


def _slice(attributes: Mapping[str, Any], inputs: list[Array]) -> Array:
    given = [_integers(array) for array in inputs[1:]]
    if not given:
        given = [list(attributes["starts"]), list(attributes["ends"])]
        given += [list(attributes["axes"])] if "axes" in attributes else []
    starts, ends, *rest = given
    axes = rest[0] if rest else list(range(len(starts)))
    steps = rest[1] if len(rest) > 1 else [1] * len(starts)
    index: list[slice] = [slice(None)] * inputs[0].ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        index[axis] = slice(start, end, step)
    return inputs[0][tuple(index)]


def _squeeze(attributes: Mapping[str, Any], inputs: list[Array]) -> Array:
    axes = _axes(attributes, inputs)
    return np.squeeze(inputs[0], tuple(axes) if axes else None)


def _unsqueeze(attributes: Mapping[str, Any], inputs: list[Array]) -> Array:
    return np.expand_dims(inputs[0], tuple(_axes(attributes, inputs)))


def _ufunc(function: Callable[..., Any]) -> Fold:
    return lambda attributes, inputs: np.asarray(function(*inputs))


FOLDS: dict[str, Fold] = {
    "Add": _ufunc(np.add),
    "Cast": _cast,
    "Concat": lambda attributes, inputs: np.concatenate(inputs, axis=attributes["axis"]),
    "Div": _divide,
    "Exp": _ufunc(np.exp),
    "Gather": _gather,
    "Identity": lambda attributes, inputs: inputs[0],
    "Log": _ufunc(np.log),
    "Mod": _ufunc(np.mod),
    "Mul": _ufunc(np.multiply),
    "Neg": _ufunc(np.negative),
    "Pow": _ufunc(np.power),
    "Reciprocal": _ufunc(np.reciprocal),
    "Reshape": _reshape,
    "Shape": lambda attributes, inputs: np.array(inputs[0].shape, np.int64),
    "Slice": _slice,
    "Softplus": _ufunc(lambda x: np.logaddexp(x.dtype.type(0), x)),
    "Sqrt": _ufunc(np.sqrt),
    "Squeeze": _squeeze,
    "Sub": _ufunc(np.subtract),
    "Tanh": _ufunc(np.tanh),
    "Transpose": lambda attributes, inputs: inputs[0].transpose(attributes.get("perm")),
    "Unsqueeze": _unsqueeze,
}
"""The operators of constants, by name; their inputs are those that a node gives."""


class ConstantFolder:
    """Computes the constants of one file, within a budget of bytes for all of them.

    `numbers` are those of the file's own constants, which may be quantized.
    """

    def __init__(self, numbers: int) -> None:
        self._left = LARGEST_RESULTS + 8 * QUANTIZED_STEPS * numbers

    @np.errstate(all="ignore")
    def fold(self, node: OnnxNode, inputs: list[Array], where: str) -> Array:
        """The constant that a node of constants alone makes.

        Raises CimError, which says `where` the node stands, for inputs that do not fit and for a
        result beyond the budget.
        """
        try:
            self.take(_size(node, inputs), where)
            return np.asarray(FOLDS[node.kind](node.attributes, inputs))
        except (ValueError, IndexError, KeyError, TypeError, ArithmeticError) as error:
            raise CimError(f"{where}: its constants do not fit: {error}") from None

    def take(self, numbers: int, where: str) -> None:
        """Count what a node `where` makes of constants; CimError beyond the budget."""
        size = numbers * 8
        if size > self._left:
            raise CimError(
                f"{where}: computes a constant of {size:,} bytes; expected at most "
                f"{LARGEST_RESULTS:,} in all of a file, beside its weights"
            )
        self._left -= size


def _size(node: OnnxNode, inputs: list[Array]) -> int:
    """Numbers that a result takes memory for."""
    if node.kind in VIEWS:
        return 0
    if node.kind in BROADCAST:
        return math.prod(np.broadcast_shapes(*(array.shape for array in inputs)))
    if node.kind == "Gather":
        extent: int = inputs[0].shape[node.attributes.get("axis", 0)]
        return inputs[0].size // max(extent, 1) * inputs[1].size
    if node.kind == "Concat":
        return sum(array.size for array in inputs)
    return inputs[0].size
