"""Few pairs of two spaces that nobody aligned: the default training beside linear maps.

    python benchmarks/small_data.py PAIRS.npz [--splits 20] [--held-out 200] [--pairs N]

Each split sets pairs aside, drawn anew; of the others, or `--pairs` of them, nine tenths train and
a tenth chooses the epoch. Ridge regression, no part of cimtool, maps texts to videos of all of them
with penalty 1, or videos to texts, and ranks by the cosine of both less the means that trained.
What `train` keeps with default settings is ranked by the distance of the means, by `csd` and by
`probcosine`, whose a and b have the least log loss on the tenth, and compiled with 8 bits by `csd`.
`--model posthoc` leaves an encoder as it is: the linear maps of half of the pairs, at unit norm;
the other half trains it.

Selective retrieval is AURC: the mean share of wrong first items among the queries that the score is
surest of. The conformal set of a text is all images that score at least as high as a threshold,
which 90% of right pairs reach: one half of the pairs that are set aside gives the threshold for the
texts of the other half (`cimtool/reference/conformal.py`). In brackets: Student's 95% interval of
the mean over splits; the pairs that are set aside overlap between splits, so it is a little narrow.
`--first` is the first split's number, and `--json` a file of the figures, to which a later call
adds its splits.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from harness import print_table, use_threads
from posthoc import mapped, probit_scale

import cimtool
from cimtool.base.arrays import Array, FloatArray
from cimtool.loading.checkpoint import read_checkpoint
from cimtool.loading.model import read_towers
from cimtool.reference.bootstrap import students
from cimtool.reference.conformal import conformal_bound
from cimtool.reference.measures import WAYS
from cimtool.reference.retrieval import retrieval
from cimtool.reference.truth import truth_of
from cimtool.simulation.simulator import Simulator
from cimtool.training.sigmoid import fitted_sigmoid

PENALTY = 1.0

COVERAGE = 0.9
"""The share of texts whose right image is to be in their conformal set."""

TARGET = "isaac-rram-128"
BITS: dict[str, Any] = {"weight_bits": 8, "input_bits": 8, "activation_bits": 8, "feature_bits": 8}

LINEAR, DEFAULT, RIDGE = "`--model linear`", "`train`", "ridge regression"
BACK = "ridge regression from images to texts"
CSD, COMPILED = "`csd`", "`csd`, compiled"

POSTHOC: Mapping[str, dict[str, Any]] = {
    "(c) one variance": {},
    "(a) posterior, prior 10": {"options": {"model.variance": "posterior", "model.prior": 10}},
    "(b) a variance a row": {"loss": "info-nce", "epochs": 10, "learning_rate": 0.01},
}
"""Options of `--model posthoc` by the names of the rows."""

Rows = Mapping[str, Array]
Figures = dict[str, dict[str, float]]


def ridge_scores(train: Rows, test: Rows, mapped: str = "text", onto: str = "image") -> FloatArray:
    """The cosines [n, m] of `mapped` rows and those they map `onto`, less the mean that trained."""
    (x, y), (u, v) = ([np.float64(rows[name]) for name in (mapped, onto)] for rows in (train, test))
    means = x.mean(axis=0), y.mean(axis=0)
    x, y, u, v = x - means[0], y - means[1], u - means[0], v - means[1]
    weight = np.linalg.solve(x.T @ x + PENALTY * np.eye(x.shape[1]), x.T @ y)
    sides = (one / np.linalg.norm(one, axis=1, keepdims=True) for one in (u @ weight, v))
    made, own = sides
    found: FloatArray = made @ own.T
    return found


def encoded(model: Path, rows: Rows) -> list[Mapping[str, Array]]:
    """Both towers of a checkpoint run on rows: `mu` and `s` [n, d] each."""
    _, towers = read_towers(read_checkpoint(model))
    sides = zip(towers, ("text", "image"), strict=True)
    return [tower.run({"x": rows[name].astype(np.float64)}) for tower, name in sides]


def csd_scale(model: Path, rows: Rows) -> tuple[float, float]:
    """The a and b of sigmoid(b - a ed) that calibrate ed on pairs of `rows`."""
    text, video = encoded(model, rows)
    ed = ((text["mu"][:, None] - video["mu"]) ** 2).sum(axis=2)
    ed = ed + text["s"].sum(axis=1)[:, None] + video["s"].sum(axis=1)
    right = np.eye(len(ed), dtype=bool)
    return fitted_sigmoid(ed[right], ed[~right])


def figures(train: Rows, chooses: Rows, test: Rows, folder: Path) -> Figures:
    """The metrics of each way on the pairs of `test`."""
    n = len(test["text"])
    pairs = {name: np.concatenate([train[name], chooses[name]]) for name in train}
    ridges = {RIDGE: ridge_scores(pairs, test), BACK: ridge_scores(pairs, test, "image", "text").T}
    found: Figures = {
        f"{name}, by cosine": {
            **retrieval(cosines, truth_of(np.arange(n), None, n)),
            **conformal_sets(cosines),
        }
        for name, cosines in ridges.items()
    }
    kinds: Mapping[str, dict[str, Any]] = {LINEAR: {"model": "linear"}, DEFAULT: {}}
    for name, options in kinds.items():
        run = cimtool.train(train, folder / name, validation=chooses, **options)
        a, b = csd_scale(run.model, chooses) if run.best.number else (None, None)
        bundle = cimtool.compile(
            run.model, calibration=train, target=TARGET, output=folder / f"{name} compiled",
            head="csd", a=a, b=b, **BITS,
        )  # fmt: skip
        p, q = probit_scale(run.model, with_right(chooses), encoded)
        sources: dict[str, Path | cimtool.ModelSource] = {
            "distance of means": cimtool.ModelSource(run.model, head="euclidean"),
            CSD: cimtool.ModelSource(run.model, head="csd", a=a, b=b),
            COMPILED: bundle.folder,
            "`probcosine`": cimtool.ModelSource(run.model, head="probcosine", a=p, b=q),
        }
        found |= measured(name, sources, test)
        found[f"{name}, {CSD}"]["epoch"] = float(run.best.number)
    half = len(pairs["text"]) // 2
    maps, frozen = (with_right({k: one[part] for k, one in pairs.items()}) for part in
                    (slice(half), slice(half, None)))  # fmt: skip
    frozen, unseen = mapped(maps, frozen, with_right(test))
    posthoc: dict[str, Path | cimtool.ModelSource] = {}
    batch = min(64, half // 2)
    for name, options in POSTHOC.items():
        run = cimtool.train(frozen, folder / name, model="posthoc", batch=batch, **options)
        posthoc[f"{name}: {CSD}"] = cimtool.ModelSource(run.model, head="csd")
    return found | measured("posthoc", posthoc, unseen, raw="the frozen rows by cosine")


def with_right(rows: Rows) -> dict[str, Array]:
    """Rows of which text i belongs to image i, and the array that says so."""
    return {**rows, "text_to_image": np.arange(len(rows["text"]))}


def measured(
    name: str, sources: Mapping[str, Path | cimtool.ModelSource], rows: Rows, raw: str = ""
) -> Figures:
    """The metrics of sources on rows, by `name` and theirs; with `raw` those of the rows too."""
    evaluated = cimtool.evaluate(rows, *sources.values(), resamples=2).scores
    matrices = {one: scores_of(source, rows) for one, source in sources.items()}
    if raw:
        matrices[raw] = rows["text"] @ rows["image"].T
    return {
        f"{name}, {one}": {**score.metrics, **conformal_sets(matrix)}
        for (one, matrix), score in zip(matrices.items(), evaluated, strict=bool(raw))
    }


def scores_of(source: Path | cimtool.ModelSource, rows: Rows) -> FloatArray:
    """The scores [n, m] of a bundle, or of a model in float."""
    if isinstance(source, Path):
        matcher = cimtool.load(source)
        sides = matcher.encode_text(rows["text"]), matcher.encode_video(rows["image"])
        return np.asarray(matcher.score(*sides), np.float64)
    return Simulator(source.load().program).scores(rows["text"], rows["image"]).astype(np.float64)


def conformal_sets(scores: FloatArray) -> dict[str, float]:
    """The mean size of the texts' conformal sets, and the share with the right image inside.

    Pair i of `scores` [n, n] is right.
    """
    right, inside = scores.diagonal(), np.zeros(scores.shape, bool)
    halves = np.array_split(np.arange(len(scores)), 2)
    for own, other in (halves, halves[::-1]):
        threshold = -conformal_bound(-right[own], COVERAGE).bound
        inside[other] = scores[other] >= threshold
    return {
        "set_size": float(inside.sum(axis=1).mean()),
        "coverage": float(inside.diagonal().mean()),
    }


def rows_of(splits: Sequence[Figures]) -> list[dict[str, str]]:
    """A row a way, means over splits with their intervals."""
    shown = {
        f"{title} {way.replace('_', ' ')}, %": f"{key}_{way}"
        for title, key in (("R@1", "r1"), ("AURC", "aurc"))
        for way in WAYS
    }
    shown |= {"calibration error, %": "calibration_error", "log loss": "nll"}
    shown |= {"conformal set, images": "set_size", "right image inside, %": "coverage"}
    shown["epoch"] = "epoch"
    rows = []
    for name in splits[0]:
        row = {"scored by": name}
        for title, key in shown.items():
            values = [one[name].get(key) for one in splits]
            factor = 100.0 if "%" in title else 1.0
            known = [factor * one for one in values if one is not None]
            row[title] = _cell(known) if len(known) == len(splits) else ""
        rows.append(row)
    for name, base in (
        (f"{DEFAULT}, {CSD}", f"{RIDGE}, by cosine"),
        (f"{DEFAULT}, {CSD}", f"{BACK}, by cosine"),
        (f"{DEFAULT}, {CSD}", f"{LINEAR}, {CSD}"),
        (f"{DEFAULT}, {COMPILED}", f"{DEFAULT}, {CSD}"),
    ):
        row = dict.fromkeys(rows[0], "") | {"scored by": f"{name} less {base}"}
        for way in WAYS:
            key = f"r1_{way}"
            row[f"R@1 {way.replace('_', ' ')}, %"] = _cell(
                [100 * (one[name][key] - one[base][key]) for one in splits]
            )
        rows.append(row)
    return rows


def _cell(values: Sequence[float]) -> str:
    found = students(values)
    return f"{found.value:.3g} [{found.low:.3g}, {found.high:.3g}]"


def main() -> None:
    """Print a line a split, and the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, metavar="PAIRS.npz")
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--held-out", type=int, default=200)
    parser.add_argument("--pairs", type=int, help="train on so many of the others")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    use_threads(1)
    with np.load(options.file) as arrays:
        rows = {name: arrays[name] for name in ("text", "image")}
    found: list[Figures] = []
    if options.json is not None and options.json.exists():
        found = json.loads(options.json.read_text())
    for split in range(options.first, options.first + options.splits):
        order = np.random.default_rng(split).permutation(len(rows["text"]))
        held, rest = order[: options.held_out], order[options.held_out :][: options.pairs]
        chooses, train = np.split(rest, [round(len(rest) / 10)])
        trains, tenth, test = (
            {name: one[part] for name, one in rows.items()} for part in (train, chooses, held)
        )
        with tempfile.TemporaryDirectory() as folder:
            found.append(figures(trains, tenth, test, Path(folder)))
        line = ", ".join(
            f"{name} " + " ".join(f"{100 * one[f'r1_{way}']:.1f}" for way in WAYS)
            for name, one in found[-1].items()
        )
        print(f"split {split}: {line}", flush=True)
        if options.json is not None:
            options.json.write_text(json.dumps(found))
    print()
    print_table(rows_of(found))


if __name__ == "__main__":
    main()
