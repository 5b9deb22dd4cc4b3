from __future__ import annotations

import math
import re
from collections.abc import Callable
from xml.etree import ElementTree as Xml

import pytest

from cimtool.base.intervals import Change
from cimtool.report.charts import (
    ParetoPoint,
    Points,
    Ranges,
    Term,
    Whisker,
    above_levels,
    bars,
    curves,
    histogram,
    pareto,
    ranges,
    scatter,
    waterfall,
    whiskers,
)


def texts(picture: str) -> list[str]:
    return [node.text or "" for node in Xml.fromstring(picture).iter("text")]


def named(picture: str, style: str) -> list[Xml.Element]:
    return [n for n in Xml.fromstring(picture).iter() if style in n.get("class", "").split()]


def percent(value: float) -> str:
    return f"{value:.0%}"


HOSTILE = "<script>alert(1)</script>"
NAN = math.nan

PICTURES: dict[str, Callable[[], str]] = {
    "whiskers": lambda: whiskers(
        [Whisker(HOSTILE, (Change(0.5, 0.4, 0.6), None)), Whisker("b", (None, None))],
        ("one", HOSTILE), HOSTILE, percent,
    ),
    "whiskers without intervals": lambda: whiskers(
        [Whisker("a", (Change(0.5, NAN, NAN),))], ("one",), "a", percent
    ),
    "waterfall": lambda: waterfall(
        [Term(HOSTILE, 0.2, HOSTILE), Term("b", -0.1, "")], Term("all", 0.1, "x"), HOSTILE, HOSTILE
    ),
    "waterfall of nothing": lambda: waterfall([], Term("all", 0.0, "0"), "a", "b"),
    "bars": lambda: bars([(HOSTILE, (0.1, -0.2)), ("b", (NAN, NAN))], ("x", "y"), "a", str),
    "scatter": lambda: scatter(
        [Points(HOSTILE, [(1.0, 2.0), (NAN, 1.0)]), Points("b", [])], HOSTILE, "y", "a"
    ),
    "curves": lambda: curves([Points("a", [(1, 1.0), (0, 0.5)]), Points("b", [])], "x", "y", "a"),
    "above levels": lambda: above_levels(
        [Points(HOSTILE, [(1, 1.0), (0, 0.5)]), Points("b", [])], [(HOSTILE, 2.0), ("none", NAN)],
        "x", "y", "a",
    ),
    "ranges": lambda: ranges(
        [Ranges(HOSTILE, [Change(0.5, 0.4, 0.6), None]), Ranges("b", [None, Change(1, NAN, NAN)])],
        ["64", HOSTILE], HOSTILE, "y", HOSTILE,
    ),
    "ranges of nothing": lambda: ranges([], [], "x", "y", "a"),
    "histogram": lambda: histogram([0, 3, 1], HOSTILE),
    "histogram of nothing": lambda: histogram([], "a"),
    "pareto": lambda: pareto([ParetoPoint(HOSTILE, 1.0, 2.0, True, HOSTILE)], "x", "y", "a"),
    "pareto of nothing": lambda: pareto([ParetoPoint("a", 0.0, math.inf)], "x", "y", "a"),
}  # fmt: skip


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_sound_svg_that_says_what_it_is(name: str) -> None:
    picture = PICTURES[name]()
    root = Xml.fromstring(picture)
    assert (root.get("role"), bool(root.get("aria-label"))) == ("img", True)
    assert root.find(".//script") is None
    assert not re.search(r"nan|inf\b", re.sub(r'aria-label="[^"]*"', "", picture))
    assert "style=" not in picture


def test_whiskers_reach_from_low_to_high() -> None:
    rows = [Whisker("a", (Change(0.5, 0.4, 0.6),)), Whisker("b", (Change(0.2, 0.0, 1.0),))]
    picture = whiskers(rows, ("R@1",), "R@1", percent)
    assert {"a", "b", "R@1", "0%", "100%"} <= set(texts(picture))
    # Two caps and a line for each, the wider one longer.
    lengths = [
        abs(float(x2) - float(x1))
        for x1, x2 in re.findall(r"M([\d.]+) [\d.]+L([\d.]+)", picture)
        if x1 != x2
    ]
    assert lengths[1] / lengths[0] == pytest.approx(5.0, rel=0.01)


def test_a_waterfall_ends_at_its_total() -> None:
    steps = [Term("a", 3.0, "3"), Term("b", 2.0, "2", True), Term("c", -1.0, "-1")]
    picture = waterfall(steps, Term("all", 4.0, "4"), "sum", "squares")
    found = {
        style: [(float(n.get("x", 0)), float(n.get("width", 0))) for n in named(picture, style)]
        for style in ("plus", "minus", "total")
    }
    (first, second), (third,), (total,) = found["plus"], found["minus"], found["total"]
    assert second[0] == pytest.approx(first[0] + first[1], abs=0.2)
    assert third[0] + third[1] == pytest.approx(second[0] + second[1], abs=0.2)
    assert third[0] == pytest.approx(total[0] + total[1], abs=0.2)
    assert len(named(picture, "strong")) == 5  # label, bar and text of the step; label and text


def test_bars_are_as_long_as_their_values() -> None:
    picture = bars([("a", (1.0, 4.0))], ("x", "y"), "two", str)
    widths = [float(n.get("width", 0)) for n in named(picture, "bar")]
    assert widths[-1] / widths[-2] == pytest.approx(4.0, rel=0.01)
    assert {"1.0", "4.0"} <= set(texts(picture))


def test_scatter_has_a_shape_a_group_and_equal_axes() -> None:
    picture = scatter([Points("a", [(0.0, 1.0)]), Points("b", [(1.0, 0.0)])], "x", "y", "both")
    (sign, dots), (other, crosses) = named(picture, "dots"), named(picture, "crosses")
    assert dots.get("d", "").count("M") == crosses.get("d", "").count("M") == 1
    assert sign.get("class") == dots.get("class")
    assert other.get("class") == crosses.get("class")
    ticks = [text for text in texts(picture) if re.fullmatch(r"[\d.]+", text)]
    assert sorted(ticks) == sorted([*set(ticks)] * 2)


def test_curves_keep_their_order_on_a_logarithmic_axis() -> None:
    picture = curves([Points("a", [(1, 1.0), (10, 0.5), (100, 0.25)])], "n", "R@1", "curve")
    (line,) = named(picture, "curve")
    x = [float(pair.split()[0]) for pair in line.get("d", "")[1:].split("L")]
    assert x[1] - x[0] == pytest.approx(x[2] - x[1], abs=0.2)
    assert {"1", "10", "100", "60%"} <= set(texts(picture))


def test_a_histogram_is_as_high_as_its_counts() -> None:
    (path,) = named(histogram([1, 4, 0, 8], "counts"), "bar")
    tops = [float(top) for top in re.findall(r"V(-?[\d.]+)h", path.get("d", ""))]
    assert [20 - top for top in tops] == [2.5, 10.0, 20.0]


def test_a_front_is_stepped_and_named() -> None:
    candidates = [
        ParetoPoint("cheap", 1.0, 3.0, True),
        ParetoPoint("good", 100.0, 1.0, True),
        ParetoPoint("neither", 90.0, 3.5, note="4 bits"),
    ]
    picture = pareto(candidates, "pJ", "RMSE", "front")
    (front,) = named(picture, "curve")
    assert re.fullmatch(r"M[\d.]+ [\d.]+H[\d.]+V[\d.]+", front.get("d", ""))
    assert {"cheap", "good"} <= set(texts(picture))
    assert "neither" not in texts(picture)
    assert "neither: 4 bits" in [node.text for node in Xml.fromstring(picture).iter("title")]


def test_names_that_would_lie_on_each_other_are_left_out() -> None:
    crowd = [ParetoPoint(f"point {i}", 1.0 + 1e-4 * i, 1.0 - 1e-4 * i, True) for i in range(9)]
    picture = pareto([*crowd, ParetoPoint("far", 9.0, 0.1, True)], "x", "y", "crowd", log_x=False)
    shown = [text for text in texts(picture) if text.startswith("point")]
    assert len(shown) < len(crowd)
    assert len([node.text for node in Xml.fromstring(picture).iter("title")]) == 10


def test_levels_are_named_and_lie_where_their_value_is() -> None:
    drawn = above_levels(
        [Points("a", [(1, 0.1), (100, 10.0)])], [("low", 0.1), ("mid", 1.0), ("no", 0.0)],
        "x", "y", "a",
    )  # fmt: skip
    assert {"low", "mid"} <= set(texts(drawn))
    assert "no" not in texts(drawn)
    heights = [float(re.findall(r"M\S+ (\S+)L", n.get("d", ""))[0]) for n in named(drawn, "same")]
    curve = named(drawn, "curve")[0].get("d", "")
    ends = [float(y) for _, y in re.findall(r"([\d.]+) ([\d.]+)", curve)]
    assert heights[0] == pytest.approx(ends[0], abs=0.1)
    assert heights[1] == pytest.approx(sum(ends) / 2, abs=0.1)
