"""R@1 and mAP of autoencoders on scikit-learn's digits, float and compiled, a mean of some seeds.

    python benchmarks/autoencoders.py [--seeds 3] [--epochs 30] [--json FILE]
    python benchmarks/autoencoders.py --widths 2,4,8,16,32 [--seeds 3] [--epochs 30] [--json FILE]

For both models and both losses, each head and three targets: the share of 797 test items whose
nearest other item is of their class, and how many values ONNX Runtime and the simulator differ in.
The best epoch is chosen on a tenth of the 1,000 training items. The polynomial of pcme-poly is
fitted to exact labels of the model's own Gaussians. With `--widths` a training for each width of
the code, model and loss, in float alone.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
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
LOSSES: Mapping[str, Mapping[str, Any]] = {
    "reconstruction": {},
    "siamese": {},
    "triplet": {},
    "triplet, semi-hard": {"loss.mining": "semi-hard"},
}
"""Options of the losses by what they are called; the name of a loss comes before the comma."""
TARGETS = ("ideal", "isaac-rram-128", "hermes-pcm-14nm")
TRAINED = 1000
SIGMOID: Mapping[str, Any] = {"a": 0.1, "b": 0.0}
"""The slope and offset of a score, which none of these losses says."""

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
    scores = matcher.score(*own), Session(folder / "score.onnx").score(other[0], other[1])
    simulated, onnx = (
        outputs_of({"text": features[0], "video": features[1]}, logits)
        for features, logits in zip((own, other), scores, strict=True)
    )
    counts = compare_outputs("ONNX Runtime", simulated, onnx)
    return sum(count.differing for count in counts)


def trained(
    train: Rows, place: Path, model: str, loss: str, epochs: int, seed: int, **options: Any
) -> Path:
    """The checkpoint of a training into the folder `place`."""
    cimtool.train(
        train,
        place,
        model=model,
        loss=loss.partition(",")[0],
        epochs=epochs,
        seed=seed,
        options={**LOSSES[loss], **options},
    )
    return place / "model.pth"


def of_widths(
    train: Rows, test: Rows, seed: int, epochs: int, widths: Sequence[int]
) -> dict[str, Any]:
    """R@1 and mAP in float by model, loss and width of the code."""
    found: dict[str, Any] = {}
    for model, (head, *_) in MODELS.items():
        sigmoid: Mapping[str, Any] = SIGMOID if head == "csd" else {}
        for loss in LOSSES:
            name = f"{model}, {loss}, {head}"
            found[name] = {}
            for width in widths:
                with tempfile.TemporaryDirectory() as scratch:
                    shape = {"model.width": width}
                    file = trained(train, Path(scratch) / "run", model, loss, epochs, seed, **shape)
                    known = cimtool.evaluate(test, file, resamples=2, **sigmoid).scores[0].metrics
                for figure in ("r1", "map"):
                    title = {"r1": "R@1", "map": "mAP"}[figure]
                    found[name][f"{title}, {width}"] = known[f"{figure}_text_to_video"]
    return found


def figures(train: Rows, test: Rows, seed: int, epochs: int) -> dict[str, Any]:
    """R@1 by model, loss, head and target, and the values that differ."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for model, heads in MODELS.items():
            for loss in LOSSES:
                place = Path(scratch) / f"{model}-{loss}"
                projectors = trained(train, place, model, loss, epochs, seed)
                for head in heads:
                    sigmoid: Mapping[str, Any] = SIGMOID if head == "csd" else {}
                    poly = fitted(projectors, train, place) if head == "pcme-poly" else None
                    bundles = [
                        cimtool.compile(
                            projectors, poly, calibration=train, target=target, head=head,
                            output=place / f"{head}@{target}", **sigmoid,
                        ).folder
                        for target in TARGETS
                    ]  # fmt: skip
                    options: dict[str, Any] = {
                        "head": head,
                        "poly": poly,
                        "resamples": 2,
                        **sigmoid,
                    }
                    scores = cimtool.evaluate(
                        test, projectors, *bundles, resamples=2, **options
                    ).scores
                    recalls = [one.metrics["r1_text_to_video"] for one in scores[:-1]]
                    found[f"{model}, {loss}, {head}"] = {
                        **dict(zip(("float", *TARGETS), recalls, strict=True)),
                        "float mAP": scores[0].metrics["map_text_to_video"],
                        "differing": sum(differing(one, test["rows"]) for one in bundles),
                    }
    return found


def fitted(projectors: Path, train: Rows, place: Path) -> Path:
    """The polynomial of a model's own Gaussians: any item with any, for there are no partners."""
    teacher = cimtool.teacher(
        projectors, train, labels="exact", pairs=50_000, matched=0.0, **SIGMOID
    )
    cimtool.fit(teacher, degree=4, output=place / "poly.json")
    return place / "poly.json"


def main() -> None:
    """Print a table of the means; `differing` is the sum over targets and seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--widths", default="", metavar="N,N", help="widths of the code, in float")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    options = parser.parse_args()
    train, test = digits()
    widths = [int(width) for width in options.widths.split(",") if width]
    found = []
    for seed in range(options.seeds):
        more = (seed, options.epochs)
        found.append(
            of_widths(train, test, *more, widths) if widths else figures(train, test, *more)
        )
        print(f"seed {seed} done", flush=True)
    pixels = cimtool.evaluate(test, head="euclidean", resamples=2).scores[0].metrics
    print(f"pixels: R@1 {pixels['r1_text_to_video']:.2%}, mAP {pixels['map_text_to_video']:.2%}")
    shares = [name for name in next(iter(found[0].values())) if name != "differing"]
    heads = ("model, loss, head", *shares, *(() if widths else ("differing",)))
    print(f"\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for name in found[0]:
        rows = [one[name] for one in found]
        means = " | ".join(f"{np.mean([one[k] for one in rows]):.2%}" for k in shares)
        last = "" if widths else f" {sum(one['differing'] for one in rows)} |"
        print(f"| {name} | {means} |{last}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
