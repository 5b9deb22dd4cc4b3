"""`cimtool noise fit`: a model's file from column sums, and nothing from what cannot be fitted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cimtool.hardware.noise.spec import load_noise

SUMS = "target,rows,columns,mean,deviation\n10,64,500,641,4.1\n20,64,500,1279,7.9\n"


def test_the_model_is_printed_and_written(cimtool: Callable[..., Any], tmp_path: Path) -> None:
    data, model = tmp_path / "sums.csv", tmp_path / "mine.toml"
    data.write_text(SUMS)
    lines = cimtool("noise", "fit", data, "-o", model).out.splitlines()
    assert lines[0] == "1,000 measurements of 2 targets up to 20 uS"
    assert lines[3].split()[0] == "programming.sigma[0]"
    assert lines[-2].startswith("warning: 2 targets leave programming.sigma no freedom: ")
    assert lines[-1] == f"wrote {model}"
    assert load_noise(model).g_max == 20
    first = model.read_bytes()
    found = cimtool("noise", "fit", data, "-o", model, "--json").json
    assert [one["key"] for one in found["parameters"]] == [
        "programming.sigma[0]", "programming.sigma[1]"
    ]  # fmt: skip
    assert len(found["notes"]) == 1
    assert model.read_bytes() == first


def test_what_cannot_be_fitted_leaves_nothing(cimtool: Callable[..., Any], tmp_path: Path) -> None:
    data, model = tmp_path / "sums.csv", tmp_path / "mine.toml"
    data.write_text(SUMS.replace("7.9", "x"))
    ran = cimtool("noise", "fit", data, "-o", model)
    assert (ran.status, ran.out) == (2, "")
    expected = f"{data}: line 3: deviation is x; expected a number from 0 to 1e+15"
    assert ran.sentence == expected
    assert not model.exists()
