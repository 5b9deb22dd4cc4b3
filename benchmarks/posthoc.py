"""Uncertainty for rows of an encoder that stays as it is: ways of `train --model posthoc`.

    python benchmarks/posthoc.py PAIRS.npz [--splits 20] [--held-out 0.4] [--rate 0.01]

Each split sets a share of the images aside with all their texts, drawn anew; the others solve one
variance for all rows with a and b, take the variance of the posterior, or train a variance for each
row by a loss. If both sides differ in width, half of these others make linear maps first
(`--model linear`), and the encoder that stays as it is is the map of a row, at unit norm. For
`probcosine` a and b have the least log loss on the rows that train. `compiled` is for TARGET with 8
bits.

Selective retrieval is the area under the risk-coverage curve (AURC): the mean share of wrong first
items among the queries that the score is surest of; a lower one is better. In brackets: Student's
95% interval of the mean over splits; the images that are set aside overlap, so it is a little
narrow. The last columns are the correlation, over queries, of their variance and 1 if the first
item by cosine is right, else 0: an uncertainty that says how sure an answer is has one below 0.
They are empty for a way that keeps one variance for all rows in a split.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from harness import print_table, use_threads
from scipy.optimize import minimize

import cimtool
from cimtool.base.arrays import Array, FloatArray
from cimtool.loading.checkpoint import read_checkpoint
from cimtool.loading.model import read_towers
from cimtool.reference.bootstrap import students
from cimtool.training.sigmoid import fitted_sigmoid

TARGET = "isaac-rram-128"
BITS: dict[str, Any] = {"weight_bits": 8, "input_bits": 8, "activation_bits": 8, "feature_bits": 8}

RAW = "raw rows, by cosine or distance"
Rows = Mapping[str, Array]


@dataclass(frozen=True)
class Way:
    """Options of `train`, the head that ranks by what it gives, and True to compile it."""

    options: Mapping[str, Any] = field(default_factory=dict)
    head: str = "csd"
    compiled: bool = False


def _posterior(prior: float) -> dict[str, Any]:
    return {"options": {"model.variance": "posterior", "model.prior": prior}}


BCE: dict[str, Any] = {"loss": "pairwise-bce", "epochs": 10}
NCE: dict[str, Any] = {"loss": "info-nce", "epochs": 10}

SOLVED = "(c) one variance, solved: `csd`"

WAYS: Mapping[str, Way] = {
    SOLVED: Way(),
    "(c) one variance: `probcosine`": Way(head="probcosine"),
    "(a) posterior, its prior chosen: `csd`": Way(_posterior(0)),
    "(a) posterior, prior 10: `csd`": Way(_posterior(10)),
    "(a) posterior, prior 10: `csd`, compiled": Way(_posterior(10), compiled=True),
    "(a) posterior, prior 10: `probcosine`": Way(_posterior(10), "probcosine"),
    "(a) posterior, prior 1: `csd`": Way(_posterior(1)),
    "(a) posterior, prior 1: `probcosine`": Way(_posterior(1), "probcosine"),
    "(b) a variance a row, `pairwise-bce`: `csd`": Way(BCE),
    "(b) a variance a row, `pairwise-bce`: `probcosine`": Way(BCE, "probcosine"),
    "(b) a variance a row, `info-nce`: `csd`": Way(NCE),
}
"""Ways by the names of the rows."""

SHOWN = {
    "R@1 text to image, %": ("r1_text_to_video", 100),
    "R@1 image to text, %": ("r1_video_to_text", 100),
    "AURC text to image, %": ("aurc_text_to_video", 100),
    "AURC image to text, %": ("aurc_video_to_text", 100),
    "calibration error, %": ("calibration_error", 100),
    "log loss": ("nll", 1),
    "variance with right text answers": ("of_texts", 1),
    "variance with right image answers": ("of_images", 1),
}
"""Metrics and their factors by the titles of the columns."""


def part_of(rows: Rows, images: Array) -> dict[str, Array]:
    """Some of the images, by sorted numbers, with all their texts."""
    texts = np.isin(rows["text_to_image"], images)
    right = np.searchsorted(images, rows["text_to_image"][texts])
    return {"text": rows["text"][texts], "image": rows["image"][images], "text_to_image": right}


def encoded(model: Path, rows: Rows) -> tuple[Mapping[str, Array], Mapping[str, Array]]:
    """Both towers of a checkpoint run on rows: `mu` and `s` [n, d], in float64."""
    _, (text, video) = read_towers(read_checkpoint(model))
    given = (rows[name].astype(np.float64) for name in ("text", "image"))
    units = (one / np.linalg.norm(one, axis=1, keepdims=True) for one in given)
    of_text, of_image = (tower.run({"x": x}) for tower, x in zip((text, video), units, strict=True))
    return of_text, of_image


def mapped(maps: Rows, *parts: Rows) -> list[dict[str, Array]]:
    """The rows of `parts` by linear maps of the pairs `maps`, at unit norm."""
    with tempfile.TemporaryDirectory() as folder:
        model = cimtool.train(maps, Path(folder) / "maps", model="linear").model
        _, towers = read_towers(read_checkpoint(model))
    found = []
    for part in parts:
        made = dict(part)
        for name, tower in zip(("text", "image"), towers, strict=True):
            mu = tower.run({"x": part[name].astype(np.float64)})["mu"]
            unit = mu / np.linalg.norm(mu, axis=1, keepdims=True)
            made[name] = unit.astype(np.float32)
        found.append(made)
    return found


def probit_scale(
    model: Path, train: Rows, run: Callable[[Path, Rows], Iterable[Mapping[str, Array]]] = encoded
) -> tuple[float, float]:
    """The a and b of `probcosine` with the least log loss on pairs, right and wrong half each.

    `run` gives what both towers of a checkpoint make of rows.
    """
    sides = []
    for side in run(model, train):
        square = (side["mu"] ** 2 + side["s"]).sum(axis=1, keepdims=True)
        sides.append((side["mu"] / np.sqrt(square), side["s"] / square))
    (m, s), (u, t) = sides
    cosine, variance = m @ u.T, s @ t.T + m**2 @ t.T + s @ (u**2).T
    right = train["text_to_image"][:, None] == np.arange(len(train["image"]))
    weights = np.where(right, 0.5 / right.sum(), 0.5 / (~right).sum())

    def loss(at: FloatArray) -> float:
        a, b = np.exp(at[0]), at[1]
        logits = (a * cosine + b) / np.sqrt(1 + np.pi / 8 * a**2 * variance)
        return float((weights * np.logaddexp(0, np.where(right, -logits, logits))).sum())

    a, b = fitted_sigmoid(-cosine[right], -cosine[~right])
    found = minimize(loss, [np.log(a), b], method="Nelder-Mead").x
    return float(np.exp(found[0])), float(found[1])


def figures(train: Rows, test: Rows, rate: float, folder: Path) -> dict[str, dict[str, float]]:
    """The metrics of each way on the pairs of `test`."""
    runs, sources = dict[str, Path](), list[Path | cimtool.ModelSource]()
    for name, way in WAYS.items():
        key = repr(way.options)
        if key not in runs:
            given = way.options.get("epochs") and rate
            output = folder / f"{len(runs)}"
            run = cimtool.train(train, output, model="posthoc", learning_rate=given, **way.options)
            runs[key] = run.model
        if way.compiled:
            bundle = cimtool.compile(
                runs[key], calibration=train, target=TARGET, output=folder / name, **BITS
            )
            sources.append(bundle.folder)
        else:
            a, b = probit_scale(runs[key], train) if way.head == "probcosine" else (None, None)
            sources.append(cimtool.ModelSource(runs[key], head=way.head, a=a, b=b))
    scores = cimtool.evaluate(test, *sources, resamples=2).scores
    names = (*WAYS, RAW)
    found = {name: dict(one.metrics) for name, one in zip(names, scores, strict=True)}
    for name, way in WAYS.items():
        if not way.compiled:
            found[name] |= correlations(runs[repr(way.options)], test)
    return found


def correlations(model: Path, test: Rows) -> dict[str, float]:
    """The correlations of variance and right first answers; none for one variance for all rows."""
    text, image = encoded(model, test)
    right = test["text_to_image"][:, None] == np.arange(len(test["image"]))
    cosine, found = text["mu"] @ image["mu"].T, {}
    for name, side, of_pair, judged in (
        ("of_texts", text, cosine, right),
        ("of_images", image, cosine.T, right.T),
    ):
        answered = judged[np.arange(len(judged)), of_pair.argmax(axis=1)]
        variance = side["s"].sum(axis=1)
        if np.ptp(variance) > 1e-9 * variance.mean() and 0 < answered.mean() < 1:
            found[name] = float(np.corrcoef(variance, answered)[0, 1])
    return found


def main() -> None:
    """Print a line a split, and the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, metavar="PAIRS.npz")
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--held-out", type=float, default=0.4)
    parser.add_argument("--rate", type=float, default=0.01)
    options = parser.parse_args()
    use_threads(1)
    with np.load(options.file) as arrays:
        rows = {name: arrays[name] for name in ("text", "image")}
        own = np.arange(len(rows["image"]))
        rows["text_to_image"] = arrays.get("text_to_image", own)
    found: dict[str, list[Mapping[str, float]]] = {name: [] for name in (RAW, *WAYS)}
    for split in range(options.splits):
        order = np.random.default_rng(split).permutation(len(rows["image"]))
        held = round(options.held_out * len(order))
        test, rest = (np.sort(one) for one in np.split(order, [held]))
        train, unseen = part_of(rows, rest), part_of(rows, test)
        if rows["text"].shape[1] != rows["image"].shape[1]:
            maps, rest = (np.sort(one) for one in np.array_split(order[held:], 2))
            train, unseen = mapped(part_of(rows, maps), part_of(rows, rest), unseen)
        with tempfile.TemporaryDirectory() as folder:
            for name, one in figures(train, unseen, options.rate, Path(folder)).items():
                found[name].append(one)
        said = (f"{one[-1]['r1_text_to_video']:.3f}" for one in found.values())
        print(f"split {split}: {' '.join(said)}", flush=True)
    print()
    print_table([{"scored by": name, **cells(splits)} for name, splits in found.items()])
    print(f"\nDifferences from {SOLVED}, paired by split:\n")
    differences = (
        {
            "scored by": name,
            **cells([less(*both) for both in zip(splits, found[SOLVED], strict=True)]),
        }
        for name, splits in found.items()
    )
    print_table([row for row in differences if row["scored by"] != SOLVED])


def less(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """The differences of the metrics that both have."""
    return {name: value - other[name] for name, value in one.items() if name in other}


def cells(splits: Sequence[Mapping[str, float]]) -> dict[str, str]:
    """The means of the splits with their intervals, by column."""
    shown = {}
    for title, (key, factor) in SHOWN.items():
        values = [factor * one[key] for one in splits if key in one]
        change = students(values) if len(values) == len(splits) else None
        shown[title] = (
            "" if change is None else f"{change.value:.3g} [{change.low:.3g}, {change.high:.3g}]"
        )
    return shown


if __name__ == "__main__":
    main()
