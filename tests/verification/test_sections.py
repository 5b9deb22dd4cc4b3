"""A section that another package brings: measured, shown in every medium, in JSON, and compared."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from cimtool.bundle.bundle import Bundle
from cimtool.loading.embeddings import Embeddings
from cimtool.report.document import Block, Section, Sentence
from cimtool.report.html import html
from cimtool.report.markdown import markdown
from cimtool.report.terminal import terminal
from cimtool.verification.earlier import Earlier, read_earlier
from cimtool.verification.report import Report, report_schema
from cimtool.verification.run import verify_bundle
from cimtool.verification.sections import ComparedFigure, ReportSection, SectionInputs, number_at


@pytest.fixture
def counted() -> Iterator[type[ReportSection]]:
    class Counted(ReportSection, name="counted"):
        figures = (ComparedFigure("rows", "", ("texts",)),)

        @classmethod
        def measure(cls, measured: SectionInputs) -> int | None:
            return len(measured.data.text)

        @classmethod
        def values(cls, found: int) -> Mapping[str, Any]:
            return {"texts": found}

        @classmethod
        def blocks(cls, found: int, bundle: str) -> tuple[Block, ...]:
            said = Sentence(f"{bundle} <b>has</b> {found}")
            return (Section("How many?", (said,), "many", 2),)

    ReportSection.every()
    yield Counted
    del ReportSection.family["counted"]


def test_a_section_is_in_every_medium_and_is_compared(
    counted: type[ReportSection], bundle: Bundle, data: Embeddings, tmp_path: Path
) -> None:
    report = verify_bundle(bundle, data, folder=tmp_path)
    assert report.sections["counted"] == 40
    shown = report.document()
    assert "How many? small <b>has</b> 40" in terminal(shown, verbose=True)
    assert "## How many?\n\nsmall &lt;b>has&lt;/b> 40" in markdown(shown)
    assert "small &lt;b&gt;has&lt;/b&gt; 40" in html(shown)
    values = json.loads((tmp_path / "report.json").read_text())
    assert values["sections"]["counted"] == {"texts": 40}
    assert list(Draft202012Validator(report_schema()).iter_errors(values)) == []
    again = verify_bundle(bundle, data, earlier=Earlier(read_earlier(tmp_path / "report.json"), {}))
    assert again.checks.earlier is not None
    beside = {one.label: (one.now, one.before) for one in again.checks.earlier.beside}
    assert beside["rows"] == (40, 40)


def test_the_costs_are_a_section_like_any_other(report: Report) -> None:
    assert list(report.sections) == ["cost"]
    assert report.to_json()["sections"]["cost"]["layout"]["arrays"] > 0


@pytest.mark.parametrize("values", [{"a": True}, {"a": "1"}, {"a": {}}, [], None, {"a": [1]}])
def test_what_is_no_number_is_not_known(values: object) -> None:
    assert number_at(values, ["a"]) is None
    assert number_at({"a": values}, ["a", "a"]) is None
