from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from cimtool.verification.report import Report, report_schema, schema_text

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
        (("rows", 0, "figures"), "near", "$.rows[0].figures"),
        (("rows", -1, "figures", "relative_rmse"), "1", "$.rows[{last}].figures.relative_rmse"),
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
