"""Coverage of the bounds that `verify --bound` states, on rows that did not make them.

    python benchmarks/bounds.py BUNDLE DATA [--qrels FILE] [--bound 0.95] [--splits 200] [--seed 0]

The pairs without a common row are cut in halves: one makes the bounds, the other counts how often
they hold. Of the first split the share has its interval (Clopper and Pearson, 95%); `by chance` is
where 95% of such shares lie, as both halves are draws; `mean share` is that of all splits. Ranks
are of all items of DATA, and of two galleries that have no item in common: one makes the margin,
the other is searched.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np

from cimtool.api import load
from cimtool.base.arrays import Array, FloatArray
from cimtool.passes.lower import LowerPass
from cimtool.passes.pipeline import stage_of
from cimtool.reference.bootstrap import counted_share
from cimtool.reference.conformal import (
    RANKS,
    IndependentPairs,
    certain_ranks,
    conformal_bound,
    independent_pairs,
    order_of,
    rank_margins,
)
from cimtool.simulation.simulator import Simulator
from cimtool.verification.bounds import worst_case
from cimtool.verification.ranked_data import ranked_data
from cimtool.verification.references import trained_features

DRAWS = 1_000_000
"""Draws of both halves, for the shares that chance gives."""

Errors = tuple[FloatArray, FloatArray]
"""Errors of the units that make a bound, and of those that it is counted on."""


def main() -> None:
    """Print a row for each statement."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("bundle", type=Path)
    options.add_argument("data", type=Path)
    options.add_argument("--qrels", type=Path)
    options.add_argument("--bound", type=float, default=0.95)
    options.add_argument("--splits", type=int, default=200)
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    matcher = load(given.bundle)
    bundle = matcher.bundle
    data = ranked_data(bundle.model, given.data, given.qrels, None)
    trained = Simulator(bundle.stages[0].program)
    features = trained_features(trained, data)
    reference = trained.score(features["text"], features["video"])
    text, video = matcher.encode_text(data.text), matcher.encode_video(data.video)
    compiled = np.asarray(matcher.score(text, video), np.float64)
    errors = np.abs(compiled - reference)
    proved = worst_case(stage_of(bundle.stages, LowerPass).program.score, bundle.program.score)
    print(f"{bundle.name}: {len(data.text)} texts, {len(data.video)} items; logit RMSE "
          f"{np.sqrt(np.mean(errors**2)):.4f}, largest error {errors.max():.3g}, range of scores "
          f"{np.ptp(compiled):.3g}, worst case {proved:.4g}")  # fmt: skip
    print(
        "| statement | n | bound | holds for | of | share (95% interval) | by chance | mean share |"
    )
    print("|---|---|---|---|---|---|---|---|")
    splits = [independent_pairs(data.truth, given.seed + i) for i in range(given.splits)]
    rows: dict[str, Callable[[IndependentPairs], Errors]] = {
        "random pairs": lambda s: halves(errors[s.random[:, 0], s.random[:, 1]]),
        "right pairs": lambda s: halves(errors[s.right[:, 0], s.right[:, 1]]),
        f"{RANKS} ranks, these items": lambda s: halves(
            rank_margins(compiled[s.texts], reference[s.texts])
        ),
        f"{RANKS} ranks, other items": lambda s: apart(compiled, reference, s.right),
    }
    rng = np.random.default_rng(given.seed)
    for name, errors_of in rows.items():
        found = [coverage(*errors_of(split), given.bound) for split in splits]
        units, bound, held, of = found[0]
        share = counted_share(held, of)
        order = order_of(units, given.bound)
        shares = rng.binomial(of, rng.beta(order, units + 1 - order, DRAWS)) / of
        chance = np.quantile(shares, (0.025, 0.975), method="inverted_cdf")
        mean = np.mean([one[2] / one[3] for one in found])
        print(f"| {name} | {units} | {bound:.4g} | {held} | {of} | "
              f"{share.value:.1%} [{share.low:.1%}, {share.high:.1%}] | "
              f"{chance[0]:.1%} to {chance[1]:.1%} | {mean:.2%} |")  # fmt: skip
    margin = conformal_bound(rank_margins(compiled, reference), given.bound).bound
    best = -np.sort(-compiled, axis=1)[:, : RANKS + 1]
    certain = certain_ranks(best, margin)
    print(f"certain: rank 1 of {certain[:, 0].mean():.1%} of the texts, {certain.mean():.1%} of "
          f"{RANKS} ranks, at a margin of {margin:.4g}")  # fmt: skip


def coverage(
    made: FloatArray, counted: FloatArray, confidence: float
) -> tuple[int, float, int, int]:
    """The units that make a bound, the bound, and how many of how many others keep it."""
    bound = conformal_bound(made, confidence)
    return bound.units, bound.bound, int((counted <= bound.bound).sum()), len(counted)


def halves(errors: FloatArray) -> Errors:
    """The first half of errors in an order drawn at random, and the second."""
    half = len(errors) // 2
    return errors[:half], errors[half:]


def apart(compiled: FloatArray, reference: FloatArray, right: Array) -> Errors:
    """Margins of texts among the items of their own half."""
    half = len(right) // 2
    parts = [np.ix_(part[:, 0], part[:, 1]) for part in (right[:half], right[half : 2 * half])]
    first, second = (rank_margins(compiled[part], reference[part]) for part in parts)
    return first, second


if __name__ == "__main__":
    main()
