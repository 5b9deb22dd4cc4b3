"""Score embeddings with a bundle's ONNX files alone: numpy and onnxruntime, without cimtool.

    python examples/use_the_onnx_files_alone.py FOLDER EMBEDDINGS.npz [-o SCORES.npz]

FOLDER holds text.onnx, video.onnx and score.onnx; EMBEDDINGS.npz the arrays `text` [n, width] and
`video` (or `image`) [m, width]. Layouts that expect rows of unit norm (`two-branch`) expect them
here as well.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import onnxruntime


def load(file: Path) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("embeddings", type=Path, metavar="EMBEDDINGS.npz")
    parser.add_argument("-o", "--output", type=Path, default=Path("scores.npz"))
    arguments = parser.parse_args()

    with np.load(arguments.embeddings) as data:
        name = "image" if "image" in data else "video"
        text, video = data["text"].astype(np.float32), data[name].astype(np.float32)

    # Items first: each is encoded once, to integers that are small enough to keep. A gallery is
    # encoded beforehand and stored.
    text_features = load(arguments.folder / "text.onnx").run(None, {"x": text})
    video_features = load(arguments.folder / "video.onnx").run(None, {"x": video})

    # score.onnx takes text's outputs, then video's, in the order in which they were returned.
    scorer = load(arguments.folder / "score.onnx")
    names = [port.name for port in scorer.get_inputs()]
    feeds = dict(zip(names, [*text_features, *video_features], strict=True))
    (scores,) = scorer.run(None, feeds)

    assert scores.shape == (len(text), len(video))
    assert np.isfinite(scores).all()
    assert "cimtool" not in sys.modules
    np.savez(arguments.output, scores=scores)
    best = scores.argmax(axis=1)
    for query in range(min(3, len(scores))):
        print(f"text {query}: {name} {best[query]}, logit {scores[query, best[query]]:.4f}")
    print(f"wrote {arguments.output}: scores {scores.dtype} {list(scores.shape)}")


if __name__ == "__main__":
    main()
