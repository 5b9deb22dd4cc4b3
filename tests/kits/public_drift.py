"""R@1 that checkpoints of public forms lose by W8A8, on made rows with true structure.

`PYTHONPATH=. python tests/kits/public_drift.py [FORM ...]` compiles for `isaac-rram-128` from 300
pairs and ranks 3,000 others. `lost` and `gained` are queries that are right in float alone and in
integers alone; in brackets the interval of their difference over queries (normal, paired). A second
line has the loss on blocks of 600 pairs, each ranked alone: what fewer pairs would have shown.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from public_checkpoints import (
    Shape,
    Tensors,
    first_right,
    matched,
    open_clip,
    paired,
    pcmepp_clip,
    pcmepp_rows,
    probvlm,
    prolip,
    siglip,
)
from safetensors.torch import save_file

from cimtool.bundle.compilation import prepare
from cimtool.simulation.simulator import Simulator

D, CALIBRATION, RANKED, BLOCK = 512, 300, 3000, 600
SHAPE = Shape(D, D, D)
ITEMS = CALIBRATION + RANKED

Made = tuple[Tensors, Mapping[str, np.ndarray]]


def made_prolip() -> Made:
    data = matched(SHAPE, ITEMS, noise=1.5)
    return prolip(SHAPE, data), data.rows()


def made_pcmepp() -> Made:
    data = matched(SHAPE, ITEMS, noise=1.5)
    return pcmepp_clip(data), pcmepp_rows(data)


def made_open_clip() -> Made:
    data = matched(SHAPE, ITEMS, noise=1.4)
    return open_clip(SHAPE, data), data.rows_of_cls()


def made_siglip() -> Made:
    data = matched(SHAPE, ITEMS, noise=1.4)
    images = (data.image_tokens[0] @ data.image.projection).astype(np.float32)
    tensors = siglip(SHAPE, data, "open_clip", 4.0, -10.0)
    return tensors, {**data.rows_of_cls(), "video": images}


def made_probvlm() -> Made:
    return probvlm(D, 256), paired(D, ITEMS, noise=2.2)


def made_probvlm_of_unit_rows() -> Made:
    return probvlm(D, 256, image_norm=1.0), paired(D, ITEMS, noise=1.9, image_norm=1.0)


FORMS: dict[str, tuple[Callable[[], Made], dict[str, Any]]] = {
    "prolip": (made_prolip, {}),
    "pcmepp": (made_pcmepp, {}),
    "open_clip": (made_open_clip, {}),
    "siglip": (made_siglip, {}),
    "probvlm": (made_probvlm, {}),
    "probvlm-csd": (made_probvlm_of_unit_rows, {"head": "csd", "a": 10.0, "b": 5.0}),
}
"""A checkpoint with its rows, and the options of the compilation."""


def told(name: str) -> None:
    """Print both lines of a form, a way each."""
    make, options = FORMS[name]
    tensors, rows = make()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.safetensors"
        save_file(tensors, file)
        calibration = {m: x[:CALIBRATION] for m, x in rows.items()}
        stages = prepare(file, calibration=calibration, target="isaac-rram-128", **options).stages
    held = [rows[m][CALIBRATION:] for m in ("text", "video")]
    before, after = (Simulator(stages[i].program).scores(*held) for i in (0, -1))
    for way, one, other in (
        ("text to image", before, after),
        ("image to text", before.T, after.T),
    ):
        right, still = (x.argmax(axis=1) == np.arange(len(x)) for x in (one, other))
        loss = 100 * (right.astype(float) - still)
        half = 1.96 * loss.std(ddof=1) / np.sqrt(len(loss))
        print(
            f"{name}, {way}: R@1 {100 * right.mean():.2f}% to {100 * still.mean():.2f}%, lost "
            f"{(right & ~still).sum()}, gained {(still & ~right).sum()}: {loss.mean():.2f} points "
            f"[{loss.mean() - half:.2f}, {loss.mean() + half:.2f}]"
        )
        blocks = [slice(i, i + BLOCK) for i in range(0, RANKED, BLOCK)]
        alone = (100 * (first_right(one[b, b]) - first_right(other[b, b])) for b in blocks)
        print("  blocks of 600: " + ", ".join(f"{loss:.2f}" for loss in alone), flush=True)


if __name__ == "__main__":
    for form in sys.argv[1:] or FORMS:
        told(form)
