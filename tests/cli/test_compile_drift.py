"""`compile --drift` with goals of ranks, and what it says of data that cannot show them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cimtool.demo.data import DemoFiles
from cimtool.experiments import solved_bits

Run = Callable[..., Any]


def compiled(cimtool: Run, files: DemoFiles, folder: Path, drift: str, calibration: Path) -> Any:
    return cimtool(
        "compile", "--projectors", files.projectors, "--poly", files.poly, "--calibration",
        calibration, "--target", "isaac-rram-128", "--drift", drift, "-o", folder,
    )  # fmt: skip


@pytest.mark.thorough("a whole search for another goal")
def test_bits_are_chosen_for_a_loss_of_answers(
    cimtool: Run, small_trunk: DemoFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solved_bits, "ROUNDS", 2)
    found = compiled(cimtool, small_trunk, tmp_path / "b", "r1_loss=0.2", small_trunk.calibration)
    assert found.status == 0
    assert "bits by drift r1_loss=0.2: r1_loss is " in found.out
    assert (tmp_path / "b").is_dir()
    told = cimtool("verify", tmp_path / "b", "--data", small_trunk.eval, "--max-drift",
                   "r1_loss=0.5", "--report", tmp_path / "r")  # fmt: skip
    assert told.status == 0


def test_data_that_cannot_show_a_loss_are_one_sentence(
    cimtool: Run, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    with np.load(small_trunk.calibration) as held:
        rows = {name: held[name] for name in held.files}
    unpaired, one = tmp_path / "unpaired.npz", tmp_path / "one.npz"
    np.savez(unpaired, text=rows["text"], video=rows["video"][:-8])
    np.savez(one, rows=rows["text"])
    for drift, file, sentence in (
        ("r1_loss=0.01", small_trunk.calibration, "drift r1_loss=0.01: a loss of 0.07397 may hide"),
        ("r1_loss=1", small_trunk.calibration, "drift is r1_loss=1; expected least, given"),
        ("r1_loss=0.2", unpaired, "unpaired.npz holds no pairs that are known, so no answer is"),
        ("r1_loss=0.2", one, "one.npz holds items of one modality, so no answer is right"),
    ):
        found = compiled(cimtool, small_trunk, tmp_path / "b", drift, file)
        assert found.status == 2
        assert sentence in found.sentence
        assert not (tmp_path / "b").exists()
