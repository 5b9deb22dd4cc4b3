"""Polynomial stand-ins for functions that hardware lacks, each with its densely checked error."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.polynomial import chebyshev, polynomial

from cimtool.base.arrays import FloatArray
from cimtool.base.errors import CimError, RowsError
from cimtool.passes.base import RIGHT_ROWS
from cimtool.passes.calibrate import significant

DENSE_POINTS = 20_001
"""Points at which the error of an approximation is measured, ends included."""

COEFFICIENT_BITS = 26
"""Significant bits of a coefficient and of exp's maximum, whose product float64 holds exactly.

Beyond them exp and least squares differ between CPUs.
"""

ROUNDING = 2.0**-COEFFICIENT_BITS
"""Relative error that rounding exp's maximum adds, and more."""

NEGLIGIBLE = 2.0**-40
"""Share of a function's largest value below which a coefficient is rounding alone."""

LEAST_TOLERANCE = 2.0**-40
"""Error of a curve, from above that of float64 in functions whose parts cancel, such as sigmoid."""

TAIL_SHARES = tuple(0.9**k for k in range(60, 1, -1))
"""Shares of a range's end from which a function is tried for being a line."""

TAIL_POINTS = 2_001

LINE = 2.0**-6
"""Share of a tolerance within which a function is a line of any slope."""

BUDGETS = (0.9, 0.5, 0.25)
"""Shares of a tolerance that polynomials are fitted to, the rest for what else adds to it."""

SPLITS = (0.25, 0.375, 0.5, 0.625, 0.75)
"""Shares of a domain at which it is tried to be split in two."""

MAX_MULTIPLY_ADDS = 24
"""The highest degree of a polynomial: one multiply-add each."""

MAX_NEWTON_STEPS = 12
"""Steps from a line to 1/sqrt(x) if the largest x is 5,000 times the least."""

WIDEST_NORMS = 4_000
"""The largest norm as a multiple of the least, for which two ranges of such steps are enough."""


@dataclass(frozen=True)
class ExpPolynomial:
    """`exp(centre + half * u)`, |u| <= 1, as `sum c_i u^i`; `error` is a share of its maximum."""

    centre: float
    half: float
    coefficients: tuple[float, ...]
    error: float


def fit_exp(lo: float, hi: float, tolerance: float, of: str = "its input") -> ExpPolynomial:
    """Interpolate exp at Chebyshev nodes of [lo, hi], with the lowest degree within `tolerance`.

    The error of this interpolation is at most a small factor above the best polynomial's. It is
    measured at 20,001 points, relative to the largest value exp(hi). Raises RowsError, which names
    `of`, if no degree is within the tolerance.
    """
    centre, half = (lo + hi) / 2, max((hi - lo) / 2, 2.0**-20)
    top = float(significant(np.exp(centre + half), np.rint, COEFFICIENT_BITS))

    def scaled(u: FloatArray) -> FloatArray:
        return np.exp(half * (u - 1))

    powers = _lowest(scaled, None, tolerance - ROUNDING, least=1)
    if powers is None:
        raise RowsError(
            f"{of} spans {lo:.3g} to {hi:.3g} on these rows, too wide for exp in "
            f"{MAX_MULTIPLY_ADDS} multiply-adds; expected a span below about 50: {RIGHT_ROWS}, or "
            "a clamp in it"
        )
    u = np.linspace(-1.0, 1.0, DENSE_POINTS)
    error = float(np.abs(polynomial.polyval(u, powers) - scaled(u)).max()) + ROUNDING
    return ExpPolynomial(centre, half, tuple(c * top for c in powers), error)


@dataclass(frozen=True)
class CurvePolynomial:
    """A function of single numbers by polynomials of `u = clip((x - centre) / half, -1, 1)`.

    `even(u)` if `odd` is None, else `even(v) + u odd(v)` with `v = 2 |u| - 1`. From either end
    of the domain on a line of slope `below` or `above` is added. `lo` and `hi` bound the function
    between the ends; `error` is the largest that was measured.
    """

    centre: float
    half: float
    even: tuple[float, ...]
    odd: tuple[float, ...] | None
    lo: float
    hi: float
    below: float = 0.0
    above: float = 0.0
    error: float = 0.0

    @property
    def ends(self) -> tuple[float, float]:
        """The domain of the polynomials."""
        return self.centre - self.half, self.centre + self.half

    @property
    def degrees(self) -> tuple[int, ...]:
        """The degrees of the polynomials that are not constant."""
        degrees = [len(self.even) - 1]
        if self.odd is not None and any(self.odd):
            degrees.append(len(self.odd))
        return tuple(degree for degree in degrees if degree) or (0,)

    @property
    def multiply_adds(self) -> int:
        """The cost of evaluating it, without its ends."""
        folding = 0 if self.odd is None else 3
        return folding + sum(self.degrees)

    def __call__(self, x: FloatArray) -> FloatArray:
        """Its values, in real numbers."""
        u = np.clip((x - self.centre) / self.half, -1.0, 1.0)
        left, right = self.ends
        tails = self.below * np.minimum(x - left, 0.0) + self.above * np.maximum(x - right, 0.0)
        if self.odd is None:
            return np.asarray(polynomial.polyval(u, self.even) + tails)
        v = 2 * np.abs(u) - 1
        odd = u * polynomial.polyval(v, self.odd)
        return np.asarray(polynomial.polyval(v, self.even) + odd + tails)


@dataclass(frozen=True)
class SplitCurve:
    """A function by polynomials on the two sides of a point: their sum less its value there.

    The one that x is beyond gives just this; `value` has its last bits rounded off.
    """

    sides: tuple[CurvePolynomial, CurvePolynomial]
    value: float
    error: float = 0.0

    @property
    def ends(self) -> tuple[float, float]:
        """The domain of both together."""
        return self.sides[0].ends[0], self.sides[1].ends[1]

    @property
    def degrees(self) -> tuple[int, ...]:
        """The degrees of all polynomials that are not constant."""
        return self.sides[0].degrees + self.sides[1].degrees

    @property
    def multiply_adds(self) -> int:
        """The cost of evaluating it, without its ends."""
        return sum(side.multiply_adds for side in self.sides)

    def __call__(self, x: FloatArray) -> FloatArray:
        """Its values, in real numbers."""
        return np.asarray(self.sides[0](x) + self.sides[1](x) - self.value)


PolynomialCurve = CurvePolynomial | SplitCurve

Function = Callable[[FloatArray], FloatArray]

CurveForm = Callable[[Function, float, float, float], PolynomialCurve | None]
"""A fit to a function on a domain, within a tolerance."""


def fit_curve(function: Function, lo: float, hi: float, share: float) -> PolynomialCurve | None:
    """Fit polynomials to a function on [lo, hi], to a share of its largest magnitude there.

    Of two forms the one with the fewest multiply-adds: one polynomial on the whole domain, or,
    if 0 is inside, one each of the even and the odd part over |x|. The latter has no large
    coefficients that cancel, and a bend at 0 costs nothing. If the function is a line up to an
    end of [lo, hi], as tanh, GELU and softplus are far from 0, the domain ends earlier. The error
    is measured at 20,001 points and includes that of narrowing sums in the digital unit, which
    large coefficients make large: if neither form is close enough, the domain is split. None
    if that is not close enough either, or the function is not finite.
    """
    x = np.linspace(lo, hi, DENSE_POINTS)
    exact = function(x)
    if not np.isfinite(exact).all():
        return None
    tolerance = max(share * float(np.abs(exact).max()), LEAST_TOLERANCE)
    left, below = _tail(function, lo, hi, tolerance / 2)
    right, above = _tail(function, hi, lo, tolerance / 2)

    def best(forms: Iterable[CurveForm]) -> PolynomialCurve | None:
        """The cheapest of the forms that are within the tolerance."""
        found: list[PolynomialCurve] = []
        for form in forms:
            for budget in BUDGETS:
                fit = form(function, left, right, budget * tolerance)
                if fit is None:
                    break
                fit = _with_slopes(fit, below, above)
                error = float(np.abs(fit(x) - exact).max()) + _narrowing(fit)
                if error <= tolerance:
                    found.append(replace(fit, error=error))
                    break
        return min(found, key=lambda fit: fit.multiply_adds, default=None)

    return best((_plain, _folded)) or best(partial(_split, place=place) for place in SPLITS)


def _with_slopes(fit: PolynomialCurve, below: float, above: float) -> PolynomialCurve:
    """A curve with lines beyond the ends of its domain."""
    if isinstance(fit, CurvePolynomial):
        return replace(fit, below=below, above=above)
    left, right = fit.sides
    return replace(fit, sides=(replace(left, below=below), replace(right, above=above)))


def _tail(function: Function, end: float, other: float, tolerance: float) -> tuple[float, float]:
    """The start of the line that a function follows towards `end`, and its slope.

    The start is the end if there is no line. A slope other than 0 and 1 needs a line that is nearly
    exact.
    """
    for allowed, within in ((0.0, tolerance), (1.0, tolerance), (None, LINE * tolerance)):
        for share in TAIL_SHARES:
            start = end * share
            if (end - start) * (start - other) <= 0:
                continue
            x = np.linspace(start, end, TAIL_POINTS)
            y = function(x)
            slope = (y[-1] - y[0]) / (end - start) if allowed is None else allowed
            slope = float(significant(slope, np.rint, COEFFICIENT_BITS))
            if np.abs(y - y[0] - slope * (x - start)).max() <= within:
                return start, slope
    return end, 0.0


def _narrowing(fit: PolynomialCurve) -> float:
    """A bound of what narrowing products to FACTOR_BITS adds to the error of Horner's scheme."""
    if isinstance(fit, SplitCurve):
        return sum(map(_narrowing, fit.sides))
    parts = (fit.even, fit.odd or ())
    return sum(len(one) * float(np.abs(one).sum()) for one in parts if len(one) > 1) * 2.0**-24


def _plain(function: Function, lo: float, hi: float, tolerance: float) -> CurvePolynomial | None:
    """One polynomial on [lo, hi]."""
    centre, half = (lo + hi) / 2, (hi - lo) / 2
    powers = _lowest(lambda u: function(centre + half * u), None, tolerance, least=1)
    if powers is None:
        return None
    return CurvePolynomial(centre, half, powers, None, *_bounds(function, lo, hi))


def _folded(function: Function, lo: float, hi: float, tolerance: float) -> CurvePolynomial | None:
    """Polynomials of the even and the odd part on either side of 0, in `v = 2 |x| / limit - 1`."""
    limit = max(-lo, hi)
    if not lo < 0 < hi or not np.isfinite(function(np.linspace(-limit, limit, DENSE_POINTS))).all():
        return None

    def part(sign: float) -> Function:
        def of(v: FloatArray) -> FloatArray:
            x = limit * (v + 1) / 2
            return (function(x) + sign * function(-x)) / 2

        return of

    even = _lowest(part(1.0), None, tolerance / 2)
    odd = _lowest(part(-1.0), lambda v: (v + 1) / 2, tolerance / 2)
    if even is None or odd is None:
        return None
    return CurvePolynomial(0.0, limit, even, odd, *_bounds(function, -limit, limit))


def _split(
    function: Function, lo: float, hi: float, tolerance: float, place: float
) -> SplitCurve | None:
    """A polynomial each on the parts of [lo, hi] that meet at a share of it, its `place`."""
    middle = lo + place * (hi - lo)
    left = _plain(function, lo, middle, tolerance)
    right = left and _plain(function, middle, hi, tolerance)
    if left is None or right is None:
        return None
    value = significant(function(np.array(middle)), np.rint, COEFFICIENT_BITS)
    return SplitCurve((left, right), float(value))


def _bounds(function: Function, lo: float, hi: float) -> tuple[float, float]:
    """Bounds of a function on [lo, hi], slightly outside its range."""
    values = function(np.linspace(lo, hi, DENSE_POINTS))
    ends = significant(values.min(), np.floor), significant(values.max(), np.ceil)
    return float(ends[0]), float(ends[1])


def _lowest(
    function: Function, factor: Function | None, tolerance: float, least: int = 0
) -> tuple[float, ...] | None:
    """The interpolation of `function / factor` on [-1, 1], of the lowest degree, for `function`.

    None if none of the degrees that are allowed is within the tolerance.
    """
    v = np.linspace(-1.0, 1.0, DENSE_POINTS)
    exact = function(v)
    weight = np.ones_like(v) if factor is None else factor(v)
    for degree in range(least, MAX_MULTIPLY_ADDS + 1):
        nodes = chebyshev.chebpts1(degree + 1)
        values = function(nodes) if factor is None else function(nodes) / factor(nodes)
        fitted = chebyshev.cheb2poly(chebyshev.chebfit(nodes, values, degree))
        powers = significant(fitted, np.rint, COEFFICIENT_BITS)
        powers = np.where(np.abs(powers) < NEGLIGIBLE * np.abs(exact).max(), 0.0, powers)
        if np.abs(weight * polynomial.polyval(v, powers) - exact).max() <= tolerance:
            return tuple(float(c) for c in powers)
    return None


@dataclass(frozen=True)
class NewtonIteration:
    """A power of x on [lo, hi]: start `y = alpha + beta x`, then `steps` of an iteration."""

    lo: float
    hi: float
    alpha: float
    beta: float
    steps: int
    error: float


def fit_inverse_root(lo: float, hi: float, tolerance: float) -> tuple[NewtonIteration, ...]:
    """`1/sqrt(x)` by steps of `y (3 - x y^2) / 2` to a relative error, on one range or on two.

    Of two, `[lo, t]` and `[t, hi]`, it is the sum of both, each of x limited to its range, less
    `1/sqrt(t)`: the one that x is beyond gives just this. The start lines are fitted at Chebyshev
    nodes.
    """
    if found := _inverse_root(lo, hi, tolerance):
        return (found,)
    middle = float(np.sqrt(lo * hi))
    # The error of the first stays if x is beyond it, beside a smaller root.
    below = _inverse_root(lo, middle, tolerance / 2 * np.sqrt(middle / hi)) if lo > 0 else None
    above = _inverse_root(middle, hi, tolerance / 2) if below else None
    if below and above:
        return below, above
    raise RowsError(
        f"row norms before normalisation span {np.sqrt(lo):.3g} to {np.sqrt(hi):.3g} on these "
        f"rows, too wide for two ranges of {MAX_NEWTON_STEPS} Newton steps each; expected norms "
        f"that differ at most {WIDEST_NORMS:,} times: {RIGHT_ROWS}, a larger epsilon or larger "
        "groups"
    )


def _inverse_root(lo: float, hi: float, tolerance: float) -> NewtonIteration | None:
    return _newton(np.sqrt, lambda x, y: y * (1.5 - 0.5 * x * y * y), lo, hi, tolerance)


def fit_inverse(lo: float, hi: float, tolerance: float) -> NewtonIteration:
    """`1/x` by steps of `y (2 - x y)` to a relative error, from a line as above."""
    found = _newton(np.asarray, lambda x, y: y * (2 - x * y), lo, hi, tolerance)
    if found is None:
        raise CimError(
            f"a sum of {hi:g} powers needs more than {MAX_NEWTON_STEPS} Newton steps; expected a "
            "softmax of fewer numbers"
        )
    return found


def _newton(
    inverse: Callable[[FloatArray], FloatArray],
    step: Callable[[FloatArray, FloatArray], FloatArray],
    lo: float,
    hi: float,
    tolerance: float,
) -> NewtonIteration | None:
    """The iteration for `1 / inverse(x)`; None if MAX_NEWTON_STEPS are not enough."""
    x = np.linspace(lo, hi, DENSE_POINTS)
    nodes = (lo + hi) / 2 + (hi - lo) / 2 * np.array([-np.sqrt(0.5), np.sqrt(0.5)])
    ends = 1 / inverse(nodes)
    beta = float((ends[1] - ends[0]) / (nodes[1] - nodes[0])) if nodes[1] > nodes[0] else 0.0
    alpha = float(ends[0] - beta * nodes[0])
    y: FloatArray = alpha + beta * x
    for steps in range(MAX_NEWTON_STEPS + 1):
        error = float(np.abs(y * inverse(x) - 1).max())
        if error <= tolerance:
            return NewtonIteration(lo, hi, alpha, beta, steps, error)
        y = step(x, y)
    return None
