"""Compile one model twice, with 8-bit and with 4-bit weights, and put the two side by side.

    python examples/compare_two_settings.py [FOLDER]

The projectors are torch modules in memory here; files work the same way. To compare converters
instead, compile for `hermes-pcm-14nm` with `adc_bits=8` and `adc_bits=6`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

import cimtool
from cimtool.ir.surrogate import Polynomial
from cimtool.report.terminal import terminal
from cimtool.training.models.trunk import TrunkProjector

WIDTH, HIDDEN, D = 32, 64, 16


def main(folder: Path) -> None:
    # Stand-ins for a trained model and its data; see bring_your_own_checkpoint.py.
    torch.manual_seed(0)
    projector = TrunkProjector(WIDTH, HIDDEN, D).eval()
    nn.init.normal_(projector.mu.weight, std=0.5)
    surrogate = Polynomial(degree=1, coeff=(-0.1, 0.005), bias=0.0, a=0.1, b=0.0)
    rng = np.random.default_rng(0)
    text = rng.normal(size=(300, WIDTH)).astype(np.float32)
    video = text + 0.3 * rng.normal(size=text.shape).astype(np.float32)
    calibration = {"text": text[:150], "video": video[:150]}
    evaluation = {"text": text[150:], "video": video[150:]}

    # `ideal` has lossless converters and arrays of any size: what is lost is lost to rounding.
    bundles = [
        cimtool.compile(
            (projector, projector),
            surrogate,
            calibration=calibration,
            target="ideal",
            output=folder / f"weights-{bits}",
            weight_bits=bits,
        )
        for bits in (8, 4)
    ]

    # Both against the exact score; "step: ..." says which pass the loss comes from.
    found = cimtool.compare([bundle.folder for bundle in bundles], evaluation)
    print(terminal(found.document(), width=100))

    # The same as values, to decide with.
    eight, four = (report.headline.float_centred_rmse for report in found.reports)
    print(f"4-bit weights are {four / eight:.1f} times as far from the float polynomial as 8-bit.")
    assert four > 1.5 * eight


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "exports/examples"))
