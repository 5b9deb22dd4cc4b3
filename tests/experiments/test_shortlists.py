"""Hybrid scores in experiments: what a shortlist leaves, its share of the items, its cost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cimtool import api
from cimtool.base.errors import CimError
from cimtool.bundle.simulate import left_by
from cimtool.demo.data import DemoFiles
from cimtool.experiments.engine import PointsFailed
from cimtool.experiments.shortlists import SHORTLISTED, Shortlist
from cimtool.experiments.sweep import Sweep
from cimtool.hardware.settings import resolve
from cimtool.hardware.target import load_target
from cimtool.loading.embeddings import embeddings_in

RunSweep = Callable[..., Sweep]


def shortlist(length: int | None, items: int, gallery: int | None) -> Shortlist | None:
    own = {"score_mapping": "hybrid", "shortlist": length}
    return Shortlist.of(resolve(load_target("isaac-rram-128"), None, own), items, gallery)


@pytest.mark.parametrize(
    ("length", "items", "gallery", "expected", "measured"),
    [
        (None, 1500, None, Shortlist(100, 1500, 1500), 100),
        (None, 60, None, Shortlist(60, 60, 60), 60),
        (None, 256, 100_000, Shortlist(391, 100_000, 256), 1),
        (1000, 1500, 100_000, Shortlist(1000, 100_000, 1500), 15),
        (100, 1500, 100_000, Shortlist(100, 100_000, 1500), 1),
        (10, 1500, 100, Shortlist(10, 100, 1500), 150),
    ],
)
def test_a_list_is_measured_as_its_share_of_the_items(
    length: int | None, items: int, gallery: int | None, expected: Shortlist, measured: int
) -> None:
    assert shortlist(length, items, gallery) == expected
    assert expected.measured == measured
    digital = resolve(load_target("isaac-rram-128"), None, {})
    assert Shortlist.of(digital, items, gallery) is None


@pytest.mark.parametrize(
    ("length", "items", "gallery", "message"),
    [
        (66, 1500, 100_000, "shortlist = 66: of 100,000 items it is fewer than one of the 1,500 "),
        (66, 1500, 100_000, "expected a list of at least 67, or at least 1,516 items to measure"),
        (200, 150, None, "shortlist = 200: a query is priced among 150 items; expected 1 to 150"),
    ],
)
def test_a_list_that_cannot_be_measured_is_refused(
    length: int, items: int, gallery: int | None, message: str
) -> None:
    with pytest.raises(CimError) as caught:
        shortlist(length, items, gallery)
    assert message in str(caught.value)


def test_items_off_the_list_come_last() -> None:
    scores = np.array([[3.0, 1.0, 2.0], [0.0, 5.0, 4.0]])
    listed = np.array([[False, True, True], [True, False, True]])
    left = left_by(listed, scores)
    assert left.argmax(axis=1).tolist() == [2, 2]
    assert left.argmin(axis=1).tolist() == [0, 1]


@pytest.mark.thorough("a bundle is compiled and programmed; the unit tests are in the first tier")
def test_a_point_answers_as_the_programmed_bundle(
    sweep_small: RunSweep, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    files, length = small_trunk, 3
    grid = {"score_mapping": ["hybrid"], "shortlist": [length]}
    (point,) = sweep_small(tmp_path / "s", grid).outcomes
    built = api.compile(
        files.projectors, files.poly, calibration=files.calibration, target="isaac-rram-128",
        score_mapping="hybrid", shortlist=length, drift="given", output=tmp_path / "made",
    )  # fmt: skip
    programmed = api.program(built.folder, files.eval, output=tmp_path / "programmed").bundle
    found = api.simulate(programmed.folder, files.eval, top=1)["top_index"][:, 0]
    data = embeddings_in(files.eval)
    assert data.text_to_video is not None
    first = float((np.asarray(found) == data.text_to_video).mean())
    assert point.metrics["r1_text_to_video"] == pytest.approx(first)
    assert point.cost["arrays"] == api.cost(programmed.folder).floorplan.arrays
    (note,) = (one for one in point.warnings if one.startswith(SHORTLISTED))
    assert f"after a shortlist of {length} of the {len(data.video):,} videos; it holds" in note


@pytest.mark.thorough("a bundle is compiled; the demo's own costs are in the docs")
def test_a_query_costs_what_cost_says_of_the_bundle(
    sweep_small: RunSweep, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    files, length, gallery = small_trunk, 100, 2_000
    grid = {"score_mapping": ["hybrid"], "shortlist": [length]}
    (point,) = sweep_small(tmp_path / "s", grid, gallery=gallery).outcomes
    built = api.compile(
        files.projectors, files.poly, calibration=files.calibration, target="isaac-rram-128",
        score_mapping="hybrid", shortlist=length, drift="given", output=tmp_path / "made",
    )  # fmt: skip
    ways = api.cost(built.folder, gallery=gallery).all_ways
    (way,) = (one for one in ways if one.note == "items of whole mu")
    assert point.cost["energy_pj"] == pytest.approx(way.energy_pj.value, rel=1e-3)


def test_a_list_too_short_to_measure_is_the_sentence_of_its_point(
    sweep_small: RunSweep, tmp_path: Path
) -> None:
    grid = {"score_mapping": ["hybrid"], "shortlist": [1]}
    with pytest.raises(PointsFailed) as caught:
        sweep_small(tmp_path / "s", grid, gallery=100_000)
    assert "of 100,000 items it is fewer than one of the" in str(
        caught.value.found.outcomes[0].error
    )
