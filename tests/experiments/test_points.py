"""Grids: every key and value checked before anything runs, points in a fixed order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cimtool.base import grids as module
from cimtool.base.errors import CimError
from cimtool.experiments.points import ScoreChoice, points, read_grid
from cimtool.hardware.target import load_target
from cimtool.training.degrees import Form


def test_points_are_all_combinations_with_the_last_key_fastest() -> None:
    axes = read_grid({"target": ["ideal", "isaac-rram-128"], "weight_bits": [4, 6, 8]})
    found = points(axes, None, None)
    assert [tuple(point.named.values()) for point in found] == [
        (target, bits) for target in ("ideal", "isaac-rram-128") for bits in (4, 6, 8)
    ]
    for point in found:
        assert point.build is not None
        assert point.build.target.name == point.named["target"] == point.base
        assert point.build.settings.weight_bits == point.named["weight_bits"]


def test_a_head_without_a_polynomial_has_no_degree_and_samples_are_points_of_their_own() -> None:
    grid = {"target": ["ideal", "isaac-rram-128"], "head": ["csd", "pcme-poly"]}
    found = points(read_grid(grid | {"degree": [1, 2], "samples": [5]}), None, None)
    compiled, sampled = found[:-2], found[-2:]
    assert [(point.base, point.score) for point in compiled] == [
        (target, score)
        for target in ("ideal", "isaac-rram-128")
        for score in (
            ScoreChoice("csd"),
            ScoreChoice("pcme-poly", Form(1)),
            ScoreChoice("pcme-poly", Form(2)),
        )
    ]
    assert [point.named for point in sampled] == [
        {"target": target, "samples": 5} for target in ("ideal", "isaac-rram-128")
    ]
    assert all(point.score == ScoreChoice(samples=5) for point in sampled)
    alone = points(read_grid({"samples": [2, 10]}), "ideal", None)
    assert [point.named for point in alone] == [{}, {"samples": 2}, {"samples": 10}]


@pytest.mark.parametrize("name", ["target.adc.parameters.trim", "target.parameters.trim"])
def test_parameters_of_a_converter_are_keys_of_any_name(name: str) -> None:
    axes = read_grid({name: [1, 2]})
    assert axes[0].path == ("target", "adc", "parameters", "trim")
    refused = "adc_parameters belong to a kind of converter"
    assert all(refused in point.refusal for point in points(axes, "isaac-rram-128", None))
    with pytest.raises(CimError, match=r'did you mean "target\.adc\.parameters\.NAME"'):
        read_grid({"target.adc.parameters": [1]})


def test_a_target_key_makes_another_target() -> None:
    axes = read_grid({"target.rows_active": [64, 128]})
    assert axes[0].name == "target.array.rows_active"
    base = load_target("isaac-rram-128")
    for point, rows in zip(points(axes, "isaac-rram-128", None), (64, 128), strict=True):
        assert point.build is not None
        target = point.build.target
        assert (target.array.rows_active, target.base) == (rows, base.name)
        assert target.name == f"isaac-rram-128-array.rows_active-{rows}"
        assert point.build.settings.rows_active == rows
        assert target.figures == base.figures


def test_a_setting_of_some_layers_is_a_key() -> None:
    axes = read_grid({'layers."text.*".weight_bits': [4, 6]})
    found = points(axes, "ideal", None)
    for point, bits in zip(found, (4, 6), strict=True):
        assert point.build is not None
        assert point.build.settings.of_layer("text.fc1").weight_bits == bits
        assert point.build.settings.of_layer("video.fc1").weight_bits == 8


def test_the_settings_file_holds_for_all_points(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text("weight_bits = 5\nadc_bits = 7\n")
    (point,) = points(read_grid({"adc_bits": [6]}), "isaac-rram-128", file)
    assert point.build is not None
    assert (point.build.settings.weight_bits, point.build.settings.adc_bits) == (5, 6)
    file.write_text("weigt_bits = 5\n")
    with pytest.raises(CimError, match=r"s\.toml: unknown key weigt_bits"):
        points(read_grid({"adc_bits": [6]}), "isaac-rram-128", file)


def test_values_that_contradict_each_other_refuse_one_point() -> None:
    axes = read_grid({"score_mapping": ["digital", "hybrid"], "shortlist": [5]})
    digital, hybrid = points(axes, "ideal", None)
    assert digital.build is None
    assert "shortlist = 5" in digital.refusal
    assert hybrid.build is not None


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({"weigt_bits": [4]}, 'key "weigt_bits" is not known: .*did you mean "weight_bits"'),
        ({"weight_bits.x": [4]}, 'key "weight_bits.x" is not known'),
        ({"weight_bits": [99]}, "weight_bits: 99: must be an integer from 2 to 16"),
        ({"weight_bits": ["8"]}, 'weight_bits: "8": must be an integer'),
        ({"encoding": ["diferential"]}, 'encoding: "diferential": must be "differential"'),
        ({"array": [64]}, "array: 64: must be ROWSxCOLUMNS"),
        ({"weight_bits": [4, 6, 4]}, "weight_bits: 4 is given twice"),
        ({"weight_bits": []}, "weight_bits has no values"),
        ({}, "grid is missing"),
        ({"a b": [4]}, "grid a b: is not a key"),
        ({"target": ["isac"]}, 'target "isac" is not known: .*did you mean "isaac-rram-128"'),
        ({"target.row_active": [4]}, 'no single value of this name; .*"target.rows_active"'),
        (
            {"target.bits": [4]},
            "several keys end in this name; expected one of target.input.bits, target.we",
        ),
        ({"target.name": ["x"]}, "target.name: a target has no single value of this name"),
        ({"target.rows_active": [0]}, "rows_active: 0: must be an integer of at least 1"),
        (
            {"target.rows_active": [4], "target.array.rows_active": [8]},
            "target.array.rows_active is given twice",
        ),
        ({"layers.x": [4]}, 'expected layers."PATTERN".KEY with one of weight_bits'),
        ({'layers."*".bits': [4]}, 'did you mean "'),
        ({'layers."*".weight_bits': [1]}, "weight_bits: 1: must be an integer from 2"),
        ({"head": ["csdd"]}, 'grid head "csdd" is not known: .*did you mean "csd"'),
        ({"degree": [9]}, "grid degree: 9: must be an integer from 1 to 8, or ed-1 to ed-8"),
        ({"degree": ["ed-9"]}, "grid degree: ed-9: must be an integer"),
        ({"degree": ["ed-"]}, "grid degree: ed-: must be an integer"),
        ({"degree": [True]}, "grid degree: True: must be an integer"),
        ({"degree": ["all"]}, "grid degree: all: must be an integer"),
        ({"samples": [10, 0]}, "grid samples: 0: must be an integer of at least 1"),
        ({"samples": [True]}, "grid samples: True: must be an integer"),
    ],
)
def test_a_wrong_key_or_value_is_refused_at_once(grid: dict[str, Any], message: str) -> None:
    with pytest.raises(CimError, match=message):
        read_grid(grid)


def test_a_grid_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_POINTS", 5)
    read_grid({"weight_bits": [4, 5, 6, 7, 8]})
    with pytest.raises(CimError, match="makes 6 points; expected at most 5"):
        read_grid({"weight_bits": [4, 5, 6], "adc_bits": [6, 8]})


def test_there_is_one_target() -> None:
    with pytest.raises(CimError, match="target is missing; expected either target"):
        points(read_grid({"weight_bits": [4]}), None, None)
    with pytest.raises(CimError, match="target is given twice"):
        points(read_grid({"target": ["ideal"]}), "ideal", None)
    ideal = load_target("ideal")
    (point,) = points(read_grid({"weight_bits": [4]}), ideal, None)
    assert point.build is not None
    assert point.build.target is ideal


def test_values_of_numpy_and_paths_are_plain_ones(tmp_path: Path) -> None:
    bits, again = read_grid({"weight_bits": np.array([4, 8]), "adc_bits": [np.int64(6)]})  # type: ignore[dict-item,list-item]
    assert (bits.values, again.values) == ((4, 8), (6,))
    assert {type(value) for value in (*bits.values, *again.values)} == {int}
    file = tmp_path / "mine.toml"
    file.write_text('base = "ideal"\nname = "mine"\ntitle = "mine"\n')
    (axis,) = read_grid({"target": [file]})  # type: ignore[list-item]
    assert axis.values == (str(file),)
    (point,) = points((axis,), None, None)
    assert (point.unit.split(",")[0], point.named) == (str(file), {"target": str(file)})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (8, "weight_bits: 8 is not a list; expected a list of values"),
        ("4,8", "weight_bits: '4,8' is not a list"),
        (None, "weight_bits: None is not a list"),
        ([4, None], "weight_bits: None is not a value; expected a number"),
        ([[4]], r"weight_bits: \[4\] is not a value"),
    ],
)
def test_values_that_are_none_are_refused(values: Any, message: str) -> None:
    with pytest.raises(CimError, match=message):
        read_grid({"weight_bits": values})
