"""A small model whose last layers get inputs of channels that have no value in common."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from cimtool.demo.data import DemoFiles


def with_ranges_apart(files: DemoFiles, folder: Path) -> DemoFiles:
    """`files` of layout `trunk`: behind the second norm one channel is large, another small."""
    state = torch.load(files.projectors, weights_only=True)
    for side in ("text_proj", "video_proj"):
        state[f"{side}.trunk.4.weight"][:2] *= 1e-3
        state[f"{side}.trunk.4.bias"][:2] = torch.tensor([4.0, 0.3])
    torch.save(state, folder / "apart.pth")
    return replace(files, projectors=folder / "apart.pth")
