"""Cosine gap and R@1 of the cross-attention block by its losses and contexts, float and compiled.

    python benchmarks/cross_attention.py --data PAIRS.npz [--epochs N] [--learning-rate X]
                                         [--seeds N] [--videos N]

A share of the videos is trained on and calibrates; all figures are of the others, means over the
seeds, which draw the split too. The last epoch is taken: nothing is chosen. `gap, paired` is with
partners as contexts, where the right answer is in the features; all else is as deployed.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import parser, report, use_threads

import cimtool
from cimtool.base.arrays import Array
from cimtool.bundle.bundle import Bundle
from cimtool.emit.runtime import Session
from cimtool.loading.checkpoint import read_torch
from cimtool.loading.embeddings import Embeddings, read_embeddings
from cimtool.loading.source import ModelSource
from cimtool.reference.retrieval import retrieval
from cimtool.reference.truth import truth_of
from cimtool.simulation.simulator import Simulator
from cimtool.training.models.cross_attention import CrossAttentionModel
from cimtool.training.towers import all_cosines, cosine_gap
from cimtool.training.trainer import LAST

TARGETS = ("ideal", "isaac-rram-128", "hermes-pcm-14nm")
CONTEXTS: Mapping[str, Mapping[str, bool]] = {
    "own": {},
    "partner": {"paired": True},
    "partner, updated": {"paired": True, "updated": True},
}
"""Options of the model by what an item attends to; a text to the video as the block left it."""
TRAINED = 0.6
"""Share of the videos that is trained on."""

Part = Mapping[str, Any]


def parts(rows: Embeddings, seed: int, limit: int) -> tuple[Part, Part]:
    """Texts with their videos to train on, and to measure on; no video is in both."""
    drawn = np.random.default_rng(seed).permutation(np.unique(rows.right))[:limit]
    cut = round(TRAINED * len(drawn))
    return part(rows, drawn[:cut]), part(rows, drawn[cut:])


def part(rows: Embeddings, videos: Array) -> Part:
    """These videos and all texts of theirs."""
    kept = np.sort(videos)
    mine = np.isin(rows.right, kept)
    right = np.searchsorted(kept, rows.right[mine])
    return {"text": rows.text[mine], "video": rows.video[kept], "text_to_video": right}


def paired_gap(checkpoint: Path, data: Part, updated: bool) -> float:
    """The gap of features whose context is the item's partner."""
    saved = read_torch(checkpoint)
    width = data["text"].shape[1]
    towers = CrossAttentionModel(paired=True, updated=updated).build(width, width).eval()
    state = {key: torch.from_numpy(value) for key, value in saved["text_proj"].items()}
    towers.text_proj.load_state_dict(state)
    right = torch.from_numpy(data["text_to_video"])
    with torch.no_grad():
        text, video = towers(torch.from_numpy(data["text"]), torch.from_numpy(data["video"])[right])
    return float(cosine_gap(all_cosines(text.mu, video.mu), right))


def figures(scores: Array, right: Array) -> dict[str, float]:
    """Gap and R@1 both ways of scores [n, m]; a video's best text counts, ties against it."""
    own = scores[np.arange(len(right)), right]
    wrong = right[:, None] != np.arange(scores.shape[1])
    found = retrieval(scores, truth_of(right, None, scores.shape[1]))
    return {
        "gap": float(own.mean() - scores[wrong].mean()),
        "R@1 t>v %": 100 * found["r1_text_to_video"],
        "R@1 v>t %": 100 * found["r1_video_to_text"],
    }


def differing(bundle: Bundle, data: Part) -> tuple[Array, int]:
    """Scores of the simulator, and how many values of ONNX Runtime are others."""
    simulator = Simulator(bundle.program)
    count, sides = 0, []
    for modality in ("text", "video"):
        features = simulator.encode(modality, data[modality])
        ran = Session(bundle.folder / f"{modality}.onnx").encode(data[modality])
        count += sum(int((ran[name] != value).sum()) for name, value in features.items())
        sides.append(features)
    text, video = sides
    scores = simulator.score(text, video)
    ran_scores = Session(bundle.folder / "score.onnx").score(text, video)
    return scores, count + int((ran_scores != scores).sum())


def run(
    loss: str, context: str, train: Part, unseen: Part, seed: int, options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Rows of one training: float, and compiled for each target."""
    name = {"loss": loss, "context": context}
    given = CONTEXTS[context]
    right = unseen["text_to_video"]
    with tempfile.TemporaryDirectory() as folder:
        trained = cimtool.train(
            train,
            Path(folder) / "run",
            model="cross-attention",
            loss=loss,
            epochs=options.epochs,
            learning_rate=options.learning_rate,
            seed=seed,
            options={f"model.{name}": value for name, value in given.items()},
        )
        last = trained.folder / LAST
        program = ModelSource(last).load().program
        floats = figures(Simulator(program).scores(unseen["text"], unseen["video"]), right)
        leaked = paired_gap(last, unseen, "updated" in given)
        yield {**name, "build": "float", **floats, "gap, paired": leaked, "differing": 0}
        for target in TARGETS:
            output = Path(folder) / target
            bundle = cimtool.compile(last, calibration=train, target=target, output=output)
            scores, count = differing(bundle, unseen)
            rest = {"gap, paired": np.nan, "differing": count}
            yield {**name, "build": target, **figures(scores, right), **rest}


def raw(unseen: Part) -> dict[str, float]:
    """The embeddings as they are."""
    cosines = all_cosines(torch.from_numpy(unseen["text"]), torch.from_numpy(unseen["video"]))
    return figures(cosines.numpy(), unseen["text_to_video"])


def means(rows: list[list[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """Means over seeds, the count of differing values as a sum."""
    for same in zip(*rows, strict=True):
        first = same[0]
        yield {
            key: value
            if isinstance(value, str)
            else (sum if key == "differing" else np.mean)([row[key] for row in same])
            for key, value in first.items()
        }


def main() -> None:
    """Print the table."""
    given = parser(__doc__ or "", 1)
    given.add_argument("--data", type=Path, required=True, metavar="NPZ")
    given.add_argument("--epochs", type=int, default=20)
    given.add_argument("--learning-rate", type=float, default=1e-4)
    given.add_argument("--seeds", type=int, default=3)
    given.add_argument("--videos", type=int, default=1000, help="at most so many videos are used")
    options = given.parse_args()
    use_threads()
    rows = read_embeddings(options.data)
    found = []
    for seed in range(options.seeds):
        train, unseen = parts(rows, seed, options.videos)
        plain = {"loss": "none", "context": "none", "build": "embeddings", **raw(unseen)}
        own = [{**plain, "gap, paired": np.nan, "differing": 0}]
        for loss in ("clip", "hnac"):
            for context in CONTEXTS:
                own += run(loss, context, train, unseen, seed, options)
        found.append(own)
    report("cross_attention", list(means(found)), options.json)


if __name__ == "__main__":
    main()
