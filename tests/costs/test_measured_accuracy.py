"""R@1 of the ways: by the report of the bundle, by data, and by no other report."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from cimtool import api
from cimtool.base.errors import CimError
from cimtool.bundle.matcher import load
from cimtool.costs.bundle_cost import BundleCost
from cimtool.costs.ways import WayKind
from cimtool.demo.data import DemoFiles
from cimtool.verification.ranked_data import raw_products


def r1(found: BundleCost, kind: WayKind) -> float | None:
    (way,) = [one for one in found.ways if one.kind == kind]
    return None if way.r1 is None else way.r1.value


@pytest.fixture(scope="module")
def reported(
    small_bundle: Path, small_trunk: DemoFiles, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("reported") / "bundle"
    shutil.copytree(small_bundle, folder)
    api.verify(folder, small_trunk.eval, report=folder)
    return folder


def test_the_report_of_the_bundle_has_r1(reported: Path) -> None:
    found = api.cost(reported, gallery=5000)
    rows = {
        row["stage"]: row["metrics"]["r1_text_to_video"]
        for row in json.loads((reported / "report.json").read_text())["rows"]
    }
    assert r1(found, "digital") == rows["ONNX Runtime"]
    assert r1(found, "Monte Carlo") == rows["Monte Carlo (K=10)"]
    assert r1(found, "raw rows") == r1(found, "GPU") == rows["raw rows, int8"]
    assert r1(found, "in the memory") is None
    assert found.accuracy is not None
    assert (found.accuracy.source, found.accuracy.items) == ("report.json", 40)
    # Its Monte Carlo had 10 samples.
    assert r1(api.cost(reported, gallery=5000, samples=20), "Monte Carlo") is None


def test_data_are_measured_and_agree_with_the_report(
    reported: Path, small_trunk: DemoFiles
) -> None:
    found, told = (
        api.cost(reported, gallery=50, data=small_trunk.eval),
        api.cost(reported, gallery=50),
    )
    for kind in ("digital", "raw rows", "CPU core"):
        assert r1(found, kind) == pytest.approx(r1(told, kind), abs=1e-6)
    assert r1(found, "Monte Carlo") is None
    with np.load(small_trunk.eval) as held:
        scores = load(reported).scores(dict(held))
        right = held["right"] if "right" in held else np.arange(len(scores))
    assert r1(found, "digital") == pytest.approx((scores.argmax(axis=1) == right).mean(), abs=0.03)


def test_a_gain_is_paired_over_the_same_queries(reported: Path, small_trunk: DemoFiles) -> None:
    found = api.cost(reported, gallery=50, data=small_trunk.eval)
    ways = {one.kind: one for one in found.ways}
    raw, built, gain = ways["raw rows"].r1, ways["digital"].r1, ways["digital"].gain
    assert raw is not None
    assert built is not None
    assert gain is not None
    assert ways["raw rows"].gain is None
    assert gain.value == pytest.approx(built.value - raw.value)
    # By hand: the right answers of each text, resampled in pairs.
    assert found.pairs is not None
    right = found.pairs.truth.text_to_video
    hits = [
        one.argmax(axis=1) == right
        for one in (found.pairs.scores, raw_products(found.pairs.data))
        if one is not None
    ]
    gains = hits[0].astype(float) - hits[1]
    assert gain.value == pytest.approx(gains.mean())
    rows = np.random.default_rng(5).integers(0, len(gains), (20_000, len(gains)))
    low, high = np.quantile(gains[rows].mean(axis=1), (0.025, 0.975))
    assert (gain.low, gain.high) == (pytest.approx(low, abs=0.05), pytest.approx(high, abs=0.05))
    # The report's is of the worse way.
    told = {one.kind: one for one in api.cost(reported, gallery=50).ways}["digital"].gain
    worth = json.loads((reported / "report.json").read_text())["worth"]
    assert told is not None
    assert told.value == -worth["of_raw"]["loss"]["value"]
    assert (told.low, told.high) == (worth["gain"]["low"], worth["gain"]["high"])


def test_the_report_of_another_bundle_is_refused(reported: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(reported, other)
    report = json.loads((other / "report.json").read_text())
    report["provenance"]["files"]["score.onnx"] = "0" * 64
    (other / "report.json").write_text(json.dumps(report))
    with pytest.raises(CimError, match=r"report\.json: is the report of another bundle than other"):
        api.cost(other, gallery=50)
    api.cost(other)  # no ways, so nothing is read
    for text in ("{}", "[1]", '{"format_version": 1}'):
        (other / "report.json").write_text(text)
        with pytest.raises(CimError, match=r"report\.json: is not a report of format_version"):
            api.cost(other, gallery=50)
    for change in (
        {"rows": 3},
        {"rows": []},
        {"data": {}},
        {"rows": [{"stage": "x"}]},
        {"worth": {}},
    ):
        (other / "report.json").write_text(
            json.dumps(json.loads((reported / "report.json").read_text()) | change)
        )
        with pytest.raises(CimError, match=r"report\.json: lacks rows of stages"):
            api.cost(other, gallery=50)


def test_data_of_calibration_and_options_alone_are_refused(
    small_bundle: Path, small_trunk: DemoFiles
) -> None:
    with pytest.raises(CimError, match=r"was calibrated on .*; expected unseen rows"):
        api.cost(small_bundle, gallery=50, data=small_trunk.calibration)
    for more in ({"data": small_trunk.eval}, {"measure": True}):
        with pytest.raises(CimError, match="is of ways of a query; expected gallery with it"):
            api.cost(small_bundle, **more)
    with pytest.raises(CimError, match="expected data with it"):
        api.cost(small_bundle, gallery=50, qrels="x.qrels")
