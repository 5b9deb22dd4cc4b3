"""Figures: comparable, and never combined where they were taken under different conditions."""

from __future__ import annotations

from pathlib import Path

import pytest

from cimtool.base.errors import CimError
from cimtool.hardware.target import Target, load_target

POINT = """
[[operating_points]]
name = "{name}"
precision = "8b x 8b"
input_bits = 8
weight_bits = 8
voltage = {voltage}
"""
LOW, HIGH = POINT.format(name="low", voltage=0.7), POINT.format(name="high", voltage=1.1)


def figure(quantity: str, unit: str, *more: str) -> str:
    lines = [f'quantity = "{quantity}"', f'unit = "{unit}"', "value = 1.5", 'source = "here"']
    lines += ['scope = "array"', 'status = "confirmed"', *more]
    own = {line.partition(" =")[0]: line for line in lines}
    return "\n[[figures]]\n" + "\n".join(own.values()) + "\n"


def solved(quantity: str, unit: str, origin: str) -> str:
    status = 'status = "derived"', f'derived_from = ["{origin}"]'
    return figure(quantity, unit, 'at = "low"', *status)


def loaded(folder: Path, text: str) -> Target:
    file = folder / "mine.toml"
    file.write_text(f'name = "mine"\ntitle = "Mine"\nbase = "ideal"\n{text}')
    return load_target(file)


LATENCY = figure("mvm_latency", "ns", 'at = "low"')
ENERGY = figure("mvm_energy", "nJ", 'at = "low"')


def test_figures_of_two_points_stand_side_by_side(tmp_path: Path) -> None:
    energy = figure("mvm_energy", "nJ", 'at = "high"', "voltage = 1.1")
    target = loaded(tmp_path, LOW + HIGH + LATENCY + ENERGY + energy + figure("area", "mm2"))
    assert [one.at for one in target.figures] == ["low", "low", "high", None]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (figure("area", "mJ"), 'figures[0]: unit = "mJ": area is given in "mm2"'),
        (
            figure("area", "mm2", 'source = ""'),
            'figures[0].source = "": must be a text that says where the figures come from',
        ),
        (figure("aera", "mm2"), 'figures[0]: quantity "aera" is not known: '),
        (figure("throughput", "TOPS"), "figures[0]: at is missing: throughput means nothing"),
        (
            LOW + figure("mvm_energy", "nJ", 'at = "lo"'),
            'figures[0].at: operating point "lo" is not known: low; did you mean "low"?',
        ),
        (LOW + LOW, 'operating_points: "low" is given twice'),
        (
            LOW + LATENCY + figure("mvm_energy", "nJ", 'at = "low"', "voltage = 1.1"),
            "figures[1] (mvm_energy) was taken at voltage = 1.1, and operating point "
            '"low" is at 0.7: figures of different conditions are not combined',
        ),
        (
            LOW + LATENCY + figure("adc_energy", "pJ", "voltage = 1.1"),
            "figures[1] (adc_energy) was taken at voltage = 1.1, and operating point",
        ),
        (
            figure("adc_energy", "pJ", "voltage = 1.1")
            + figure("read_latency", "ns", "voltage = 0.7"),
            "figures[0] (adc_energy) was taken at voltage = 1.1 and figures[1] (read_latency) at "
            "0.7: figures of different conditions are not combined; give each its operating point",
        ),
        (
            figure("adc_energy", "pJ", 'mode = "fast"')
            + figure("read_latency", "ns", 'mode = "precise"'),
            'figures[0] (adc_energy) was taken at mode = "fast" and figures[1] (read_latency) at '
            '"precise"',
        ),
        (
            LOW + LATENCY + LATENCY,
            'figures[1]: mvm_latency of the array is given twice at operating point "low" (also '
            "as figures[0])",
        ),
        (
            LOW + ENERGY + figure("adc_energy", "pJ", 'at = "low"') + figure("adc_energy", "pJ"),
            "figures[2]: adc_energy of the array is given twice at operating point",
        ),
        (
            LOW + ENERGY + figure("mvm_latency", "ns", 'at = "low"', 'derived_from = ["area"]'),
            'figures[1]: derived_from with status = "confirmed": expected status = "derived"',
        ),
        (
            LOW + ENERGY + solved("mvm_latency", "ns", "area"),
            'figures[1].derived_from: figure "area" is not known: mvm_energy, mvm_latency',
        ),
        (
            LOW + solved("mvm_energy", "nJ", "mvm_latency") + solved("mvm_latency", "ns", "clock")
            + solved("clock", "MHz", "mvm_energy"),
            "figures[0].derived_from: mvm_energy would be derived from itself",
        ),
        (
            LOW + 'derived_from = ["throughput"]' + ENERGY,
            'operating_points[0].derived_from: figure "throughput" is not known: mvm_energy',
        ),
        (
            LOW.replace("input_bits = 8", "input_bits = 0"),
            "operating_points[0].input_bits = 0: must be an integer from 1 to 16",
        ),
    ],
)  # fmt: skip
def test_a_set_that_cannot_be_combined_is_one_sentence(
    tmp_path: Path, text: str, sentence: str
) -> None:
    with pytest.raises(CimError) as caught:
        loaded(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'mine.toml'}: {sentence}")
    assert "\n" not in str(caught.value)
    assert caught.value.exit_status == 2
