"""Nodes that depend only on constants; they are computed while a file is read.

Exporters leave `exp` of a logit scale, norms of weights, masks and computations of shapes in a
graph. The reference evaluator of `onnx` runs them. The results of a file may take LARGEST_RESULTS
bytes in total, counted before they are computed, so that a small file cannot use up all memory.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cimtool.base.arrays import Array, FloatArray
from cimtool.base.errors import CimError
from cimtool.base.untrusted import NUMBER
from cimtool.loading.onnx.graph import ITEM_COUNTS, OnnxNode

FREE_SOFTMAX = 13
"""Since this operator set, Softmax is along one axis, which may be any."""

LARGEST_RESULTS = 1 << 30
"""Bytes that the computed constants of a file may take in total, beside quantized constants."""

QUANTIZED_STEPS = 4
"""Times that a number of a file may be quantized, clipped, dequantized or transposed for free."""

MOST_PRODUCTS = 1 << 34
"""Multiply-adds, in total, to compute the constants of a file: some seconds."""

SLOW_PRODUCTS = 16
"""Cost of a multiply-add in types for which numpy has no library; in others it is 1."""

VIEWS = ("Identity", "Shape", "Size", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze")
"""Operators whose results take no further memory."""

BY_PARTS, PARTS = ("Erf", "Gelu", "HardSwish", "Mish"), 8
"""Operators that the evaluator runs number by number or as several others, and their memory."""

LEFT_OUT: Array = np.empty(0, np.int64)
"""Stand-in for an input that is left out before others, such as the axes of Slice."""

LARGEST_EXACT = float(2**53)
"""Up to here float64 holds every whole number, so powers of whole numbers are exact."""

NARROW = frozenset(["int2", "uint2", "int4", "uint4"])
"""Integer types of ml_dtypes; its other types are real."""


def _named(kinds: str) -> frozenset[str]:
    return frozenset(kinds.split())


ELEMENTWISE = _named(
    "Abs Add And Ceil Cos Equal Erf Exp Floor Greater GreaterOrEqual HardSwish IsNaN Less "
    "LessOrEqual Log Max Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal Relu Round Sigmoid Sign "
    "Sin Softplus Sqrt Sub Sum Tanh Where Xor"
)
"""Operators that work number by number, after all inputs are broadcast to one shape."""

FOLDS = ELEMENTWISE | _named(
    "Cast Concat ConstantOfShape Div Elu Expand Flatten Gather Gelu Gemm Identity "
    "InstanceNormalization LayerNormalization LeakyRelu MatMul Range ReduceL1 ReduceL2 ReduceMax "
    "ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Reshape Shape Size Slice Softmax "
    "Split Squeeze Tile Transpose Trilu Unsqueeze"
)
"""The operators that are computed if all inputs are constants."""


MOVING = _named(
    "Expand Flatten Gather Identity Reshape Slice Split Squeeze Tile Transpose Unsqueeze"
)
"""Operators that move the numbers of their first input; Concat moves numbers of all inputs."""

SHAPE_ARITHMETIC = _named("Add Concat Mul Neg ReduceProd ReduceSum Shape Size Sub")
"""Operators whose result for two numbers of items determines it for any number."""

REAL_TYPES = (1, 11)
"""FLOAT and DOUBLE (TensorProto.DataType)."""

TYPES_OF_SHAPES = (6, 7, 12, 13)
"""INT32, INT64, UINT32, UINT64 (TensorProto.DataType): a number of items may be cast to them."""

COUNTED = "computes with the number of items; expected numbers that do not depend on it"


@dataclass(frozen=True, eq=False)
class Counted:
    """Whole numbers that depend on the number of items, with their values for two such numbers.

    Examples are extents of rows, and numbers that a file computes from extents.
    """

    first: Array
    second: Array

    @classmethod
    def of(cls, first: Array, second: Array) -> Array | Counted:
        """A constant if both values are the same, else counted numbers."""
        return first if np.array_equal(first, second) else cls(first, second)


Constant = Array | Counted


def constant_inputs(node: OnnxNode, values: Mapping[str, object]) -> list[Constant] | None:
    """The inputs of a node if all are constants, without inputs left out at its end; else None."""
    given = list(node.inputs)
    while given and not given[-1]:
        given.pop()
    known = [values.get(name) if name else LEFT_OUT for name in given]
    arrays = [value for value in known if isinstance(value, np.ndarray | Counted)]
    return arrays if given and len(arrays) == len(given) else None


def range_of(start: int, end: int, step: int, size: int) -> slice:
    """A slice as ONNX defines it: a backward start before all numbers means the first number."""
    start, end = (place + size if place < 0 else place for place in (start, end))
    if step > 0:
        return slice(max(start, 0), max(end, 0), step)
    return slice(max(start, 0), end if end >= 0 else None, step)


class ConstantFolder:
    """Computes the constants of one file, within a budget of bytes for all of them.

    `numbers` counts the numbers in the file's constants, which may be quantized; `opset` is its
    operator set. `counts` are the two numbers of items of every Counted.
    """

    def __init__(self, numbers: int, opset: int, counts: tuple[int, int] = ITEM_COUNTS) -> None:
        self.opset, self._counts = opset, counts
        self._most = LARGEST_RESULTS + NUMBER * QUANTIZED_STEPS * numbers
        self._taken, self._products = 0, 0

    def fold(self, node: OnnxNode, inputs: Sequence[Constant], where: str) -> tuple[Constant, ...]:
        """The results of a node whose inputs are all constants or Counted.

        Raises CimError, which starts with `where`, if inputs do not fit, a result exceeds the
        budget, or two numbers of items do not determine the result for others.
        """
        pairs = [(a.first, a.second) if isinstance(a, Counted) else (a, a) for a in inputs]
        if all(one is other for one, other in pairs):
            return self._folded(node, [array for array, _ in pairs], where)
        if not self._is_same_arithmetic(node, pairs):
            raise CimError(f"{where}: {COUNTED}")
        both = (self._folded(node, [*arrays], where) for arrays in zip(*pairs, strict=True))
        return tuple(Counted.of(*made) for made in zip(*both, strict=True))

    def _is_same_arithmetic(self, node: OnnxNode, pairs: Sequence[tuple[Array, Array]]) -> bool:
        """True if the results for two numbers of items determine the results for all."""
        counted = [one is not other for one, other in pairs]
        (a, a2), (b, b2) = pairs[0], pairs[-1]
        match node.kind:
            case kind if kind in MOVING:
                return not any(counted[1:])
            case "Cast":
                return node.attributes["to"] in TYPES_OF_SHAPES
            case "Where":
                return not counted[0]
            case "Div":  # without remainder
                return not counted[1] and bool(b.all()) and not (a % b).any() | (a2 % b).any()
            case "Equal":  # with no extent, such as the -1 that exporters look for in a shape
                n, n2 = self._counts
                extents = ((one > 0) & (one % n == 0) & (two % n2 == 0) for one, two in pairs)
                none = ((one == two) & (one < 1) for one, two in reversed(pairs))
                never = [e & no for e, no in zip(extents, none, strict=True)]
                return bool((never[0] | never[1] | ((a == a2) & (b == b2))).all())
        return node.kind in SHAPE_ARITHMETIC

    @np.errstate(all="ignore")
    def _folded(self, node: OnnxNode, inputs: list[Array], where: str) -> tuple[Array, ...]:
        """The results of a node whose inputs are arrays."""
        if any(array.dtype.kind not in "biufV" for array in inputs):
            raise CimError(f"{where}: computes with texts or complex numbers; expected real ones")
        try:
            self.take(_size(node, inputs), where)
            self._multiply(_products(node, inputs), where)
            self._require_defined(node, inputs)
            made = self._evaluated(node, inputs)
            whole = inputs[0].dtype.kind in "iu"
            if whole and (node.kind == "Pow" or node.kind.startswith("Reduce")):
                real = [inputs[0].astype(np.float64), *inputs[1:]]
                made = [_whole(np.trunc(self._evaluated(node, real)[0]), inputs[0], real[0])]
            if node.kind == "Cast":
                _require_kept(inputs[0], made[0])
            return tuple(made)
        except (CimError, MemoryError):
            raise
        except Exception as error:  # the evaluator raises errors of many kinds
            reason = " ".join(str(error).split()) or type(error).__name__
            raise CimError(f"{where}: its constants do not fit: {reason}") from None

    def _evaluated(self, node: OnnxNode, inputs: list[Array]) -> list[Array]:
        """The outputs of a node by the reference evaluator."""
        from onnx import helper
        from onnx.reference import ReferenceEvaluator

        if node.kind == "Identity":
            return inputs  # the evaluator would copy them
        names = ["" if array is LEFT_OUT else f"i{k}" for k, array in enumerate(inputs)]
        held = {name: array for name, array in zip(names, inputs, strict=True) if name}
        if node.kind == "Slice" and len(inputs) > 1:
            held = _with_reachable_starts(held)
        outputs = [f"o{k}" for k in range(len(node.outputs))]
        attributes = {key: value for key, value in node.attributes.items() if value != []}
        given, made = ([helper.make_empty_tensor_value_info(n) for n in g] for g in (held, outputs))
        made_node = helper.make_node(node.kind, names, outputs, **attributes)
        graph = helper.make_graph([made_node], "constants", given, made)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])
        return [np.asarray(one) for one in ReferenceEvaluator(model).run(None, held)]

    def _require_defined(self, node: OnnxNode, inputs: list[Array]) -> None:
        """Raise ValueError for results that are not real numbers or differ between runtimes."""
        from onnx import helper

        first = inputs[0]
        if node.kind == "Cast":
            kind = helper.tensor_dtype_to_np_dtype(node.attributes["to"]).kind
            if kind not in "biufV":
                raise ValueError("a cast to texts" if kind in "OSU" else "complex numbers")
        if node.kind in ("Div", "Mod") and first.dtype.kind in "iu" and not inputs[1].all():
            raise ValueError("a division of whole numbers by 0")
        if node.kind == "Softmax" and self.opset < FREE_SOFTMAX:
            axis = node.attributes.get("axis", 1)
            if axis % first.ndim != first.ndim - 1:
                raise ValueError(f"a softmax along all axes from {axis} on of {first.ndim}")

    def take(self, numbers: int, where: str) -> None:
        """Count the numbers that the node at `where` computes; CimError beyond the budget."""
        size = numbers * NUMBER
        if self._taken + size > self._most:
            others = f" after {self._taken:,} of others" if self._taken else ""
            raise CimError(
                f"{where}: computes a constant of {size:,} bytes{others}; expected at most "
                f"{LARGEST_RESULTS:,} in all of a file, beside its weights"
            )
        self._taken += size

    def _multiply(self, products: int, where: str) -> None:
        """Count multiply-adds of constants; CimError beyond MOST_PRODUCTS."""
        self._products += products
        if self._products > MOST_PRODUCTS:
            raise CimError(
                f"{where}: with it {self._products:,} multiply-adds compute the file's constants; "
                f"expected at most {MOST_PRODUCTS:,}, or its result as a constant"
            )


def _whole(made: FloatArray, first: Array, real: FloatArray) -> Array:
    """Whole numbers, computed in float64, in the type of `first`; `real` is `first` in float64.

    Raises ValueError if the type does not hold them, or a sum of `real` may be inexact.
    """
    held = np.iinfo(first.dtype)
    kept = (np.abs(made) <= LARGEST_EXACT) & (made >= held.min) & (made <= held.max)
    if not kept.all() or np.abs(real).sum() > LARGEST_EXACT:
        raise ValueError(f"{made.flat[0]:g} is not exact in {first.dtype}")
    return np.asarray(made, first.dtype)


def _require_kept(array: Array, made: Array) -> None:
    """Raise ValueError if a cast to integers, or to few bits, changes a number."""
    narrow, real = made.dtype.name in NARROW, array.dtype.kind not in "biu"
    if narrow or (real and made.dtype.kind in "iu"):
        before = np.trunc(array.astype(np.float64)) if real else array.astype(np.int64)
        kept = made.astype(before.dtype) == before
    elif made.dtype.itemsize == 1 and made.dtype.kind not in "biu":
        before = array.astype(np.float64)
        kept = np.abs(before - made.astype(np.float64)) <= np.abs(before) / 2
    else:
        return
    if not kept.all():
        raise ValueError(f"{array[~kept].flat[0]} is beyond {made.dtype.name}")


def _with_reachable_starts(held: dict[str, Array]) -> dict[str, Array]:
    """Inputs of a slice with each start moved into the array: numpy takes nothing before it."""
    sizes, starts = held["i0"].shape, held["i1"].reshape(-1)
    axes = held["i3"].reshape(-1) if "i3" in held else range(len(starts))
    near = [max(s, -sizes[axis]) for s, axis in zip(starts.tolist(), axes, strict=True)]
    return {**held, "i1": np.array(near, np.int64)}


def _integers(array: Array) -> list[int]:
    return [int(number) for number in array.reshape(-1)]


def _size(node: OnnxNode, inputs: list[Array]) -> int:
    """Numbers in a result, as far as they take memory."""
    shapes = [array.shape for array in inputs]
    match node.kind:
        case kind if kind in VIEWS:
            return 0
        case kind if kind in BY_PARTS:
            return math.prod(np.broadcast_shapes(*shapes)) * PARTS
        case kind if kind in ELEMENTWISE or kind in ("Div", "LayerNormalization"):
            return math.prod(np.broadcast_shapes(*shapes))
        case "ConstantOfShape":
            return math.prod(_integers(inputs[0]))
        case "Expand":
            pairs = itertools.zip_longest(
                reversed(shapes[0]), reversed(_integers(inputs[1])), fillvalue=1
            )
            return math.prod(max(pair) for pair in pairs)
        case "Gather":
            extent: int = shapes[0][node.attributes.get("axis", 0)]
            return inputs[0].size // max(extent, 1) * inputs[1].size
        case "Concat":
            return sum(array.size for array in inputs)
        case "Gemm":
            return math.prod(np.broadcast_shapes(_product_shape(node, shapes), *shapes[2:]))
        case "MatMul":
            return math.prod(_product_shape(node, shapes))
        case "Range":
            start, limit, step = (array.item() for array in inputs)
            if inputs[0].dtype.kind in "iu":
                return max(-(int(start - limit) // int(step)), 0)
            return max(math.ceil((float(limit) - float(start)) / float(step)), 0)
        case "Tile":
            return inputs[0].size * math.prod(_integers(inputs[1]))
    return inputs[0].size


def _products(node: OnnxNode, inputs: list[Array]) -> int:
    """Multiply-adds of a product, times SLOW_PRODUCTS in slow types; 0 for other operators."""
    if node.kind not in ("Gemm", "MatMul"):
        return 0
    a, b = (array.shape for array in inputs[:2])
    inner: int = a[-2] if node.attributes.get("transA", 0) else a[-1]
    quick = all(array.dtype in (np.float32, np.float64) for array in inputs[:2])
    made = math.prod(_product_shape(node, [a, b]))
    return made * inner * (1 if quick else SLOW_PRODUCTS)


def _product_shape(node: OnnxNode, shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape of a product of two matrices; in MatMul, either may be a vector."""
    a, b = shapes[:2]
    if not (a and b):
        raise ValueError("a number alone is no matrix")
    rows, columns = a[-2:-1], b[-1:] if len(b) > 1 else ()
    if node.kind == "Gemm":
        rows = a[-1:] if node.attributes.get("transA", 0) else a[:1]
        columns = b[:1] if node.attributes.get("transB", 0) else b[-1:]
        return (*rows, *columns)
    return (*np.broadcast_shapes(a[:-2], b[:-2]), *rows, *columns)
