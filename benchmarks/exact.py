"""Speed and memory of the exact score beside Monte Carlo, on pairs and on all pairs."""

from __future__ import annotations

from functools import partial

import numpy as np
from harness import (
    forget_peak,
    parser,
    peak_bytes,
    report,
    seconds,
    side_by_side,
    trimmed_bytes,
    use_threads,
)

from cimtool.reference.exact import exact, log_match_probability
from cimtool.reference.montecarlo import monte_carlo
from cimtool.reference.statistics import Gaussians, expected_distance
from cimtool.training.teacher import TeacherSigmoid, monte_carlo_labels

D, PAIRS, ITEMS = 1024, 1024, 1500
SECONDS = {"exact": 120, "Monte Carlo K=10": 30}
"""Limits for all pairs of 1,500 texts and videos."""

A = 0.1
REGIMES = {"a ed = 23, p near e^-23": 0.0, "p near 0.5": None}
"""b; None for the b at which the mean of y = b - a D is 0."""


def items(n: int, seed: int) -> Gaussians:
    """Random items whose a ed is about 23."""
    rng = np.random.default_rng(seed)
    return Gaussians(0.25 * rng.normal(size=(n, D)), 0.1 * rng.uniform(size=(n, D)))


def offset(b: float | None, text: Gaussians, video: Gaussians) -> float:
    return A * float(expected_distance(text, video).mean()) if b is None else b


def pairs(rounds: int) -> list[dict[str, object]]:
    """Aligned pairs, each with samples of its own, as a teacher labels them."""
    text, video = items(PAIRS, 0), items(PAIRS, 1)
    rows_of_pairs = np.arange(PAIRS)
    rows: list[dict[str, object]] = []
    for regime, given in REGIMES.items():
        b = offset(given, text, video)
        taken = side_by_side(
            {
                "exact": partial(log_match_probability, text.mu, text.s, video.mu, video.s, A, b),
                "Monte Carlo K=10": partial(
                    monte_carlo_labels,
                    text,
                    video,
                    (rows_of_pairs, rows_of_pairs),
                    TeacherSigmoid(A, b, 10),
                ),
            },
            rounds,
        )
        for way, s in taken.items():
            times = taken["Monte Carlo K=10"] / s
            rows.append(
                {
                    "what": f"{PAIRS} pairs",
                    "regime": regime,
                    "way": way,
                    "seconds": s,
                    "pairs/s": round(PAIRS / s),
                    "times Monte Carlo": times,
                    "limit": "at least 1",
                    "MB beyond the scores": "",
                }
            )
    return rows


def all_pairs() -> list[dict[str, object]]:
    """All pairs once a regime: they take long enough for one call to tell."""
    text, video = items(ITEMS, 2), items(ITEMS, 3)
    rows: list[dict[str, object]] = []
    for regime, given in REGIMES.items():
        b = offset(given, text, video)
        ways = {
            "exact": lambda b=b: exact(text, video, A, b),
            "Monte Carlo K=10": lambda b=b: monte_carlo(text, video, A, b, samples=10),
        }
        found: dict[str, tuple[float, int]] = {}
        for way, function in ways.items():
            before = trimmed_bytes()
            forget_peak()
            taken = seconds(function)
            arrays = 2 if way == "exact" else 3
            found[way] = taken, peak_bytes() - before - arrays * 8 * ITEMS**2
        for way, (taken, beyond) in found.items():
            rows.append(
                {
                    "what": f"{ITEMS} x {ITEMS} pairs",
                    "regime": regime,
                    "way": way,
                    "seconds": taken,
                    "pairs/s": round(ITEMS**2 / taken),
                    "times Monte Carlo": found["Monte Carlo K=10"][0] / taken,
                    "limit": f"{SECONDS[way]} s",
                    "MB beyond the scores": round(beyond / 1e6),
                }
            )
    return rows


def main() -> None:
    options = parser(str(__doc__), rounds=3).parse_args()
    use_threads()
    rows = pairs(options.rounds) + all_pairs()
    report("exact", rows, options.json, [f"d = {D}, two threads."])


if __name__ == "__main__":
    main()
