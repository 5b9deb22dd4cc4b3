"""Retrieval of four ways to train, over seeds: in float, by Monte Carlo, compiled; and raw rows.

    python benchmarks/seeds.py --demo demo-cache/DIGEST --work FOLDER [--seeds 0,1,2] [--epochs 4]

All train from random weights on the demo's train.npz, for as many epochs, at the same rate:

* sampling: soft-contrastive with K = 10 (PCME); deployed by a polynomial of degree 4 fitted to it
* polynomial: pairwise-poly, the same loss on that polynomial, which it is deployed with
* -a ed: info-nce; deployed by csd
* csd: pairwise-bce, the same loss on b - a ed; deployed by csd

FOLDER keeps the models and, in recalls.json, what is measured: a run that was cut off goes on.

Each is measured on the demo's eval.npz, which none has seen: its score in float, Monte Carlo with
K = 10 of its means and variances, and compiled for a target. R@1 is the mean of both ways; brackets
are Student's 95% interval of the mean over seeds, and of the raw rows 95% of resampled queries.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import cimtool
from cimtool.demo.data import DemoFiles
from cimtool.experiments.evaluate import Score
from cimtool.reference.bootstrap import interval as resampled
from cimtool.reference.bootstrap import resamples
from cimtool.reference.metrics import cosines, on_grid
from cimtool.reference.retrieval import retrieved
from cimtool.reference.truth import truth_of

RATE = 1e-4
SAMPLES = 10
WAYS = ("text_to_video", "video_to_text")
SYSTEMS: Mapping[str, Mapping[str, Any]] = {
    "sampling": {"loss": "soft-contrastive"},
    "polynomial": {"loss": "pairwise-poly"},
    "-a ed": {"loss": "info-nce"},
    "csd": {"loss": "pairwise-bce"},
}
"""Losses and what they are told, in the order of training: the second takes the first's."""


def trained(name: str, folder: Path, data: Path, seed: int, epochs: int) -> Path:
    """Train a system into a folder of its own, with the polynomial of the first; its checkpoint."""
    poly = folder / "poly.json"
    given: dict[str, Any] = {"poly": poly} if name == "polynomial" else {}
    place = folder / name.strip("-").replace(" ", "-")
    cimtool.train(
        data, place, seed=seed, epochs=epochs, learning_rate=RATE, resume=True,
        **SYSTEMS[name], **given,
    )  # fmt: skip
    model = place / "model.pth"
    if name == "sampling":
        labels = cimtool.teacher(model, data, labels="exact", pairs=100_000, matched=0.5)
        cimtool.fit(labels, degree=4, output=poly)
    return model


def measured(name: str, model: Path, files: DemoFiles, target: str) -> dict[str, Score]:
    """The scores of a system on unseen pairs by the way that it is computed."""
    place = model.parent
    scored: dict[str, Any] = {"head": "csd"}
    if name == "-a ed":  # a softmax, which says neither
        scored |= {"a": 0.1, "b": 0.0}
    if name in ("sampling", "polynomial"):
        scored = {"poly": place.parent / "poly.json"}
    bundle = cimtool.compile(
        model, calibration=files.calibration, target=target, output=place / "bundle", **scored
    )
    found = cimtool.evaluate(files.eval, model, samples=[SAMPLES], **scored).scores
    compiled, _ = cimtool.evaluate(files.eval, bundle.folder).scores
    return {"float": found[0], "Monte Carlo": found[1], "compiled": compiled}


def recall(score: Score) -> float:
    """R@1, the mean of both ways."""
    return float(np.mean([score.metrics[f"r1_{way}"] for way in WAYS]))


def raw_recall(file: Path) -> tuple[float, float, float]:
    """R@1 of raw rows by their cosine, the mean of both ways, and the ends of its 95% interval."""
    with np.load(file) as rows:
        scores = on_grid(cosines(rows["text"], rows["video"]))
    pairs = np.arange(len(scores))
    found = retrieved(scores, truth_of(pairs, None, len(pairs)))
    text, video = ((side["rank"] == 1).astype(np.float64) for side in (found.text, found.video))
    drawn = [
        (sample.text.mean(text) + sample.video.mean(video)) / 2
        for sample in resamples(pairs, len(pairs), 0)
    ]
    ends = resampled(np.concatenate(drawn))
    return float(np.mean([text, video])), ends.low, ends.high


def interval(values: list[float]) -> tuple[float, float, float]:
    """The mean, and the ends of Student's 95% interval of it."""
    mean = float(np.mean(values))
    half = stats.t.ppf(0.975, len(values) - 1) * float(np.std(values, ddof=1)) / len(values) ** 0.5
    return mean, mean - half, mean + half


def main() -> None:
    """Print a line a run, and the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--demo", type=Path, required=True, help="folder made by `cimtool demo`")
    parser.add_argument("--work", type=Path, required=True, help="folder of models and recalls")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--target", default="isaac-rram-128")
    options = parser.parse_args()
    files, kept = DemoFiles.under(options.demo), options.work / "recalls.json"
    seeds = options.seeds.split(",")
    found = json.loads(kept.read_text()) if kept.is_file() else {}
    for seed in seeds:
        for name in SYSTEMS:
            if name in found.get(seed, {}):
                continue
            folder = options.work / seed
            model = trained(name, folder, files.train, int(seed), options.epochs)
            scores = measured(name, model, files, options.target)
            own = {way: recall(score) for way, score in scores.items()}
            found.setdefault(seed, {})[name] = own
            kept.write_text(json.dumps(found, indent=2) + "\n")
            print(f"seed {seed}, {name}: {own}", flush=True)
    print(f"\n| trained by | float | Monte Carlo K={SAMPLES} | compiled for {options.target} |")
    print("|---|---|---|---|")
    for name in SYSTEMS:
        ways = found[seeds[0]][name]
        values = ([found[seed][name][way] for seed in seeds] for way in ways)
        cells = ("{:.1%} [{:.1%}, {:.1%}]".format(*interval(one)) for one in values)
        print(f"| {name} | {' | '.join(cells)} |")
    print("| raw embeddings | {:.1%} [{:.1%}, {:.1%}] | | |".format(*raw_recall(files.eval)))


if __name__ == "__main__":
    main()
