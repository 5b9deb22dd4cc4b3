"""The command line that builds a point: what it compiles is the point."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cimtool import cli
from cimtool.bundle.bundle import read_bundle
from cimtool.demo.data import DemoFiles
from cimtool.experiments.sweep import Sweep
from cimtool.hardware.target import load_target
from cimtool.ir.heads.points import Cosine

RunSweep = Callable[..., Sweep]


@pytest.mark.thorough("more of the same kind", quick=("grid0", "grid1"))
@pytest.mark.parametrize(
    ("grid", "files"),
    [
        ({"weight_bits": [6], "adc_bits": ["lossless"], "equalise": [False]}, set()),
        ({"target": ["puma-rram-128"], "array": ["64x64"], "bias_correction": [True]}, set()),
        ({"target.rows_active": [64], "target.adc.bits": [7]}, {"chosen-target.toml"}),
        ({'layers."text.*".weight_bits': [5], "adc_bits": [7]}, {"chosen-settings.toml"}),
    ],
)
def test_the_command_compiles_the_point(
    grid: dict[str, list[Any]], files: set[str], sweep_small: RunSweep, tmp_path: Path
) -> None:
    settings = tmp_path / "own.toml"
    settings.write_text('feature_bits = 7\n[layers."text.fc*"]\nadc_bits = 6\n')
    found = sweep_small(tmp_path / "s", grid, budget={"r1_loss": 1.0}, settings=settings)
    assert found.chosen is not None
    assert {file.name for file in found.written} - {
        "results.json",
        "results.csv",
        "pareto.html",
    } == files
    words = shlex.split(found.chosen.command)
    assert words[0] == "cimtool"
    assert cli.run([*words[1:], "-o", str(tmp_path / "bundle")]) == 0
    bundle = read_bundle(tmp_path / "bundle")
    (point,) = found.points
    assert point.build is not None
    assert bundle.settings == point.build.settings
    assert bundle.target.name == point.build.target.name
    assert bundle.target.array == point.build.target.array


def test_the_command_keeps_the_noise_model_of_a_changed_target(
    sweep_small: RunSweep, tmp_path: Path
) -> None:
    noise = tmp_path / "noise.toml"
    noise.write_text('source = "a test"\ng_max = 20.0\n[stuck]\np_on = 1e-7\n')
    found = sweep_small(
        tmp_path / "s", {"target.p_off": [1e-7]}, noise_model=noise, trials=1,
        budget={"r1_loss": 1.0},
    )  # fmt: skip
    assert found.chosen is not None
    assert "--target" in found.chosen.command
    kept = load_target(tmp_path / "s" / "chosen-target.toml").noise
    assert kept is not None
    assert kept.g_max == 20.0
    assert kept.mechanisms[0].model_dump() == {"p_on": 1e-7, "p_off": 1e-7, "spare_columns": 0}


def test_the_command_names_the_head(sweep_small: RunSweep, tmp_path: Path) -> None:
    found = sweep_small(
        tmp_path / "s", {"weight_bits": [6]}, poly=None, head="cosine", budget={"r1_loss": 1.0}
    )
    assert (found.reference, list(found.baselines)) == (
        "cosine",
        ["cosine", "raw rows, int8"],
    )
    metrics = found.outcomes[0].metrics
    assert metrics["logit_rmse"] == pytest.approx(metrics["float_rmse"])
    assert metrics["float_rmse"] > 0
    assert found.chosen is not None
    assert cli.run([*shlex.split(found.chosen.command)[1:], "-o", str(tmp_path / "bundle")]) == 0
    assert read_bundle(tmp_path / "bundle").model.head == Cosine()


def test_arrays_have_no_command(
    sweep_small: RunSweep, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    with np.load(small_trunk.calibration) as held:
        arrays = {name: held[name] for name in held.files}
    grid, budget = {"weight_bits": [6]}, {"r1_loss": 1.0}
    found = sweep_small(tmp_path / "s", grid, budget=budget, calibration=arrays)
    assert found.chosen is not None
    assert found.chosen.index is not None
    assert found.chosen.command == ""
