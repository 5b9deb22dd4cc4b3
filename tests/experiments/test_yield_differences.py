"""Yields of two points on the same dies: McNemar's exact test, over all pairs of points."""

from __future__ import annotations

from typing import Any

import pytest

from cimtool.experiments.dies import difference_sentences, yield_differences


def read(kept: str, corner: str | None = None) -> dict[str, Any]:
    """Dies of a point, `+` where the limit of 0.5 is kept."""
    values = [0.1 if one == "+" else 0.9 for one in kept]
    return {"time": "0 s", "corner": corner, "r1_loss": {"values": values}}


def test_a_difference_counts_the_dies_that_only_one_point_keeps() -> None:
    found = yield_differences([[read("++--")], [read("+++-")], [read("---+")]], {"r1_loss": 0.5})
    assert [(one.best, one.other) for one in found] == [(1, 0), (1, 2)]
    assert [(one.only_best, one.only_other) for one in found] == [(1, 0), (3, 1)]
    # 3 pairs of points; one discordant die alone is chance, as is 3 to 1: 2 (1 + 4) / 16.
    assert [one.chance for one in found] == [1.0, 1.0]
    assert not any(one.told_apart for one in found)


def test_many_dies_tell_points_apart_that_share_them() -> None:
    most, fewer = "+" * 20, "+" * 10 + "-" * 10
    (one,) = yield_differences([[read(fewer)], [read(most)]], {"r1_loss": 0.5})
    assert one.chance == pytest.approx(2 / 2**10)
    assert one.told_apart
    assert one.to_json()["told_apart"]
    (said,) = difference_sentences([one])
    assert said.startswith("yield 0 s after programming: of 20 dies point 1 keeps most, more than ")
    assert "point 0 by more than chance (McNemar's exact test" in said
    # Picked among 20 points on the same dies, the same counts are no proof.
    many = yield_differences([[read(fewer)]] * 19 + [[read(most)]], {"r1_loss": 0.5})
    assert many[0].chance == pytest.approx(190 * 2 / 2**10)
    assert not many[0].told_apart
    assert "not told apart from points 0, 1," in difference_sentences(many)[0]


def test_each_reading_has_its_best_point_and_ties_are_the_chosen_ones() -> None:
    points = [[read("+-"), read("++", "ss")], [read("++"), read("+-", "ss")], [read("++")]]
    found = yield_differences(points, {"r1_loss": 0.5}, chosen=2)
    assert [(one.corner, one.best, one.other) for one in found] == [
        (None, 2, 0), (None, 2, 1), ("ss", 0, 1),
    ]  # fmt: skip
    assert len(difference_sentences(found)) == 2
    assert yield_differences(points, {}) == yield_differences(points, {"map_loss": 1.0}) == ()
