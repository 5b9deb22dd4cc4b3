"""Images and texts with classes, ranked by class: ACMR trained, compiled and measured by mAP.

    python examples/train_by_labels.py FOLDER FILE

FILE is an .npz such as the Wikipedia set: `image` [N, in], `text` [N, in], `label` [N] and `split`
[N] of 'train' and 'test'. Its rows are histograms; FOLDER/train.npz and FOLDER/test.npz get their
square roots, standardised by the training rows.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import cimtool
from cimtool.loading.source import ModelSource
from cimtool.reference.metrics import mean_average_precision
from cimtool.simulation.simulator import Simulator

TARGETS = ("ideal", "isaac-rram-128", "hermes-pcm-14nm")


def split_file(file: Path, folder: Path) -> tuple[Path, Path]:
    """Write train.npz and test.npz in the form that cimtool reads."""
    with np.load(file) as held:
        values = {name: held[name] for name in ("image", "text", "split")}
        values["label"] = held["labels" if "labels" in held else "label"]
    folder.mkdir(parents=True, exist_ok=True)
    train = values["split"] == "train"
    for name in ("image", "text"):
        roots = np.sqrt(values[name])
        mean, deviation = roots[train].mean(axis=0), roots[train].std(axis=0)
        values[name] = ((roots - mean) / np.maximum(deviation, 1e-6)).astype(np.float32)
    for part, rows in (("train", train), ("test", ~train)):
        kept = {name: values[name][rows] for name in ("image", "text", "label")}
        np.savez(folder / f"{part}.npz", **kept)
    return folder / "train.npz", folder / "test.npz"


def both_ways(scores: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """mAP, image to text and back, of scores [n, n] whose row i and column i have `labels[i]`."""
    of_images = mean_average_precision(scores.T, labels, labels)
    return of_images, mean_average_precision(scores, labels, labels)


def said(maps: tuple[float, float]) -> str:
    """Both in words."""
    return f"mAP image to text {maps[0]:.3f}, text to image {maps[1]:.3f}"


def main(folder: Path, file: Path) -> None:
    train, test = split_file(file, folder)

    # The epoch of the best mAP on a fifth of the training rows is kept; `test` is not looked at.
    run = cimtool.train(
        train,
        folder / "acmr",
        model="tanh-projectors",
        loss="acmr",
        held_out=0.2,
        options={"model.width": 32},
        resume=True,
        say=print,
    )
    projectors = run.folder / "model.pth"
    with np.load(test) as held:
        text, image, labels = held["text"], held["image"], held["label"]
    scores = Simulator(ModelSource(projectors).load().program).scores(text, image)
    in_float = both_ways(scores, labels)
    print(f"float: {said(in_float)}")
    # Guessing has about the chance that two items share a class.
    chance = float(np.mean(labels[:, None] == labels[None, :]))
    assert min(in_float) > 1.2 * chance

    for target in TARGETS:
        bundle = cimtool.compile(
            projectors, calibration=train, target=target, output=folder / f"acmr@{target}"
        )
        # Some images of the set stand in both parts.
        report = cimtool.verify(bundle.folder, test, calibration_rows="allow")
        differing = sum(one.differing for one in report.checks.bits)
        scores = cimtool.load(bundle.folder).scores(test)
        compiled = both_ways(scores, labels)
        print(f"{target}: {said(compiled)}; values that differ: {differing}")
        assert differing == 0
        assert min(compiled) > 0.9 * min(in_float)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
