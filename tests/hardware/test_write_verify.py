"""The option `[write_verify]` of a target: what it takes, and what it refuses in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from cimtool.base.errors import CimError
from cimtool.hardware.target import load_target

FILE = """
name = "written"
title = "a target"
base = "{base}"
class = "{kind}"

[write_verify]
tolerance = {tolerance}
pulse = {pulse}
max_pulses = {most}
"""
NOISE = '\n[noise]\nsource = "made up"\ng_max = 40.0\n\n[noise.programming]\nsigma = [0.1]\n'
GIVEN: dict[str, object] = {
    "base": "isaac-rram-128",
    "kind": "bit-exact",
    "tolerance": 2.0,
    "pulse": 1.5,
    "most": 60,
}


def written(folder: Path, more: str = NOISE, **values: object) -> Path:
    file = folder / "written.toml"
    file.write_text(FILE.format(**(GIVEN | values)) + more, "utf-8")
    return file


def test_a_target_holds_it(tmp_path: Path) -> None:
    option = load_target(written(tmp_path)).write_verify
    assert option is not None
    assert (option.tolerance, option.pulse, option.max_pulses) == (2.0, 1.5, 60)
    assert load_target("isaac-rram-128").write_verify is None


@pytest.mark.parametrize(
    ("values", "more", "sentence"),
    [
        ({}, "", r"written\.toml: write_verify: .* expected g_max in a table \[noise\] beside it"),
        ({"pulse": 4.5}, NOISE, r"pulse = 4\.5: may step over the bounds; expected at most 4, "),
        ({"most": 25}, NOISE, r"max_pulses = 25: .* a cell to 40 uS; expected at least 26"),
        ({"most": 0}, NOISE, r"write_verify\.max_pulses = 0: .*"),
        ({"tolerance": -1}, NOISE, r"write_verify\.tolerance = -1"),
        (
            {},
            f"{NOISE}tolerance = 1.0\n",
            r"write_verify\.tolerance = 2: must be 1, the tolerance of noise\.programming",
        ),
    ],
    ids=["no noise", "pulse", "too few", "none", "negative", "other tolerance"],
)
def test_a_mistake_is_one_sentence(
    values: dict[str, object], more: str, sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(CimError, match=sentence) as found:
        load_target(written(tmp_path, more, **values))
    assert "\n" not in str(found.value)


def test_the_tolerance_of_the_noise_model_may_be_said_again(tmp_path: Path) -> None:
    target = load_target(written(tmp_path, f"{NOISE}tolerance = 2.0\n"))
    assert target.write_verify is not None
