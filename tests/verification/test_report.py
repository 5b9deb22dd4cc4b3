from __future__ import annotations

import json
from pathlib import Path

import pytest

from cimtool.base.errors import CimError
from cimtool.bundle.bundle import Bundle
from cimtool.loading.embeddings import Embeddings
from cimtool.verification.render import REPORT_FILES, html, markdown, write_report
from cimtool.verification.report import Report, json_values, six_digits
from cimtool.verification.run import verify_bundle

from .conftest import changed


def test_the_same_findings_are_the_same_bytes(
    report: Report, bundle: Bundle, data: Embeddings
) -> None:
    again = verify_bundle(bundle, data, limits={"logit_rmse": 1.0})
    assert again.json_text() == report.json_text()
    assert (html(again), markdown(again)) == (html(report), markdown(report))


def test_json_holds_the_table(report: Report) -> None:
    read = json.loads(report.json_text())
    assert [row["stage"] for row in read["rows"]] == [row.stage for row in report.drift.rows]
    final = read["rows"][-1]
    assert final["figures"]["logit_rmse"] == six_digits(report.drift.final.figures["logit_rmse"])
    assert final["figures"]["relative_rmse"] == six_digits(
        report.drift.final.figures["relative_rmse"]
    )
    assert read["limits"][0]["kept"] is True
    assert (read["passed"], read["failures"]) == (True, [])
    assert read["settings"]["weight_bits"] == 8


def test_numbers_have_six_digits_and_no_infinity() -> None:
    assert json_values({"a": (1 / 3, float("inf"), 7)}) == {"a": [0.333333, None, 7]}
    assert six_digits(123456789.0) == 123457000.0
    assert str(six_digits(-0.0)) == "0.0"


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

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(CimError, match="cannot be written \\(No space left on device\\)"):
        write_report(changed(report, bundle="other"), tmp_path)
    monkeypatch.undo()
    assert (tmp_path / "report.json").read_text() == before
    assert {path.name for path in tmp_path.iterdir()} == set(REPORT_FILES)


def test_a_folder_that_is_a_file_is_refused(report: Report, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CimError, match="file: the report cannot be written"):
        write_report(report, tmp_path / "file")
