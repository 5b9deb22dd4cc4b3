"""Corners of a noise model: changes over its tables, refused in one sentence, and what they do."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cimtool.base.errors import CimError
from cimtool.base.toml_files import validated
from cimtool.hardware.noise.mechanisms.converters import Adc
from cimtool.hardware.noise.spec import Noise, load_noise

GIVEN: dict[str, Any] = {
    "source": "a test", "g_max": 20.0, "programming": {"sigma": [0.5]}, "adc": {"offset": 0.5},
}  # fmt: skip
SAID = {"source": "a test", "status": "assumed"}


def noise(**corners: Any) -> Noise:
    return validated(Noise, {**GIVEN, "corners": corners}, "my.toml: noise")


def test_a_corner_changes_keys_and_keeps_the_others() -> None:
    found = noise(ss={**SAID, "adc": {"gain": 0.02}, "scale": {"factor": 0.9}}, ff=SAID)
    at = found.at_corner("ss")
    assert [one.name for one in at.mechanisms] == ["programming", "scale", "adc"]
    (adc,) = at.of(Adc)
    assert (adc.offset, adc.gain) == (0.5, 0.02)
    assert at.corners == {}
    assert found.at_corner("ff").mechanisms == found.mechanisms
    assert found.at_corner(None) is found.at_corner("nominal") is found


def test_a_corner_says_its_conditions_and_its_source() -> None:
    found = noise(ss={**SAID, "process": "ss", "supply": 0.72, "temperature": 125.0}, ff=SAID)
    assert found.corners["ss"].text == "ss, 0.72 V, 125 C (assumed, a test)"
    assert found.corners["ff"].text == "assumed, a test"


def test_plain_values_are_read_back_as_they_were() -> None:
    found = noise(ss={**SAID, "supply": 0.72, "scale": {"factor": 0.9}})
    values = found.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert validated(Noise, values, "x") == found
    assert "corners" not in noise().model_dump(mode="json")


@pytest.mark.parametrize(
    ("corners", "said"),
    [
        ({"ss": {"source": "x"}}, "corners.ss.status is missing"),
        ({"ss": {**SAID, "adcs": {}}}, 'corners.ss: unknown key adcs; did you mean "adc"?'),
        ({"ss": {**SAID, "qqq": 1}}, "corners.ss: unknown key qqq = 1; expected source, status, "),
        ({"ss": {**SAID, "adc": {"offset": -1}}}, "corners.ss: adc.offset = -1: must be a number"),
        ({"ss": {**SAID, "adc": {"ofset": 1}}}, 'adc.ofset; did you mean "offset"?'),
        ({"ss": {**SAID, "adc": 3}}, "corners.ss: adc = 3: must be a table"),
        ({"ss": {**SAID, "supply": -1}}, "corners.ss.supply = -1: must be a number above 0"),
        ({"ss": {**SAID, "scale": {}}}, "corners.ss: scale.factor is missing"),
        ({"ss": 3}, "corners.ss = 3: must be a table"),
        ({"nominal": SAID}, "corners.nominal: is the noise without a corner"),
    ],
)
def test_a_mistake_is_one_sentence(corners: dict[str, Any], said: str) -> None:
    with pytest.raises(CimError) as caught:
        noise(**corners)
    text = str(caught.value)
    assert text.startswith("my.toml: noise: ")
    assert said in text
    assert "\n" not in text


def test_an_unknown_corner_is_refused_with_the_nearest() -> None:
    with pytest.raises(
        CimError, match=r'"nominl" is not known: nominal, ss; did you mean "nominal"'
    ):
        noise(ss=SAID).at_corner("nominl")


def test_a_scale_is_the_same_for_all_cells(kit: SimpleNamespace) -> None:
    op = kit.layer(kit.crossbar(encoding="offset"), 32, 8)
    cells = kit.on_die(op, kit.noise(scale={"factor": 0.5})).cells
    held = np.stack([s.digits for s in op.stored.slices]) / 2
    found = np.stack([s.digits for s in cells.slices]) / (1 << cells.fraction_bits)
    np.testing.assert_array_equal(found, held)


def test_the_example_has_corners_that_change_something() -> None:
    file = Path(__file__).resolve().parents[3] / "examples" / "corners.toml"
    found = load_noise(file)
    assert list(found.corners) == ["ss", "ff"]
    for name, corner in found.corners.items():
        assert corner.status == "assumed"
        assert found.at_corner(name).mechanisms != found.mechanisms
