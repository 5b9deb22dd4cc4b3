from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

from cimtool.reference.limits import DriftLimit
from cimtool.verification.bits import BitCount
from cimtool.verification.junit import junit_text, write_junit
from cimtool.verification.report import Report

from .conftest import changed


def test_a_case_a_check(report: Report, tmp_path: Path) -> None:
    write_junit(report, tmp_path / "new" / "junit.xml")
    root = ElementTree.parse(tmp_path / "new" / "junit.xml").getroot()
    (suite,) = root
    cases = [(case.get("classname"), case.get("name")) for case in suite]
    assert ("cimtool.verify.bits", "logit, ONNX Runtime") in cases
    assert ("cimtool.verify.bits", "logit, the NumPy reference") in cases
    assert ("cimtool.verify.finite", "float.onnx") in cases
    assert ("cimtool.verify.limit", "logit_rmse at most 1") in cases
    assert len(set(cases)) == len(cases)
    for one in (root, suite):
        assert (one.get("tests"), one.get("failures")) == (f"{len(cases)}", "0")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["junit.xml"]


def test_failures_are_the_sentences_of_the_report(report: Report) -> None:
    differs = BitCount("ONNX Runtime", "text.mu", 400, 1, (0, 3), 1.5, 2.0)
    broken = changed(
        report,
        bits=(differs, *report.checks.bits[1:]),
        limits=(DriftLimit("logit_rmse", 0.1, 0.2),),
    )
    suite = ElementTree.fromstring(junit_text(broken))[0]
    said = [one.get("message") for one in suite.iter("failure")]
    assert tuple(said) == broken.failures
    assert suite.get("failures") == "2"


def test_any_name_is_well_formed_xml(report: Report) -> None:
    name = "a<b>&\"'\x00\x1b\ud800]]>\u2603"
    suite = ElementTree.fromstring(junit_text(changed(report, bundle=name)).encode())[0]
    assert suite.get("name") == "a<b>&\"'\ufffd\ufffd\ufffd]]>\u2603"
    odd = replace(report.checks.float_file, file="x\x01\n<y>", finite=0)
    text = junit_text(changed(report, float_file=odd))
    (failure,) = ElementTree.fromstring(text).iter("failure")
    assert failure.get("message", "").startswith("x\ufffd\n<y>: ")
