"""`cimtool verify` beside an earlier report, and its checks as JUnit XML."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from cimtool import api
from cimtool.base.errors import CimError
from cimtool.demo.data import DemoFiles

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def bundles(small_trunk: DemoFiles, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """The same model with 8 and 2 bits a weight."""
    folder = tmp_path_factory.mktemp("bundles")
    return {
        bits: api.compile(
            small_trunk.projectors,
            small_trunk.poly,
            calibration=small_trunk.calibration,
            target="ideal",
            output=folder / f"b{bits}",
            weight_bits=bits,
        ).folder
        for bits in (8, 2)
    }


@pytest.fixture(scope="module")
def before(
    bundles: dict[int, Path], small_trunk: DemoFiles, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The report on 8 bits."""
    folder = tmp_path_factory.mktemp("before")
    api.verify(bundles[8], small_trunk.eval, report=folder)
    return folder / "report.json"


@pytest.fixture
def verified(cimtool: Run, small_trunk: DemoFiles, tmp_path: Path) -> Run:
    def verify(bundle: Path, *options: object) -> Any:
        return cimtool("verify", bundle, "--data", small_trunk.eval, "--report", tmp_path, *options)

    return verify


@pytest.mark.thorough("the same by another command or kind of data")
def test_the_same_bundle_passes(
    verified: Run, bundles: dict[int, Path], before: Path, tmp_path: Path
) -> None:
    ran = verified(bundles[8], "--baseline", before, "--junit", tmp_path / "checks.xml")
    assert (ran.status, ran.err) == (0, "")
    assert f"No worse than {before}" in ran.out
    *_, wrote, next_ = ran.out.splitlines()
    assert wrote.endswith("report.html, checks.xml")
    assert next_ == f"next: cimtool cost {bundles[8]} --gallery N"
    found = json.loads((tmp_path / "report.json").read_text())
    assert {one["loss"]["value"] for one in found["earlier"]["figures"]} == {0.0}
    suite = ElementTree.parse(tmp_path / "checks.xml").getroot()[0]
    names = [case.get("name") for case in suite]
    assert "R@1 text to video, worse by at most 0" in names
    assert suite.get("failures") == "0"


@pytest.mark.thorough("more of the same kind")
def test_a_degraded_one_fails_with_status_1_after_the_whole_report(
    verified: Run, bundles: dict[int, Path], before: Path, tmp_path: Path
) -> None:
    given = ("--baseline", before, "--junit", tmp_path / "checks.xml")
    ran = verified(bundles[2], *given, "-v")
    assert ran.status == 1
    assert "top-1 agreement is " in ran.sentence
    assert "; the tolerance is 0.05" in ran.sentence
    assert "difference verdict" in ran.out
    assert f"WORSE than {before}: " in ran.out
    suite = ElementTree.parse(tmp_path / "checks.xml").getroot()[0]
    assert "; ".join(one.get("message", "") for one in suite.iter("failure")) == ran.sentence
    assert "WORSE" in (tmp_path / "report.md").read_text()
    # Whoever says that all of it may be lost has no failure.
    lenient = ("centred_rmse=99", "logit_rmse=99", "r1_loss=1", "top1_agreement_loss=1")
    options = [part for one in lenient for part in ("--tolerance", one)]
    assert verified(bundles[2], *given, *options).status == 0


@pytest.mark.thorough("two reports")
def test_a_run_that_is_refused_leaves_no_junit_file_of_an_earlier_one(
    verified: Run, bundles: dict[int, Path], before: Path, tmp_path: Path
) -> None:
    junit = tmp_path / "checks.xml"
    for wrong in (
        ("--max-drift", "r1_loss"),
        ("--baseline", tmp_path / "none.json"),
        ("--max-drift", "r1_los=0"),
    ):
        junit.write_text("<testsuites/>")
        assert verified(bundles[8], *wrong, "--junit", junit).status == 2
        assert not junit.exists(), wrong
    junit.write_text("<testsuites/>")
    assert verified(tmp_path / "no-bundle", "--junit", junit).status == 2
    assert not junit.exists()
    junit.write_text("<testsuites/>")
    with pytest.raises(CimError):
        api.verify(tmp_path / "no-bundle", before, junit=junit)
    assert not junit.exists()
    # What is no JUnit file's name or an input stays.
    for kept in (tmp_path / "model.pth", tmp_path / "before.xml"):
        kept.write_bytes(before.read_bytes())
        assert verified(bundles[8], "--baseline", kept, "--junit", kept).status == 2
        assert verified(bundles[8], "--junit", tmp_path / "model.pth").status == 2
        assert kept.exists()


def test_mistakes_are_one_sentence(
    verified: Run, cimtool: Run, bundles: dict[int, Path], small_trunk: DemoFiles, before: Path,
    tmp_path: Path,
) -> None:  # fmt: skip
    def refused(*options: object) -> str:
        ran = verified(bundles[8], *options)
        assert (ran.status, ran.out) == (2, "")
        return str(ran.sentence)

    assert "there is no such file" in refused("--baseline", tmp_path / "none.json")
    assert "--tolerance is given without --baseline" in refused("--tolerance", "r1_loss=0")
    assert "METRIC=VALUE" in refused("--baseline", before, "--tolerance", "r1_loss")
    assert '"r1_los" is not known' in refused("--baseline", before, "--tolerance", "r1_los=0")
    assert "the output is an .xml file" in refused("--junit", tmp_path / "checks.json")
    copy = tmp_path / "report.json"
    copy.write_bytes(before.read_bytes())
    assert "the report is written over it; expected" in refused("--baseline", copy)
    copy.unlink()
    same = tmp_path / "before.xml"
    same.write_bytes(before.read_bytes())
    assert "is the file of --baseline, which would be overwritten" in refused(
        "--baseline", same, "--junit", same
    )
    with np.load(small_trunk.eval) as held:
        np.savez(tmp_path / "other.npz", text=held["text"][1:], video=held["video"][1:])
    options = ("--data", tmp_path / "other.npz", "--report", tmp_path, "--baseline", before)
    ran = cimtool("verify", bundles[8], *options)
    assert (ran.status, ran.out) == (2, "")
    assert "reports on other data than" in ran.sentence
    assert sorted(one.name for one in tmp_path.iterdir()) == ["before.xml", "other.npz"]
