from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from cimtool.base.errors import CimError
from cimtool.base.files import REPORT_FILES
from cimtool.base.json_files import six_digits
from cimtool.bundle.bundle import Bundle
from cimtool.loading.embeddings import Embeddings
from cimtool.report.html import html
from cimtool.report.markdown import markdown
from cimtool.verification.options import DriftOptions
from cimtool.verification.render import write_report
from cimtool.verification.report import Report, json_values, report_schema, schema_text
from cimtool.verification.run import verify_bundle

from .conftest import changed


def test_the_same_findings_are_the_same_bytes(
    report: Report, bundle: Bundle, data: Embeddings
) -> None:
    again = verify_bundle(bundle, data, options=DriftOptions(max_drift={"logit_rmse": 1.0}))
    assert again.json_text() == report.json_text()
    assert (html(again.document()), markdown(again.document())) == (
        html(report.document()),
        markdown(report.document()),
    )


def test_json_holds_the_table(report: Report) -> None:
    read = json.loads(report.json_text())
    assert [row["stage"] for row in read["rows"]] == [row.stage for row in report.drift.rows]
    final = read["rows"][-1]
    assert final["metrics"]["logit_rmse"] == six_digits(report.drift.final.metrics["logit_rmse"])
    assert final["metrics"]["relative_rmse"] == six_digits(
        report.drift.final.metrics["relative_rmse"]
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


PUBLISHED = Path(__file__).resolve().parents[2] / "docs" / "report.schema.json"


def errors(values: Any) -> list[str]:
    return [error.json_path for error in Draft202012Validator(report_schema()).iter_errors(values)]


def test_the_published_schema_is_todays() -> None:
    assert PUBLISHED.read_text() == schema_text(), (
        "write it anew: python -c 'from cimtool.verification.report import schema_text; "
        'print(schema_text(), end="")\' > docs/report.schema.json'
    )
    Draft202012Validator.check_schema(report_schema())


def test_reports_keep_to_it(report: Report, noisy_report: Report, unknown_report: Report) -> None:
    for one in (report, noisy_report, unknown_report):
        assert errors(json.loads(one.json_text())) == []


@pytest.mark.parametrize(
    ("path", "value", "found"),
    [
        (("rows", 0, "metrics"), "near", "$.rows[0].metrics"),
        (("rows", -1, "metrics", "relative_rmse"), "1", "$.rows[{last}].metrics.relative_rmse"),
        (("limits", 0, "kept"), None, "$.limits[0].kept"),
        (("passed",), 1, "$.passed"),
        (("seed",), 0.5, "$.seed"),
        (("format_version",), -1, "$.format_version"),
        (("margins", 0, "unheard_of"), 1, "$.margins[0]"),
    ],
)
def test_what_is_wrong_is_found(
    report: Report, path: tuple[str | int, ...], value: object, found: str
) -> None:
    values = json.loads(report.json_text())
    place = values
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    assert errors(values) == [found.format(last=len(report.drift.rows) - 1)]


def test_everything_is_required(report: Report) -> None:
    values = json.loads(report.json_text())
    del values["notes"], values["headline"]["sentences"]
    assert sorted(errors(values)) == ["$", "$.headline"]
