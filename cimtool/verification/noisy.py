"""Dies in the drift table: a row for the median die and one for the worst in twenty."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from cimtool.base.arrays import FloatArray, IntArray
from cimtool.base.progress import Countdown, Say
from cimtool.bundle.bundle import Bundle
from cimtool.bundle.chip import chip_die
from cimtool.bundle.dies import MEDIAN, WORST, dies, readout_sentence
from cimtool.bundle.simulate import (
    Percentiles,
    ShortlistOn,
    best_scores,
    left_by,
    listed_items,
    shortlist_on,
)
from cimtool.hardware.noise.model import read_after, time_text
from cimtool.loading.embeddings import Embeddings
from cimtool.reference.bootstrap import Samples
from cimtool.reference.measures import WAYS
from cimtool.reference.metrics import on_grid
from cimtool.reference.queries import HIGHER_IS_BETTER, Metrics, Queries, metrics
from cimtool.report.formats import counted
from cimtool.simulation.compensation import ReadoutCost
from cimtool.simulation.die_program import Conditions, DieProgram
from cimtool.simulation.simulator import Simulator
from cimtool.verification.drift import DriftTable, StageRow, row_of
from cimtool.verification.stages import encode, real_means

DieMetrics = Callable[[Samples], Sequence[Metrics]]
"""The metrics of each die in any sample."""


@dataclass(frozen=True)
class ShortlistOnDies:
    """Shortlists over dies: shares of best items that they hold, and R@1 of their answers.

    Best items are those of the noise-free score; `r1` is None if no item is the right one.
    """

    recall: Percentiles
    r1: Percentiles | None

    @classmethod
    def of(cls, found: Sequence[ShortlistOn], percentile: float) -> ShortlistOnDies:
        """From the answers of each die."""
        recalls = np.array([one.recall for one in found])
        firsts = np.array([one.r1 for one in found if one.r1 is not None])
        r1 = Percentiles.of(firsts, percentile) if len(firsts) else None
        return cls(Percentiles.of(recalls, percentile), r1)

    @property
    def sentence(self) -> str:
        """The median and the worst of both, for a reader."""
        at = self.recall.percentile
        called = f"{at:g}th percentile" if at else "worst"
        said = (
            f"Shortlists hold the best item of {self.recall.median:.1%} of the queries "
            f"(median; {called} {self.recall.worst:.1%})"
        )
        if self.r1 is None:
            return f"{said}."
        return f"{said}; R@1 of the answers is {self.r1.median:.1%} ({self.r1.worst:.1%})."


@dataclass(frozen=True)
class Noisy:
    """Dies at one time: two rows, each metric a percentile over dies.

    Of a measured `chip`, the name of its folder, both are the same row. `percentile` is the one
    of the worst row (of errors, 100 less it), 0 if that is the worst of so few dies; `seconds`
    count from t0. `corner` is that of the noise model that was asked for, None for none;
    `shortlist` those of a hybrid score, after which texts are answered.
    """

    trials: int
    seconds: float
    compensation: str
    readout: ReadoutCost
    median: StageRow
    worst: StageRow
    percentile: float
    chip: str | None = None
    corner: str | None = None
    shortlist: ShortlistOnDies | None = None

    @property
    def rows(self) -> tuple[StageRow, ...]:
        """The rows of the drift table."""
        return (self.median, self.worst) if self.chip is None else (self.median,)

    def sentences(self, compiled: StageRow, score: str) -> tuple[str, ...]:
        """The R@1 and the error of dies, and the readout that compensation takes."""
        error, worst = (row.get("step_centred_rmse") or 0.0 for row in (self.median, self.worst))
        if self.chip is not None:
            kept = _kept(self.median, compiled)
            off = f"{error:.4g} (centred {score} RMSE) from the noise-free model"
            return (f"The measured chip {self.chip} {kept} and is {off}.", *self._shortlisted)
        tail = f"one die in twenty is worse than {worst:.4g}"
        if self.percentile == 0:
            tail = f"the worst of them is {worst:.4g} off"
        dies = counted(self.trials, "die")
        said = [
            f"On {dies} read {read_after(time_text(self.seconds), self.corner)} the "
            f"median die {_kept(self.median, compiled)} and is {error:.4g} "
            f"(centred {score} RMSE) from the noise-free model; {tail}."
        ]
        if self.readout.products:
            said.append(f"{readout_sentence(self.compensation, self.readout)}.")
        return (*said, *self._shortlisted)

    @property
    def _shortlisted(self) -> tuple[str, ...]:
        return () if self.shortlist is None else (self.shortlist.sentence,)


def _kept(median: StageRow, compiled: StageRow) -> str:
    """The share of the compiled model's R@1 that the median die keeps, both ways together."""
    now, was = _r1(median), _r1(compiled)
    if was <= 0:
        return "has nothing of R@1 to keep"
    return (
        f"keeps {now / was:.1%} of the noise-free R@1 ({100 * now:.1f}% of {100 * was:.1f}%, the "
        "mean of both ways)"
    )


def _r1(row: StageRow) -> float:
    return sum(row.metrics.get(f"r1_{way}", 0.0) for way in WAYS) / len(WAYS)


def over_dies(dies: DieMetrics, percentile: float, samples: Samples) -> Metrics:
    """Metrics that are each a percentile over dies: of errors, 100 - `percentile`."""
    of_dies = dies(samples)
    return {
        name: _percentile(name, np.stack([one[name] for one in of_dies]), percentile)
        for name in of_dies[0]
    }


def _percentile(name: str, values: FloatArray, percentile: float) -> FloatArray:
    """The percentile over the first axis of `values` [dies, B]."""
    at = percentile if name in HIGHER_IS_BETTER else 100 - percentile
    if name == "bias":
        # As far from zero as the percentile says, with its sign.
        order = np.argsort(np.abs(values), axis=0, kind="stable")
        index = min(len(values) - 1, round(at / 100 * (len(values) - 1)))
        found: FloatArray = np.take_along_axis(values, order[index : index + 1], axis=0)[0]
        return found
    return np.percentile(values, at, axis=0)


def measure_dies(
    bundle: Bundle,
    conditions: Conditions,
    trials: int,
    data: Embeddings,
    table: DriftTable,
    seed: int,
    say: Say,
) -> Noisy:
    """Score dies of a bundle and hold them against the table's references and its last row."""
    found, listed, readout = [], [], ReadoutCost()
    best = _best_items(bundle, data)
    when, countdown = conditions.when, Countdown(say)
    for index, die in enumerate(dies(bundle, conditions, trials), 1):
        found.append(_measured(bundle, die, data, table))
        countdown.tell(f"die {index} of {trials}, {when}: scored", index, trials)
        listed += _listed(bundle, die, data, best)
        readout = die.readout

    @lru_cache(maxsize=1)  # both percentiles are of the same metrics
    def of_dies(samples: Samples) -> Sequence[Metrics]:
        return [metrics(one, samples) for one in found]

    # Fewer dies than twenty have no worst twentieth: of these the worst is told.
    worst, called = (WORST, f"{WORST:g}th %") if trials >= 100 / WORST else (0.0, "worst")
    rows = [partial(over_dies, of_dies, percentile) for percentile in (MEDIAN, worst)]
    uncertain = table.uncertainties(rows, seed, queries=[found[0]] * len(rows))
    median, lowest = (
        row_of(f"noisy {when}, {name}", found[0], one)
        for name, one in zip(("median", called), uncertain, strict=True)
    )
    on_dies = ShortlistOnDies.of(listed, worst) if listed else None
    kept = (readout, median, lowest, worst, None, conditions.corner, on_dies)
    return Noisy(trials, conditions.seconds, conditions.compensation, *kept)


def measure_chip(
    bundle: Bundle, chip: Path, data: Embeddings, table: DriftTable, seed: int, say: Say
) -> Noisy:
    """Score a measured chip, and hold it against the table's references and its last row."""
    say(f"chip {chip}: reading")
    die, sentence = chip_die(bundle, chip)
    say(f"{sentence}; encoding and scoring")
    found = _measured(bundle, die, data, table)
    (uncertain,) = table.uncertainties([partial(metrics, found)], seed, queries=[found])
    row = row_of(f"chip {chip.name}", found, uncertain)
    listed = _listed(bundle, die, data, _best_items(bundle, data))
    on_chip = ShortlistOnDies.of(listed, MEDIAN) if listed else None
    kept = (row, row, MEDIAN, chip.name, None, on_chip)
    return Noisy(1, 0.0, "none", die.readout, *kept)


def _best_items(bundle: Bundle, data: Embeddings) -> IntArray | None:
    """The best items [n, 1] by the noise-free score; None without a hybrid score."""
    if bundle.gallery is None or bundle.gallery.shortlist is None:
        return None
    perfect, items = Simulator(bundle.program), bundle.gallery_features
    best: IntArray = best_scores(perfect, perfect.encode("text", data.text), items, 1)["top_index"]
    return best


def _listed(
    bundle: Bundle, die: DieProgram, data: Embeddings, best: IntArray | None
) -> list[ShortlistOn]:
    """The answers of a die's shortlists; none without a hybrid score."""
    gallery = bundle.gallery
    if best is None or gallery is None or gallery.shortlist is None:
        return []
    items = bundle.gallery_features
    return [shortlist_on(Simulator(die.program), data, items, gallery.shortlist, best)]


def _measured(bundle: Bundle, die: DieProgram, data: Embeddings, table: DriftTable) -> Queries:
    simulator = Simulator(die.program)
    features = encode(simulator, data)
    shortlist = None if bundle.gallery is None else bundle.gallery.shortlist
    if shortlist is not None:
        features["video"] = bundle.gallery_features  # as they were stored
    scores = on_grid(simulator.score(features["text"], features["video"]))
    queries = table.measured(scores, *real_means(die.program, features))
    if shortlist is None:
        return queries
    listed = listed_items(simulator, features["text"], scores.shape[1], shortlist)
    return table.after_shortlist(queries, left_by(listed, scores))
