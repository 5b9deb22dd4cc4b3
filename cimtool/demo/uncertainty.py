"""The meaning of a query's variance: its correlation with right answers and with errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cimtool import api
from cimtool.base.arrays import Array, BoolArray, FloatArray, IntArray
from cimtool.base.intervals import Change
from cimtool.base.progress import silent
from cimtool.demo.queries import read_right
from cimtool.report.document import Section, Sentence
from cimtool.report.table import Column, interval_cell, make_table
from cimtool.training.items import model_items

RESAMPLES = 1000
"""Draws of queries for an interval."""


@dataclass(frozen=True)
class QueryFigures:
    """Figures of queries: Spearman's correlation of the summed variance, and R@1 in percent.

    `answers` is the correlation with the number of right answers, `rank` with the rank of the best
    of them by the compiled score, `rank_of_one` the same among the queries of one right answer.
    `gain` is the R@1 of the compiled score less that of raw rows.
    """

    queries: int
    ambiguous: int
    compiled: float
    raw: float
    gain: Change
    answers: Change
    rank: Change
    rank_of_one: Change

    def section(self) -> Section:
        """The figures as sentences and a table, raw rows first unless the model is better."""
        gain = self.gain
        more = f"{abs(gain.value):.1f} points [{gain.low:+.1f}, {gain.high:+.1f}]"
        verdict = f"The compiled model finds more than raw rows: {more} of R@1"
        if gain.low <= 0:
            verdict = f"Raw rows by cosine rank as well as the compiled model: {more} of R@1 apart"
        if gain.high < 0:
            verdict = f"Raw rows by cosine find more than the compiled model: {more} of R@1"
        shares = f"raw rows {self.raw:.1f}%, compiled model {self.compiled:.1f}%"
        columns = (
            Column("a query's summed variance and"),
            Column("Spearman's correlation", lambda x: f"{x:.2f}"),
        )
        named = (
            ("the number of its right answers", self.answers),
            ("the rank of the best of them", self.rank),
            ("that rank, queries of one right answer", self.rank_of_one),
        )
        form = columns[1].form
        assert form is not None
        table = make_table(
            "What variances say", columns, [(one, interval_cell(x, form)) for one, x in named]
        )
        means = "Variance means ambiguity" if self.answers.low > 0 else "Variance says nothing sure"
        means += f": {self.ambiguous:,} of {self.queries:,} queries have several right answers."
        said = Sentence(f"{verdict} ({shares}, text to code).", "verdict")
        return Section("Does the variance mean anything?", (said, Sentence(means), table))


def query_figures(
    projectors: api.ModelSource, data: Path, scores: Array, seed: int = 0
) -> QueryFigures:
    """Measure the queries of judged data by compiled `scores` [n, m] and the model's variances."""
    items = model_items(projectors, data, silent)
    assert items.rows is not None
    right = read_right(data, *scores.shape)
    summed: FloatArray = items.text.s.sum(axis=1)
    text, video = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in items.rows)
    compiled, raw = best_ranks(scores, right), best_ranks(text @ video.T, right)
    count = right.sum(axis=1)
    rng, one = np.random.default_rng(seed), count == 1

    def figure(found: Callable[[IntArray], float], among: BoolArray) -> Change:
        rows = np.flatnonzero(among)
        draws = [found(rng.choice(rows, len(rows))) for _ in range(RESAMPLES)]
        low, high = np.percentile(draws, (2.5, 97.5))
        return Change(found(rows), float(low), float(high))

    every = np.ones_like(one)
    firsts = 100.0 * (compiled == 1), 100.0 * (raw == 1)
    return QueryFigures(
        queries=len(count),
        ambiguous=int((count > 1).sum()),
        compiled=float(firsts[0].mean()),
        raw=float(firsts[1].mean()),
        gain=figure(lambda rows: float((firsts[0] - firsts[1])[rows].mean()), every),
        answers=figure(lambda rows: spearman(summed[rows], count[rows]), every),
        rank=figure(lambda rows: spearman(summed[rows], compiled[rows]), every),
        rank_of_one=figure(lambda rows: spearman(summed[rows], compiled[rows]), one),
    )


def best_ranks(scores: Array, right: BoolArray) -> IntArray:
    """The rank of the best right item of each query of scores [n, m]; ties count against it."""
    best = np.where(right, scores, -np.inf).max(axis=1, keepdims=True)
    ranks: IntArray = 1 + ((scores >= best) & ~right).sum(axis=1)
    return ranks


def spearman(one: Array, other: Array) -> float:
    """Spearman's rank correlation of two arrays [n]; ties share their mean rank.

    NaN if one of them is constant.
    """
    from scipy.stats import rankdata  # slow to load, and the command's help imports this

    with np.errstate(invalid="ignore"):
        found: Any = np.corrcoef(rankdata(one), rankdata(other))[0, 1]
    return float(found)
