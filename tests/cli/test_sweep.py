"""`cimtool sweep`: what it prints and writes, and every mistake in one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cimtool.demo.data import DemoFiles

Run = Callable[..., Any]


@pytest.fixture
def sweeping(cimtool: Run, small_trunk: DemoFiles, tmp_path: Path) -> Run:
    """Sweep the small model; options that are None are left out, lists are given often."""

    def run(*more: str, **changed: object) -> Any:
        files = small_trunk
        options: dict[str, object] = {
            "projectors": files.projectors,
            "poly": files.poly,
            "calibration": files.calibration,
            "data": files.eval,
            "grid": ["weight_bits=4,8"],
            "target": "ideal",
            "output": tmp_path / "sweep",
        }
        arguments: list[object] = []
        for name, value in (options | changed).items():
            for one in value if isinstance(value, list) else [value]:
                if one is not None:
                    arguments += [f"--{name.replace('_', '-')}", one]
        return cimtool("sweep", *arguments, *more)

    return run


def test_a_sweep_prints_a_table_and_writes_its_files(sweeping: Run, tmp_path: Path) -> None:
    ran = sweeping(budget="logit_rmse=100")
    assert (ran.status, ran.err.count("\n")) == (0, 2), "a line a point"
    assert "by an earlier run" not in ran.out
    assert "next: cimtool compile --projectors" in ran.out
    assert {file.name for file in (tmp_path / "sweep").iterdir()} == {
        "sweep.json", "references.safetensors", "points",
        "results.json", "results.csv", "pareto.html",
    }  # fmt: skip
    assert "(2 by an earlier run)" in sweeping().out


def test_json_is_one_object(sweeping: Run, tmp_path: Path) -> None:
    found = sweeping("--json", grid=["weight_bits=4", "equalise=true,false"]).json
    assert found["grid"] == {"weight_bits": [4], "equalise": [True, False]}
    assert (found["resumed"], found["failed"]) == (0, 0)
    assert found["written"][0] == str(tmp_path / "sweep" / "results.json")
    kept = json.loads((tmp_path / "sweep" / "results.json").read_text())
    assert kept["points"] == found["points"]


def test_failed_points_end_with_status_1_after_the_table(sweeping: Run) -> None:
    ran = sweeping(grid=["encoding=differential,twos-complement"], target="isaac-rram-128")
    assert ran.status == 1
    assert "2 points: 1 done (0 by an earlier run), 1 failed" in ran.out
    assert ran.sentence.endswith("sweep: 1 of 2 points failed")
    ran = sweeping(grid=["encoding=differential"], target="isaac-rram-128", budget="logit_rmse=0")
    assert ran.status == 1
    assert "no point is within logit_rmse=0" in ran.out
    assert ran.sentence.endswith("no point is within the budget logit_rmse=0")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"grid": ["weigt_bits=4"]}, 'did you mean "weight_bits"?'),
        ({"grid": ["weight_bits=99"]}, "--grid weight_bits: 99: must be an integer from 2 to 16"),
        ({"grid": ["weight_bits"]}, "expected KEY=VALUE,VALUE"),
        (
            {"grid": ["corner=ss,ff"]},
            "--grid corner: is not a grid key, as the dies of every point are read",
        ),
        ({"grid": ["time=1h,1d"]}, "give each with --time"),
        ({"grid": ["target=ideal"]}, "target is given twice"),
        ({"target": None}, "target is missing; expected either --target or --grid target="),
        ({"target": "idael"}, 'did you mean "ideal"?'),
        ({"budget": "r1=0.1"}, '--budget metric "r1" is not known'),
        ({"time": "1h"}, "--time applies only to dies; expected --trials with it"),
        ({"trials": 2, "time": "soon"}, "--time is soon; expected a time"),
        (
            {"noise_model": "neurram"},
            "--noise-model applies only to dies; expected --trials with it",
        ),
        ({"corner": "ss"}, "--corner applies only to dies; expected --trials with it"),
        ({"corner": ["ss"], "trials": 1, "target": "hermes-pcm-14nm"}, 'corner "ss" is not known'),
        ({"noise_model": "neuram", "trials": 1}, 'did you mean "neurram"?'),
        ({"min_yield": 0.9}, "--min-yield is a share of dies; expected --trials with it"),
        (
            {"min_yield": 0.9, "trials": 2},
            "--min-yield is the share of dies within a budget; expected --budget with it",
        ),
        (
            {"min_yield": 90, "trials": 2, "budget": "r1_loss=1"},
            "--min-yield is 90; expected a share",
        ),
        ({"trials": 0}, "--trials is 0; expected an integer of at least 1"),
        ({"jobs": 2, "dask": "tcp://x:1"}, "--jobs and --dask are both given"),
        ({"format": "xls"}, '"xls" is not one of csv, parquet'),
        ({"dask": "nonsense"}, "--dask nonsense: no scheduler answered"),
        (
            {"dask": "ws://127.0.0.1:8786"},
            '--dask is "ws://127.0.0.1:8786"; expected the address of a',
        ),
        ({"dask": "http://127.0.0.1:8786"}, '--dask is "http://127.0.0.1:8786"; expected'),
        ({"dask": ""}, '--dask is ""; expected the address of a scheduler'),
        ({"projectors": "no.pth"}, "no.pth"),
        ({"data": "no.npz"}, "no.npz"),
        ({"settings": "no.toml"}, "no.toml: there is no such file"),
        ({"a": -1}, "--a is -1.0; expected a number above 0"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing(
    options: dict[str, object], sentence: str, sweeping: Run, tmp_path: Path
) -> None:
    ran = sweeping(**options)
    assert (ran.status, ran.out) == (2, "")
    assert sentence in ran.sentence
    assert not (tmp_path / "sweep").exists()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"text": 1, "video": 1}, "text has 1 row; expected at least 2"),
        ({"labels": np.arange(3)}, "labels has shape [3]; expected [40], one per text"),
        ({"text_to_video": np.full(40, 40)}, "row 0 of text_to_video is 40; expected a video row"),
        ({"video": 20}, "text_to_video is missing"),
    ],
)
def test_data_that_cannot_be_measured_on_is_refused(
    change: dict[str, Any], sentence: str, sweeping: Run, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    with np.load(small_trunk.eval) as held:
        rows = {name: held[name] for name in held.files}
    cut = {k: rows[k][:v] if isinstance(v, int) else v for k, v in change.items()}
    np.savez(tmp_path / "changed.npz", **{**rows, **cut})
    ran = sweeping(data=tmp_path / "changed.npz")
    assert (ran.status, ran.out) == (2, "")
    assert sentence in ran.sentence
    assert not (tmp_path / "sweep").exists()


@pytest.mark.thorough("the library's own test is in the first tier")
def test_calibration_rows_are_refused_unless_asked(sweeping: Run, small_trunk: DemoFiles) -> None:
    ran = sweeping(data=small_trunk.calibration)
    assert ran.status == 2
    assert ran.sentence == (
        f"{small_trunk.calibration}: projectors was calibrated on 96 of its 96 text rows (0, 1, 2, "
        "3, 4, ...) and 96 of its 96 video rows (0, 1, 2, 3, 4, ...); expected unseen rows, "
        "--calibration-rows drop or allow"
    )
    assert sweeping("--calibration-rows", "allow", data=small_trunk.calibration).status == 0
