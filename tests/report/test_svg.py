from __future__ import annotations

import math

import pytest

from cimtool.report import svg


def test_a_scale_maps_its_ends_and_stays_inside() -> None:
    scale = svg.Scale(0.0, 10.0, 100.0, 200.0)
    assert [scale.at(x) for x in (0.0, 5.0, 10.0, 99.0, -1.0)] == [
        100.0,
        150.0,
        200.0,
        200.0,
        100.0,
    ]


def test_a_logarithmic_scale_has_decades_of_one_length() -> None:
    scale = svg.Scale(1.0, 100.0, 0.0, 200.0, log=True)
    assert scale.at(10.0) == pytest.approx(100.0)
    assert scale.ticks() == (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)


@pytest.mark.parametrize(
    ("lo", "hi", "ticks"),
    [
        (0.0, 1.0, (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)),
        (-0.31, 0.52, (-0.2, 0.0, 0.2, 0.4)),
        (0.1, 0.7, (0.2, 0.4, 0.6)),
        (1499.0, 1501.0, (1499.0, 1499.5, 1500.0, 1500.5, 1501.0)),
    ],
)
def test_ticks_are_round_and_inside(lo: float, hi: float, ticks: tuple[float, ...]) -> None:
    assert svg.Scale(lo, hi, 0.0, 1.0).ticks() == ticks


@pytest.mark.parametrize("hi", [1e3, 1e7, 1e12])
def test_ticks_of_many_decades_are_few(hi: float) -> None:
    ticks = svg.Scale(1.0, hi, 0.0, 1.0, log=True).ticks()
    assert 2 <= len(ticks) <= 7
    assert all(math.log10(tick) == round(math.log10(tick)) for tick in ticks)


@pytest.mark.parametrize("values", [[], [math.nan], [3.0], [0.0, 0.0], [1e9, 1e9], [-2.0, 5.0]])
@pytest.mark.parametrize("log", [False, True])
def test_a_scale_spans_whatever_there_is(values: list[float], log: bool) -> None:
    scale = svg.spanning(values, 0.0, 100.0, log)
    assert scale.lo < scale.hi
    assert all(0.0 <= scale.at(x) <= 100.0 for x in values if x > 0 or (not log and x <= 0))


@pytest.mark.parametrize("value", [0.0, 0.02, 3.0, -0.02])
def test_a_scale_of_one_value_ends_before_zero(value: float) -> None:
    scale = svg.spanning([value], 0.0, 100.0)
    assert scale.at(value) == (pytest.approx(50.0) if value else 0.0)
    ends = (scale.lo, scale.hi) if value >= 0 else (-scale.hi, -scale.lo)
    assert 0.0 <= ends[0] < ends[1]
    assert len(scale.ticks()) >= 2


def test_text_is_escaped_and_long_labels_are_cut() -> None:
    assert "<b>" not in svg.text(0, 0, "<b>x</b>")
    assert '"' not in svg.document(1, 'a"b', []).split("aria-label=")[1][1:].split(">")[0][:-1]
    assert len(svg.shortened("x" * 99)) == svg.LONGEST


def test_ticks_are_told_shortly() -> None:
    ticks = [svg.tick_text(x) for x in (0.25, 10_000, 2.5e6, 1e-6)]
    assert ticks == ["0.25", "10,000", "2.5 M", "1e-06"]


def test_coordinates_are_short() -> None:
    assert [svg.px(x) for x in (1.0, 1.26, -0.01, 100.0)] == ["1", "1.3", "0", "100"]
