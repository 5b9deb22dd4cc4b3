"""The operations of CIM hardware, on real numbers and on integers alike.

They are products, sums and limits to constants; on integers requantisation (multiply, shift, limit)
too. After `lower` a program has only these and `Store`/`Axis`, which compute nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from cimtool.base.arrays import FLOAT_BITS, Array, FloatArray, IntArray
from cimtool.ir.op import UNSTORED, Arithmetic, Identity, Level, Op
from cimtool.ir.types import (
    INT_LIMIT,
    RangeError,
    Shape,
    Type,
    broadcast,
    exact_bounds,
    integer,
    number_type,
    product_bounds,
    real,
    rows_of_item,
    shape_text,
    with_rows_of_item,
)


@dataclass(frozen=True)
class TensorKeys:
    """The full keys of a checkpoint's tensors that a layer's weight, and its bias if any, are."""

    weight: str
    bias: str | None


@dataclass(frozen=True, eq=False)
class Mvm(Op, name="mvm", levels=Level.TRAINED.to(Level.INTEGER)):
    """Matrix-vector products with a trained matrix: `x @ weight + bias`, [rows, K] -> [rows, N].

    `scale` [N] is the real value of one unit of each integer sum, None for real numbers. `keys` are
    known as long as the numbers are a checkpoint's; no file keeps them.
    """

    weight: Array
    bias: Array
    scale: Array | None = None
    keys: TensorKeys | None = field(default=None, metadata=UNSTORED)

    def infer(self, *inputs: Type) -> Type:
        (x,) = inputs
        shape = mvm_shape(x, self.weight, self.bias)
        return number_type(shape, *mvm_bounds(self.weight, self.bias, x), self.scale)

    def run(self, *inputs: Array) -> Array:
        return inputs[0] @ self.weight + self.bias


def mvm_shape(x: Type, weight: Array, bias: Array) -> Shape:
    """The shape [rows, N] of products of `x` with a matrix [K, N]; ValueError for another `x`."""
    if weight.ndim != 2 or bias.shape != weight.shape[1:] or x.shape[1:] != weight.shape[:1]:
        raise ValueError(
            f"a value of {shape_text(x.shape)} does not meet weights of {shape_text(weight.shape)} "
            f"and a bias of {shape_text(bias.shape)}"
        )
    return (x.shape[0], weight.shape[1])


def mvm_bounds(weight: Array, bias: Array, x: Type) -> tuple[Array, Array]:
    """Exact bounds of `x @ weight + bias` per output channel, from the bounds of `x`.

    Raises RangeError if integers could leave the 62 bits of the digital unit.
    """
    lo = np.broadcast_to(x.lo, weight.shape[:1])
    hi = np.broadcast_to(x.hi, weight.shape[:1])
    if not (np.isfinite(lo).all() and np.isfinite(hi).all()):
        return np.full(bias.shape, -np.inf), np.full(bias.shape, np.inf)
    if x.is_integer:
        return _whole_bounds(weight, bias, lo, hi)
    return _bounds_by_sign(weight, bias, lo, hi)


def _bounds_by_sign(weight: Array, bias: Array, lo: Array, hi: Array) -> tuple[Array, Array]:
    positive, negative = np.maximum(weight, 0), np.minimum(weight, 0)
    return lo @ positive + hi @ negative + bias, hi @ positive + lo @ negative + bias


def _whole_bounds(
    weight: IntArray, bias: IntArray, lo: IntArray, hi: IntArray
) -> tuple[IntArray, IntArray]:
    """As `_bounds_by_sign`, of integers: in float64, which is fast, if every sum is exact there."""
    real = weight.astype(np.float64)
    size = np.abs(real)
    # Without BLAS: its threads take longer to meet than so few products take.
    ends = np.stack([hi - lo, np.maximum(np.abs(lo), np.abs(hi))]).astype(float)
    spread, reach = np.einsum("ik,kn->in", ends, size)
    largest = (reach + np.abs(bias)).max(initial=0.0)
    if largest >= INT_LIMIT:
        raise RangeError
    if largest >= 1 << FLOAT_BITS - 2:
        return _bounds_by_sign(weight, bias, lo, hi)
    total = np.einsum("k,kn->n", (lo + hi).astype(float), real)
    halves = ((total + side).astype(np.int64) >> 1 for side in (-spread, spread))
    least, most = (half + bias for half in halves)
    return least, most


@dataclass(frozen=True, eq=False)
class MatMul(Arithmetic, name="matmul"):
    """All inner products of two sets of rows: [n, d] x [m, d] -> [n, m]."""

    def infer(self, *inputs: Type) -> Type:
        a, b = inputs
        if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[1]:
            raise ValueError(
                f"rows of {shape_text(a.shape)} and {shape_text(b.shape)} have no inner products"
            )
        lo, hi = product_bounds((a.lo, a.hi), (b.lo, b.hi))
        lo, hi = (_total(bound, a.shape[-1]) for bound in (lo, hi))
        return number_type((a.shape[0], b.shape[0]), lo, hi, _product_unit(a, b))

    def run(self, *inputs: Array) -> Array:
        return inputs[0] @ inputs[1].T


@dataclass(frozen=True, eq=False)
class BatchMatMul(Arithmetic, name="batch_matmul"):
    """Inner products of rows within each batch: [g R, d] x [g C, d] -> [g R, C].

    A batch is R = `rows` of one value and C = `columns` of the other: of attention the queries and
    the keys of an item and a head.
    """

    rows: int
    columns: int

    def infer(self, *inputs: Type) -> Type:
        a, b = inputs
        (a_rows, symbol), (b_rows, other) = (rows_of_item(x.shape[0]) for x in inputs)
        batches = a_rows // self.rows if self.rows > 0 else 0
        if (a_rows, b_rows) != (batches * self.rows, batches * self.columns) or symbol != other:
            raise ValueError(f"{a.shape[0]} and {b.shape[0]} rows are no batches of equal number")
        if a.shape[1:] != b.shape[1:] or any(x.is_integer and x.unit.size > 1 for x in inputs):
            raise ValueError("rows of other extents or of several units have no inner products")
        lo, hi = product_bounds((a.lo, a.hi), (b.lo, b.hi))
        lo, hi = (_total(bound, a.shape[-1]) for bound in (lo, hi))
        return number_type((a.shape[0], self.columns), lo, hi, _product_unit(a, b))

    def run(self, *inputs: Array) -> Array:
        a, b = inputs
        batches = a.reshape(-1, self.rows, a.shape[-1])
        columns = b.reshape(-1, self.columns, b.shape[-1]).swapaxes(1, 2)
        return (batches @ columns).reshape(-1, self.columns)


@dataclass(frozen=True, eq=False)
class Mul(Arithmetic, name="mul"):
    """Element by element product, with NumPy's broadcasting."""

    def infer(self, *inputs: Type) -> Type:
        a, b = inputs
        shape = broadcast(a.shape, b.shape)
        lo, hi = product_bounds((a.lo, a.hi), (b.lo, b.hi))
        if a is b:  # one value times itself is never negative
            lo = np.maximum(exact_bounds(lo), 0)
        return number_type(shape, lo, hi, _product_unit(a, b))

    def run(self, *inputs: Array) -> Array:
        return inputs[0] * inputs[1]


def _product_unit(a: Type, b: Type) -> Array | None:
    """The unit of a product; None for real numbers."""
    return a.unit * b.unit if a.is_integer else None


def _total(bound: Array, width: str | int) -> Array:
    """The bound of a sum of `width` numbers, from theirs."""
    return np.asarray(np.broadcast_to(exact_bounds(bound), (int(width),)).sum())


@dataclass(frozen=True, eq=False)
class Add(Arithmetic, name="add"):
    """`sum_i factors[i] * x_i + offset`: constants multiply and are added, nothing else.

    `scale` is the real value of one unit of the result for integers, None for real numbers. Factors
    are then integers: how many units of the result one unit of the operand is.
    """

    factors: tuple[Array, ...]
    offset: Array
    scale: Array | None = None

    def infer(self, *inputs: Type) -> Type:
        lo = hi = exact_bounds(self.offset)
        for factor, x in zip(self.factors, inputs, strict=True):
            low, high = product_bounds((factor, factor), (x.lo, x.hi))
            lo, hi = lo + low, hi + high
        constants = (np.shape(one) for one in (*self.factors, self.offset))
        shape = broadcast(*(x.shape for x in inputs), *constants)
        return number_type(shape, lo, hi, self.scale)

    def run(self, *inputs: Array) -> Array:
        total = self.offset
        for factor, x in zip(self.factors, inputs, strict=True):
            total = total + (x if np.ndim(factor) == 0 and factor == 1 else factor * x)
        return total


def plus(*factors: float, offset: float = 0.0) -> Add:
    """The operation `sum factors[i] * x_i + offset` on real numbers."""
    return Add(tuple(map(scalar, factors)), scalar(offset))


@dataclass(frozen=True, eq=False)
class Sum(Arithmetic, name="sum"):
    """Accumulate over the last axis: [rows, d] -> [rows]."""

    def infer(self, *inputs: Type) -> Type:
        (x,) = inputs
        lo, hi = (_total(bound, x.shape[-1]) for bound in (x.lo, x.hi))
        scale = x.scale
        if scale is not None and scale.ndim:
            if scale.min() != scale.max():
                raise ValueError("numbers of several units are added")
            scale = scale.min()
        return number_type(x.shape[:-1], lo, hi, scale)

    def run(self, *inputs: Array) -> Array:
        total: Array = inputs[0].sum(axis=-1)
        return total


@dataclass(frozen=True, eq=False)
class SumOfMaxima(Arithmetic, name="sum_of_maxima"):
    """The largest number of each row of a pair, summed over its rows: [R n, C m] -> [n, m].

    A pair is a block of R = `rows` and C = `columns`, such as the products of all tokens of two
    items. Hardware compares and adds.
    """

    rows: int
    columns: int

    @property
    def numbers_of_pair(self) -> int:
        return self.rows * self.columns

    def infer(self, *inputs: Type) -> Type:
        (x,) = inputs
        if len(x.shape) != 2 or min(self.rows, self.columns) < 1:
            raise ValueError(f"{shape_text(x.shape)} has no pairs of {self.rows} x {self.columns}")
        (rows, symbol), items = rows_of_item(x.shape[0]), self._items(x.shape[1])
        if rows != self.rows or (x.is_integer and x.unit.min() != x.unit.max()):
            raise ValueError(f"{x.shape[0]} rows are of other pairs, or numbers of several units")
        lo, hi = (self._largest(bound) * self.rows for bound in (x.lo, x.hi))
        return number_type((symbol, items), lo, hi, x.scale if x.scale is None else x.unit.min())

    def _items(self, extent: str | int) -> str | int:
        """The items of as many columns: m of `8m`, or a number of a number."""
        if isinstance(extent, int):
            columns, left = divmod(extent, self.columns)
            found: tuple[int, str | int] = (self.columns, columns) if not left else (0, 0)
        else:
            found = rows_of_item(extent)
        if found[0] != self.columns:
            raise ValueError(f"{extent} columns are no items of {self.columns}")
        return found[1]

    def _largest(self, bound: Array) -> Array:
        """The bound of an item's largest number in a row, from those of its columns."""
        exact = exact_bounds(bound)
        return exact.reshape(-1, self.columns).max(axis=1) if exact.ndim else exact

    def run(self, *inputs: Array) -> Array:
        (x,) = inputs
        pairs = x.reshape(-1, self.rows, x.shape[1] // self.columns, self.columns)
        total: Array = pairs.max(axis=3).sum(axis=1)
        return total


@dataclass(frozen=True, eq=False)
class Clip(Arithmetic, name="clip"):
    """Limit to [lo, hi] (units of the input); an infinite bound is absent."""

    lo: Array
    hi: Array

    def infer(self, *inputs: Type) -> Type:
        (x,) = inputs
        lo, hi = (np.clip(bound, self.lo, self.hi) for bound in (x.lo, x.hi))
        if x.is_integer and not all((np.abs(end) <= INT_LIMIT).all() for end in (lo, hi)):
            raise RangeError
        return replace(x, lo=lo.astype(x.lo.dtype), hi=hi.astype(x.hi.dtype))

    def run(self, *inputs: Array) -> Array:
        return np.clip(inputs[0], self.lo, self.hi).astype(inputs[0].dtype)


@dataclass(frozen=True, eq=False)
class Axis(Arithmetic, name="axis"):
    """Insert an axis of extent 1, so that two sets of rows meet in all pairs; no arithmetic."""

    axis: int

    def infer(self, *inputs: Type) -> Type:
        (x,) = inputs
        if not 0 <= self.axis <= len(x.shape):
            raise ValueError(f"axis is {self.axis} of {len(x.shape)}")
        shape = (*x.shape[: self.axis], 1, *x.shape[self.axis :])
        return replace(x, shape=shape)

    def run(self, *inputs: Array) -> Array:
        return np.expand_dims(inputs[0], self.axis)


@dataclass(frozen=True, eq=False)
class Arrange(Arithmetic, name="arrange"):
    """The numbers of an item in other places: [k n, w] -> [l n, v]; no arithmetic.

    Tokens, heads and groups of channels become rows, and channels again. An item has k w numbers,
    with k = `rows`; `places` [l, v] names the one that comes to each place.
    """

    rows: int
    places: Array

    def infer(self, *inputs: Type) -> Type:
        (x,) = inputs
        (rows, symbol), width = rows_of_item(x.shape[0]), int(x.shape[-1])
        places = self.places
        if len(x.shape) != 2 or rows != self.rows:
            raise ValueError(f"{x.shape} is not of {self.rows} rows an item")
        if places.ndim != 2 or places.dtype.kind != "i" or not places.size:
            raise ValueError("the places are no table of integers")
        if places.min() < 0 or places.max() >= rows * width:
            raise ValueError(f"a place is beyond the {rows * width} numbers of an item")

        def columns(part: Array, join: Callable[..., Array]) -> Array:
            """A constant of the input's columns by the result's, rows joined."""
            spread = np.broadcast_to(part, (width,))[places % width]
            return np.asarray(join(spread, axis=0)) if np.size(part) > 1 else part

        shape = (with_rows_of_item(len(places), symbol), places.shape[1])
        lo, hi = columns(x.lo, np.min), columns(x.hi, np.max)
        if x.scale is None:
            return real(shape, lo, hi)
        scale = columns(x.scale, np.min)
        if not np.array_equal(scale, columns(x.scale, np.max)):
            raise ValueError("numbers of several units come into one column")
        return integer(shape, lo, hi, scale)

    def run(self, *inputs: Array) -> Array:
        (x,) = inputs
        items = x.reshape(-1, self.rows * x.shape[1])
        return items[:, self.places.reshape(-1)].reshape(-1, self.places.shape[1])

    def in_order(self, width: int) -> bool:
        """True if all numbers of rows of this width stay in their order: the rows are others."""
        return np.array_equal(self.places.reshape(-1), np.arange(self.rows * width))


@dataclass(frozen=True)
class Store(Identity, name="store", levels=Level.TRAINED.to(Level.MAC)):
    """A place where a value is kept in memory: identity now, a rounding after `quantize`.

    `role` says what the value is for (`input`, `activation`, `mu`, `s`, `s_self`, `logvar`,
    `residual`, `normal`, `logit`), and so how its scale is chosen. `bits` is its width; 0 takes the
    settings' feature bits.
    """

    role: str
    bits: int = 0


def scalar(value: float) -> FloatArray:
    """A 0-d float64 array, the form in which operations keep single numbers."""
    return np.asarray(value, np.float64)
