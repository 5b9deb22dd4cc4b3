"""The picture of the ways by the number of items."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

from cimtool import api
from cimtool.costs.crossings import SIZES
from cimtool.costs.instead_picture import APART, _apart, instead_picture, instead_svg, way_curves


def test_every_way_has_a_curve_with_its_name(small_bundle: Path) -> None:
    found = api.cost(small_bundle, gallery=1000)
    curves = way_curves(found)
    assert [one.kind for one in curves] == [one.kind for one in found.ways]
    for curve in curves:
        assert [items for items, _ in curve.points] == list(SIZES)
    file = instead_svg(found, "small", "a sentence")
    assert file is not None
    ElementTree.fromstring(file)
    for one in found.ways:
        assert f">{one.way}</text>" in file
    assert "a sentence" in file


def test_without_a_gallery_there_is_no_picture(small_bundle: Path) -> None:
    found = api.cost(small_bundle)
    assert instead_picture(found) is None
    assert instead_svg(found, "small", "") is None


def test_names_stay_apart() -> None:
    placed = _apart([100.0, 101.0, 99.0, 300.0, 300.0], 310.0)
    order = sorted(placed)
    assert all(b - a >= APART - 1e-9 for a, b in pairwise(order))
    assert placed[2] < placed[0] < placed[1]
    assert max(order) <= 310
