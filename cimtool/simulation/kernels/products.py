"""Integer products without converters: with weights, or of all pairs of rows of two arrays.

If the CPU has byte products, they are used, in as many parts of K as keep sums within 32 bits.
Otherwise products run in floating point: in a few parts that are exact in float32, or in float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.ir.types import Type
from cimtool.simulation.kernels import dot
from cimtool.simulation.kernels.choice import (
    CHECKED_ROWS,
    Kernel,
    Kind,
    exact_product,
    extreme_rows,
    in_blocks,
    in_int32,
    warn_of,
)
from cimtool.simulation.kernels.fused import (
    BYTE,
    INT32,
    exact_drive,
    exact_epilogue,
    modulo_int32,
)
from cimtool.simulation.kernels.tiles import DOT_BITS, VNNI_BITS

MOST_PARTS = 4
"""With more parts, products in float32 are as slow as one in float64."""

WIDE = 1 << 16
"""Values of two bytes span less than this."""


@dataclass(frozen=True)
class Factor:
    """Bounds of one factor of a product: the least and largest value at each of its K places."""

    lo: IntArray
    hi: IntArray

    @classmethod
    def of(cls, known: Type) -> Factor:
        """The bounds of rows [n, K] of this type."""
        width = int(known.shape[-1])
        return cls(
            *(np.broadcast_to(bound, width).astype(np.int64) for bound in (known.lo, known.hi))
        )

    @cached_property
    def limits(self) -> tuple[int, int]:
        """The least and largest value. Zero, the padding, is within them."""
        return min(int(self.lo.min()), 0), max(int(self.hi.max()), 0)

    @property
    def reach(self) -> IntArray:
        """The largest magnitude at each of the K places."""
        return np.maximum(-self.lo, self.hi)

    @property
    def narrow(self) -> bool:
        """True if the byte kernel takes these values."""
        lo, hi = self.limits
        return hi - lo < WIDE - 256


def product_kind(bound: int) -> type[np.float32] | type[np.float64] | type[np.int64]:
    """The fastest type in which sums up to `bound` are exact."""
    if bound < 1 << 24:
        return np.float32
    return np.float64 if bound < 1 << 53 else np.int64


def equal_parts(reach: Array, limit: int, most: int) -> list[slice] | None:
    """The fewest equal parts of K whose sums stay below the limit; None if more than `most`.

    `reach` [K] or [K, N] are the largest magnitudes of the products.
    """
    height = len(reach)
    for count in range(1, min(most, height) + 1):
        edges = [height * i // count for i in range(count + 1)]
        parts = [slice(a, b) for a, b in pairwise(edges)]
        if all(np.max(reach[part].sum(axis=0)) < limit for part in parts):
            return parts
    return None


@dataclass(frozen=True)
class Packed:
    """A product with packed weights: the parts of K, with a kernel each.

    Outputs have the type `kind`; if None, any type that holds them. `bias` [N] is added.
    """

    parts: list[slice]
    kernels: list[Kernel]
    kind: Kind | None
    bias: IntArray | None = None

    def __call__(self, x: Array) -> Array:
        """The outputs [n, N]."""
        total: Array = self.kernels[0](x[:, self.parts[0]])
        for part, kernel in zip(self.parts[1:], self.kernels[1:], strict=True):
            total += kernel(x[:, part])
        if self.bias is not None:
            total = total.astype(np.int64, copy=False) + self.bias
        return total if self.kind is None else total.astype(self.kind, copy=False)


def weight_product(weight: IntArray, bias: IntArray, x: Factor, kind: Kind | None = None) -> Packed:
    """Pack the integer product `x @ weight + bias`. `kind`, if given, must hold every output."""
    room = INT32.max - int(np.abs(bias).max(initial=0))
    parts: list[slice] | None = None
    kernels: list[Kernel] | None = None
    if x.narrow and weight.size:
        limits = int(weight.min()), int(weight.max())
        if max(-limits[0], limits[1]) * int(x.reach.sum()) < room:  # as in most layers
            parts = [slice(0, len(weight))]
        else:
            parts = equal_parts(_reach(weight, x), room, MOST_PARTS)
        if parts and _pays(x.limits, limits):
            kernels = _by_bytes(weight, bias, x, parts, kind or np.int32)
    if parts is None or kernels is None:
        return by_blas(weight, _reach(weight, x), kind, bias if bias.any() else None)
    return Packed(parts, kernels, kind)


def _reach(weight: IntArray, x: Factor) -> IntArray:
    """The largest magnitudes [K, N] of the products."""
    found: IntArray = np.abs(weight) * x.reach[:, None]
    return found


class PairProduct:
    """All inner products [n, m] of rows x [n, K] and y [m, K]. y may be packed beforehand."""

    def __init__(self, types: tuple[Type, ...], kind: Kind):
        self.x, self.y = (Factor.of(known) for known in types)
        self.reach, self.kind = self.x.reach * self.y.reach, kind
        self.parts: list[slice] | None = None
        narrow = self.x.narrow and self.y.narrow and _pays(self.x.limits, self.y.limits)
        if DOT_BITS and narrow and self._checked():
            self.parts = equal_parts(self.reach, INT32.max, MOST_PARTS)

    def pack(self, y: Array) -> Packed:
        """Pack the rows y [m, K]. A call takes the result in place of y."""
        if self.parts is None:
            return by_blas(y.T, self.reach, self.kind)
        kind = self.kind if len(self.parts) == 1 else np.int64
        kernels = [self._by_rows(np.ascontiguousarray(y[:, part]), kind) for part in self.parts]
        return Packed(self.parts, kernels, self.kind)

    def __call__(self, x: Array, y: Array | Packed) -> Array:
        """The products [n, m]."""
        return y(x) if isinstance(y, Packed) else self.pack(y)(x)

    def _by_rows(self, y: Array, kind: Kind) -> Kernel:
        drive, digits = exact_drive(self.x.limits)
        cells, sums = dot.pack_rows(y, self.y.limits, digits)
        epilogue = exact_epilogue(drive, -drive.lift * sums)
        bounds = np.array([(0, y.shape[1])], np.int64)

        def fill(x: Array, out: Array) -> None:
            in_int32(dot.run, x, bounds, drive, epilogue, cells, out)

        return in_blocks(fill, len(y), kind)

    def _checked(self) -> bool:
        """True if the byte kernel is right on this CPU for values within these limits."""
        x, y = (extreme_rows(factor.limits, CHECKED_ROWS) for factor in (self.x, self.y))
        right = np.array_equal(self._by_rows(y, np.int32)(x), modulo_int32(x @ y.T))
        return right or warn_of("dot product")


def _pays(*limits: tuple[int, int]) -> bool:
    """True if bytes are faster than floats. Two bytes per value pay only with VNNI."""
    return VNNI_BITS > 0 or all(hi - lo < BYTE for lo, hi in limits)


def _by_bytes(
    weight: IntArray, bias: IntArray, x: Factor, parts: list[slice], kind: Kind
) -> list[Kernel] | None:
    """A byte kernel per part; None if weights do not fit or the CPU has no such kernel."""
    kernels = []
    for part in parts:
        added = bias if part is parts[0] else np.zeros_like(bias)
        made = kind if len(parts) == 1 else np.int64
        kernel = exact_product(weight[part], added, x.limits, made)
        if kernel is None:
            return None
        kernels.append(kernel)
    return kernels


def by_blas(
    weight: Array, reach: IntArray, kind: Kind | None, bias: IntArray | None = None
) -> Packed:
    """Pack `x @ weight + bias` in floating point. `reach` [K] or [K, N] bounds the products."""
    parts = equal_parts(reach, 1 << 24, MOST_PARTS)
    real = np.float32 if parts else product_kind(int(reach.sum(axis=0).max(initial=0)))
    parts = parts or [slice(None)]
    whole = real if len(parts) == 1 else np.int64
    kernels = [_blas_kernel(weight[part].astype(real), whole) for part in parts]
    return Packed(parts, kernels, kind, bias)


def _blas_kernel(weight: Array, kind: type[np.number[Any]]) -> Kernel:
    def fill(x: Array, out: Array) -> None:
        out[:] = x.astype(weight.dtype) @ weight

    return in_blocks(fill, weight.shape[1], kind)
