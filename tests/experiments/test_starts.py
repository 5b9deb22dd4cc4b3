"""Starts of a tuning: combinations of a grid, and the ways of a gallery beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cimtool import api
from cimtool.base.errors import CimError
from cimtool.demo.data import DemoFiles
from cimtool.experiments.objectives import CostObjective
from cimtool.experiments.options import TuneOptions
from cimtool.experiments.starts import starts_of
from cimtool.report.terminal import terminal

AUTOMATIC = [
    {"score_mapping": "hybrid", "shortlist": 100},
    {"score_mapping": "hybrid", "shortlist": 1000},
]


def starts(objective: str = "query_energy", **given: Any) -> tuple[list[Any], list[Any]]:
    needed = {"calibration": "c.npz", "data": "d.npz", "target": "isaac-rram-128"}
    options = TuneOptions(projectors="m.pth", budget={"r1_loss": 0.1}, **needed | given)
    asked, beside = starts_of(options, CostObjective.of(objective))
    return [values for values, _ in asked], [values for values, _ in beside]


def test_shortlists_are_tried_beside_the_digital_score_of_a_gallery() -> None:
    assert starts(gallery=10_000) == ([{"score_mapping": "digital"}], AUTOMATIC)
    assert starts(gallery=10_000, objective="latency")[1] == AUTOMATIC
    both = [{"adc_bits": 6, **one} for one in AUTOMATIC]
    assert starts(gallery=10_000, grid={"adc_bits": [6]})[1] == both


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"gallery": 10_000, "objective": "arrays"},
        {"gallery": 10_000, "score_mapping": "digital"},
        {"gallery": 10_000, "grid": {"score_mapping": ["digital", "in-memory"]}},
        {"gallery": 10_000, "score_mapping": "hybrid", "grid": {"shortlist": [50]}},
    ],
)
def test_they_are_not_if_the_way_is_given(given: dict[str, Any]) -> None:
    assert starts(**given)[1] == []


def test_only_a_hybrid_score_has_a_length() -> None:
    grid = {"score_mapping": ["digital", "hybrid"], "shortlist": [50, 200]}
    asked, _ = starts(grid=grid)
    assert asked == [
        {"score_mapping": "digital"},
        {"score_mapping": "hybrid", "shortlist": 50},
        {"score_mapping": "hybrid", "shortlist": 200},
    ]
    with pytest.raises(CimError, match='"digital" uses none'):
        starts(shortlist=50)


@pytest.mark.thorough("a whole tuning; choices of starts are in the first tier")
def test_a_query_of_a_large_gallery_is_tuned_with_a_shortlist(
    small_trunk: DemoFiles, tmp_path: Path
) -> None:
    files = small_trunk
    found = api.tune(
        files.projectors, files.poly, calibration=files.calibration, data=files.eval,
        target="isaac-rram-128", budget={"r1_loss": 0.2}, gallery=2_000,
        output=tmp_path / "bits.toml",
    )  # fmt: skip
    digital, *others = found.starts
    (chosen,) = (one for one in others if one.chosen)
    assert chosen.values["score_mapping"] == "hybrid"
    assert digital.dearer
    assert not digital.cost
    assert found.chosen_cost["query_energy"] < digital.first["query_energy"] / 2
    text = " ".join(terminal(found.document(), verbose=True).split())
    assert "score_mapping tried: digital, hybrid; not tried: in-memory" in text
    assert "against score_mapping=digital with its highest bits, 0." in text
    assert "R@1, mAP and top-1 agreement are after a shortlist of" in text
    built = api.compile(
        files.projectors, files.poly, calibration=files.calibration, target="isaac-rram-128",
        settings=found.written, output=tmp_path / "bundle",
    )  # fmt: skip
    ways = api.cost(built.folder, gallery=2_000).all_ways
    (way,) = (one for one in ways if one.note == "items of whole mu")
    assert way.energy_pj.value == pytest.approx(found.chosen_cost["query_energy"], rel=0.02)
