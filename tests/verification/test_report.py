from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from cimtool.emit.bundle import Bundle
from cimtool.errors import CimError
from cimtool.loading.embeddings import Embeddings
from cimtool.verification import files
from cimtool.verification.files import REPORT_FILES, write_report
from cimtool.verification.render import WIDTH, html, markdown, terminal_table
from cimtool.verification.report import Report, plain, rounded
from cimtool.verification.run import verify_bundle


@pytest.fixture(scope="module")
def report(bundle: Bundle, data: Embeddings) -> Report:
    return verify_bundle(bundle, data, limits={"logit_rmse": 1.0})


def test_the_same_findings_are_the_same_bytes(
    report: Report, bundle: Bundle, data: Embeddings
) -> None:
    again = verify_bundle(bundle, data, limits={"logit_rmse": 1.0})
    assert again.json_text() == report.json_text()
    assert (html(again), markdown(again)) == (html(report), markdown(report))


def test_json_holds_the_table(report: Report) -> None:
    read = json.loads(report.json_text())
    assert [row["stage"] for row in read["rows"]] == [row.stage for row in report.rows]
    final = read["rows"][-1]
    assert report.final.drift is not None
    assert final["drift"]["logit_rmse"] == rounded(report.final.drift.logit_rmse)
    assert final["drift"]["relative_rmse"] == rounded(report.final.drift.relative_rmse)
    assert read["limits"][0]["kept"] is True
    assert (read["passed"], read["failures"]) == (True, [])
    assert read["settings"]["weight_bits"] == 8


def test_numbers_have_six_digits_and_no_infinity() -> None:
    assert plain({"a": (1 / 3, float("inf"), 7)}) == {"a": [0.333333, None, 7]}
    assert rounded(123456789.0) == 123457000.0


@pytest.mark.parametrize("width", [64, 80, 100, 140])
def test_the_terminal_table_fits(report: Report, width: int) -> None:
    text = terminal_table(report, width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "…" not in text
    for row in report.rows:
        assert row.stage in text
    assert ("centred" in text) == (width >= WIDTH)
    assert "0 of 3,360 values differ" not in text or "ONNX" in text
    assert report.headline.sentences[-1].split(":")[0] in text


def test_the_cause_is_marked(report: Report) -> None:
    marked = [line for line in terminal_table(report).splitlines() if " * " in line]
    assert [line.split()[0] for line in marked] == [report.headline.cause]


def test_the_reference_row_shows_its_own_scatter(report: Report) -> None:
    line = next(t for t in terminal_table(report).splitlines() if "Monte Carlo (K=10) ±" in t)
    assert f"{report.reference.standard_error:.4f}" in line
    unknown = replace(report.rows[0], retrieval=None)
    without = replace(report, rows=(unknown, *report.rows[1:]))
    line = next(t for t in terminal_table(without).splitlines() if "not known" in t)
    assert "Monte Carlo" in line


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.links: list[str] = []
        self.inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.inside = tag == "td"
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.cells.append(data)
            self.inside = False


def test_the_page_needs_nothing_else(report: Report) -> None:
    page = Page()
    page.feed(html(report))
    assert page.links == []
    assert {row.stage for row in report.rows} <= set(page.cells)
    assert f"{report.final.polynomial_rmse:.4f}" in page.cells


def test_names_are_escaped(report: Report) -> None:
    assert "<b>x</b>" not in html(replace(report, bundle="<b>x</b>"))


def test_markdown_has_both_tables(report: Report) -> None:
    text = markdown(report)
    assert "| quantized |" in text
    assert text.count("| ONNX Runtime |") == 2
    assert "| t>v R@1 |" in text


def test_files_are_written_beside_others(report: Report, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    written = write_report(report, tmp_path)
    assert tuple(path.name for path in written) == REPORT_FILES
    assert {path.name for path in tmp_path.iterdir()} == {*REPORT_FILES, "manifest.json"}
    assert (tmp_path / "report.json").read_text() == report.json_text()


def test_nothing_is_half_written(
    report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_report(report, tmp_path)
    before = (tmp_path / "report.json").read_text()

    def full(report: Report) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", lambda *arguments: full(report))
    with pytest.raises(CimError, match="cannot be written \\(No space left on device\\)"):
        write_report(replace(report, bundle="other"), tmp_path)
    monkeypatch.undo()
    assert (tmp_path / "report.json").read_text() == before
    assert {path.name for path in tmp_path.iterdir()} == set(files.REPORT_FILES)


def test_a_folder_that_is_a_file_is_refused(report: Report, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CimError, match="file: the report cannot be written"):
        write_report(report, tmp_path / "file")
