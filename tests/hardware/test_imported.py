"""Targets from other simulators' parameters: what is read, and what is refused by its key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cimtool.base.errors import CimError
from cimtool.base.toml_files import toml_text
from cimtool.hardware.imported import import_target
from cimtool.hardware.target import Target, load_target

CROSSSIM: dict[str, Any] = {
    "core": {
        "style": 2, "rows_max": 128, "cols_max": 64, "weight_bits": 8, "complex_matrix": False,
        "balanced": {"style": 1, "interleaved_posneg": False, "subtract_current_in_xbar": True},
        "bit_sliced": {"style": 3, "num_slices": 4},
        "offset": {"style": 1},
        "mapping": {"weights": {"percentile": 1.0}},
    },
    "simulation": {"useGPU": False},
    "xbar": {
        "device": {
            "cell_bits": 2, "Rmin": 1e5, "Rmax": 1e6, "time": 0, "infinite_on_off_ratio": False,
            "programming_error": {
                "enable": True, "model": "NormalIndependentDevice", "magnitude": 0.02
            },
            "read_noise": {"enable": False, "model": "IdealDevice", "magnitude": 0},
        },
        "array": {"Icol_max": 0, "parasitics": {"enable": True, "Rp_row": 1.5, "Rp_col": 1.5}},
        "adc": {
            "_match": True,
            "mvm": {"model": "QuantizerADC", "bits": 7, "adc_per_ibit": True},
            "vmm": {"model": "QuantizerADC", "bits": 7},
        },
        "dac": {"mvm": {
            "model": "SignMagnitudeDAC", "bits": 8, "signed": True, "input_bitslicing": True,
            "slice_size": 2,
        }},
    },
}  # fmt: skip
AIHWKIT: dict[str, Any] = {
    "forward": {"inp_res": 1 / 254, "out_res": 510, "w_noise": 0.0, "is_perfect": False},
    "mapping": {"max_input_size": 256, "max_output_size": 128},
    "noise_model": {"name": "PCMLikeNoiseModel", "g_max": 25.0},
}


DEVICE, ADC = ("xbar", "device"), ("xbar", "adc", "mvm")


def changed(values: dict[str, Any], place: tuple[str, ...], value: Any) -> dict[str, Any]:
    copy = json.loads(json.dumps(values))
    owner = copy
    for name in place[:-1]:
        owner = owner.setdefault(name, {})
    owner[place[-1]] = value
    return copy  # type: ignore[no-any-return]


def imported(folder: Path, values: Any) -> Target:
    file = folder / "params.json"
    file.write_text(json.dumps(values))
    found, target = import_target(file, "mine")
    (folder / "mine.toml").write_text(toml_text(found))
    assert load_target(str(folder / "mine.toml")) == target
    return target


def test_crosssims_parameters_become_a_target(tmp_path: Path) -> None:
    target = imported(tmp_path, CROSSSIM)
    keys, noise = target.keys, target.noise
    assert (keys.rows, keys.columns, keys.cell_bits) == (128, 256, 2)
    assert (keys.encoding, keys.weight_bits, keys.on_off_ratio) == ("offset", 8, 10.0)
    assert (keys.input_encoding, keys.input_bits, keys.dac_bits) == ("bipolar", 8, 2)
    assert (keys.adc_bits, keys.rounding, keys.shift_add) == (7, "half-even", "digital")
    assert noise is not None
    assert noise.g_max == 10.0
    assert [one.name for one in noise.mechanisms] == ["programming", "ir_drop"]


def test_pairs_and_analog_sums_are_read(tmp_path: Path) -> None:
    values = changed(CROSSSIM, ("core", "bit_sliced", "style"), 1)
    values = changed(values, ("core", "balanced", "subtract_current_in_xbar"), False)
    values = changed(values, ("xbar", "adc", "mvm", "adc_per_ibit"), False)
    keys = imported(tmp_path, values).keys
    assert (keys.encoding, keys.columns) == ("differential", 512)
    assert (keys.adc_on, keys.shift_add) == ("polarity", "analog")


@pytest.mark.parametrize("value", [0, None, "1e5", [1], True])
def test_resistances_are_checked_with_an_infinite_ratio_too(value: object, tmp_path: Path) -> None:
    values = changed(CROSSSIM, (*DEVICE, "infinite_on_off_ratio"), True)
    assert imported(tmp_path, values).keys.on_off_ratio is None
    for name in ("Rmin", "Rmax"):
        with pytest.raises(CimError, match=rf"xbar\.device\.{name} = .*: expected a number from"):
            imported(tmp_path, changed(values, (*DEVICE, name), value))


def test_codes_of_signed_converters_are_said_to_differ(tmp_path: Path) -> None:
    assert not any("2^bits codes" in one for one in imported(tmp_path, CROSSSIM).unmodelled)
    pairs = imported(tmp_path, changed(CROSSSIM, ("core", "bit_sliced", "style"), 1))
    assert any("2^bits codes" in one for one in pairs.unmodelled)


def test_part_of_an_rpu_config_becomes_a_target(tmp_path: Path) -> None:
    target = imported(tmp_path, AIHWKIT)
    keys = target.keys
    assert (keys.rows, keys.columns, keys.encoding) == (256, 256, "differential")
    assert (keys.input_bits, keys.dac_bits, keys.adc_bits) == (8, 7, 9)
    assert target.noise is not None
    assert target.noise.t0 == 20.0


REFUSED: dict[str, tuple[dict[str, Any], tuple[str, ...], Any, str]] = {
    "analog weights": (CROSSSIM, ("core", "weight_bits"), 0, "= 0: expected an integer from 2"),
    "a text": (CROSSSIM, ("core", "weight_bits"), "8", '= "8": expected an integer from 2 to 16'),
    "an unknown style": (CROSSSIM, ("core", "style"), 3, "= 3: expected 1 or 2"),
    "a device": (CROSSSIM, (*DEVICE, "programming_error", "model"), "SONOS",
                 '= "SONOS": expected "NormalIndependentDevice" or "NormalProportionalDevice"'),
    "drift": (CROSSSIM, (*DEVICE, "drift_error", "enable"), True, "= true: expected false"),
    "a converter": (CROSSSIM, (*ADC, "model"), "CyclicADC", '= "CyclicADC": expected "IdealADC"'),
    "chance": (CROSSSIM, (*ADC, "stochastic_rounding"), True, "= true: expected false"),
    "unequal wires": (CROSSSIM, ("xbar", "array", "parasitics", "Rp_col"), 2, "= 2: expected 1.5"),
    "cells of other bits": (CROSSSIM, (*DEVICE, "cell_bits"), 3, "= 3: expected 0 or 2"),
    "no resistance": (CROSSSIM, (*DEVICE, "Rmin"), 0, "= 0: expected a number from 0.001"),
    "a resistance in words": (CROSSSIM, (*DEVICE, "Rmax"), "1e6", '= "1e6": expected a number'),
    "limits of conductances": (
        CROSSSIM, (*DEVICE, "clip_conductance"), True, "= true: expected false, nothing else is"
    ),
    "a time in words": (CROSSSIM, (*DEVICE, "time"), "x", '= "x": expected a number from 0'),
    "a sign in words": (CROSSSIM, (*ADC, "signed"), "x", '= "x": expected true or false'),
    "too many rows": (
        CROSSSIM, ("core", "rows_max"), 2**21, "= 2097152: expected an integer from 1 to 1048576"
    ),
    "output noise": (AIHWKIT, ("forward", "out_noise"), 0.06, "= 0.06: expected 0"),
    "a resolution": (AIHWKIT, ("forward", "inp_res"), 0.3, "= 0.3: expected 1 / (2^bits - 2)"),
    "a noise model": (AIHWKIT, ("noise_model", "name"), "Mine", '= "Mine": expected null or "PCM'),
    "another g_max": (AIHWKIT, ("noise_model", "g_max"), 30.0, "= 30.0: expected 25.0"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_value_without_a_counterpart_is_refused_by_its_key(name: str, tmp_path: Path) -> None:
    values, place, value, said = REFUSED[name]
    with pytest.raises(CimError) as caught:
        imported(tmp_path, changed(values, place, value))
    assert str(caught.value).startswith(f"{tmp_path / 'params.json'}: {'.'.join(place)} {said}")


def test_an_unknown_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        CimError, match=r'unknown key core.weight_bit = 8; did you mean "core.weight_b'
    ):
        imported(tmp_path, changed(CROSSSIM, ("core", "weight_bit"), 8))


@pytest.mark.parametrize(
    ("content", "said"),
    [("[", "not valid JSON"), ("[1]", "is not a JSON object; "
                                      "expected"), ("{}", "has no known parameters"),
     ("[" * 100_000, "not valid JSON"), (" " * 2**20 + "{}", "has 1,048,578 bytes; expected")],
)  # fmt: skip
def test_what_holds_no_parameters_is_one_sentence(content: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "params.json").write_text(content)
    with pytest.raises(CimError) as caught:
        import_target(tmp_path / "params.json", "mine")
    assert str(caught.value).startswith(f"{tmp_path / 'params.json'}: {said}")
