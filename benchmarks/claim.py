"""Errors and R@1 of every score beside Monte Carlo: does a polynomial in ed and vd replace it?

    python benchmarks/claim.py [MODEL DATA [CALIBRATION]] [--seeds MODEL MODEL] [--json FILE]

MODEL is a checkpoint with means and variances, DATA are pairs that it has not seen. Polynomials are
fitted to exact labels of pairs of CALIBRATION, whose first rows calibrate the compiled model too;
without it, of one half of DATA, and the other half is measured. `--seeds` are the same training
by other seeds, and end in a table of means. Without MODEL it is the demo's, by three seeds.

Rows: the exact score E[sigmoid(b - a D)] as a logit; Monte Carlo with K samples a side;
polynomials of degree 1 to 6; csd, b - a ed; the distance between means; the compiled 8-bit model;
rows as they are by their cosine, in float and in int8 (one scale a modality).

Errors are logit RMSEs from the exact score, centred: without each query's mean difference, in the
worse way. Brackets hold 95% of resampled queries; R@1 loss is paired. With many samples, Monte
Carlo scores the first items alone, as many as `--sigmoids` allows, and has no R@1; its centred
errors over draws have Student's interval.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np
from demo_seeds import SETTINGS, demo_files, demo_models
from harness import machine, print_table

import cimtool
from cimtool.api import prepare
from cimtool.base.arrays import Array, FloatArray, IntArray
from cimtool.base.intervals import Change
from cimtool.base.progress import silent
from cimtool.ir.surrogate import MAX_DEGREE
from cimtool.loading.embeddings import Embeddings, read_data
from cimtool.loading.source import ModelSource
from cimtool.reference.bootstrap import students
from cimtool.reference.exact import exact
from cimtool.reference.metrics import (
    ReferenceScores,
    centred_rmse,
    cosines,
    int8_products,
    on_grid,
)
from cimtool.reference.montecarlo import monte_carlo
from cimtool.reference.queries import Uncertainty, compared, metrics, uncertainties
from cimtool.reference.retrieval import retrieved
from cimtool.reference.truth import truth_of
from cimtool.simulation.simulator import Simulator
from cimtool.training.degrees import FORMS, pair_statistics
from cimtool.training.items import Items, encoded_items
from cimtool.training.polynomial import fit_logit
from cimtool.training.teacher import TeacherSigmoid
from cimtool.training.teacher_file import make_teacher, sigmoid_of

TARGET = "isaac-rram-128"
SAMPLES = (1, 2, 5, 10, 50, 200)
CALIBRATED = 512
"""Texts that calibrate the compiled model, with their videos."""

EXACT = "exact"
SHOWN = {"centred RMSE": "centred_rmse", "RMSE": "logit_rmse"}
RECALLS = {"R@1 text to video": "r1_text_to_video", "R@1 video to text": "r1_video_to_text"}
LOSS = "R@1 loss, points"
OVER_DRAWS = "over draws"

Row = dict[str, str]


@dataclass(frozen=True)
class Effort:
    """Pairs that are labelled, the share of right ones, draws of Monte Carlo, and their size."""

    pairs: int
    matched: float
    draws: int
    sigmoids: int


@dataclass(frozen=True, eq=False)
class Case:
    """A model with rows to fit and to calibrate on, and rows that are measured."""

    source: ModelSource
    fitted: Items
    calibration: Embeddings
    unseen: Items
    sigmoid: TeacherSigmoid


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores [n, m] of one way: logits, or a ranking alone."""

    name: str
    scores: FloatArray
    is_logit: bool = True


@dataclass(frozen=True)
class Measured:
    """The figures of one way; `over_draws` are centred errors, `items` those that it scored."""

    name: str
    found: Uncertainty
    over_draws: Change | None = None
    items: int | None = None


def halves(data: Embeddings) -> tuple[Embeddings, Embeddings]:
    """Both halves of the videos with their texts, split at random."""
    chosen = np.random.default_rng(0).permutation(len(data.video))[: len(data.video) // 2]
    first = np.isin(data.right, chosen)
    return data.among(first), data.among(~first)


def read_case(
    model: Path, data: Path, calibration: Path | None, a: float | None, b: float | None
) -> Case:
    """Run the projectors on the rows; CimError if a or b is not known."""
    source = ModelSource(model, a=a, b=b)
    read = source.for_rows(data).load_projectors()
    rows = read_data(data, read)
    if calibration is None:
        seen, rows = halves(rows)
    else:
        seen = read_data(calibration, read)
    fitted, unseen = (encoded_items(read, one, None, silent) for one in (seen, rows))
    given = {name: value for name, value in (("a", a), ("b", b)) if value is not None}
    sigmoid, _ = sigmoid_of(str(source), read.a, read.b, given)
    first = seen.among(np.arange(len(seen.text)) < CALIBRATED)
    return Case(source, fitted, first, unseen, sigmoid)


def squared_distances(x: Array, y: Array) -> FloatArray:
    """Squared distances [n, m] of points [n, d] and [m, d]."""
    centre = (x.mean(axis=0) + y.mean(axis=0)) / 2
    x, y = x - centre, y - centre
    found: FloatArray = (x**2).sum(axis=1)[:, None] + (y**2).sum(axis=1) - 2 * x @ y.T
    return found


def single_scores(case: Case, effort: Effort) -> Iterator[Scores]:
    """Every score that draws no samples."""
    unseen, sigmoid = case.unseen, case.sigmoid
    ed, vd = pair_statistics(unseen.text, unseen.video)
    teacher = make_teacher(case.fitted, effort.pairs, effort.matched, "exact", sigmoid)
    for ed_alone in (True, False):
        for form in FORMS.values():
            if form.ed_alone == ed_alone:
                fitted = fit_logit(teacher.labels, form.degree, ed_alone=ed_alone)
                yield Scores(form.name, fitted.evaluate(ed, vd))
    yield Scores("csd, b - a ed", sigmoid.b - sigmoid.a * ed)
    means = squared_distances(unseen.text.mu, unseen.video.mu)
    yield Scores("distance of means", -means, is_logit=False)
    with tempfile.TemporaryDirectory() as folder:
        poly = Path(folder) / "poly.json"
        chosen = cimtool.fit(teacher, degree=range(1, MAX_DEGREE + 1), output=poly)
        built = prepare(
            case.source.files[0], poly, calibration=case.calibration, target=TARGET,
            a=sigmoid.a, b=sigmoid.b,
        )  # fmt: skip
    simulator, rows = Simulator(built.stages[-1].program), unseen.rows
    assert rows is not None
    text, video = (simulator.encode(m, x) for m, x in zip(("text", "video"), rows, strict=True))
    name = f"compiled, {TARGET}, {chosen.form.name}"
    yield Scores(name, simulator.score(text, video).astype(np.float64))
    if rows[0].shape[1] == rows[1].shape[1]:
        yield Scores("raw rows, cosine", cosines(*rows), is_logit=False)
        yield Scores("raw rows, int8", int8_products(*rows), is_logit=False)


def first_items(case: Case, most: int) -> tuple[Items, IntArray, IntArray]:
    """The first videos and texts of these, `most` of each at most, and their rows."""
    unseen = case.unseen
    video = np.arange(min(most, len(unseen.video)))
    text = np.flatnonzero(unseen.right < len(video))[:most]
    return Items(unseen.text[text], unseen.video[video], unseen.right[text]), text, video


def monte_carlo_row(case: Case, reference: FloatArray, samples: int, effort: Effort) -> Measured:
    """Monte Carlo with `samples` a side, over several draws."""
    most = max(2, isqrt(effort.sigmoids) // samples)
    if most**2 >= len(case.unseen.text) * len(case.unseen.video):
        most = max(len(case.unseen.text), len(case.unseen.video))
    items, text, video = first_items(case, most)
    near, a, b = reference[np.ix_(text, video)], case.sigmoid.a, case.sigmoid.b
    draws = [
        on_grid(monte_carlo(items.text, items.video, a, b, samples, seed).logit)
        for seed in range(effort.draws)
    ]
    whole = near.shape == reference.shape
    name = f"Monte Carlo, K = {samples}"
    (found,) = measured([Scores(name, draws[0])], near, items.right)
    errors = students([centred_rmse(one, near) for one in draws])
    return Measured(name, found.found, errors, None if whole else len(text))


def measured(ways: Sequence[Scores], reference: FloatArray, right: IntArray) -> list[Measured]:
    """The figures of scores of the same pairs, with the intervals of `verify`."""
    truth = truth_of(right, None, reference.shape[1])
    against = ReferenceScores(reference)
    best = retrieved(reference, truth)
    queries = []
    for one in ways:
        scores = on_grid(one.scores)
        found = retrieved(scores, truth)
        queries.append(found.merged(compared(scores, against)) if one.is_logit else found)
    of_each = [partial(metrics, one) for one in queries]
    own, videos = partial(metrics, best), reference.shape[1]
    rows = uncertainties(of_each, own, right, videos, seed=0, queries=queries)
    return [Measured(one.name, own) for one, own in zip(ways, rows, strict=True)]


def rows_of(case: Case, effort: Effort) -> list[Measured]:
    """Every row of the table of one model."""
    unseen, sigmoid = case.unseen, case.sigmoid
    logit = on_grid(exact(unseen.text, unseen.video, sigmoid.a, sigmoid.b).logit)
    sampling = [monte_carlo_row(case, logit, samples, effort) for samples in SAMPLES]
    others = measured([Scores(EXACT, logit), *single_scores(case, effort)], logit, unseen.right)
    return [others[0], *sampling, *others[1:]]


def figures(one: Measured) -> dict[str, Change | None]:
    """The figures of a row by column; None if there is none."""
    ranks = one.items is None
    found = {title: _metric(one, name) for title, name in SHOWN.items()}
    if one.name == EXACT:
        found = dict.fromkeys(SHOWN)
    found[OVER_DRAWS] = one.over_draws
    found |= {title: _metric(one, name) if ranks else None for title, name in RECALLS.items()}
    return found | {LOSS: one.found.losses["r1_loss"] if ranks and one.name != EXACT else None}


def row(one: Measured) -> Row:
    """One row as text."""
    name = one.name if one.items is None else f"{one.name} ({one.items} texts)"
    return {"score": name} | {title: _cell(found, title) for title, found in figures(one).items()}


def _metric(one: Measured, name: str) -> Change | None:
    if name not in one.found.metrics:
        return None
    ends = one.found.intervals[name]
    return Change(one.found.metrics[name], ends.low, ends.high)


def _cell(change: Change | None, title: str) -> str:
    if change is None:
        return "-"
    ends = change.value, change.low, change.high
    percent = title in RECALLS or title == LOSS
    value, low, high = (f"{100 * x:.1f}" if percent else f"{x:.3g}" for x in ends)
    return f"{value} [{low}, {high}]"


def mean_rows(models: Sequence[Sequence[Measured]]) -> list[Row]:
    """The rows of means over models, with Student's intervals."""
    rows = []
    for ways in zip(*models, strict=True):
        texts = {"score": ways[0].name.partition(f", {TARGET}")[0]}
        shown = [figures(one) for one in ways]
        for title, first in shown[0].items():
            known = [one.value for each in shown if (one := each[title]) is not None]
            texts[title] = "-" if first is None else _cell(students(known), title)
        rows.append(texts)
    return rows


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("model", "data", "calibration"):
        parser.add_argument(name, type=Path, nargs="?")
    parser.add_argument("--seeds", type=Path, nargs="*", default=[], metavar="MODEL")
    parser.add_argument("--a", type=float, help="of sigmoid(b - a D), if MODEL does not say it")
    parser.add_argument("--b", type=float)
    parser.add_argument("--pairs", type=int, default=300_000, help="pairs that are fitted")
    parser.add_argument("--matched", type=float, default=0.5, help="share of right ones")
    parser.add_argument("--draws", type=int, default=5, help="of Monte Carlo")
    parser.add_argument("--sigmoids", type=int, default=250_000_000, help="of a draw, at most")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the tables there as well")
    given = parser.parse_args(words)
    if (given.model is None) != (given.data is None):
        parser.error("expected MODEL and DATA, or neither")
    return given


def main(words: Sequence[str] | None = None) -> None:
    """Print a table a model, and one of their means."""
    given = arguments(words)
    models: list[Path] = [given.model, *given.seeds]
    data, calibration = given.data, given.calibration
    if given.model is None:
        files = demo_files()
        models = demo_models(files, SETTINGS, (0, 1, 2))
        data, calibration = files.eval, files.train
    effort = Effort(given.pairs, given.matched, given.draws, given.sigmoids)
    found: list[list[Measured]] = []
    tables: list[dict[str, Any]] = []
    for model in models:
        case = read_case(model, data, calibration, given.a, given.b)
        found.append(rows_of(case, effort))
        rows = [row(one) for one in found[-1]]
        tables += [{"model": str(model), **one} for one in rows]
        print(f"\n{model}: {len(case.unseen.text)} texts, a = {case.sigmoid.a:g}\n", flush=True)
        print_table(rows)
    if len(models) > 1:
        print("\nMeans over models\n")
        rows = mean_rows(found)
        print_table(rows)
        tables += [{"model": "mean", **one} for one in rows]
    where = machine()
    print(f"\nprocessor {where['processor']}, {where['cpu']}")
    if given.json is not None:
        values = {"benchmark": "claim", "rows": tables, "machine": where}
        given.json.write_text(json.dumps(values, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
