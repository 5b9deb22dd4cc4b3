"""The exact matching probability of a pair, by sums over its dimensions; compiled.

With y = b - a D, side = +1 asks for p = E sigmoid(y), side = -1 for 1 - p = E sigmoid(-y). Let
M(u) = E exp(-u D), L = log M and F(v) = L(side a v) + side b v. For N = 0, 1, 2, ...

    E sigmoid(side y) = T_1 - T_2 + ... + (-1)^(N+1) T_N + (-1)^N I_N,     T_n = e^F(n)
    I_N = E e^(N side y) sigmoid(side y) = (1/2 pi) Int |pi / sin pi v| e^F(v) dt

along v = c + i t with N < c < N + 1, and 0 < I_N < T_(N+1). F is convex. N is chosen so that the
minimum of F is in the strip: up to there the terms fall, and neither their sum nor the integral
cancels. On side -1, M ends at a branch point, which narrows the strip or leaves out the rest.

At each point, F comes from sums over dimensions, or from a series if variances are small
(`exact_series`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from cimtool.base.arrays import FloatArray, IntArray
from cimtool.base.compiled import jit_summand, jit_sums, wide_vectors
from cimtool.reference.elementary import cosines, exponentials
from cimtool.reference.exact_series import (
    DOUBT,
    LIKELY,
    MORE_ORDERS,
    MOST_ORDERS,
    Series,
    along,
    derivatives,
    expand,
    remainder,
    series_of,
)

STEP = 4
"""Dimensions taken at once for all nodes; zeros pad their number to a multiple."""

CHUNK = 16
"""Dimensions whose factors 1 + 2 u s are multiplied before one logarithm."""

LANES, MOST_LANES = 8, 64
"""Nodes are evaluated in multiples of LANES, an AVX-512 vector, and at most MOST_LANES at once."""

TERMS, SERIES_TERMS = 5, 16
"""Most terms before the integral. Beyond, a slope steep enough to matter makes it negligible.

With a series, a term costs hundreds of times less than the integral; most pairs need no integral.
"""

NEGLIGIBLE = 1e-15
"""Truncation error allowed, as a share of the result: the next term, or the tail of the line."""

AGREEMENT = 1e-9
"""The trapezoid rule ends if halving its step changes the result by less than this share.

The error falls as exp(-const / step) or faster, so the later result's error is about 1e-12 or less.
"""

SERIES_AGREEMENT = 1e-8
"""The same of a series for results that may be a little off: the error falls faster there."""

EQUAL = 1e-13
"""Two results are equal if they differ by less than this share of the terms beside them."""

FIRST_STEP, FIRST_NODES = 0.25, 16
WIDTH = 2.0
"""Nodes are t = WIDTH sigma sinh(x), with sigma the width of the integrand at its saddle."""

MOST_NODES = 1 << 18
"""Nodes after which a pair is given up; a * max(s) = 15 takes some thousands."""

SADDLE_STEPS = 60
SADDLE_SLOPE = 0.1
"""The line is placed where the slope, in units of the width, is below this: the minimum is flat."""

# Offsets in the workspace of one line of nodes: t; the product of all 1 + i r t as p + i q, its
# turns, and the logarithm of its square, which was divided out; the two sums of the exponent; the
# result as logarithm of the size, phase, and their error; dt / dx; e^(-pi t); sines of phases;
# room. All are in one flat array at constant distances, so that the compiler sees that they do not
# overlap.
ROWS = 14
T, P, Q, TURNS, LOG_SQUARE, PHASE, DECAY, SIZE, TURN, LEFT, DX, FALL, SINE, ROOM = (
    MOST_LANES * row for row in range(ROWS)
)


class Pair(NamedTuple):
    """One side's question about a pair, for compiled code.

    `square` = delta^2 [d], `s` [d] and its largest value `widest`; `room` [2, d] is overwritten.
    `series` has terms if it replaces the sums over dimensions. Halving the step of a line changes
    it by less than `agreement`.
    """

    side: float
    a: float
    b: float
    square: FloatArray
    s: FloatArray
    widest: float
    room: FloatArray
    series: Series
    agreement: float = AGREEMENT


@jit_sums
def log_probabilities(
    mu_t: FloatArray, s_t: FloatArray, mu_v: FloatArray, s_v: FloatArray, rows: IntArray,
    start: int, stop: int, a: float, b: float, close: bool, log_p: FloatArray,
    log_1mp: FloatArray,
) -> None:  # fmt: skip
    """Write log p and log(1-p) [n] of the pairs from `start` to `stop`; NaN if not reached.

    The arrays are [.., d]; `rows` [4, n] gives each pair's row in each of them. Results are to the
    last bit if `close` is set, otherwise they may be 1e-12 off, in less time.
    """
    wide_vectors()
    d = mu_t.shape[1]
    padded = max(-(-d // STEP), 1) * STEP
    square, s, room = np.zeros(padded), np.zeros(padded), np.empty((2, padded))
    for pair in range(start, stop):
        t, u, v, w = rows[0, pair], rows[1, pair], rows[2, pair], rows[3, pair]
        distance = 0.0
        for i in range(d):
            delta = mu_t[t, i] - mu_v[v, i]
            square[i] = delta * delta
            s[i] = s_t[u, i] + s_v[w, i]
            distance += square[i] + s[i]
        # If E y < 0, the median of y is not far above 0, so p is never near 1; and vice versa. So
        # 1 minus the smaller probability loses next to no accuracy.
        side = 1.0 if b < a * distance else -1.0
        smaller = log_expectation(side, a, b, square, s, room, close)
        larger = math.log1p(-math.exp(smaller))
        log_p[pair] = smaller if side > 0 else larger
        log_1mp[pair] = larger if side > 0 else smaller


@jit_summand
def log_expectation(
    side: float, a: float, b: float, square: FloatArray, s: FloatArray, room: FloatArray,
    close: bool,
) -> float:  # fmt: skip
    """log E sigmoid(side (b - a D)), with `square` = delta^2 [d] and `s` [d]; NaN if not reached.

    `room` [2, d] is overwritten.
    """
    widest = _largest(s)
    if widest == 0:
        y = side * (b - a * _total(square))
        return float(min(y, 0.0) - math.log1p(math.exp(-abs(y))))
    most = MOST_ORDERS if close else MORE_ORDERS
    series = series_of(side, a, b, square, s, widest, room[0], most)
    while True:  # one call only: the compiler would inline every call
        agreement = AGREEMENT if close or not len(series.terms) else SERIES_AGREEMENT
        found = _expected(Pair(side, a, b, square, s, widest, room, series, agreement))
        if not math.isnan(found) or not len(series.terms):
            return found
        series = Series(series.terms[:0], series.around[:0], 0.0, 0.0)


@jit_summand
def _largest(s: FloatArray) -> float:
    """The largest of numbers that are 0 or more; their bits have the same order as integers.

    Floats would be compared one by one: the largest of vectors may not have a NaN.
    """
    wide_vectors()
    bits = s.view(np.int64)
    place, most = 0, np.int64(0)
    for i in range(len(bits)):
        most = max(most, bits[i])
    for i in range(len(bits)):
        place = i if bits[i] == most else place
    return float(s[place])


@jit_summand
def _total(values: FloatArray) -> float:
    total = 0.0
    for value in values:
        total += value
    return total


@jit_summand
def _expected(pair: Pair) -> float:
    """log E sigmoid(side y); NaN if it is not reached, or the series is too inaccurate."""
    end = math.inf if pair.side > 0 else 1.0 / (2.0 * pair.a * pair.widest)
    most = SERIES_TERMS if len(pair.series.terms) else TERMS
    n, sign, terms, first = 0, 1.0, 0.0, 0.0
    while n < most and n + 1 < end:
        value, slope, _ = exponent(n + 1.0, pair)
        if slope >= 0:
            break
        if n == 0:
            first = value
        term = math.exp(value - first)
        if n > 0 and term < NEGLIGIBLE * terms:
            return first + math.log(terms)
        if not _doubt(n + 1.0, pair) * term <= LIKELY * DOUBT * max(terms, term):
            break  # the integral from here on tells whether the series is accurate enough
        terms += sign * term
        sign = -sign
        n += 1
    pole = float(n)
    c, value, width = saddle(pole, min(pole + 1, end), pair)
    if n == 0:
        first = value
    share = math.exp(value - first)
    return first + math.log(terms + sign * share * line(c, pole, width, terms / share, pair))


@jit_summand
def _doubt(v: float, pair: Pair) -> float:
    """Bound on the error of F at |v|, which is the error of the series."""
    return remainder(pair.series, v) if len(pair.series.terms) else 0.0


@jit_summand
def exponent(v: float, pair: Pair) -> tuple[float, float, float]:
    """F(v), F'(v) and F''(v) for real v within the domain."""
    if len(pair.series.terms):
        return derivatives(pair.series, v)
    square, s, side, a, b = pair.square, pair.s, pair.side, pair.a, pair.b
    u = side * a * v
    log_m, mean, slope, curve = 0.0, 0.0, 0.0, 0.0
    for start in range(0, len(s), CHUNK):
        product = 1.0
        for i in range(start, min(start + CHUNK, len(s))):
            inverse = 1.0 / (1.0 + 2.0 * u * s[i])
            g, h = s[i] * inverse, square[i] * inverse
            product *= inverse
            mean += h
            slope += g + h * inverse
            curve += 2.0 * g * g + 4.0 * g * h * inverse
        log_m += 0.5 * math.log(product)
    return log_m - u * mean + side * b * v, side * (b - a * slope), a * a * curve


@jit_summand
def saddle(low: float, high: float, pair: Pair) -> tuple[float, float, float]:
    """c near the minimum of F(c) - log|sin pi c| in (low, high), F(c), and 1/sqrt(curvature)."""
    pole = low
    c = 0.5 * (low + high)
    value, width = 0.0, 0.0
    for _ in range(SADDLE_STEPS):
        value, slope, curve = exponent(c, pair)
        angle = math.pi * (c - pole)
        slope -= math.pi / math.tan(angle)
        width = 1.0 / math.sqrt(curve + (math.pi / math.sin(angle)) ** 2)
        if abs(slope) * width < SADDLE_SLOPE:
            break
        if slope > 0:
            high = c
        else:
            low = c
        c -= slope * width * width
        if not low < c < high:
            c = 0.5 * (low + high)
    return c, value, width


@jit_summand
def line(c: float, pole: float, width: float, beside: float, pair: Pair) -> float:
    """I_N e^-F(c) by the trapezoid rule in x, t = WIDTH width sinh(x), halving its step.

    The integrands at -t and t are conjugate, so half of the line is enough. The result is as exact
    as its sum with `beside` needs. NaN if it is not reached, or the series is too inaccurate.
    """
    _prepare(c, pair)
    angle, scale = math.pi * (c - pole), WIDTH * width
    beside *= math.sin(angle)
    nodes, values = np.empty(ROWS * MOST_LANES), np.empty((3, MOST_LANES))
    step, length, count = FIRST_STEP, 0.0, 0
    first = int(FIRST_NODES)  # not a literal: for a literal, numba compiles all below once more
    coarse, total, doubt = 0.0, 0.0, 0.0
    while length == 0.0:
        if count >= MOST_NODES:
            return math.nan
        _integrand(count * step, step, first, scale, c, angle, pair, nodes, values)
        if count == 0:
            values[0, 0] *= 0.5
        for k in range(0, first, 2):
            coarse += 2 * step * values[0, k]
            total += step * (values[0, k] + values[0, k + 1])
        for k in range(first):
            doubt += step * values[2, k]
            if values[1, k] < NEGLIGIBLE * (abs(total) + beside):
                length = (count + k) * step
                break
        count += first
    if not doubt <= DOUBT * (abs(total) + beside):
        return math.nan
    while not abs(total - coarse) <= max(pair.agreement * abs(total), EQUAL * beside):
        if count >= MOST_NODES:
            return math.nan
        fresh, x = 0.0, 0.5 * step
        while x < length:
            lanes = min(int((length - x) / (step * LANES) + 1) * LANES, MOST_LANES)
            _integrand(x, step, lanes, scale, c, angle, pair, nodes, values)
            for k in range(lanes):
                fresh += values[0, k]
            count += lanes
            x += lanes * step
        step *= 0.5
        coarse, total = total, 0.5 * total + step * fresh
    return total / math.sin(angle)


@jit_summand
def _prepare(c: float, pair: Pair) -> None:
    """Write the values that all points of the line through c share: r and e, or the series."""
    if len(pair.series.terms):
        expand(pair.series, c)
        return
    for i in range(len(pair.s)):
        inverse = 1.0 / (1.0 + 2.0 * pair.side * pair.a * c * pair.s[i])
        pair.room[0, i] = 2.0 * pair.a * pair.s[i] * inverse
        pair.room[1, i] = pair.a * pair.square[i] * inverse * inverse


@jit_summand
def _integrand(
    x: float, step: float, lanes: int, scale: float, c: float, angle: float, pair: Pair,
    nodes: FloatArray, values: FloatArray,
) -> None:  # fmt: skip
    """Write from x on the integrand over dx, a bound on its tail over dt, and its error [3, lanes].

    Its size falls as t grows, for every pair. So the tail is at most the size here times the
    integral of sin(pi c) / sinh(pi t), which is -sin(pi c) / pi log tanh(pi t / 2). For t > 0.2
    that is less than sin(pi c) e^(-pi t).
    """
    grown, ratio = math.exp(x), math.exp(step)
    for k in range(lanes):
        nodes[T + k] = scale * 0.5 * (grown - 1.0 / grown)
        nodes[DX + k] = scale * 0.5 * (grown + 1.0 / grown)
        nodes[FALL + k] = -math.pi * nodes[T + k]
        grown *= ratio
    if len(pair.series.terms):
        _by_series(lanes, c, pair, nodes)
    else:
        _by_dimensions(lanes, pair, nodes)
    room = nodes[ROOM : ROOM + lanes]
    exponentials(nodes[FALL : FALL + lanes], room)
    exponentials(nodes[SIZE : SIZE + lanes], room)
    cosines(nodes[TURN : TURN + lanes], nodes[SINE : SINE + lanes], room)
    sine, cosine = math.sin(angle), math.cos(angle)
    for k in range(lanes):
        fall = nodes[FALL + k]
        size = nodes[SIZE + k] * fall
        # sin(pi c) / sin(pi (c + i t)), both parts times e^(-pi t) / 2
        re, im = sine * (1 + fall * fall), cosine * (1 - fall * fall)
        wave = (nodes[TURN + k] * re + nodes[SINE + k] * im) * 2 * sine / (re * re + im * im)
        values[0, k] = size * wave * nodes[DX + k]
        values[1, k] = sine * size if nodes[T + k] > 0.2 else math.inf
        values[2, k] = size * nodes[DX + k] * nodes[LEFT + k]


@jit_summand
def _by_series(lanes: int, c: float, pair: Pair, nodes: FloatArray) -> None:
    """Size and phase of e^(F(c + i t) - F(c)), and the relative error of both.

    Beyond the reach of the series, the integrand is set to next to 0 and its error to infinity: the
    line has to end before.
    """
    along(pair.series, c, nodes[T : T + lanes], nodes[SIZE : SIZE + lanes],
          nodes[TURN : TURN + lanes], nodes[LEFT : LEFT + lanes])  # fmt: skip
    for k in range(lanes):
        left = nodes[LEFT + k]
        within = left < 0.5
        nodes[SIZE + k] = nodes[SIZE + k] if within else -math.inf
        nodes[TURN + k] = nodes[TURN + k] if within else 0.0
        nodes[LEFT + k] = 1.3 * left if within else math.inf  # e^x - 1 < 1.3 x below 0.5


@jit_summand
def _by_dimensions(lanes: int, pair: Pair, nodes: FloatArray) -> None:
    """Size and phase of e^(F(c + i t) - F(c)), without error.

    From c to c + i t, each dimension multiplies M by the factor below, with r = 2 a s / q,
    e = a delta^2 / q^2 and q = 1 + 2 side a c s, all at c:

        (1 + i r t)^-1/2 exp(-(i t e + t^2 r e) / (1 + t^2 r^2))        (side +1; -1: its conjugate)
    """
    r, e = pair.room[0], pair.room[1]
    _multiply(lanes, _largest(r), r, e, nodes)
    for k in range(lanes):
        t = nodes[T + k]
        nodes[SIZE + k] = -0.25 * nodes[LOG_SQUARE + k] - t * t * nodes[DECAY + k]
        arc = math.atan2(nodes[Q + k], nodes[P + k]) + 2 * math.pi * nodes[TURNS + k]
        nodes[TURN + k] = pair.side * (pair.b * t - 0.5 * arc - t * nodes[PHASE + k])
        nodes[LEFT + k] = 0.0


@jit_summand
def _multiply(lanes: int, widest: float, r: FloatArray, e: FloatArray, nodes: FloatArray) -> None:
    """Write the product of all dimensions' factors at each node, and the sums of the exponent."""
    for k in range(lanes):
        nodes[P + k] = 1.0
        for row in (Q, TURNS, LOG_SQUARE, PHASE, DECAY):
            nodes[row + k] = 0.0
    # Dimensions whose product stays below 1e140, so that its square does not overflow.
    digits = 0.5 * STEP * math.log10(1.0 + (nodes[T + lanes - 1] * widest) ** 2)
    span = STEP * int(max(1.0, min(140.0 / max(digits, 1e-9), len(r))))
    for start in range(0, len(r), span):
        for i in range(start, min(start + span, len(r)), STEP):
            _multiply_four(lanes, r[i : i + STEP], e[i : i + STEP], nodes)
        for k in range(lanes):
            square = nodes[P + k] ** 2 + nodes[Q + k] ** 2
            nodes[LOG_SQUARE + k] += math.log(square)
            nodes[P + k] /= math.sqrt(square)
            nodes[Q + k] /= math.sqrt(square)


@jit_summand
def _multiply_four(lanes: int, r: FloatArray, e: FloatArray, nodes: FloatArray) -> None:
    """Multiply in four dimensions, two at a time: two turn the product by less than pi.

    So a turn past the negative real axis shows as a change of sign of the imaginary part.
    """
    # Read before the loop and written out, so that the loop over nodes is vectorised.
    r0, r1, r2, r3 = r[0], r[1], r[2], r[3]
    e0, e1, e2, e3 = e[0], e[1], e[2], e[3]
    for k in range(lanes):
        t = nodes[T + k]
        x0, x1, x2, x3 = t * r0, t * r1, t * r2, t * r3
        f0, f1 = e0 / (1.0 + x0 * x0), e1 / (1.0 + x1 * x1)
        f2, f3 = e2 / (1.0 + x2 * x2), e3 / (1.0 + x3 * x3)
        nodes[PHASE + k] += (f0 + f1) + (f2 + f3)
        nodes[DECAY + k] += (f0 * r0 + f1 * r1) + (f2 * r2 + f3 * r3)
        p, q = nodes[P + k], nodes[Q + k]
        re, im = 1.0 - x0 * x1, x0 + x1
        p_half, q_half = p * re - q * im, p * im + q * re
        re, im = 1.0 - x2 * x3, x2 + x3
        p_all, q_all = p_half * re - q_half * im, p_half * im + q_half * re
        nodes[P + k], nodes[Q + k] = p_all, q_all
        first = 1.0 if (q >= 0.0) & (q_half < 0.0) else 0.0
        second = 1.0 if (q_half >= 0.0) & (q_all < 0.0) else 0.0
        nodes[TURNS + k] += first + second
