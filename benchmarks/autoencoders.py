"""R@1 and mAP of autoencoders on scikit-learn's digits, float and compiled, a mean of some seeds.

    python benchmarks/autoencoders.py [--seeds 3] [--epochs 30] [--json FILE]

For both models and both losses, each head and three targets: the share of 797 test items whose
nearest other item is of their class, and how many values ONNX Runtime and the simulator differ in.
The best epoch is chosen on a tenth of the 1,000 training items. The polynomial of pcme-poly is
fitted to exact labels of the model's own Gaussians.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import cimtool
from cimtool.emit.runtime import Session
from cimtool.verification.bits import compare_outputs, outputs_of

MODELS = {
    "autoencoder": ("euclidean",),
    "variational-autoencoder": ("csd", "pcme-poly", "euclidean"),
}
LOSSES = ("siamese", "triplet")
TARGETS = ("ideal", "isaac-rram-128", "hermes-pcm-14nm")
TRAINED = 1000

Rows = dict[str, np.ndarray]


def digits() -> tuple[Rows, Rows]:
    """Items to train on and to test with; pixels from 0 to 1."""
    found = load_digits()
    order = np.random.default_rng(0).permutation(len(found.target))
    rows = (found.data / 16).astype(np.float32)
    parts = order[:TRAINED], order[TRAINED:]
    train, test = ({"rows": rows[part], "labels": found.target[part]} for part in parts)
    return train, test


def differing(folder: Path, rows: np.ndarray) -> int:
    """Values of all outputs that ONNX Runtime and the simulator differ in, on all rows."""
    matcher = cimtool.load(folder)
    own = matcher.encode_text(rows), matcher.encode_video(rows)
    other = tuple(Session(folder / f"{name}.onnx").encode(rows) for name in ("text", "video"))
    scores = matcher.score(*own), Session(folder / "score.onnx").score(*other)
    simulated, onnx = (
        outputs_of({"text": features[0], "video": features[1]}, logits)
        for features, logits in zip((own, other), scores, strict=True)
    )
    counts = compare_outputs("ONNX Runtime", simulated, onnx)
    return sum(count.differing for count in counts)


def figures(train: Rows, test: Rows, seed: int, epochs: int) -> dict[str, Any]:
    """R@1 by model, loss, head and target, and the values that differ."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for model, heads in MODELS.items():
            for loss in LOSSES:
                place = Path(scratch) / f"{model}-{loss}"
                run = cimtool.train(train, place, model=model, loss=loss, epochs=epochs, seed=seed)
                projectors = run.folder / "model.pth"
                for head in heads:
                    poly = fitted(projectors, train, place) if head == "pcme-poly" else None
                    bundles = [
                        cimtool.compile(
                            projectors, poly, calibration=train, target=target, head=head,
                            output=place / f"{head}@{target}",
                        ).folder
                        for target in TARGETS
                    ]  # fmt: skip
                    options: dict[str, Any] = {"head": head, "poly": poly, "resamples": 2}
                    scores = cimtool.evaluate(test, projectors, *bundles, **options).scores
                    recalls = [one.metrics["r1_text_to_video"] for one in scores[:-1]]
                    found[f"{model}, {loss}, {head}"] = {
                        **dict(zip(("float", *TARGETS), recalls, strict=True)),
                        "float mAP": scores[0].metrics["map_text_to_video"],
                        "differing": sum(differing(one, test["rows"]) for one in bundles),
                    }
    return found


def fitted(projectors: Path, train: Rows, place: Path) -> Path:
    """The polynomial of a model's own Gaussians: any item with any, for there are no partners."""
    teacher = cimtool.teacher(projectors, train, labels="exact", pairs=50_000, matched=0.0)
    cimtool.fit(teacher, output=place / "poly.json")
    return place / "poly.json"


def main() -> None:
    """Print a table of the means; `differing` is the sum over targets and seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    options = parser.parse_args()
    train, test = digits()
    found = []
    for seed in range(options.seeds):
        found.append(figures(train, test, seed, options.epochs))
        print(f"seed {seed} done", flush=True)
    pixels = cimtool.evaluate(test, head="euclidean", resamples=2).scores[0].metrics
    print(f"pixels: R@1 {pixels['r1_text_to_video']:.2%}, mAP {pixels['map_text_to_video']:.2%}")
    shares = ("float", *TARGETS, "float mAP")
    heads = ("model, loss, head", *shares, "differing")
    print(f"\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for name in found[0]:
        rows = [one[name] for one in found]
        means = " | ".join(f"{np.mean([one[k] for one in rows]):.2%}" for k in shares)
        print(f"| {name} | {means} | {sum(one['differing'] for one in rows)} |")
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
