"""Uncertainty for rows of an encoder that stays as it is: ways of `train --model posthoc`.

    python benchmarks/posthoc.py PAIRS.npz [--splits 20] [--held-out 0.4] [--rate 0.01]

Each split sets a share of the images aside with all their texts, drawn anew; the others solve one
variance for all rows with a and b, or train a variance for each row by a loss. Selective retrieval
is the area under the risk-coverage curve (AURC): the mean share of wrong first items among the
queries that the score is surest of; a lower one is better. In brackets: Student's 95% interval of
the mean over splits; the images that are set aside overlap, so it is a little narrow.
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
from cimtool.base.arrays import Array
from cimtool.reference.bootstrap import students

RAW = "raw rows, by cosine"

WAYS: Mapping[str, Mapping[str, Any]] = {
    "one variance, solved": {},
    "a variance a row, `pairwise-bce`": {"loss": "pairwise-bce", "epochs": 10},
    "a variance a row, `info-nce`": {"loss": "info-nce", "epochs": 10},
}
"""Options of `train` by the names of the rows."""

SHOWN = {
    "R@1 text to image, %": ("r1_text_to_video", 100),
    "R@1 image to text, %": ("r1_video_to_text", 100),
    "AURC text to image, %": ("aurc_text_to_video", 100),
    "AURC image to text, %": ("aurc_video_to_text", 100),
    "calibration error, %": ("calibration_error", 100),
    "log loss": ("nll", 1),
}
"""Metrics and their factors by the titles of the columns."""


def part_of(rows: Mapping[str, Array], images: Array) -> dict[str, Array]:
    """Some of the images, by sorted numbers, with all their texts."""
    texts = np.isin(rows["text_to_image"], images)
    right = np.searchsorted(images, rows["text_to_image"][texts])
    return {"text": rows["text"][texts], "image": rows["image"][images], "text_to_image": right}


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
        rows = {name: arrays[name] for name in ("text", "image", "text_to_image")}
    found: dict[str, list[Mapping[str, float]]] = {name: [] for name in (RAW, *WAYS)}
    for split in range(options.splits):
        order = np.random.default_rng(split).permutation(len(rows["image"]))
        held = round(options.held_out * len(order))
        test, train = (part_of(rows, np.sort(one)) for one in np.split(order, [held]))
        with tempfile.TemporaryDirectory() as folder:
            models = [
                cimtool.train(
                    train, Path(folder) / f"{i}", model="posthoc",
                    learning_rate=options.rate if given else None, **given,
                ).model
                for i, given in enumerate(WAYS.values())
            ]  # fmt: skip
            scores = cimtool.evaluate(test, *models, resamples=2).scores
        for name, score in zip((*WAYS, RAW), scores, strict=True):
            found[name].append(dict(score.metrics))
        said = (f"{one[-1]['r1_text_to_video']:.3f}" for one in found.values())
        print(f"split {split}: {' '.join(said)}", flush=True)
    print()
    print_table([{"scored by": name, **cells(splits)} for name, splits in found.items()])


def cells(splits: Sequence[Mapping[str, float]]) -> dict[str, str]:
    """The means of the splits with their intervals, by column."""
    shown = {}
    for title, (key, factor) in SHOWN.items():
        values = [factor * one[key] for one in splits if key in one]
        change = students(values) if values else None
        shown[title] = (
            "" if change is None else f"{change.value:.3g} [{change.low:.3g}, {change.high:.3g}]"
        )
    return shown


if __name__ == "__main__":
    main()
