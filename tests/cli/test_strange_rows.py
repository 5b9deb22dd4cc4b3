"""Data that are not such as the model knows, and swapped projectors: warnings of each command."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cimtool import api
from cimtool.base.errors import CimWarning
from cimtool.demo.data import DemoFiles

Run = Callable[..., Any]
SWAPPED = "with each side's rows through the other's projector"
TOLD = r"the {} rows are {} than those that calibrated projectors \(median norm .*"


def scaled(file: Path, output: Path, by: dict[str, float]) -> Path:
    """The rows of a file, each modality `by` so much larger."""
    with np.load(file) as held:
        np.savez(output, **{name: rows * by.get(name, 1) for name, rows in held.items()})
    return output


def one_line(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.thorough("the same by every command")
@pytest.mark.filterwarnings("default")  # commands print them; elsewhere in tests they are errors
@pytest.mark.parametrize(
    ("by", "told"),
    [
        (
            {"video": 1 / 127},
            TOLD.format("video", r"1[1-4]\d times smaller") + " few steps of the inputs",
        ),
        (
            {"text": 5.0},
            TOLD.format("text", r"[45]\.\d+ times larger") + " beyond the calibrated range",
        ),
    ],
)
def test_every_command_says_it(
    by: dict[str, float],
    told: str,
    cimtool: Run,
    small_bundle: Path,
    small_trunk: DemoFiles,
    tmp_path: Path,
) -> None:
    data = scaled(small_trunk.eval, tmp_path / "d.npz", by)
    for words in (
        ("simulate", small_bundle, "--inputs", data, "-o", tmp_path / "s.npz"),
        ("evaluate", small_bundle, "--data", data),
        ("verify", small_bundle, "--data", data, "--report", tmp_path / "report"),
    ):
        ran = cimtool(*words)
        assert ran.status == 0
        assert len(re.findall(f"warning: {data}: {told}", one_line(ran.out))) == 1
    report = one_line((tmp_path / "report/report.md").read_text())
    assert " than those that calibrated projectors (median norm" in report
    with pytest.warns(CimWarning, match=told):
        api.load(small_bundle).scores(data)


def test_a_gallery_in_a_file_of_its_own_says_it(
    small_bundle: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    with np.load(small_trunk.eval) as held:
        np.save(tmp_path / "codes.npy", np.round(20 * held["video"]).astype(np.float32))
    with pytest.warns(CimWarning, match=r"codes\.npy: the video rows are \d\d\.\d times larger"):
        api.encode(small_bundle, tmp_path / "codes.npy", output=tmp_path / "gallery")


@pytest.mark.thorough("a compilation and a report a kind of rows")
def test_compile_and_verify_say_it(
    cimtool: Run, compiling: Run, small_trunk: DemoFiles, small_bundle: Path, tmp_path: Path
) -> None:
    content = torch.load(small_trunk.projectors, weights_only=True)
    other = {"text_proj": "video_proj", "video_proj": "text_proj"}
    swapped = {}
    for key, tensor in content.items():
        side, rest = key.split(".", 1)
        swapped[f"{other[side]}.{rest}"] = tensor
    torch.save(swapped, tmp_path / "projectors.pth")
    files = replace(small_trunk, projectors=tmp_path / "projectors.pth")
    ran = cimtool(*compiling(files, tmp_path / "bundle"))
    assert ran.status == 0
    told = f"warning: {small_trunk.calibration}: a matched pair scores above "
    assert told in one_line(ran.out)
    assert one_line(ran.out).count(SWAPPED) == 1
    ran = cimtool("verify", tmp_path / "bundle", "--data", small_trunk.eval)
    assert one_line(ran.out).count(SWAPPED) == 1
    assert SWAPPED not in one_line(cimtool("verify", small_bundle, "--data", small_trunk.eval).out)
    assert SWAPPED in " ".join(api.load(tmp_path / "bundle").bundle.manifest["notes"])
