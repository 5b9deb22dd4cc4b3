"""Data that say `image`: tables and sentences of every command say so too."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cimtool.training.demo_data import DemoFiles

Run = Callable[..., Any]
LAYERS = ("video.fc1", "video.fc2", "video.mu", "video.logvar")


@pytest.fixture
def images(small_trunk: DemoFiles, tmp_path: Path) -> DemoFiles:
    """The small model, with its data under the names text and image."""
    for name in ("calibration", "eval"):
        with np.load(getattr(small_trunk, name)) as data:
            np.savez(tmp_path / f"{name}.npz", text=data["text"], image=data["video"])
    calibration, eval_ = tmp_path / "calibration.npz", tmp_path / "eval.npz"
    return replace(small_trunk, calibration=calibration, eval=eval_)


def require_images(text: str) -> str:
    """The text as one line, which says image and names videos in layers alone."""
    said = " ".join(text.split())
    assert "image" in said
    for layer in LAYERS:
        text = text.replace(layer, "")
    assert "video" not in text
    return said


def test_costs_and_reports(images: DemoFiles, cimtool: Run, compiling: Run, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    assert cimtool(*compiling(images, bundle, target="isaac-rram-128")).status == 0
    assert "one image" in require_images(cimtool("cost", bundle, "-o", tmp_path).out)
    said = require_images(
        cimtool("verify", bundle, "--data", images.eval, "--report", tmp_path).out
    )
    assert "40 texts x 40 images of" in said
    assert "t>i" in said
    assert "image to text" in require_images((tmp_path / "report.md").read_text())
    assert json.loads((tmp_path / "report.json").read_text())["modalities"] == ["text", "image"]


def test_sweeps(images: DemoFiles, cimtool: Run, tmp_path: Path) -> None:
    swept = cimtool(
        *("sweep", "--projectors", images.projectors, "--poly", images.poly),
        *("--calibration", images.calibration, "--data", images.eval, "--target", "ideal"),
        *("--grid", "weight_bits=8", "--output", tmp_path / "sweep"),
    )
    said = require_images(swept.out)
    assert "40 texts x 40 images of" in said
    assert "image to text" in said
    assert "40 texts x 40 images" in (tmp_path / "sweep" / "pareto.html").read_text()
