"""`cimtool tune`: every mistake in one sentence, and nothing written."""

from __future__ import annotations

import json
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cimtool.demo.data import DemoFiles


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"budget": "logit_rmse=little"}, '--budget logit_rmse: "little" is not a finite number'),
        ({"budget": "rmse=1"}, '--budget metric "rmse" is not known'),
        ({"objective": "array"}, '--objective cost "array" is not known: arrays, convers'),
        ({"objective": "arrays,arrays"}, "--objective arrays is given twice; expected one weight"),
        ({"gallery": "0"}, "gallery"),
        ({"target": "idael"}, 'did you mean "ideal"?'),
        ({"weight-rounding": "gtpq"}, "gptq"),
        ({"grid": "cell_bits=1,2"}, '--grid key "cell_bits" is not known'),
        ({"grid": "adc_bits=0"}, "--adc-bits is 0; expected an integer from 1 to 16"),
        ({"budget": "logit_rmse"}, "--budget logit_rmse: expected METRIC=VALUE, such as"),
        ({"budget": "logit_rmse=nan"}, '--budget logit_rmse: "nan" is not a finite number'),
        ({"budget": "logit_rmse=1e-9"}, "--budget logit_rmse=1e-09: the highest bits give 0."),
        ({"projectors": "none.pth"}, "none.pth: there is no such file"),
        ({"poly": "none.json"}, "none.json: there is no such file"),
        ({"calibration": "none.npz"}, "none.npz: there is no such file"),
        ({"data": "none"}, "none: there is no such file"),
        ({"settings": "none.toml"}, "none.toml: there is no such file"),
    ],
)
def test_a_mistake_is_one_sentence(
    changed: dict[str, str],
    sentence: str,
    cimtool: Callable[..., Any],
    small_trunk: DemoFiles,
    tmp_path: Path,
) -> None:
    options: dict[str, object] = {
        "projectors": small_trunk.projectors,
        "poly": small_trunk.poly,
        "calibration": small_trunk.calibration,
        "data": small_trunk.eval,
        "target": "ideal",
        "budget": "logit_rmse=1",
        "output": tmp_path / "bits.toml",
    }
    flat = [part for key, value in (options | changed).items() for part in (f"--{key}", value)]
    ran = cimtool("tune", *flat)
    assert (ran.status, ran.out) == (2, "")
    assert sentence in ran.sentence
    assert not list(tmp_path.iterdir())


@pytest.mark.thorough("a whole tuning")
def test_judgements_are_taken_from_the_command_line(
    cimtool: Callable[..., Any], small_trunk: DemoFiles, tmp_path: Path
) -> None:
    qrels = tmp_path / "q.txt"
    qrels.write_text("".join(f"{i} 0 {39 - i} 1\n" for i in range(30)))
    ran = cimtool(
        "tune", "--projectors", small_trunk.projectors, "--poly", small_trunk.poly,
        "--calibration", small_trunk.calibration, "--data", small_trunk.eval, "--qrels", qrels,
        "--target", "ideal", "--budget", "map_loss=1", "--weight-bits", 2, "--activation-bits", 2,
        "-o", tmp_path / "bits.toml",
    )  # fmt: skip
    assert ran.status == 0, ran.err
    assert "q.txt grades above 0, 30 pairs of 30 texts" in " ".join(ran.out.split())


@pytest.mark.thorough("a whole tuning; the command's own test is in the first tier")
def test_converters_and_rows_of_all_layers_are_varied_within_the_budget(
    cimtool: Callable[..., Any], small_trunk: DemoFiles, tmp_path: Path
) -> None:
    """Converters of 3 bits cost less and break the budget; those of 5 bits keep it."""
    written = tmp_path / "bits.toml"
    ran = cimtool(
        "tune", "--projectors", small_trunk.projectors, "--poly", small_trunk.poly,
        "--calibration", small_trunk.calibration, "--data", small_trunk.eval,
        "--target", "isaac-rram-128", "--budget", "logit_rmse=8", "--objective", "encoding_energy",
        "--grid", "references=column", "--grid", "rows_active=32", "--grid", "adc_bits=3,5",
        "--weight-bits", 2, "--activation-bits", 2, "--input-bits", 4, "--json", "-o", written,
    )  # fmt: skip
    assert ran.status == 0, ran.err
    few, more = json.loads(ran.out)["starts"]
    assert few["values"] == {"references": "column", "rows_active": 32, "adc_bits": 3}
    assert (few["cost"], few["chosen"]) == ({}, False)
    assert more["chosen"]
    assert more["cost"]["encoding_energy"] > 0
    assert more["metrics"]["logit_rmse"] < 8 < few["metrics"]["logit_rmse"]
    settings = tomllib.loads(written.read_text())
    assert more["values"].items() <= settings.items()
    command = shlex.split(json.loads(ran.out)["command"])
    assert command == [
        *("cimtool", "compile", "--projectors", str(small_trunk.projectors)),
        *("--poly", str(small_trunk.poly), "--calibration", str(small_trunk.calibration)),
        *("--target", "isaac-rram-128", "--settings", str(written), "--drift", "given"),
    ]
