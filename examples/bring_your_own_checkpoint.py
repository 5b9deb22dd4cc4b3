"""Compile a checkpoint of your own, score with the bit-accurate simulator, and verify the bundle.

    python examples/bring_your_own_checkpoint.py [FOLDER]

What it needs: a checkpoint, a polynomial, and embeddings to calibrate on. This script makes small
stand-ins for all three; put your files in their place.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

import cimtool

WIDTH, HIDDEN, D = 32, 64, 16


class Projector(nn.Module):
    """Layout `trunk`: Linear-BatchNorm-ReLU twice, then mu and logvar. The names are free."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(WIDTH, HIDDEN), nn.BatchNorm1d(HIDDEN), nn.ReLU(),
            nn.Linear(HIDDEN, HIDDEN), nn.BatchNorm1d(HIDDEN), nn.ReLU(),
        )  # fmt: skip
        self.mu = nn.Linear(HIDDEN, D)
        self.logvar = nn.Linear(HIDDEN, D)
        nn.init.normal_(self.mu.weight, std=0.5)
        nn.init.constant_(self.logvar.bias, -3.0)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.layers(x)
        return self.mu(hidden), self.logvar(hidden)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)

    # 1. The checkpoint: both projectors in one file that `torch.load(weights_only=True)` reads.
    # Text and video share their weights here, which makes untrained projectors match something.
    torch.manual_seed(0)
    projector = Projector().eval()
    state = {"text_proj": projector.state_dict(), "video_proj": projector.state_dict()}
    torch.save(state, folder / "mine.pth")

    # 2. The polynomial: logit = bias + -0.1 ed + 0.005 vd, the first two terms of the teacher's
    # log E[sigmoid(-a D)] at a = 0.1. `cimtool fit` makes better ones, up to degree 8.
    surrogate = {"degree": 1, "coeff": [-0.1, 0.005], "bias": 0.0, "a": 0.1, "b": 0.0}
    (folder / "poly.json").write_text(json.dumps(surrogate))

    # 3. Embeddings: row i of the texts belongs to row i of the videos.
    rng = np.random.default_rng(0)
    text = rng.normal(size=(500, WIDTH)).astype(np.float32)
    video = text + 0.3 * rng.normal(size=text.shape).astype(np.float32)
    np.savez(folder / "calibration.npz", text=text[:200], video=video[:200])
    np.savez(folder / "evaluation.npz", text=text[200:], video=video[200:])

    # 4. Compile. Everything that a target decides can be overridden: try adc_bits=6.
    bundle = cimtool.compile(
        folder / "mine.pth",
        folder / "poly.json",
        calibration=folder / "calibration.npz",
        target="isaac-rram-128",
        output=folder / "mine@isaac-rram-128",
        say=print,
    )

    # 5. Score on the simulator: the same integers that the hardware computes.
    matcher = cimtool.load(bundle.folder)
    queries = matcher.encode_text(text[200:203])
    gallery = matcher.encode_video(video[200:])
    logits = matcher.score(queries, gallery)
    print(f"features of a text: {', '.join(f'{k} {v.shape}' for k, v in queries.items())}")
    best = logits.argmax(axis=1)
    print(f"best videos of the first three texts: {best}")
    assert best.tolist() == [0, 1, 2]

    # 6. Verify: what each step cost, and whether simulator and ONNX Runtime agree to the last bit.
    report = cimtool.verify(bundle.folder, folder / "evaluation.npz")
    for sentence in report.headline.sentences:
        print(sentence)
    differing = sum(one.differing for one in report.checks.bits)
    print(f"values that differ between implementations: {differing}")
    assert differing == 0
    print(f"the whole report: {bundle.folder / 'report.html'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "exports/examples"))
