"""Few pairs of two spaces that nobody aligned: the default training beside linear maps.

    python benchmarks/small_data.py PAIRS.npz [--splits 20] [--held-out 200] [--pairs N]

Each split sets pairs aside, drawn anew; the others, or `--pairs` of them, train with default
settings. Ridge regression, no part of cimtool, maps texts to videos with penalty 1 and ranks by the
cosine to videos less their mean. What `train` keeps is compiled with 8 bits by its closed form,
`csd`. In brackets: Student's 95% interval of the mean over splits; the pairs that are set aside
overlap between splits, so it is a little narrow.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from harness import print_table, use_threads

import cimtool
from cimtool.base.arrays import Array, FloatArray
from cimtool.reference.bootstrap import students
from cimtool.reference.measures import WAYS
from cimtool.reference.retrieval import retrieval
from cimtool.reference.truth import truth_of

PENALTY = 1.0

TARGET = "isaac-rram-128"
BITS: dict[str, Any] = {"weight_bits": 8, "input_bits": 8, "activation_bits": 8, "feature_bits": 8}

A, B = 0.1, 0.0
"""Of `csd` for a model that says none; they change no rank."""

Rows = Mapping[str, Array]
Figures = dict[str, dict[str, float]]


def ridge_scores(train: Rows, test: Rows) -> FloatArray:
    """The cosines [n, m] of mapped texts and videos, both less the mean that trained."""
    (x, y), (u, v) = ([np.float64(rows[name]) for name in rows] for rows in (train, test))
    means = x.mean(axis=0), y.mean(axis=0)
    x, y, u, v = x - means[0], y - means[1], u - means[0], v - means[1]
    weight = np.linalg.solve(x.T @ x + PENALTY * np.eye(x.shape[1]), x.T @ y)
    sides = (one / np.linalg.norm(one, axis=1, keepdims=True) for one in (u @ weight, v))
    mapped, own = sides
    found: FloatArray = mapped @ own.T
    return found


def figures(train: Rows, test: Rows, folder: Path) -> Figures:
    """R@1 both ways of each way on one split, and the calibration of what has one."""
    n = len(next(iter(test.values())))
    found = {
        "ridge regression": retrieval(ridge_scores(train, test), truth_of(np.arange(n), None, n))
    }
    runs = {
        "`--model linear`": cimtool.train(train, folder / "linear", model="linear"),
        "`train`, defaults": cimtool.train(train, folder / "default"),
    }
    for name, run in runs.items():
        solved = not run.best.number
        own: dict[str, Any] = {} if solved else {"a": A, "b": B}
        bundle = cimtool.compile(
            run.model, calibration=train, target=TARGET, output=folder / f"{len(found)}",
            head="csd", **own, **BITS,
        )  # fmt: skip
        source = cimtool.ModelSource(run.model, head="csd", **own)
        scores = cimtool.evaluate(test, source, bundle.folder, resamples=2).scores
        for said, score in zip((name, f"{name}, compiled"), scores, strict=False):
            found[said] = dict(score.metrics)
            if not solved:
                del found[said]["nll"], found[said]["calibration_error"]
        found[name]["epoch"] = float(run.best.number)
    return found


def rows_of(splits: Sequence[Figures]) -> list[dict[str, str]]:
    """A row a way, means over splits with their intervals."""
    shown = {f"R@1 {way.replace('_', ' ')}, %": f"r1_{way}" for way in WAYS}
    shown |= {"calibration error, %": "calibration_error", "log loss": "nll", "epoch": "epoch"}
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
        ("`train`, defaults", "ridge regression"),
        ("`train`, defaults", "`--model linear`"),
        ("`train`, defaults, compiled", "`train`, defaults"),
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
    options = parser.parse_args()
    use_threads(1)
    with np.load(options.file) as arrays:
        rows = {name: arrays[name] for name in ("text", "image")}
    found: list[Figures] = []
    for split in range(options.splits):
        order = np.random.default_rng(split).permutation(len(rows["text"]))
        held, rest = order[: options.held_out], order[options.held_out :][: options.pairs]
        train, test = ({name: one[part] for name, one in rows.items()} for part in (rest, held))
        with tempfile.TemporaryDirectory() as folder:
            found.append(figures(train, test, Path(folder)))
        line = ", ".join(
            f"{name} " + " ".join(f"{100 * one[f'r1_{way}']:.1f}" for way in WAYS)
            for name, one in found[-1].items()
        )
        print(f"split {split}: {line}", flush=True)
    print()
    print_table(rows_of(found))


if __name__ == "__main__":
    main()
