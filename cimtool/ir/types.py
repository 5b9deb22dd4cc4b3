"""Types of values: the shape, the real number of one unit, and proved bounds."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np

from cimtool.base.arrays import Array

INT_LIMIT = 2**62
"""No integer value may reach this magnitude: requantisation adds below it in 64 bits."""

Shape = tuple[str | int, ...]
"""Extents; the first is symbolic: `n`, or `8n` if each of n items has 8 rows, as of tokens."""

ROW_EXTENT = re.compile(r"([1-9][0-9]{0,8})?([a-z])")


def rows_of_item(extent: str | int) -> tuple[int, str]:
    """The rows that each item has, and the symbol of the items: 8 and `n` of `8n`.

    Raises ValueError for any other extent.
    """
    parts = ROW_EXTENT.fullmatch(str(extent))
    if parts is None:
        raise ValueError(f"{extent} is no number of rows")
    return int(parts[1] or 1), parts[2]


def numbers_of_item(shape: Shape) -> int:
    """The numbers that each item has in a value of a projector: 24 of `8n` rows of 3."""
    first, *columns = shape
    return rows_of_item(first)[0] * math.prod(map(int, columns))


def with_rows_of_item(rows: int, symbol: str) -> str:
    """The extent of as many rows for each item: `8n`."""
    return f"{rows}{symbol}" if rows > 1 else symbol


def broadcast(*shapes: Shape) -> Shape:
    """The shape of values that meet element by element, as NumPy broadcasts them.

    Raises ValueError if they do not meet: `n` rows and `m`, 3 columns and 4.
    """
    axes = max(map(len, shapes))
    padded = [(1,) * (axes - len(shape)) + tuple(shape) for shape in shapes]
    found: list[str | int] = []
    for extents in zip(*padded, strict=True):
        others = {extent for extent in extents if extent != 1}
        if len(others) > 1:
            raise ValueError(f"values of {' and '.join(map(shape_text, shapes))} do not meet")
        found.append(others.pop() if others else 1)
    return tuple(found)


def shape_text(shape: Shape) -> str:
    """A shape in words: `[n, 64]`."""
    return f"[{', '.join(map(str, shape))}]"


class RangeError(ValueError):
    """An integer whose proved range does not fit the 62 bits that the contract allows."""


@dataclass(frozen=True)
class Type:
    """Shape with symbolic rows (`n`, `m`), bounds, and the real value of one unit.

    `lo` and `hi` broadcast against the last axis: float64 for real numbers, if `scale` is
    None, and int64 for integers. `scale` (a scalar or one value a channel) times the integer is
    the real number it stands for.
    """

    shape: Shape
    lo: Array
    hi: Array
    scale: Array | None = None

    @property
    def is_integer(self) -> bool:
        """True for values that are stored as integers."""
        return self.scale is not None

    @property
    def signed(self) -> bool:
        """True if an element may be negative."""
        return bool(np.min(self.lo) < 0)

    @property
    def magnitude(self) -> int | float:
        """The largest absolute value that any element may have, in units."""
        largest: int | float = max(abs(np.min(self.lo).item()), abs(np.max(self.hi).item()))
        return largest

    @cached_property
    def bits(self) -> int:
        """Bits that hold every integer in the bounds (two's complement if signed)."""
        lo, hi = int(np.min(self.lo)), int(np.max(self.hi))
        if lo < 0:
            return max((-lo - 1).bit_length(), max(hi, 0).bit_length()) + 1
        return max(hi.bit_length(), 1)

    @property
    def unit(self) -> Array:
        """The scale of an integer type; an error in the compiler if there is none."""
        if self.scale is None:
            raise TypeError("a real value has no unit")
        return self.scale

    def real_bounds(self) -> tuple[Array, Array]:
        """Lower and upper bound as real numbers."""
        scale = 1.0 if self.scale is None else self.scale
        return self.lo * scale, self.hi * scale


def type_text(known: Type) -> str:
    """A value's type in a few words: `int [n, 1024] 8 bits -127..127 unit 0.0156`."""
    shape = ", ".join(str(extent) for extent in known.shape)
    if not known.is_integer:
        return f"real [{shape}]"
    unit = np.ravel(known.unit)
    text = f"{unit.min():.6g}" if unit.size == 1 else f"{unit.min():.6g}..{unit.max():.6g}"
    return (
        f"int [{shape}] {known.bits} bits {int(known.lo.min())}..{int(known.hi.max())} unit {text}"
    )


def real(shape: Shape, lo: Any = -np.inf, hi: Any = np.inf) -> Type:
    """A real value with float64 bounds."""
    return Type(shape, np.asarray(lo, np.float64), np.asarray(hi, np.float64))


def integer(shape: Shape, lo: Any, hi: Any, scale: Any) -> Type:
    """An integer value; RangeError if a bound needs more than 62 bits."""
    return Type(shape, _checked(lo), _checked(hi), np.asarray(scale, np.float64))


def _checked(bound: Any) -> Array:
    known = isinstance(bound, np.ndarray) and bound.dtype == np.int64
    exact = bound if known else np.asarray(bound, object)
    if exact.ndim == 0:
        least = most = int(exact.item())
    else:
        least, most = (int(exact.min()), int(exact.max())) if exact.size else (0, 0)
    if max(most, -least) >= INT_LIMIT:
        raise RangeError
    return exact.astype(np.int64)


Types = tuple[Type, ...]
"""The types of the inputs of an operation."""


def number_type(shape: Shape, lo: Any, hi: Any, scale: Any) -> Type:
    """An integer value whose unit is `scale`, a real one if that is None."""
    return real(shape, lo, hi) if scale is None else integer(shape, lo, hi, scale)


INTEGERS = frozenset("iu")
"""The kinds of NumPy's integers."""


def exact_bounds(bound: Any) -> Array:
    """Bounds in a form whose arithmetic cannot wrap: Python integers, or floats as they are."""
    ends: Array = np.asarray(bound)
    return ends.astype(object) if ends.dtype.kind in INTEGERS else ends


def product_bounds(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
    """Bounds of `x * y` from the bounds of both factors; exact for integers of any size.

    A bound beyond float64 is none.
    """
    of_a, of_b = (pair[:1] if pair[0] is pair[1] else pair for pair in (a, b))  # a constant's
    kinds = {end.dtype.kind for end in (*of_a, *of_b)}
    if kinds <= INTEGERS and not any(end.ndim for end in (*of_a, *of_b)):
        whole = [x.item() * y.item() for x in of_a for y in of_b]
        return np.asarray(min(whole), object), np.asarray(max(whole), object)
    if "f" in kinds and not all(
        np.isfinite(end).all() for end in (*of_a, *of_b) if end.dtype.kind == "f"
    ):
        return np.asarray(-np.inf), np.asarray(np.inf)
    ends = [(exact_bounds(x), exact_bounds(y)) for x in of_a for y in of_b]
    # Without its kind a single number would fall back to int64, and wrap in the next sum.
    kind = np.result_type(*(x.dtype for pair in ends for x in pair))
    with np.errstate(over="ignore"):
        corners = [np.asarray(x * y, kind) for x, y in ends]
    lo, hi = (np.asarray(reduce(choose, corners), kind) for choose in (np.minimum, np.maximum))
    if kind.kind == "f":
        lo, hi = np.where(lo == np.inf, -np.inf, lo), np.where(hi == -np.inf, np.inf, hi)
    return lo, hi
