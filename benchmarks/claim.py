"""Errors and R@1 of every score beside Monte Carlo: does a polynomial in ed and vd replace it?

    python benchmarks/claim.py [MODEL DATA [CALIBRATION]] [--seeds MODEL MODEL] [--qrels FILE]

MODEL is a checkpoint with means and variances, DATA are pairs that it has not seen. Polynomials are
fitted to exact labels of pairs of CALIBRATION, whose first rows calibrate the compiled model too;
without it, of one half of DATA, and the other half is measured. `--seeds` are the same training
by other seeds, and end in tables of means. Without MODEL it is the demo's, by three seeds.

`--qrels` judges pairs of DATA, as `cimtool verify --qrels` does: then a text may have several right
videos, and the tables have mAP. It needs CALIBRATION, whose own pairs are enough for the labels.

Rows: the exact score E[sigmoid(b - a D)] as a logit; Monte Carlo with K samples a side;
polynomials of degree 1 to 8; csd, b - a ed; the distance between means; the compiled 8-bit model;
rows as they are by their cosine, in float and in int8 (one scale a modality).

Errors are logit RMSEs from the exact score, centred: without each query's mean difference, in the
worse way. Brackets hold 95% of resampled queries; R@1 loss is paired. A second table takes the
scores for probabilities of a match; csd is the logit that ranks as -ed does. A distance or a cosine
is no logit: it has only the columns that need none.

With many samples, Monte Carlo scores the first items alone, as many as `--sigmoids` allows. Its row
ranks these among themselves, and so does the row of the exact score before it, from which its loss
is. Centred errors over draws have Student's interval.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isqrt
from pathlib import Path

import numpy as np
from demo_seeds import ROWS, demo_files, demo_models
from harness import machine, print_table

import cimtool
from cimtool.api import prepare
from cimtool.base.arrays import Array, FloatArray, IntArray
from cimtool.base.errors import CimError
from cimtool.base.intervals import Change
from cimtool.base.modality_names import way_names
from cimtool.base.progress import silent
from cimtool.loading.embeddings import Embeddings, read_data
from cimtool.loading.qrels import judged_data
from cimtool.loading.source import ModelSource
from cimtool.reference.bootstrap import students
from cimtool.reference.exact import exact
from cimtool.reference.measures import PRECISIONS, PROBABILITIES, RANKS, SELECTIVE, RankingMetric
from cimtool.reference.metrics import (
    ReferenceScores,
    centred_rmse,
    cosines,
    int8_products,
    on_grid,
)
from cimtool.reference.montecarlo import monte_carlo
from cimtool.reference.queries import compared, metrics, uncertainties
from cimtool.reference.retrieval import measured
from cimtool.reference.truth import Truth
from cimtool.simulation.simulator import Simulator
from cimtool.training.degrees import FORMS, pair_statistics
from cimtool.training.items import Items, encoded_items
from cimtool.training.polynomial import fit_logit
from cimtool.training.teacher import TeacherSigmoid
from cimtool.training.teacher_file import make_teacher, sigmoid_of
from cimtool.verification.notes import judged_by

TARGET = "isaac-rram-128"
SAMPLES = (1, 2, 5, 10, 50, 200)
CALIBRATED = 2048
"""Texts that calibrate the compiled model, with their videos."""

EXACT = "exact"
OVER_DRAWS, LOSS, MAP_LOSS = "over_draws", "r1_loss", "map_loss"

Row = dict[str, str]


@dataclass(frozen=True)
class Column:
    """A column: the name of its figure, which is shown in percent if it is a share."""

    title: str
    key: str
    share: bool = False


def columns_of(*ranking: RankingMetric) -> list[Column]:
    """The columns of metrics of rankings, both ways of each."""
    return [
        Column(one.labelled(way_names()[way]) + ", %" * one.share, key, one.share)
        for one in ranking
        for way, key in one.keys.items()
    ]


R1, MAP = RANKS[0], PRECISIONS[0]
TABLES = {
    "Scores": [
        Column("centred RMSE", "centred_rmse"),
        Column("RMSE", "logit_rmse"),
        Column("over draws", OVER_DRAWS),
        *columns_of(R1, MAP),
        Column("R@1 loss, points", LOSS, share=True),
    ],
    "As probabilities": columns_of(*PROBABILITIES, *SELECTIVE),
}
"""The columns of each table."""


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
    notes: Sequence[str]


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores [n, m] of one way: logits, or a ranking alone."""

    name: str
    scores: FloatArray
    is_logit: bool = True


@dataclass(frozen=True)
class Measured:
    """The figures of a row by name; `items` counts the texts if they are not all."""

    name: str
    figures: Mapping[str, Change]
    items: int | None = None


def halves(data: Embeddings) -> tuple[Embeddings, Embeddings]:
    """Both halves of the videos with their texts, split at random."""
    chosen = np.random.default_rng(0).permutation(len(data.video))[: len(data.video) // 2]
    first = np.isin(data.right, chosen)
    return data.among(first), data.among(~first)


def read_case(
    model: Path,
    data: Path,
    calibration: Path | None,
    qrels: Path | None,
    a: float | None,
    b: float | None,
) -> Case:
    """Run the projectors on the rows; CimError if a or b is not known."""
    source = ModelSource(model, a=a, b=b)
    read = source.for_rows(data).load_projectors()
    rows = read_data(judged_data(data, qrels, read.modalities), read)
    if rows.alone:
        raise CimError(f"{rows.file}: holds items of one modality; expected texts and videos")
    if calibration is None:
        seen, rows = halves(rows)
    else:
        seen = read_data(calibration, read)
    fitted, unseen = (encoded_items(read, one, None, silent) for one in (seen, rows))
    given = {name: value for name, value in (("a", a), ("b", b)) if value is not None}
    sigmoid, _ = sigmoid_of(str(source), read.a, read.b, given)
    first = seen.among(np.arange(len(seen.text)) < CALIBRATED)
    return Case(source, fitted, first, unseen, sigmoid, judged_by(rows, unseen.truth))


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
        chosen = cimtool.fit(teacher, output=poly)
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


def first_items(unseen: Items, most: int) -> tuple[Items, IntArray, IntArray]:
    """The first videos, the first texts of these, `most` of each at most, and the rows of both."""
    video = np.arange(min(most, len(unseen.video)))
    text = np.flatnonzero(unseen.right < len(video))[:most]
    judged = unseen.judged
    if judged is not None:
        sides = (text, len(unseen.text)), (video, len(unseen.video))
        judged = judged.between(*(np.isin(np.arange(n), kept) for kept, n in sides))
    right = unseen.right[text]
    return Items(unseen.text[text], unseen.video[video], right, judged=judged), text, video


def monte_carlo_rows(
    case: Case, reference: FloatArray, samples: int, effort: Effort
) -> list[Measured]:
    """Monte Carlo with `samples` a side, over several draws; first the exact score of few items."""
    items, near = case.unseen, reference
    most = max(2, isqrt(effort.sigmoids) // samples)
    a, b = case.sigmoid.a, case.sigmoid.b
    if few := most**2 < reference.size:
        items, text, video = first_items(items, most)
        near = reference[np.ix_(text, video)]
    draws = [
        on_grid(monte_carlo(items.text, items.video, a, b, samples, seed).logit)
        for seed in range(effort.draws)
    ]
    ways = [Scores(f"Monte Carlo, K = {samples}", draws[0])]
    *same, found = figures_of([Scores(EXACT, near), *ways] if few else ways, near, items.truth)
    errors = students([centred_rmse(one, near) for one in draws])
    found = replace(found, figures={**found.figures, OVER_DRAWS: errors})
    return [replace(one, items=len(items.text) if few else None) for one in (*same, found)]


def figures_of(ways: Sequence[Scores], reference: FloatArray, truth: Truth) -> list[Measured]:
    """The figures of scores of the same pairs, with the intervals of `verify`."""
    against = ReferenceScores(reference)
    best = measured(reference, truth, of_logit=True)
    queries = []
    for way in ways:
        scores = on_grid(way.scores)
        ranked = measured(scores, truth, way.is_logit)
        if way.is_logit and way.name != EXACT:
            ranked = ranked.merged(compared(scores, against))
        queries.append(ranked)
    of_each = [partial(metrics, one) for one in queries]
    right = truth.text_to_video
    own, videos = partial(metrics, best), truth.videos
    rows = uncertainties(of_each, own, right, videos, seed=0, queries=queries)
    several = truth.by_class or np.bincount(right).max() > 1
    left_out = () if several else MAP.keys.values()
    found = []
    for way, row in zip(ways, rows, strict=True):
        figures = {
            name: Change(value, row.intervals[name].low, row.intervals[name].high)
            for name, value in row.metrics.items()
            if name not in left_out
        }
        if way.name != EXACT:
            figures |= {name: row.losses[name] for name in (LOSS, MAP_LOSS)}
        found.append(Measured(way.name, figures))
    return found


def rows_of(case: Case, effort: Effort) -> list[Measured]:
    """Every row of the tables of one model."""
    unseen, sigmoid = case.unseen, case.sigmoid
    logit = on_grid(exact(unseen.text, unseen.video, sigmoid.a, sigmoid.b).logit)
    sampling = [
        row for samples in SAMPLES for row in monte_carlo_rows(case, logit, samples, effort)
    ]
    first, *others = figures_of(
        [Scores(EXACT, logit), *single_scores(case, effort)], logit, unseen.truth
    )
    return [first, *sampling, *others]


def row(one: Measured, columns: Sequence[Column]) -> Row:
    """One row as text."""
    name = one.name if one.items is None else f"{one.name} ({one.items} texts)"
    return {"score": name} | {c.title: cell(one.figures.get(c.key), c.share) for c in columns}


def cell(change: Change | None, share: bool) -> str:
    """A figure with its interval, or `-` for none."""
    if change is None:
        return "-"
    ends = change.value, change.low, change.high
    value, low, high = (f"{100 * x:.1f}" if share else f"{x:.3g}" for x in ends)
    return f"{value} [{low}, {high}]"


def mean_rows(models: Sequence[Sequence[Measured]]) -> list[Measured]:
    """The means of each row's figures over models, with Student's intervals."""
    rows = []
    for ways in zip(*models, strict=True):
        first = ways[0]
        known = {key: students([one.figures[key].value for one in ways]) for key in first.figures}
        rows.append(Measured(first.name.partition(f", {TARGET}")[0], known, first.items))
    return rows


def print_tables(model: str, rows: Sequence[Measured]) -> dict[str, list[Row]]:
    """Print the tables of a model, and return their rows, each with the model's name."""
    found = {}
    for title, columns in TABLES.items():
        known = [c for c in columns if any(c.key in one.figures for one in rows)]
        table = [row(one, known) for one in rows]
        print(f"\n{title}\n", flush=True)
        print_table(table)
        found[title] = [{"model": model, **one} for one in table]
    return found


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("model", "data", "calibration"):
        parser.add_argument(name, type=Path, nargs="?")
    parser.add_argument("--qrels", type=Path, metavar="FILE", help="judgements of pairs of DATA")
    parser.add_argument("--seeds", type=Path, nargs="*", default=[], metavar="MODEL")
    parser.add_argument("--rows", choices=list(ROWS), default="encoder", help="of the demo")
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
    if given.qrels is not None and given.calibration is None:
        parser.error("--qrels judges DATA; expected CALIBRATION for the labels")
    return given


def main(words: Sequence[str] | None = None) -> None:
    """Print the tables of each model, and those of their means."""
    given = arguments(words)
    models: list[Path] = [given.model, *given.seeds]
    data, calibration, qrels, matched = given.data, given.calibration, given.qrels, given.matched
    if given.model is None:
        settings = ROWS[given.rows]
        files = demo_files(settings)
        models = demo_models(files, settings, (0, 1, 2))
        data, calibration, qrels = files.eval, files.train, files.judged(files.eval)
        matched = settings.matched
    effort = Effort(given.pairs, matched, given.draws, given.sigmoids)
    found: list[list[Measured]] = []
    tables: list[dict[str, list[Row]]] = []
    for model in models:
        case = read_case(model, data, calibration, qrels, given.a, given.b)
        size = f"{len(case.unseen.text)} texts, a = {case.sigmoid.a:g}"
        print("\n".join([f"\n{model}: {size}", *case.notes]), flush=True)
        found.append(rows_of(case, effort))
        tables.append(print_tables(str(model), found[-1]))
    if len(models) > 1:
        print("\nMeans over models")
        tables.append(print_tables("mean", mean_rows(found)))
    where = machine()
    print(f"\nprocessor {where['processor']}, {where['cpu']}")
    if given.json is not None:
        keys = zip(("rows", "probabilities"), TABLES, strict=True)
        rows = {key: [one for each in tables for one in each[title]] for key, title in keys}
        values = {"benchmark": "claim", **rows, "machine": where}
        given.json.write_text(json.dumps(values, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
