"""The [noise] table: what it refuses, its presets, its times, and its corners."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cimtool.base.errors import CimError
from cimtool.base.toml_files import validated
from cimtool.hardware.noise.mechanisms.converters import Adc
from cimtool.hardware.noise.mechanisms.devices import Read
from cimtool.hardware.noise.model import DeviceNoise, NonIdeality, kinds, parse_time, time_text
from cimtool.hardware.noise.spec import Noise, load_noise, preset_names
from cimtool.hardware.target import load_target, target_names

GIVEN: dict[str, Any] = {"source": "a test", "g_max": 20.0}
FLAT = {"polynomial": [0.05]}


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"programing": {}}, 'unknown key programing; did you mean "programming"?'),
        ({"read": {"sigma": -0.1}}, "read.sigma = -0.1: must be a number of at least 0"),
        ({"read": {"sigma": 0.1, "redraw": "die"}}, 'read.redraw = "die": must be "mvm" | "cycle"'),
        ({"read": {"sigma": 0.1, "redrw": "mvm"}}, 'read.redrw; did you mean "redraw"?'),
        ({"programming": {"sigma": [0.1, -1.0]}}, "programming.sigma is -0.9 at x = 1"),
        ({"programming": {}}, "programming: expected either sigma or sigma_after"),
        ({"programming": {"sigma_after": {"2w": [1.0]}}}, "a time in sigma_after is 2w"),
        ({"programming": {"sigma": "x"}}, "must be a list of 1 to 9 numbers"),
        ({"drift": {"mean": FLAT, "sigma": FLAT}}, "t0 is missing"),
        ({"t0": 1.0, "drift": {"mean": FLAT, "sigma": {"polynomial": [0.1, -0.2]}}},
         "drift: sigma is -0.1 at x = 1"),
        ({"t0": 1.0, "drift": {"mean": FLAT, "sigma": {"log": [1.0, 0.0]}}},
         "log (or power) and clamp belong together"),
        ({"t0": 1.0, "flicker": {"q": {"from": 0.2, **FLAT}, "t_read": 1e-6}},
         "from separates a polynomial from the law below it"),
        ({"stuck": {"p_on": 1.5}}, "stuck.p_on = 1.5: must be a number from 0 to 1"),
        ({"g_max": 0}, "g_max = 0: must be a number above 0"),
        ({"devices": 0}, "devices = 0: must be an integer from 1 to 64"),
        ({"preset": "pcm-genric"}, 'noise model "pcm-genric" is not known'),
        ({"ir_drop": {"wire_resistance": -1.0}}, "ir_drop.wire_resistance = -1.0"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_sentence(tables: dict[str, Any], said: str) -> None:
    with pytest.raises(CimError) as caught:
        validated(Noise, {**GIVEN, **tables}, "my.toml: noise")
    text = str(caught.value)
    assert text.startswith("my.toml: noise: ")
    assert said in text
    assert "\n" not in text


def test_every_non_ideality_is_a_key_of_its_name() -> None:
    assert set(Noise.entries()) - set(NonIdeality.family) == set(Noise.model_fields)
    assert set(Noise.model_fields) == {"source", "g_max", "devices", "t0", "temperature", "corners"}
    assert [name for name, kind in kinds().items() if kind.redrawn] == ["flicker", "read"]


ACTING = ["programming", "drift", "flicker", "scale", "read", "stuck", "adc", "ir_drop"]
"""Manifests list mechanisms so, and a die is drawn so."""


def test_mechanisms_act_in_the_order_that_their_classes_declare() -> None:
    assert list(kinds()) == ACTING
    assert len({kind.order for kind in kinds().values()}) == len(ACTING)


def test_a_mechanism_acts_where_its_class_says_or_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NonIdeality, "family", dict(NonIdeality.family))
    for name, order in (("late", None), ("between", 15.0)):
        values = {"effective": lambda self, g, state: g} | ({"order": order} if order else {})
        type(name.title(), (DeviceNoise,), values, name=name)
    tables = {"ir_drop": {"wire_resistance": 1.0}, "late": {}, "between": {}}
    tables |= {"programming": {"sigma": [0.1]}, "read": {"sigma": 0.1}}
    noise = validated(Noise, GIVEN | tables, "my.toml: noise")
    names = [one.name for one in noise.mechanisms]
    assert names == ["programming", "between", "read", "ir_drop", "late"]


@pytest.mark.parametrize("name", preset_names())
def test_shipped_models_are_valid_and_survive_a_manifest(name: str) -> None:
    noise = load_noise(name)
    again = Noise.model_validate(noise.model_dump(mode="json", by_alias=True, exclude_none=True))
    assert again == noise


@pytest.mark.parametrize("name", target_names())
def test_targets_keep_the_values_of_their_preset(name: str) -> None:
    target = load_target(name)
    again = validated(type(target), target.to_json(), "manifest")
    assert again.noise == target.noise
    assert "preset" not in str(target.to_json().get("noise"))


def test_two_chips_have_noise() -> None:
    for name in ("hermes-pcm-14nm", "neurram-rram-130nm"):
        assert load_target(name).noise is not None


def test_values_beside_a_preset_override_it() -> None:
    noise = validated(Noise, {"preset": "neurram", "read": {"redraw": "cycle"}}, "x")
    (read,) = noise.of(Read)
    assert (read.sigma, read.redraw) == (0.01, "cycle")
    assert noise.g_max == 40.0


def test_a_file_of_ones_own_is_read_by_its_path(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('source = "mine"\ng_max = 5.0\n[read]\nsigma = 0.1\n')
    assert load_noise(file).g_max == 5.0
    with pytest.raises(CimError, match=r"there is no such file"):
        load_noise(tmp_path / "other.toml")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("10m", 600), ("1h", 3600), ("1d", 86400), ("1y", 31557600), ("0s", 0),
     ("1.5h", 5400)],
)  # fmt: skip
def test_times_are_seconds(text: str, seconds: float) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "1", "h", "-1h", "1w", "1 h", "1e3s", "200y", "nan", "infs", "٣s"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(CimError, match=r"time is .*; expected a time of at most 100y"):
        parse_time(text)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0 s"), (1, "1 s"), (3600, "1 h"), (5400, "1.5 h"), (86400, "1 d")]
)
def test_times_are_written_in_their_largest_unit(seconds: float, text: str) -> None:
    assert time_text(seconds) == text


def test_only_times_that_were_fitted_are_known() -> None:
    neurram = load_noise("neurram")
    assert neurram.seconds(None) == 1.0
    assert neurram.seconds("24h") == neurram.seconds("1d") == 86400.0
    with pytest.raises(CimError, match=r"time is 1h; this noise was fitted after 1s, 1d, 2d"):
        neurram.seconds("1h")
    with pytest.raises(CimError, match=r"time is 1h; this noise has neither drift nor flicker"):
        load_noise("neurram-crosssim").seconds("1h")
    assert load_noise("hermes-2-devices").seconds(None) == 0.0


MODEL: dict[str, Any] = {
    "source": "a test", "g_max": 20.0, "programming": {"sigma": [0.5]}, "adc": {"offset": 0.5},
}  # fmt: skip
SAID = {"source": "a test", "status": "assumed"}


def noise(**corners: Any) -> Noise:
    return validated(Noise, {**MODEL, "corners": corners}, "my.toml: noise")


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
        ({"ss": {**SAID, "source": " "}}, 'corners.ss.source = " ": must be a text that says'),
        ({"ss": {**SAID, "adcs": {}}}, 'corners.ss: unknown key adcs; did you mean "adc"?'),
        ({"ss": {**SAID, "qqq": 1}}, "corners.ss: unknown key qqq = 1; expected source, status, "),
        ({"ss": {**SAID, "adc": {"offset": -1}}}, "corners.ss: adc.offset = -1: must be a number"),
        ({"ss": {**SAID, "adc": {"ofset": 1}}}, 'adc.ofset; did you mean "offset"?'),
        ({"ss": {**SAID, "adc": 3}}, "corners.ss: adc = 3: must be a table"),
        ({"ss": {**SAID, "supply": -1}}, "corners.ss.supply = -1: must be a number above 0"),
        ({"ss": {**SAID, "scale": {}}}, "corners.ss: scale.factor is missing"),
        ({"ss": 3}, "corners.ss = 3: must be a table"),
        ({"nominal": SAID}, "corners.nominal: is the name of the noise without a corner"),
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
