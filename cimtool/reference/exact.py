"""The matching probability without sampling: E[sigmoid(b - a D)] in closed form and by quadrature.

The method and its formulas are in `exact_kernels`. The absolute error of log p and log(1-p), which
is the relative error of p and 1-p, is under 1e-9 for d up to 4096 and a * s up to 15; mostly it is
under 1e-12.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from cimtool.base.arrays import BoolArray, FloatArray, IntArray, blocks
from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.progress import Countdown, Say, silent
from cimtool.base.threads import map_rows
from cimtool.reference.exact_kernels import log_probabilities
from cimtool.reference.statistics import Gaussians, MatchProbabilities, centred

# Pairs between two lines of progress (seconds at d = 1024), and pairs that a thread takes at once.
_BLOCK = 1 << 17
_AT_ONCE = 1 << 12

# The largest a (s_t + s_v) for which the quadrature is tried: it takes some milliseconds there.
_WIDEST = 1e9

# Videos times dimensions that a block's texts meet at a time: 512 KB, in a core's cache.
_NEAR = 1 << 15


class OutOfReach(CimError):
    """The exact probability of a pair is not reached; `pair` is its index among the pairs given."""

    def __init__(self, pair: int, sentence: str):
        super().__init__(sentence)
        self.pair = pair


def exact(
    text: Gaussians,
    video: Gaussians,
    a: float,
    b: float,
    say: Say = silent,
    close: bool = True,
) -> MatchProbabilities:
    """Compute E[sigmoid(b - a |z_t - z_v|^2)] of all pairs, in blocks of texts.

    Unless they are to be `close`, logarithms may be 1e-12 off, in three quarters of the time.

    Raises CimError if a is not above 0, a or b is not finite, the two have different d, a mean or
    variance is not finite, or a pair's probability is not reached.
    """
    if text.d != video.d:
        raise CimError(f"texts have {text.d} dimensions and videos {video.d}; expected one d")
    _check(a, b, (text.mu, text.s, video.mu, video.s))
    text, video = centred(text, video)
    width = max(_NEAR // max(text.d, 1), 1)
    n, m = len(text), len(video)
    log_p, log_1mp = np.empty((n, m)), np.empty((n, m))
    of_pairs, countdown = pair_probabilities(text, video, a, b, close), Countdown(say)
    for block in blocks(n, _BLOCK // max(m, 1)):
        texts = np.arange(block.start, block.stop)
        near = np.split(np.arange(m), range(width, m, width))  # these meet every text at a time
        i = np.concatenate([np.repeat(texts, len(some)) for some in near])
        j = np.concatenate([np.tile(some, len(texts)) for some in near])
        log_p[i, j], log_1mp[i, j] = of_pairs(i, j)
        if block.stop - block.start < n:
            countdown.tell(f"exact score: {block.stop} of {n} texts", block.stop, n)
    return MatchProbabilities(log_p, log_1mp)


def log_match_probability(
    mu_t: ArrayLike, s_t: ArrayLike, mu_v: ArrayLike, s_v: ArrayLike, a: float, b: float
) -> tuple[FloatArray, FloatArray]:
    """Return log p and log(1-p) of p = E[sigmoid(b - a |z_t - z_v|^2)], both [...].

    Means `mu` and variances `s` are [..., d] with one d; the axes before d are broadcast. Raises
    CimError if the shapes do not fit, a variance is negative, a is not above 0, a number is not
    finite, or a pair's probability is not reached.
    """
    arrays = tuple(np.asarray(x, np.float64) for x in (mu_t, s_t, mu_v, s_v))
    shapes = [x.shape for x in arrays]
    try:
        shape = np.broadcast_shapes(*(one[:-1] for one in shapes))
    except ValueError:
        shape = None
    if shape is None or () in shapes or len({one[-1] for one in shapes}) > 1:
        found = ", ".join(str(list(one)) for one in shapes)
        raise CimError(f"mu_t, s_t, mu_v, s_v have shapes {found}; expected [..., d] with one d")
    _check(a, b, arrays)
    flat = [np.ascontiguousarray(x).reshape(-1, x.shape[-1]) for x in arrays]
    numbers = (np.arange(math.prod(one[:-1])).reshape(one[:-1]) for one in shapes)
    rows = np.stack([np.broadcast_to(one, shape).reshape(-1) for one in numbers])
    log_p, log_1mp = _of_rows(flat, _widest_of(flat), rows, a, b)
    return log_p.reshape(shape), log_1mp.reshape(shape)


def pair_probabilities(
    text: Gaussians, video: Gaussians, a: float, b: float, close: bool = True
) -> Callable[[IntArray, IntArray], tuple[FloatArray, FloatArray]]:
    """Return a function from rows of texts and of videos, [n] each, to log p and log(1-p).

    Raises CimError as `exact` does. The function raises OutOfReach if a probability is not reached.
    """
    arrays = tuple(map(np.ascontiguousarray, (text.mu, text.s, video.mu, video.s)))
    _check(a, b, arrays)
    widest = _widest_of(arrays)  # once: it reads every item, and a call may have few pairs
    return lambda i, j: _of_rows(arrays, widest, np.stack((i, i, j, j)), a, b, close)


def _widest_of(arrays: Sequence[FloatArray]) -> tuple[FloatArray, FloatArray]:
    """The largest variance of each row of s_t and of s_v; `arrays` are mu_t, s_t, mu_v, s_v."""
    _, s_t, _, s_v = arrays
    return s_t.max(-1, initial=0), s_v.max(-1, initial=0)


def _of_rows(
    arrays: Sequence[FloatArray],
    widest: tuple[FloatArray, FloatArray],
    rows: IntArray,
    a: float,
    b: float,
    close: bool = True,
) -> tuple[FloatArray, FloatArray]:
    """log p and log(1-p) of pairs, given by `rows` [4, n] of mu_t, s_t, mu_v, s_v, each [.., d].

    `widest` are the largest variances of the rows of s_t and s_v.
    """
    mu_t, s_t, mu_v, s_v = arrays
    log_p, log_1mp = np.empty(rows.shape[1]), np.empty(rows.shape[1])

    def some(pairs: slice) -> None:
        ends = pairs.start, pairs.stop
        log_probabilities(
            mu_t, s_t, mu_v, s_v, rows, *ends, float(a), float(b), close, log_p, log_1mp
        )

    with np.errstate(over="ignore"):
        of_pairs = a * (widest[0][rows[1]] + widest[1][rows[3]])
    lost = np.flatnonzero(of_pairs > _WIDEST)
    if log_p.size and not lost.size:
        map_rows(some, log_p.size, _AT_ONCE)
        lost = np.flatnonzero(~(np.isfinite(log_p) & np.isfinite(log_1mp)))
    if lost.size:
        pair = int(lost[0])
        raise OutOfReach(
            pair, _reach(a, *(x[row] for x, row in zip(arrays, rows[:, pair], strict=True)))
        )
    return log_p, log_1mp


def check_sigmoid(a: float, b: float) -> None:
    """Raise CimError unless a is above 0, and both are finite."""
    if not 0 < a < math.inf:
        raise ArgumentError("{a} is {}; expected a finite number above 0", a)
    if not math.isfinite(b):
        raise ArgumentError("{b} is {}; expected a finite number", b)


def _check(a: float, b: float, arrays: tuple[FloatArray, ...]) -> None:
    """Refuse values that the kernels do not expect; `arrays` are mu_t, s_t, mu_v, s_v."""
    check_sigmoid(a, b)
    mean, variance = (-math.inf, "a finite mean"), (0.0, "a variance that is finite and 0 or more")
    limits = {"mu_t": mean, "s_t": variance, "mu_v": mean, "s_v": variance}
    for values, (name, (least, kind)) in zip(arrays, limits.items(), strict=True):
        good: BoolArray = np.isfinite(values) & (values >= least)
        if not good.all():
            raise CimError(f"{name} holds {values[~good][0]}; expected {kind}")


def _reach(a: float, mu_t: FloatArray, s_t: FloatArray, mu_v: FloatArray, s_v: FloatArray) -> str:
    with np.errstate(over="ignore"):
        widest, distance = a * (s_t + s_v).max(), a * ((mu_t - mu_v) ** 2).sum()
    return (
        f"the exact probability of a pair is out of reach: its a * max(s) is {widest:.3g} and its "
        f"a * |mu_t - mu_v|^2 is {distance:.3g}; expected up to 15 and up to 1e6"
    )
