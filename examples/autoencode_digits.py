"""Items of one kind, found by their class: a variational autoencoder of handwritten digits.

    python examples/autoencode_digits.py [FOLDER]

The digits come with scikit-learn. FOLDER/train.npz and FOLDER/test.npz get `rows` and `labels`,
the form of data of one modality.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import cimtool

TARGET = "isaac-rram-128"
SIGMOID: Mapping[str, Any] = {"a": 0.1, "b": 0.0}


def write_digits(folder: Path) -> tuple[Path, Path]:
    """Write 1,000 digits to train on and 400 to test with; pixels from 0 to 1."""
    folder.mkdir(parents=True, exist_ok=True)
    digits = load_digits()
    rows = (digits.data / 16).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(rows))
    for name, part in (("train", order[:1000]), ("test", order[1000:1400])):
        np.savez(folder / f"{name}.npz", rows=rows[part], labels=digits.target[part])
    return folder / "train.npz", folder / "test.npz"


def main(folder: Path) -> None:
    train, test = write_digits(folder)

    # 1. Train. Triplets of each batch draw items of a class together, in the space of a code from
    # which a decoder makes the digit again. The decoder is not part of what is saved.
    run = cimtool.train(
        train,
        folder / "digits",
        model="variational-autoencoder",
        loss="triplet",
        resume=True,
        say=print,
    )
    projectors = run.folder / "model.pth"

    # 2. Compile. The score is b - a ed of the Gaussians that the encoder gives (head csd). Triplets
    # say neither a nor b; any rank alike.
    bundle = cimtool.compile(
        projectors, calibration=train, target=TARGET, output=folder / f"digits@{TARGET}", **SIGMOID
    )

    # 3. Evaluate: is the nearest other digit of the same class? In float, and on the simulator.
    found = cimtool.evaluate(test, projectors, bundle.folder, **SIGMOID)
    for score in found.scores:
        print(f"{score.kind}: R@1 {score.metrics['r1_text_to_video']:.1%}")
        assert score.metrics["r1_text_to_video"] > 0.95

    # 4. Verify that simulator and ONNX Runtime agree to the last bit; fifty digits are enough.
    with np.load(test) as held:
        few = {name: held[name][:50] for name in ("rows", "labels")}
    report = cimtool.verify(bundle.folder, few)
    differing = sum(one.differing for one in report.checks.bits)
    print(f"values that differ: {differing}")
    assert differing == 0


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else Path("exports/examples"))
