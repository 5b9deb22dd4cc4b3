"""Notes of the data that a command reads: each command tells them, and tells them once."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cimtool.demo.data import DemoFiles

Run = Callable[..., Any]


@dataclass(frozen=True)
class Place:
    """A model, its bundle, a file with one modality more than is read, and a folder to write to."""

    files: DemoFiles
    bundle: Path
    data: Path
    output: Path

    @property
    def model(self) -> list[object]:
        """The options of the compiler but for the target."""
        projectors, poly, rows = self.files.projectors, self.files.poly, self.files.calibration
        return ["--projectors", projectors, "--poly", poly, "--calibration", rows]


@pytest.fixture
def place(small_trunk: DemoFiles, small_bundle: Path, tmp_path: Path) -> Place:
    data = tmp_path / "three.npz"
    arrays = dict(np.load(small_trunk.eval))
    np.savez(data, **arrays, audio=arrays["text"])
    return Place(small_trunk, small_bundle, data, tmp_path / "out")


SIZES = ("--set", "model.hidden=16", "--set", "model.width=8", "--epochs", "1", "--batch", "8")
READERS: dict[str, Callable[[Place], list[object]]] = {
    "train": lambda at: ["train", "--data", at.data, *SIZES, "-o", at.output],
    "train with validation": lambda at: [
        "train", "--data", at.files.calibration, "--validation", at.data, *SIZES, "-o", at.output,
    ],
    "teacher": lambda at: [
        "teacher", "--projectors", at.files.projectors, "--data", at.data, "--pairs", 50,
        "--a", 0.1, "--b", 0, "-o", f"{at.output}.npz",
    ],
    "simulate": lambda at: ["simulate", at.bundle, "--inputs", at.data, "-o", f"{at.output}.npz"],
    "sweep": lambda at: [
        "sweep", *at.model, "--data", at.data, "--target", "ideal", "--grid", "weight_bits=8",
        "-o", at.output,
    ],
    "tune": lambda at: [
        "tune", *at.model, "--data", at.data, "--target", "ideal", "--budget", "logit_rmse=100",
        "--weight-bits", 2, "--activation-bits", 2, "-o", f"{at.output}.toml",
    ],
    "compile": lambda at: [
        "compile", *at.model[:-1], at.data, "--target", "ideal", "--drift", "given", "--dry-run",
    ],
    "verify": lambda at: ["verify", at.bundle, "--data", at.data, "--report", at.output],
    "compare": lambda at: ["compare", at.bundle, at.bundle, "--data", at.data],
    "evaluate": lambda at: ["evaluate", at.bundle, "--data", at.data, "--resamples", 9],
    "export": lambda at: [
        "export", at.bundle, "--format", "testvectors", "--inputs", at.data, "-o", at.output,
    ],
}  # fmt: skip


@pytest.mark.thorough("more of the same kind", quick=("train", "compile", "verify"))
@pytest.mark.parametrize("reader", READERS)
def test_an_array_that_is_not_read_is_named(cimtool: Run, place: Place, reader: str) -> None:
    ran = cimtool(*READERS[reader](place))
    assert (ran.status, ran.told) == (0, "")
    said = " ".join(ran.out.split())
    assert said.count(f"{place.data}: audio is not read") == 1  # of both bundles of compare too


def test_a_gallery_may_have_its_queries_beside_it_but_nothing_else(
    cimtool: Run, compiling: Run, place: Place
) -> None:
    mapped = place.output / "mapped"
    assert not cimtool(*compiling(place.files, mapped, score_mapping="in-memory")).status
    held = place.output / "held"
    ran = cimtool("program", mapped, "--gallery", place.data, "-o", held)
    assert f"{place.data}: audio is not read" in ran.out
    ran = cimtool("program", mapped, "--gallery", place.files.eval, "-o", place.output / "other")
    assert "not read" not in ran.out
    ran = cimtool("simulate", held, "--inputs", place.data, "-o", f"{place.output}.npz", "--json")
    assert ran.json["notes"] == [f"{place.data}: audio is not read"]


def test_json_has_the_notes_as_well(cimtool: Run, place: Place) -> None:
    found = cimtool(*READERS["teacher"](place), "--json").json
    assert found["notes"] == [f"{place.data}: audio is not read"]
    plain = [place.files.eval if one == place.data else one for one in READERS["teacher"](place)]
    assert "notes" not in cimtool(*plain, "--json").json


@pytest.mark.thorough("more of the same kind", quick=("compile",))
@pytest.mark.parametrize("reader", ["compile", "sweep", "tune"])
def test_some_calibration_rows_of_zeros_are_a_warning(
    cimtool: Run, place: Place, reader: str
) -> None:
    arrays = {name: rows.copy() for name, rows in np.load(place.files.calibration).items()}
    arrays["video"][3:13] = 0
    zeros = place.data.with_name("zeros.npz")
    np.savez(zeros, **arrays)
    arguments = [zeros if one == place.files.calibration else one for one in READERS[reader](place)]
    if reader == "compile":
        arguments[6] = zeros
    ran = cimtool(*arguments)
    assert (ran.status, ran.told) == (0, "")
    said = " ".join(ran.out.split())
    sentence = (
        f"warning: {zeros}: 10 of the 96 video rows for calibration are all zeros, so the ranges "
        "come from 86"
    )
    assert said.count(sentence) == 1
    ran = cimtool(*arguments, "--json")
    assert json.dumps(ran.json).count(sentence) >= 1


@pytest.mark.parametrize("modality", ["text", "video"])
def test_calibration_rows_of_nothing_but_zeros_are_refused(
    cimtool: Run, compiling: Run, place: Place, modality: str
) -> None:
    arrays = dict(np.load(place.files.calibration))
    arrays[modality] = np.zeros_like(arrays[modality])
    zeros = place.data.with_name("zeros.npz")
    np.savez(zeros, **arrays)
    ran = cimtool(*compiling(place.files, place.output, calibration=zeros))
    assert (ran.status, ran.out) == (2, "")
    assert ran.sentence == (
        f"{zeros}: the 96 {modality} rows for calibration are all zeros, so they give no range; "
        "expected embeddings"
    )
    assert not place.output.exists()
