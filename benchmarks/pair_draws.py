"""Monte Carlo on a sample of pairs beside all pairs, by many seeds: are its figures as they say?

For each seed both have the same draws of each item. A figure agrees if that of all pairs lies
within its interval, which is over resampled queries.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from harness import parser, report, use_threads

from cimtool.base.arrays import FloatArray
from cimtool.bundle.matcher import open_bundle
from cimtool.reference.exact import exact
from cimtool.reference.metrics import on_grid
from cimtool.reference.montecarlo import monte_carlo
from cimtool.reference.pair_draw import PairDraw, draw_pairs
from cimtool.reference.truth import Truth
from cimtool.simulation.simulator import Simulator
from cimtool.verification.drift import DriftTable, StageRow
from cimtool.verification.ranked_data import ranked_data
from cimtool.verification.references import gaussians, trained_features


def row_of(
    scores: FloatArray, reference: FloatArray, truth: Truth, drawn: PairDraw | None
) -> StageRow:
    """The row that `verify` shows of Monte Carlo, whose errors are from the `reference`."""
    table = DriftTable(truth, reference)
    table.add_monte_carlo("Monte Carlo", scores, drawn)
    return table.finished(0)[0]


def main() -> None:
    """Compare both for each seed."""
    options = parser(str(__doc__), 20)
    options.add_argument("bundle", type=Path)
    options.add_argument("data", type=Path)
    options.add_argument("--qrels", type=Path)
    given = options.parse_args()
    use_threads()
    bundle = open_bundle(given.bundle)
    data = ranked_data(bundle.model, given.data, given.qrels, None)
    a, b = bundle.model.a, bundle.model.b
    assert a is not None, "the bundle's model has no a"
    assert b is not None, "the bundle's model has no b"
    items = gaussians(trained_features(Simulator(bundle.stages[0].program), data))
    reference = on_grid(exact(*items, a, b).logit)
    within: dict[str, list[bool]] = {}
    off: dict[str, list[float]] = {}
    for seed in range(given.rounds):
        sampled = on_grid(monte_carlo(*items, a, b, seed=seed).logit)
        drawn = draw_pairs(reference, data.truth, seed)
        assert drawn is not None, "all pairs are measured; expected more of them"
        some = np.where(drawn.stands_for > 0, sampled, reference)
        one = row_of(some, reference, data.truth, drawn)
        whole = row_of(sampled, reference, data.truth, None)
        for name, change in differences(one, whole).items():
            found = one.intervals[name]
            within.setdefault(name, []).append(found.low <= whole.metrics[name] <= found.high)
            off.setdefault(name, []).append(change)
    rows = [
        {
            "figure": name,
            "within its interval": f"{sum(found)} of {len(found)}",
            "mean difference": float(np.mean(off[name])),
            "largest": float(np.abs(off[name]).max()),
        }
        for name, found in within.items()
    ]
    pairs = f"{len(drawn):,} of {reference.size:,} pairs"
    report("pair_draws", rows, given.json, [f"{pairs}, those of the last seed"])


def differences(one: StageRow, whole: StageRow) -> Mapping[str, float]:
    """Each metric that has an interval, less that of all pairs."""
    return {
        name: value - whole.metrics[name]
        for name, value in one.metrics.items()
        if name in one.intervals and name in whole.metrics
    }


if __name__ == "__main__":
    main()
