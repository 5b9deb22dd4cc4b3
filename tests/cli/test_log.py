"""Progress of long work in a log, which is no terminal: a line a part."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cimtool.cli import output
from cimtool.demo.data import DemoFiles

Run = Callable[..., Any]


def lines(ran: Any) -> list[str]:
    """The lines of the error stream without their seconds."""
    assert ran.status == 0, ran.err
    found = [re.fullmatch(r" *[0-9]+\.[0-9] s  (.*)", line) for line in ran.err.splitlines()]
    assert all(found), ran.err
    return [one[1] for one in found if one]


def training(files: DemoFiles, folder: Path) -> list[object]:
    sizes = ["--set", "model.hidden=16", "--batch", 16, "--epochs", 2]
    return ["train", "--data", files.calibration, "-o", folder, *sizes]


def of_model(files: DemoFiles) -> list[object]:
    return ["--projectors", files.projectors, "--poly", files.poly, "--calibration",
            files.calibration, "--data", files.eval, "--target", "isaac-rram-128"]  # fmt: skip


def test_training_has_a_line_an_epoch(cimtool: Run, small_trunk: DemoFiles, tmp_path: Path) -> None:
    command = training(small_trunk, tmp_path / "run")
    found = lines(cimtool(*command))
    assert [re.split("[:;]", one)[0] for one in found] == ["start", "epoch 1 of 2", "epoch 2 of 2"]
    on = cimtool(*training(small_trunk, tmp_path / "run"), "--resume", "--json")
    assert on.json["best_epoch"] >= 0
    grid = ["--grid", "seed=1,2", "--test", "0.2"]
    found = lines(cimtool(*training(small_trunk, tmp_path / "grid"), *grid))
    assert len(found) == 6
    assert found[3].startswith("point 2 of 2: start;")


def test_fine_tuning_has_a_line_an_epoch(
    cimtool: Run, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    start = ["--start", small_trunk.projectors, "--poly", small_trunk.poly]
    given = [*start, "--data", small_trunk.train, "--calibration", small_trunk.calibration]
    given += ["--hardware", "ideal", "--batch", 32, "--epochs", 1, "-o", tmp_path / "run"]
    assert len(lines(cimtool("train", *given))) == 2


@pytest.mark.thorough("waits for the log's seconds")
def test_tuning_has_a_line_a_choice(cimtool: Run, small_trunk: DemoFiles, tmp_path: Path) -> None:
    more = ["--budget", "logit_rmse=1", "-o", tmp_path / "bits.toml"]
    found = lines(cimtool("tune", *of_model(small_trunk), *more))
    probes = [one for one in found if one.startswith("probe ")]
    checks = [one for one in found if re.match(r"\d+ moves, \d+\. check: (not )?kept$", one)]
    assert probes
    assert checks
    assert found == probes + checks


@pytest.mark.thorough("a sweep more")
def test_a_sweep_has_a_line_a_point(cimtool: Run, small_trunk: DemoFiles, tmp_path: Path) -> None:
    more = ["--grid", "weight_bits=5,6", "-o", tmp_path / "sweep"]
    found = lines(cimtool("sweep", *of_model(small_trunk), *more))
    assert [one.partition(";")[0] for one in found] == ["point 1 of 2: done", "point 2 of 2: done"]


def test_a_gallery_has_a_line_a_shard(cimtool: Run, small_bundle: Path, small_trunk: DemoFiles,
                                      tmp_path: Path) -> None:  # fmt: skip
    folder = tmp_path / "gallery"
    whole = ["--gallery", small_trunk.calibration, "--items-per-shard", 60, "-o", folder]
    found = lines(cimtool("encode", small_bundle, *whole))
    assert [one[:12] for one in found] == ["shard 1 of 2", "shard 2 of 2"]
    asked = ["--gallery", folder, "--queries", small_trunk.eval, "--top", 2]
    found = lines(cimtool("search", small_bundle, *asked, "-o", tmp_path / "best.npz"))
    assert [one[:12] for one in found] == ["shard 1 of 2", "shard 2 of 2"]


def test_any_other_command_has_a_line_now_and_then(
    cimtool: Run,
    small_bundle: Path,
    small_trunk: DemoFiles,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = ["simulate", small_bundle, "--inputs", small_trunk.eval, "-o", tmp_path / "s.npz"]
    assert lines(cimtool(*command)) == []
    monkeypatch.setattr(output, "LOG_SECONDS", 0)  # as if every line came after long work
    assert len(lines(cimtool(*command))) >= 2
