"""mAP of ACMR on classes, float and compiled, the mean of some seeds.

    python benchmarks/acmr.py FOLDER [--seeds 3] [--epochs 40] [--ways] [--json FILE]

FOLDER holds train.npz and test.npz as `examples/train_by_labels.py` makes them. The best epoch is
chosen by mAP on a fifth of the training rows; the figures are of the test rows, all of them ranked.
With `--ways` they are of float alone: AdamW on all at once, as by default, beside training in turns
and beside SGD.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import cimtool
from cimtool.loading.source import ModelSource
from cimtool.reference.metrics import mean_average_precision
from cimtool.simulation.simulator import Simulator

TARGETS = ("ideal", "isaac-rram-128", "hermes-pcm-14nm")


WAYS: Mapping[str, Mapping[str, Any]] = {
    "AdamW, at once": {},
    "AdamW, in turns": {"options": {"loss.turns": 5}},
    "SGD, at once": {"optimizer": "sgd", "learning_rate": 0.1},
    "SGD, in turns": {"optimizer": "sgd", "learning_rate": 0.1, "options": {"loss.turns": 5}},
}
"""Options of a training by what they are called."""


def both_ways(scores: Any, labels: Any) -> tuple[float, float]:
    """mAP of scores [texts, images], image to text first."""
    image_to_text, text_to_image = (
        mean_average_precision(one, labels, labels) for one in (scores.T, scores)
    )
    return image_to_text, text_to_image


def trained(folder: Path, place: Path, seed: int, epochs: int, **given: Any) -> Path:
    """The checkpoint of a training on the rows of `folder`."""
    options = {"model.width": 32, **given.pop("options", {})}
    cimtool.train(
        folder / "train.npz", place / "run", model="tanh-projectors", loss="acmr", held_out=0.2,
        epochs=epochs, seed=seed, options=options, **given,
    )  # fmt: skip
    return place / "run" / "model.pth"


def of_ways(folder: Path, seed: int, epochs: int) -> dict[str, tuple[float, float]]:
    """mAP both ways of one seed, in float, by the way of training."""
    found = {}
    with np.load(folder / "test.npz") as held:
        text, image, labels = held["text"], held["image"], held["label"]
    for name, given in WAYS.items():
        with tempfile.TemporaryDirectory() as scratch:
            projectors = trained(folder, Path(scratch), seed, epochs, **given)
            program = ModelSource(projectors).load().program
            found[name] = both_ways(Simulator(program).scores(text, image), labels)
    return found


def figures(folder: Path, seed: int, epochs: int) -> dict[str, tuple[float, float]]:
    """mAP both ways of one seed: in float, and compiled for each target."""
    train, test = folder / "train.npz", folder / "test.npz"
    with np.load(test) as held:
        text, image, labels = held["text"], held["image"], held["label"]
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        projectors = trained(folder, place, seed, epochs)
        program = ModelSource(projectors).load().program
        found = {"float": both_ways(Simulator(program).scores(text, image), labels)}
        for target in TARGETS:
            bundle = cimtool.compile(
                projectors, calibration=train, target=target, output=place / target
            )
            # Some images of the set stand in both parts.
            report = cimtool.verify(bundle.folder, test, calibration_rows="allow")
            differing = sum(one.differing for one in report.checks.bits)
            if differing:
                raise SystemExit(f"{target}: {differing} values differ")
            found[target] = both_ways(cimtool.load(bundle.folder).scores(test), labels)
    return found


def main() -> None:
    """Print a line a seed, and a table of the means."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--ways", action="store_true", help="ways of training, in float")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    options = parser.parse_args()
    found = []
    for seed in range(options.seeds):
        measure = of_ways if options.ways else figures
        found.append(measure(options.folder, seed, options.epochs))
        line = ", ".join(f"{name} {i:.4f} {t:.4f}" for name, (i, t) in found[-1].items())
        print(f"seed {seed}: {line}", flush=True)
    means = {name: np.mean([one[name] for one in found], axis=0).tolist() for name in found[0]}
    by = "trained by" if options.ways else "scored by"
    print(f"\n| {by} | mAP image to text | mAP text to image |\n|---|---|---|")
    for name, (image_to_text, text_to_image) in means.items():
        print(f"| {name} | {image_to_text:.4f} | {text_to_image:.4f} |")
    if options.json:
        options.json.write_text(json.dumps({"seeds": found, "means": means}, indent=2) + "\n")


if __name__ == "__main__":
    main()
