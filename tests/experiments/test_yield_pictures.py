"""Pictures of the yield: along which key, which lines, and what they say in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from cimtool.experiments.budgets import Choice, DriftBudget
from cimtool.experiments.compiled import Outcome
from cimtool.experiments.dies import DieRequest, spread_over_dies
from cimtool.experiments.points import points, read_grid
from cimtool.experiments.references import Remarks
from cimtool.experiments.render_sweep import yield_pictures
from cimtool.experiments.sweep import Sweep
from cimtool.report.html import html

GRID: dict[str, list[Any]] = {"equalise": [True, False], "adc_bits": [8, 6, 7], "rows_active": [64]}


@pytest.fixture
def swept(made: Callable[..., Outcome]) -> Sweep:
    """Six points with four dies each; of point `i` all but `i` dies keep the limit."""
    axes = read_grid(GRID)
    outcomes = []
    for index, _ in enumerate(product(*GRID.values())):
        losses = [0.5 if die < index else 0.0 for die in range(4)]
        dies = spread_over_dies(
            "1 h", "ss", [{"r1_loss": one} for one in losses], [{"r1_loss": (0.0, 0.5)}] * 4
        )
        known = {"latency_ns": None, "latency_missing": ""}
        outcomes.append(replace(made(0.1, **known), dies=(dies,)))
    return Sweep(
        model="m",
        data={
            "file": "eval.npz",
            "texts": 40,
            "videos": 30,
            "modalities": ("text", "video"),
            "gallery": 30,
        },
        reference="exact",
        baselines={},
        baseline_intervals={},
        remarks=Remarks(),
        grid=axes,
        dies=DieRequest(4, ("1h",), 0),
        points=points(axes, "isaac-rram-128", None),
        outcomes=outcomes,
        resumed=0,
        chosen=Choice(DriftBudget({"r1_loss": 0.1}), 0, "arrays", 6),
    )


def test_the_key_of_most_values_is_the_axis_and_the_next_the_lines(swept: Sweep) -> None:
    (picture,) = yield_pictures(swept)
    chart, caption = picture.svg, picture.caption
    assert (
        "Share of dies with r1_loss up to 0.1, read 1 h after programming at corner ss" in caption
    )
    assert "rows_active=64" in caption
    order = [chart.index(f">{bits}</text>") for bits in (6, 7, 8)]
    assert order == sorted(order)
    assert ">equalise=true</text>" in chart
    assert "against adc_bits at rows_active=64: 6: 75% (19 to 99); 7: 50%" in chart


def test_the_page_shows_yields_and_says_what_they_are_of(swept: Sweep) -> None:
    page = html(swept.document())
    assert "<h2>Yield</h2>" in page
    assert "4 dies of seed 0 with r1_loss up to 0.1 against exact" in page
    assert "40 texts x 30 videos" in page
    without = html(replace(swept, chosen=None).document())
    assert "Yield" not in without
    assert yield_pictures(replace(swept, remarks=Remarks(("BROKEN",), checked=False))) == []
