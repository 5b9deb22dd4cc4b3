"""Nodes that depend on constants alone, computed while a file is read.

Exporters leave `exp` of a logit scale, norms of weights, masks and computations of shapes in a
graph. Operators are numpy's; all results of a file have LARGEST_RESULTS bytes together, counted
before they are computed, so that no small file asks for all of memory.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from cimtool.base.arrays import Array
from cimtool.base.errors import CimError
from cimtool.base.untrusted import NUMBER
from cimtool.loading.onnx.graph import OnnxNode

FREE_SOFTMAX = 13
"""The operator set from which on Softmax is along any one axis."""

LARGEST_RESULTS = 1 << 30
"""Bytes that the computed constants of a file may have together, beside its quantized ones."""

QUANTIZED_STEPS = 4
"""Times that a number of a file may be quantized, limited, dequantized or turned for that."""

MOST_PRODUCTS = 1 << 34
"""Multiply-adds by which the constants of a file are computed, all together: some seconds."""

SLOW_PRODUCTS = 16
"""Times that a multiply-add takes in types for which numpy has no library."""

VIEWS = ("Identity", "Shape", "Size", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze")
"""Operators whose results take no memory of their own."""

LEFT_OUT: Array = np.empty(0, np.int64)
"""In the place of an input that a node leaves out before others, as Slice may its axes."""

LARGEST_EXACT = float(2**53)
"""Up to here float64 has all whole numbers, and so powers of whole numbers are exact."""

NARROW = frozenset(["int2", "uint2", "int4", "uint4"])
"""Types of numpy's extensions that are integers; others of theirs are real."""

Folded = Array | tuple[Array, ...]
Fold = Callable[[Mapping[str, Any], list[Array]], Folded]


def constant_inputs(node: OnnxNode, values: Mapping[str, object]) -> list[Array] | None:
    """The inputs of a node that has constants alone, without those left out at its end."""
    given = list(node.inputs)
    while given and not given[-1]:
        given.pop()
    known = [values.get(name) if name else LEFT_OUT for name in given]
    arrays = [value for value in known if isinstance(value, np.ndarray)]
    return arrays if given and len(arrays) == len(given) else None


def _integers(array: Array) -> list[int]:
    return [int(number) for number in array.reshape(-1)]


def _axes(attributes: Mapping[str, Any], inputs: list[Array]) -> list[int]:
    """Axes as an input or (before operator set 13) an attribute."""
    return _integers(inputs[1]) if len(inputs) > 1 else list(attributes.get("axes", ()))


def _cast(attributes: Mapping[str, Any], inputs: list[Array]) -> Array:
    from onnx import helper

    wanted = helper.tensor_dtype_to_np_dtype(attributes["to"])
    if wanted.kind == "O":
        raise ValueError("a cast to texts")
    array, made = inputs[0], inputs[0].astype(wanted)
    narrow, real = wanted.name in NARROW, array.dtype.kind not in "biu"
    if narrow or (real and wanted.kind in "iu"):
        before = np.trunc(array.astype(np.float64)) if real else array.astype(np.int64)
        kept = made.astype(before.dtype) == before
    elif wanted.itemsize == 1 and wanted.kind not in "biu":
        before = array.astype(np.float64)
        kept = np.abs(before - made.astype(np.float64)) <= np.abs(before) / 2
    else:
        return made
    if not kept.all():
        raise ValueError(f"{array[~kept].flat[0]} is beyond {wanted.name}")
    return made


def _constant_of_shape(attributes: Mapping[str, Any], inputs: list[Array]) -> Array:
    from onnx import numpy_helper

    given = attributes.get("value")
    value = np.zeros(1, np.float32) if given is None else numpy_helper.to_array(given)
    return np.full(_integers(inputs[0]), value.item(), value.dtype)


def _divide(attributes: Mapping[str, Any], inputs: list[Array]) -> Array:
    a, b = inputs
    if a.dtype.kind not in "iu" or b.dtype.kind not in "iu":
        return np.asarray(a / b)
    _require_divisor(b)
    whole = a // b
    return np.asarray(whole + ((whole < 0) & (whole * b != a)).astype(whole.dtype))


def _require_divisor(b: Array) -> None:
    if not b.all():
        raise ValueError("a division of whole numbers by 0")


def _modulo(attributes: Mapping[str, Any], inputs: list[Array]) -> Array:
    """The remainder with the sign of the divisor, or by `fmod`, as real numbers, the dividend's."""
    a, b = inputs
    signed = attributes.get("fmod", 0)
    if a.dtype.kind in "iu":
        _require_divisor(b)
    elif not signed:
        raise ValueError("a remainder of real numbers with fmod = 0; ONNX has it with fmod = 1")
    return np.asarray(np.fmod(a, b) if signed else np.mod(a, b))


def _power(attributes: Mapping[str, Any], inputs: list[Array]) -> Array:
    """Powers in the type of the base; of whole numbers those that it holds exactly."""
    base, exponent = inputs
    if base.dtype.kind not in "iu":
        return np.asarray(np.power(base, exponent), base.dtype)
    made = np.trunc(np.power(base.astype(np.float64), exponent.astype(np.float64)))
    return _whole(np.asarray(made), base.dtype)


def _expand(attributes: Mapping[str, Any], inputs: list[Array]) -> Array:
    array = inputs[0]
    return np.broadcast_to(array, np.broadcast_shapes(array.shape, tuple(_integers(inputs[1]))))


def _flatten(attributes: Mapping[str, Any], inputs: list[Array]) -> Array:
    array, axis = inputs[0], attributes.get("axis", 1)
    if not -array.ndim <= axis <= array.ndim:
        raise ValueError(f"axis {axis} of {array.ndim}")
    axis += array.ndim if axis < 0 else 0
    return array.reshape(math.prod(array.shape[:axis]), math.prod(array.shape[axis:]))


def _gemm(attributes: Mapping[str, Any], inputs: list[Array]) -> Array:
    a, b = (
        array.T if attributes.get(key, 0) else array
        for array, key in zip(inputs[:2], ("transA", "transB"), strict=True)
    )
    added = attributes.get("beta", 1.0) * inputs[2] if len(inputs) > 2 else 0
    return np.asarray(attributes.get("alpha", 1.0) * (a @ b) + added, a.dtype)


def _layer_norm(attributes: Mapping[str, Any], inputs: list[Array]) -> Folded:
    array, axis = inputs[0], attributes.get("axis", -1)
    axes = tuple(range(axis % array.ndim, array.ndim))
    mean = array.mean(axes, keepdims=True)
    variance = np.square(array - mean).mean(axes, keepdims=True) + attributes.get("epsilon", 1e-5)
    made = (array - mean) / np.sqrt(variance) * inputs[1] + sum(inputs[2:3])
    return np.asarray(made, array.dtype), mean, 1 / np.sqrt(variance)


def _gather(attributes: Mapping[str, Any], inputs: list[Array]) -> Array:
    return np.take(inputs[0], inputs[1].astype(np.int64), axis=attributes.get("axis", 0))


def _reshape(attributes: Mapping[str, Any], inputs: list[Array]) -> Array:
    array, shape = inputs[0], _integers(inputs[1])
    if not attributes.get("allowzero", 0):
        shape = [array.shape[i] if size == 0 else size for i, size in enumerate(shape)]
    return array.reshape(shape)


def _range(attributes: Mapping[str, Any], inputs: list[Array]) -> Array:
    start, _, step = inputs
    places = np.arange(_range_length(inputs), dtype=start.dtype)
    return np.asarray(start.reshape(()) + places * step.reshape(()))


def _range_length(inputs: list[Array]) -> int:
    start, limit, step = (array.item() for array in inputs)
    if inputs[0].dtype.kind in "iu":
        return max(-(int(start - limit) // int(step)), 0)
    return max(math.ceil(float((inputs[1] - inputs[0]).item()) / float(step)), 0)


def _reduction(function: Callable[..., Any]) -> Fold:
    """A function of an array, axes and whether these are kept."""

    def fold(attributes: Mapping[str, Any], inputs: list[Array]) -> Array:
        axes = tuple(_axes(attributes, inputs)) or None
        if axes is None and attributes.get("noop_with_empty_axes", 0):
            axes = ()  # each number by itself, as onnxruntime does it
        array, kept = inputs[0], bool(attributes.get("keepdims", 1))
        if array.dtype.kind not in "iu" or function in (np.max, np.min):
            return np.asarray(function(array, axis=axes, keepdims=kept), array.dtype)
        real = array.astype(np.float64)
        made = np.trunc(function(real, axis=axes, keepdims=kept))
        if np.abs(real).sum() > LARGEST_EXACT:
            raise ValueError("a reduction of whole numbers beyond 2**53")
        return _whole(made, array.dtype)

    return fold


def _whole(made: Array, kind: np.dtype[Any]) -> Array:
    """Whole numbers in float64 as those of a type; ValueError where it does not hold them."""
    held = np.iinfo(kind)
    kept = (np.abs(made) <= LARGEST_EXACT) & (made >= held.min) & (made <= held.max)
    if not kept.all():
        raise ValueError(f"{made[~kept].flat[0]:g} is not exact in {kind}")
    return np.asarray(made, kind)


def _root_of_squares(array: Array, **along: Any) -> Array:
    return np.asarray(np.sqrt(np.square(array).sum(**along)))


def _slice(attributes: Mapping[str, Any], inputs: list[Array]) -> Array:
    given = [_integers(array) for array in inputs[1:]]
    if not given:
        given = [list(attributes["starts"]), list(attributes["ends"])]
        given += [list(attributes["axes"])] if "axes" in attributes else []
    starts, ends, *rest = given
    axes = rest[0] if rest and rest[0] else list(range(len(starts)))
    steps = rest[1] if len(rest) > 1 else [1] * len(starts)
    index: list[slice] = [slice(None)] * inputs[0].ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        index[axis] = range_of(start, end, step, inputs[0].shape[axis])
    return inputs[0][tuple(index)]


def range_of(start: int, end: int, step: int, size: int) -> slice:
    """A slice whose start, backwards, is one of the numbers however far before them it lies."""
    start, end = (place + size if place < 0 else place for place in (start, end))
    if step > 0:
        return slice(max(start, 0), max(end, 0), step)
    return slice(max(start, 0), end if end >= 0 else None, step)


def _softmax(attributes: Mapping[str, Any], inputs: list[Array]) -> Array:
    array, older = inputs[0], attributes["opset"] < FREE_SOFTMAX
    axis = attributes.get("axis", 1 if older else -1)
    if older and axis % array.ndim != array.ndim - 1:
        raise ValueError(f"a softmax along all axes from {axis} on of {array.ndim}")
    powers = np.exp(array - array.max(axis=axis, keepdims=True))
    return np.asarray(powers / powers.sum(axis=axis, keepdims=True))


def _split(attributes: Mapping[str, Any], inputs: list[Array]) -> tuple[Array, ...]:
    array, axis = inputs[0], attributes.get("axis", 0)
    sizes = _integers(inputs[1]) if len(inputs) > 1 else list(attributes.get("split", ()))
    if not sizes:
        share = -(-array.shape[axis] // attributes["outputs"])
        sizes = [share] * (attributes["outputs"] - 1)
        sizes.append(array.shape[axis] - sum(sizes))
    if min(sizes) < 0 or sum(sizes) != array.shape[axis]:
        raise ValueError(f"{array.shape[axis]} numbers in parts of {sizes}")
    return tuple(np.split(array, np.cumsum(sizes)[:-1], axis=axis))


def _shape(attributes: Mapping[str, Any], inputs: list[Array]) -> Array:
    start, end = attributes.get("start", 0), attributes.get("end")
    return np.array(inputs[0].shape[start:end], np.int64)


def _squeeze(attributes: Mapping[str, Any], inputs: list[Array]) -> Array:
    axes = _axes(attributes, inputs)
    return np.squeeze(inputs[0], tuple(axes) if axes else None)


def _triangle(attributes: Mapping[str, Any], inputs: list[Array]) -> Array:
    kept = np.triu if attributes.get("upper", 1) else np.tril
    return np.asarray(kept(inputs[0], int(inputs[1].item()) if len(inputs) > 1 else 0))


def _unsqueeze(attributes: Mapping[str, Any], inputs: list[Array]) -> Array:
    return np.expand_dims(inputs[0], tuple(_axes(attributes, inputs)))


def _erf(x: Array) -> Array:
    from scipy.special import erf  # slow to load, and every command imports this

    return np.asarray(erf(x), x.dtype)


def _gelu(attributes: Mapping[str, Any], inputs: list[Array]) -> Array:
    (x,) = inputs
    if attributes.get("approximate", b"none") == b"tanh":
        inner = np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))
    else:
        inner = _erf(x / np.sqrt(2))
    return np.asarray(0.5 * x * (1 + inner), x.dtype)


def _bent(alpha: float, below: Callable[[Array], Array]) -> Fold:
    """A function that is `x` above 0 and `alpha` times another one of it below."""

    def fold(attributes: Mapping[str, Any], inputs: list[Array]) -> Array:
        (x,) = inputs
        low = attributes.get("alpha", alpha) * below(np.minimum(x, 0))
        return np.asarray(np.where(x > 0, x, low), x.dtype)

    return fold


def _instance_norm(attributes: Mapping[str, Any], inputs: list[Array]) -> Array:
    x, gamma, beta = inputs
    axes = tuple(range(2, x.ndim))
    centred = x - x.mean(axes, keepdims=True)
    variance = np.square(centred).mean(axes, keepdims=True) + attributes.get("epsilon", 1e-5)
    gain, offset = (array.reshape(-1, *[1] * len(axes)) for array in (gamma, beta))
    return np.asarray(centred / np.sqrt(variance) * gain + offset, x.dtype)


def _ufunc(function: Callable[..., Any]) -> Fold:
    return lambda attributes, inputs: np.asarray(function(*inputs))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Abs": np.abs,
    "Add": np.add,
    "And": np.logical_and,
    "Ceil": np.ceil,
    "Cos": np.cos,
    "Equal": np.equal,
    "Erf": _erf,
    "Exp": np.exp,
    "Floor": np.floor,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "IsNaN": np.isnan,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "HardSwish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "Log": np.log,
    "Max": lambda *arrays: functools.reduce(np.maximum, arrays),
    "Min": lambda *arrays: functools.reduce(np.minimum, arrays),
    "Mish": lambda x: x * np.tanh(np.logaddexp(x.dtype.type(0), x)),
    "Mul": np.multiply,
    "Neg": np.negative,
    "Not": np.logical_not,
    "Or": np.logical_or,
    "PRelu": lambda x, slope: np.where(x > 0, x, slope * x),
    "Reciprocal": np.reciprocal,
    "Relu": lambda x: np.maximum(x, 0),
    "Round": np.rint,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Sign": np.sign,
    "Sin": np.sin,
    "Softplus": lambda x: np.logaddexp(x.dtype.type(0), x),
    "Sqrt": np.sqrt,
    "Sub": np.subtract,
    "Sum": lambda *arrays: functools.reduce(np.add, arrays),
    "Tanh": np.tanh,
    "Where": np.where,
    "Xor": np.logical_xor,
}
"""Operators of numbers in equal places that have no attributes."""

ELEMENTWISE = frozenset([*FUNCTIONS, "Mod", "Pow"])
"""Operators of numbers in equal places, after all have been spread to one shape."""

FOLDS: dict[str, Fold] = {
    **{kind: _ufunc(function) for kind, function in FUNCTIONS.items()},
    "Cast": _cast,
    "Concat": lambda attributes, inputs: np.concatenate(inputs, axis=attributes["axis"]),
    "ConstantOfShape": _constant_of_shape,
    "Div": _divide,
    "Elu": _bent(1.0, np.expm1),
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "Gelu": _gelu,
    "Gemm": _gemm,
    "Identity": lambda attributes, inputs: inputs[0],
    "InstanceNormalization": _instance_norm,
    "LayerNormalization": _layer_norm,
    "LeakyRelu": _bent(0.01, np.positive),
    "MatMul": _ufunc(np.matmul),
    "Mod": _modulo,
    "Pow": _power,
    "Range": _range,
    "ReduceL1": _reduction(lambda x, **along: np.abs(x).sum(**along)),
    "ReduceL2": _reduction(_root_of_squares),
    "ReduceMax": _reduction(np.max),
    "ReduceMean": _reduction(np.mean),
    "ReduceMin": _reduction(np.min),
    "ReduceProd": _reduction(np.prod),
    "ReduceSum": _reduction(np.sum),
    "ReduceSumSquare": _reduction(lambda x, **along: np.square(x).sum(**along)),
    "Reshape": _reshape,
    "Shape": _shape,
    "Size": lambda attributes, inputs: np.array(inputs[0].size, np.int64),
    "Slice": _slice,
    "Softmax": _softmax,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": lambda attributes, inputs: np.tile(inputs[0], _integers(inputs[1])),
    "Transpose": lambda attributes, inputs: inputs[0].transpose(attributes.get("perm")),
    "Trilu": _triangle,
    "Unsqueeze": _unsqueeze,
}
"""The operators of constants, by name; their inputs are those of `constant_inputs`.

`outputs` and `opset` are among the attributes: the number of a node's outputs, the operator set.
"""


class ConstantFolder:
    """Computes the constants of one file, within a budget of bytes for all of them.

    `numbers` are those of the file's own constants, which may be quantized; `opset` is its operator
    set.
    """

    def __init__(self, numbers: int, opset: int) -> None:
        self.opset = opset
        self._most = LARGEST_RESULTS + NUMBER * QUANTIZED_STEPS * numbers
        self._taken, self._products = 0, 0

    @np.errstate(all="ignore")
    def fold(self, node: OnnxNode, inputs: list[Array], where: str) -> tuple[Array, ...]:
        """The constants that a node of constants alone makes.

        Raises CimError, which says `where` the node stands, for inputs that do not fit and for a
        result beyond the budget.
        """
        if any(array.dtype.kind not in "biufV" for array in inputs):
            raise CimError(f"{where}: computes with texts or complex numbers; expected real ones")
        try:
            self.take(_size(node, inputs), where)
            self._multiply(_products(node, inputs), where)
            known = {**node.attributes, "outputs": len(node.outputs), "opset": self.opset}
            made = FOLDS[node.kind](known, inputs)
            return tuple(map(np.asarray, made if isinstance(made, tuple) else (made,)))
        except (ValueError, IndexError, KeyError, TypeError, ArithmeticError) as error:
            raise CimError(f"{where}: its constants do not fit: {error}") from None

    def take(self, numbers: int, where: str) -> None:
        """Count what a node `where` makes of constants; CimError beyond the budget."""
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


def _size(node: OnnxNode, inputs: list[Array]) -> int:
    """Numbers that a result takes memory for."""
    shapes = [array.shape for array in inputs]
    match node.kind:
        case kind if kind in VIEWS:
            return 0
        case kind if kind in ELEMENTWISE or kind == "Div":
            return math.prod(np.broadcast_shapes(*shapes))
        case "ConstantOfShape":
            return math.prod(_integers(inputs[0]))
        case "Expand":
            return math.prod(_spread(shapes[0], _integers(inputs[1])))
        case "Gather":
            extent: int = shapes[0][node.attributes.get("axis", 0)]
            return inputs[0].size // max(extent, 1) * inputs[1].size
        case "Concat":
            return sum(array.size for array in inputs)
        case "Gemm":
            return math.prod(np.broadcast_shapes(_product_shape(node, shapes), *shapes[2:]))
        case "MatMul":
            return math.prod(_product_shape(node, shapes))
        case "LayerNormalization":
            return math.prod(np.broadcast_shapes(*shapes))
        case "Range":
            return _range_length(inputs)
        case "Tile":
            return inputs[0].size * math.prod(_integers(inputs[1]))
    return inputs[0].size


def _spread(shape: tuple[int, ...], wanted: list[int]) -> list[int]:
    """The larger extents of two shapes, the last ones in the same place."""
    pairs = itertools.zip_longest(reversed(shape), reversed(wanted), fillvalue=1)
    return [max(pair) for pair in pairs]


def _products(node: OnnxNode, inputs: list[Array]) -> int:
    """Multiply-adds of a product of constants, each as many as take its time; 0 of others."""
    if node.kind not in ("Gemm", "MatMul"):
        return 0
    a, b = (array.shape for array in inputs[:2])
    inner: int = a[-2] if node.attributes.get("transA", 0) else a[-1]
    quick = all(array.dtype in (np.float32, np.float64) for array in inputs[:2])
    made = math.prod(_product_shape(node, [a, b]))
    return made * inner * (1 if quick else SLOW_PRODUCTS)


def _product_shape(node: OnnxNode, shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape of a product of matrices, of one of which either may be a vector."""
    a, b = shapes[:2]
    if not (a and b):
        raise ValueError("a number alone is no matrix")
    rows, columns = a[-2:-1], b[-1:] if len(b) > 1 else ()
    if node.kind == "Gemm":
        rows = a[-1:] if node.attributes.get("transA", 0) else a[:1]
        columns = b[:1] if node.attributes.get("transB", 0) else b[-1:]
        return (*rows, *columns)
    return (*np.broadcast_shapes(a[:-2], b[:-2]), *rows, *columns)
