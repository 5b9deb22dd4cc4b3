"""The full-size model that is measured: 1024-2048-2048-1024, random, with a degree-4 polynomial."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import in_child
from torch import nn

import cimtool
from cimtool.bundle.bundle import Bundle
from cimtool.demo.data import DemoFiles
from cimtool.training.models.trunk import TrunkProjector
from cimtool.training.towers import TwoTower

WIDTH, HIDDEN, D = 1024, 2048, 1024
CALIBRATION, ITEMS = 512, 1500
PAIRS = 2000
"""Pairs that the polynomial is fitted on: enough for its 14 coefficients."""


@contextmanager
def full_size() -> Iterator[DemoFiles]:
    """Make the model's files in a folder that goes away at the end.

    In a process of its own: what that held would count in the peak of every later child.
    """
    with tempfile.TemporaryDirectory(prefix="cimtool-benchmark-") as folder:
        files = DemoFiles.under(Path(folder))
        in_child(write, files)
        yield files


def write(files: DemoFiles) -> None:
    """Write a random model and rows that it can match: videos are texts with noise."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    text = rng.normal(size=(CALIBRATION + ITEMS, WIDTH)).astype(np.float32)
    video = text + 0.5 * rng.normal(size=text.shape).astype(np.float32)
    towers = two_towers(torch.from_numpy(text[:CALIBRATION]))
    files.projectors.parent.mkdir()
    torch.save(towers.state_dict(), files.projectors)
    np.savez(files.calibration, text=text[:CALIBRATION], video=video[:CALIBRATION])
    teacher = cimtool.teacher(
        files.projectors, files.calibration, labels="mc", pairs=PAIRS, matched=0.5, a=0.1, b=0.0
    )
    cimtool.fit(teacher, degree=4, output=files.poly)
    np.savez(files.eval, text=text[CALIBRATION:], video=video[CALIBRATION:])


def two_towers(rows: torch.Tensor) -> TwoTower:
    """Random projectors, nearly alike, whose BatchNorm has seen `rows` as if they were trained."""
    text = TrunkProjector(WIDTH, HIDDEN, D)
    for module in text.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.momentum = None  # the plain mean over the batches seen: the one below
    with torch.no_grad():
        text(rows)
        video = copy.deepcopy(text)
        for module in video.modules():
            if isinstance(module, nn.Linear):
                module.weight += 0.05 * module.weight.std() * torch.randn_like(module.weight)
    return TwoTower(text, video).eval()


def rows_of(files: DemoFiles) -> tuple[np.ndarray, np.ndarray]:
    """The items to encode and score, text and video."""
    with np.load(files.eval) as data:
        return data["text"], data["video"]


def compiled(files: DemoFiles, name: str, **choices: Any) -> Bundle:
    """Compile the model beside its files; `choices` are the target and settings."""
    bundle: Bundle = cimtool.compile(
        files.projectors,
        files.poly,
        calibration=files.calibration,
        output=files.projectors.parent / name,
        **choices,
    )
    return bundle
