"""Time and memory of scoring all pairs, beside the naive broadcast and Monte Carlo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import (
    arguments,
    forget_peak,
    in_child,
    peak_bytes,
    report,
    side_by_side,
    trimmed_bytes,
    use_threads,
)
from model import D, compiled, full_size, rows_of

import cimtool
from cimtool.emit.runtime import Session
from cimtool.ir.program import as_inputs, features_of
from cimtool.reference.montecarlo import monte_carlo
from cimtool.reference.statistics import Gaussians

SECONDS = 2
"""Limits of scoring 1,500 x 1,500 pairs."""

OUTPUTS = 3
"""Most memory of scoring, as a multiple of the scores."""

BROADCAST_TEXTS = 16
"""Texts for which the broadcast scores all videos; its time is extrapolated to all texts."""


def broadcast(text: Gaussians, video: Gaussians) -> torch.Tensor:
    """The naive way in float32: statistics from n x m x d arrays, then a polynomial."""
    mu_t, s_t, mu_v, s_v = (
        torch.from_numpy(x).float() for x in (text.mu, text.s, video.mu, video.s)
    )
    square = (mu_t[:, None] - mu_v[None]).square()
    s = s_t[:, None] + s_v[None]
    ed = (square + s).sum(-1)
    vd = (2 * s * s + 4 * square * s).sum(-1)
    return -0.1 * ed + 0.005 * vd


COPIES = 8
"""The items so many times over: memory is measured where the scores are larger than the items."""


def growth(bundle: Path, features: Path) -> tuple[int, int]:
    """Bytes of the scores in a new process, and the peak above what it held before."""
    use_threads()
    matcher = cimtool.load(bundle)
    program = matcher.simulator.program
    projectors = program.text, program.video
    with np.load(features) as stored:
        text, video = (
            {k: np.concatenate([v] * COPIES) for k, v in features_of(graph, stored).items()}
            for graph in projectors
        )
    matcher.score({k: v[:2] for k, v in text.items()}, {k: v[:2] for k, v in video.items()})
    before = trimmed_bytes()
    forget_peak()
    scores = matcher.score(text, video)
    return scores.nbytes, peak_bytes() - before


def main() -> None:
    options = arguments(str(__doc__), rounds=3)
    use_threads()
    with full_size() as files:
        folder = in_child(compiled, files, "ideal").folder
        text_rows, video_rows = rows_of(files)
        matcher = cimtool.load(folder)
        text, video = matcher.encode_text(text_rows), matcher.encode_video(video_rows)
        features = folder.parent / "features.npz"
        arrays: dict[str, Any] = {**as_inputs("text", text), **as_inputs("video", video)}
        np.savez(features, **arrays)
        output, risen = in_child(growth, folder, features)
        session = Session(folder / "score.onnx", threads=2)
        # What the slow ways score: any Gaussians of this width will do.
        texts_of, videos_of = (Gaussians(x["mu"] / 16, x["s"] / 1024) for x in (text, video))
        few = texts_of[:BROADCAST_TEXTS]
        taken = side_by_side(
            {
                "cimtool": lambda: matcher.score(text, video),
                "onnx": lambda: session.score(text, video),
                "broadcast": lambda: broadcast(few, videos_of),
                "mc": lambda: monte_carlo(texts_of, videos_of, a=0.1, b=0.0, samples=10),
            },
            options.rounds,
        )
    texts, videos = len(text_rows), len(video_rows)
    seconds = {
        "cimtool": taken["cimtool"],
        "score.onnx in onnxruntime": taken["onnx"],
        f"naive broadcast (from {BROADCAST_TEXTS} texts)": taken["broadcast"] * texts / len(few),
        "Monte Carlo K=10": taken["mc"],
    }
    rows = [
        {
            "way": way,
            f"{texts} x {videos}, s": s,
            "million pairs/s": texts * videos / s / 1e6,
            "times cimtool's": s / seconds["cimtool"],
        }
        for way, s in seconds.items()
    ]
    notes = [
        f"The limit is {SECONDS} s; cimtool takes {seconds['cimtool']:.2f} s.",
        f"Scoring {COPIES * texts:,} x {COPIES * videos:,} pairs takes {risen / 1e9:.2f} GB, "
        f"{risen / output:.2f} times the scores (limit {OUTPUTS}); one N x M x d array of float32 "
        f"would be {texts * videos * COPIES**2 * D * 4 / 1e9:.0f} GB.",
    ]
    report("score", rows, options.json, notes)


if __name__ == "__main__":
    main()
