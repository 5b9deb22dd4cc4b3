"""The polynomial surrogate: a bivariate polynomial in ed and vd that approximates the logit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from cimtool.base.arrays import LARGEST_NUMBER, FloatArray
from cimtool.base.errors import CimError, RowsError

MAX_DEGREE = 8

# A surrogate that varies by less than this share of its size ranks nothing. A fit on labels that
# were clipped at 1e-6 looks like that.
CONSTANT_SHARE = 1e-6

Extent = tuple[float, float]

BESIDE_LINE = "vd_beside_line"
"""The statistic that a score reads in place of vd if its polynomial knows a line of vd over ed."""


def exponents(degree: int) -> list[tuple[int, int]]:
    """Return (i, j) of each term ed^i vd^j in scikit-learn's order, without the constant.

    It is `PolynomialFeatures(degree, include_bias=False)`: ed, vd, ed^2, ed vd, vd^2, ...
    """
    return [(total - j, j) for total in range(1, degree + 1) for j in range(total + 1)]


def terms(degree: int) -> list[str]:
    """Return the names of `exponents`: ed, vd, ed^2, ed vd, ..."""
    powers = ((("ed", i), ("vd", j)) for i, j in exponents(degree))
    return [" ".join(f"{x}^{n}" if n > 1 else x for x, n in term if n) for term in powers]


@dataclass(frozen=True)
class FittedRange:
    """The least and the largest ed and vd of the pairs that a polynomial was fitted to.

    `vd_line` is the start and the slope of a line of vd over ed, and `vd_beside_line` the range of
    vd less this line: the pairs lie in a narrow band of the rectangle of ed and vd. Units are the
    polynomial file's, before its scales. Raises CimError if a number is beyond LARGEST_NUMBER, ends
    are not in order, or only one of the band's two fields is given.
    """

    ed: Extent
    vd: Extent | None = None
    vd_line: Extent | None = None
    vd_beside_line: Extent | None = None

    def __post_init__(self) -> None:
        known = {name: ends for name, ends in vars(self).items() if ends is not None}
        for name, (low, high) in known.items():
            small = abs(low) <= LARGEST_NUMBER and abs(high) <= LARGEST_NUMBER
            if not small or (low > high and name != "vd_line"):
                raise CimError(
                    f"domain.{name} is {low:g} to {high:g}; expected two numbers of at most "
                    f"{LARGEST_NUMBER:g} in magnitude" + ", the lower first" * (name != "vd_line")
                )
        if (self.vd_line is None) != (self.vd_beside_line is None):
            raise CimError(
                f"domain has only {', '.join(known)}; expected both of vd_line and vd_beside_line, "
                "or neither"
            )

    @property
    def ranges(self) -> dict[str, Extent]:
        """The ranges that hold the fit's pairs, by the statistics that the score reads."""
        if self.vd_beside_line is not None:
            return {"ed": self.ed, BESIDE_LINE: self.vd_beside_line}
        return {"ed": self.ed} | ({} if self.vd is None else {"vd": self.vd})

    def times(self, ed: float, vd: float) -> FittedRange:
        """The range of statistics that are larger by these factors."""

        def scaled(ends: Extent | None, low: float, high: float) -> Extent | None:
            return None if ends is None else (ends[0] * low, ends[1] * high)

        return FittedRange(
            (self.ed[0] * ed, self.ed[1] * ed),
            scaled(self.vd, vd, vd),
            scaled(self.vd_line, vd, vd / ed),
            scaled(self.vd_beside_line, vd, vd),
        )


@dataclass(frozen=True)
class Polynomial:
    """bias + sum coeff_k (ed/scale_ed)^i (vd/scale_vd)^j over `exponents(degree)`.

    With `fit_logit` its value is a logit, otherwise a probability that is ranked as it is. `a`, `b`
    and `K` are the teacher's sigmoid and samples per side; `domain` is the fitted range. All are
    None if unknown.
    Raises CimError if the degree is not 1 to 8, the number of coefficients is not the degree's,
    a number is not finite or beyond LARGEST_NUMBER, or a scale or `a` is not positive.
    """

    degree: int
    coeff: tuple[float, ...]
    bias: float
    scale_ed: float = 1.0
    scale_vd: float = 1.0
    fit_logit: bool = True
    a: float | None = None
    b: float | None = None
    K: int | None = None
    domain: FittedRange | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.degree <= MAX_DEGREE:
            raise CimError(f"polynomial: degree is {self.degree}; expected 1 to {MAX_DEGREE}")
        count, expected = len(self.coeff), len(exponents(self.degree))
        if count != expected:
            fits = [g for g in range(1, MAX_DEGREE + 1) if len(exponents(g)) == count]
            hint = f" ({count} belong to degree {fits[0]})" if fits else ""
            if count - 1 == expected:
                hint = " (the constant is not one of them: it is the bias)"
            raise CimError(
                f"polynomial: coeff has {count} numbers; degree {self.degree} has {expected}{hint}"
            )
        numbers = {f"coeff[{k}]": c for k, c in enumerate(self.coeff)}
        numbers |= {"bias": self.bias, "scale_ed": self.scale_ed, "scale_vd": self.scale_vd}
        numbers |= {name: x for name, x in (("a", self.a), ("b", self.b)) if x is not None}
        for name, number in numbers.items():
            if not math.isfinite(number):
                raise CimError(f"polynomial: {name} is {number}; expected a finite number")
            if abs(number) > LARGEST_NUMBER:
                raise CimError(
                    f"polynomial: {name} is {number:.3g}; expected at most {LARGEST_NUMBER:g} in "
                    "magnitude"
                )
        for name in ("scale_ed", "scale_vd", "a"):
            if numbers.get(name, 1.0) <= 0:
                raise CimError(f"polynomial: {name} is {numbers[name]}; expected more than 0")
        if self.domain is not None and self.reads_vd and list(self.domain.ranges) == ["ed"]:
            raise CimError(
                "polynomial: domain has only ed, and the polynomial reads vd; expected vd beside "
                "ed, or vd_line and vd_beside_line, or all of them"
            )

    @property
    def line(self) -> Extent | None:
        """Start and slope of the line of vd over ed in the fit's pairs; None if unknown."""
        return None if self.domain is None else self.domain.vd_line

    @property
    def reads_vd(self) -> bool:
        """False if every coefficient of a term with vd is zero: it is a polynomial in ed."""
        terms = zip(exponents(self.degree), self.coeff, strict=True)
        return any(c != 0 for (_, j), c in terms if j)

    def evaluate(self, ed: ArrayLike, vd: ArrayLike, line: Extent | None = None) -> FloatArray:
        """Return the value at ed and vd, less `line` (raw, of the same shape), float64.

        Real ed spread by 0.3% around some hundreds, so powers of raw ed cancel. The polynomial is
        therefore first moved, exactly, to variables in [-1, 1] over the values given. The result is
        as accurate as its size allows, and may differ in the last bits between a block and the
        whole. Raises CimError if ed or vd is not finite.
        """
        ed, vd = np.asarray(ed, np.float64), np.asarray(vd, np.float64)
        if ed.size == 0:
            return np.empty(ed.shape)
        centre_ed, half_ed = _centre_and_half(*_range_of("ed", ed))
        centre_vd, half_vd = _centre_and_half(*_range_of("vd", vd))
        matrix = self.shifted(centre_ed, half_ed, centre_vd, half_vd, line)
        return _horner(matrix, (ed - centre_ed) / half_ed, (vd - centre_vd) / half_vd)

    def shifted(
        self,
        center_ed: float,
        half_ed: float,
        center_vd: float,
        half_vd: float,
        line: Extent | None = None,
    ) -> list[list[Fraction]]:
        """Return c[i][j] of u^i v^j with ed = center_ed + half_ed u and vd = center_vd + half_vd v.

        If `line` is given, its start and slope over ed, `center_vd + half_vd v` is vd less the
        line: pairs lie in a narrow band about it, and coefficients of the rectangle would cancel.
        Exact: every float, the features' scales too, is taken as the rational number that it is.
        The matrix is square with degree + 1 rows; it is zero if i + j is above the degree.
        """
        size = self.degree + 1
        powers_ed = _powers(Fraction(center_ed), Fraction(half_ed), Fraction(self.scale_ed), size)
        start, slope = map(Fraction, line or (0, 0))
        centre = start + slope * Fraction(center_ed) + Fraction(center_vd)
        powers_vd = _powers(centre, Fraction(1), Fraction(self.scale_vd), size)
        matrix = [[Fraction(0)] * size for _ in range(size)]
        matrix[0][0] = Fraction(self.bias)
        for (m, n), factor in zip(exponents(self.degree), self.coeff, strict=True):
            for i, x in enumerate(powers_ed[m]):
                for j, y in enumerate(powers_vd[n]):
                    matrix[i][j] += Fraction(factor) * x * y
        return _sheared(matrix, slope * Fraction(half_ed), Fraction(half_vd))

    def significant(
        self, domains: Sequence[tuple[float, float]], bits: int, line: Extent | None = None
    ) -> list[tuple[float, ...]]:
        """Return `shifted` in float64 for the centre and half the width of ed, and of vd.

        A coefficient becomes 0 if it is `bits` bits or more below the sum of all magnitudes. Zeros
        at the end of a row, and rows of zeros at the end, are dropped. Raises RowsError if a
        coefficient is beyond float64.
        """
        on_ed, on_vd = domains
        table = self.shifted(*on_ed, *on_vd, line)
        negligible = sum(abs(c) for row in table for c in row) / 2**bits
        rows = []
        for coefficients in table:
            kept = [_as_float(c) if abs(c) > negligible else 0.0 for c in coefficients]
            while len(kept) > 1 and kept[-1] == 0:
                kept.pop()
            rows.append(tuple(kept))
        while len(rows) > 1 and not any(rows[-1]):
            rows.pop()
        return rows

    @np.errstate(over="ignore")
    def jitter(
        self, ed: FloatArray, vd: FloatArray, off: float, line: Extent | None = None
    ) -> float:
        """Root mean square change of its value if ed or vd, less `line`, is off its place.

        By `off` of its own range. The larger of the two; infinite if a square is beyond float64. A
        fit on nearly collinear features has large coefficients that cancel, and multiplies every
        error of ed and vd.
        """
        value = self.evaluate(ed, vd, line)
        places = (ed + off * np.ptp(ed), vd), (ed, vd + off * np.ptp(vd))
        moved = (self.evaluate(*place, line) for place in places)
        return max(float(np.sqrt(np.mean((one - value) ** 2))) for one in moved)

    def is_constant(self, ed: Extent, vd: Extent, line: Extent | None = None) -> bool:
        """True if it hardly varies over the range of ed and of vd less `line`, (low, high) each.

        In variables in [-1, 1], all terms but the constant then add up to at most CONSTANT_SHARE of
        the whole.
        """
        matrix = self.shifted(*_centre_and_half(*ed), *_centre_and_half(*vd), line)
        total = sum((abs(c) for row in matrix for c in row), Fraction(0))
        return total - abs(matrix[0][0]) <= Fraction(CONSTANT_SHARE) * total


def _powers(center: Fraction, half: Fraction, scale: Fraction, count: int) -> list[list[Fraction]]:
    """Return for n = 0..count-1 the n+1 coefficients of ((center + half u) / scale)^n in u."""
    return [
        [math.comb(n, i) * center ** (n - i) * half**i / scale**n for i in range(n + 1)]
        for n in range(count)
    ]


def _sheared(matrix: list[list[Fraction]], slope: Fraction, half: Fraction) -> list[list[Fraction]]:
    """Coefficients of u^i v^j from those of u^i x^j, with x = slope u + half v."""
    size = len(matrix)
    found = [[Fraction(0)] * size for _ in range(size)]
    for i, row in enumerate(matrix):
        for j, factor in enumerate(row[: size - i]):
            for k in range(j + 1):
                found[i + k][j - k] += factor * math.comb(j, k) * slope**k * half ** (j - k)
    return found


def _horner(matrix: list[list[Fraction]], u: FloatArray, v: FloatArray) -> FloatArray:
    """Return sum c[i][j] u^i v^j: Horner in v within each power of u, then Horner in u."""
    total = np.zeros_like(u)
    for i, row in reversed(list(enumerate(matrix))):
        inner = np.zeros_like(v)
        for c in reversed(row[: len(matrix) - i]):
            inner *= v
            inner += _as_float(c)
        total *= u
        total += inner
    return total


def _range_of(name: str, values: FloatArray) -> Extent:
    low, high = float(values.min()), float(values.max())
    if not (math.isfinite(low) and math.isfinite(high)):
        raise CimError(f"polynomial: {name} ranges from {low} to {high}; expected finite values")
    return low, high


def _centre_and_half(low: float, high: float) -> tuple[float, float]:
    """Return the middle and half the width of a range; half of a zero width is 1."""
    return low + (high - low) / 2, (high - low) / 2 or 1.0


def _as_float(c: Fraction) -> float:
    """A rational number in float64; RowsError if it is too large."""
    try:
        return float(c)
    except OverflowError:
        raise RowsError(
            "the polynomial's terms are beyond float64 on these rows; expected rows of the scale "
            "that it was fitted on, or smaller coefficients"
        ) from None
