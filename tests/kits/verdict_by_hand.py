"""The verdict of `verify` by plain NumPy, for data whose text i belongs to video i.

Nothing here is taken from the package: other random numbers, and the exact probability by the
density of the squared distance. Matrices are [n, n], texts down and videos across.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FREQUENCIES, POINTS, SIGMAS = 512, 2048, 14.0
"""Terms and points of a density, which reaches so many standard deviations around the mean."""

RESAMPLES = 2000
AS_GOOD, NOT_SHOWN = "as good as", "not shown to differ from"


@dataclass(frozen=True)
class Items:
    """Means and variances [n, d] of the items of one side."""

    mean: Floats
    variance: Floats


def raw_int8(text: Floats, video: Floats) -> Floats:
    """Products of unit rows, each side rounded to integers of which the largest is 127."""
    sides = []
    for rows in (text, video):
        unit = rows / np.sqrt((rows * rows).sum(axis=1, keepdims=True))
        sides.append(np.round(127 * unit / abs(unit).max()).astype(np.int64))
    return (sides[0] @ sides[1].T).astype(np.float64)


def exact_logits(text: Items, video: Items, a: float, b: float) -> Floats:
    """The logit of E sigmoid(b - a D), by the density of D, the squared distance of two draws.

    D is a sum of d independent terms (delta + sqrt(s) g)^2 with g normal. The product of their
    characteristic functions, at multiples of pi / width, gives the density as a sum of cosines; the
    sigmoid is summed over it at points in the middle of equal parts.
    """
    middles = (np.arange(POINTS) + 0.5) / POINTS
    order = np.arange(FREQUENCIES)[:, None]
    cosines = np.cos(np.pi * order * middles) * np.where(order > 0, 2.0, 1.0)
    found = np.empty((len(text.mean), len(video.mean)))
    for i in range(len(text.mean)):
        shift = (text.mean[i] - video.mean) ** 2
        s = text.variance[i] + video.variance
        mean = (shift + s).sum(axis=1)
        sigma = np.sqrt((2 * s * s + 4 * shift * s).sum(axis=1))
        low = np.maximum(mean - SIGMAS * sigma, 0.0)
        width = mean + SIGMAS * sigma - low
        t = np.pi * order / width
        log_of = -1j * t * low
        for k in range(s.shape[1]):
            turned = 1 - 2j * t * s[:, k]
            log_of += 1j * t * shift[:, k] / turned - 0.5 * np.log(turned)
        mass = np.exp(log_of).real.T @ cosines / POINTS
        distance = low[:, None] + width[:, None] * middles
        p = (mass / (1 + np.exp(a * distance - b))).sum(axis=1)
        found[i] = np.log(p / (1 - p))
    return found


def sampled_logits(
    text: Items, video: Items, a: float, b: float, samples: int, rng: np.random.Generator
) -> Floats:
    """The logit of the mean of K x K sigmoids, from K draws of each item."""
    draws = []
    for side in (text, video):
        normal = rng.normal(size=(samples, *side.mean.shape))
        draws.append(side.mean + np.sqrt(side.variance) * normal)
    p = np.zeros((len(text.mean), len(video.mean)))
    for one in draws[0]:
        for other in draws[1]:
            distance = ((one[:, None] - other) ** 2).sum(axis=2)
            p += 1 / (1 + np.exp(a * distance - b)) / samples**2
    return np.log(p / (1 - p))


def found_first(scores: Floats) -> Floats:
    """1 for each text whose own video scores above all others, else 0; a tie counts as lost."""
    own = np.diag(scores)[:, None]
    return ((scores >= own).sum(axis=1) == 1).astype(np.float64)


def centred_squares(scores: Floats, exact: Floats) -> Floats:
    """The mean square error of each text without its mean error."""
    error = scores - exact
    error = error - error.mean(axis=1, keepdims=True)
    return (error * error).mean(axis=1)


def verdict(
    rows: tuple[Floats, Floats],
    items: tuple[Items, Items],
    sigmoid: tuple[float, float],
    scores: dict[str, Floats],
    samples: int = 10,
) -> str:
    """The first line of the verdict on `scores`, the float and the compiled logits.

    `rows` are the embeddings, `items` what the trained towers make of them, `sigmoid` is (a, b).
    """
    rng = np.random.default_rng(2026)
    counts = rng.multinomial(len(rows[0]), np.full(len(rows[0]), 1 / len(rows[0])), RESAMPLES)
    compiled = scores["compiled"]

    exact = exact_logits(*items, *sigmoid)
    sampled = sampled_logits(*items, *sigmoid, samples, rng)
    of_ways = [
        [counts @ centred_squares(one.T if turn else one, exact.T if turn else exact)
         for turn in (False, True)]
        for one in (sampled, compiled)
    ]  # fmt: skip
    equal = samples * np.maximum(*of_ways[0]) / np.maximum(*of_ways[1])
    low, high = np.percentile(equal, (2.5, 97.5))
    near = samples / 2 <= low and high <= samples * 2
    of_sampling = "better than" if low > samples else "WORSE than" if high < samples else ""
    of_sampling = of_sampling or (AS_GOOD if near else NOT_SHOWN)

    said = [f"{of_sampling} Monte Carlo with K={samples}"]
    said.append(f"{_retrieves(compiled, scores['float'], counts)} its float score")
    of_raw = _retrieves(compiled, raw_int8(*rows), counts)
    said.insert(2 if of_raw == "better than" else 0, f"{of_raw} raw rows in int8")
    return f"The compiled model is {', '.join(said)}."


def _retrieves(scores: Floats, others: Floats, counts: NDArray[np.int64]) -> str:
    """The comparison of R@1 on the same queries, in the way that loses more.

    If no query differs, the share of all queries that do is p at most, with (1 - p)^n = 2.5%.
    """
    ways = (
        found_first(others) - found_first(scores),
        found_first(others.T) - found_first(scores.T),
    )
    lost = max(ways, key=lambda one: one.mean())
    low, high = np.percentile(counts @ lost / len(lost), (2.5, 97.5))
    if not lost.any():
        high = 1 - 0.025 ** (1 / len(lost))
    if low > 0 or high < 0:
        return "WORSE than" if low > 0 else "better than"
    return AS_GOOD if high <= 0.01 else NOT_SHOWN
