from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from cimtool.base.errors import CimError
from cimtool.bundle.bundle import Bundle
from cimtool.loading.embeddings import Embeddings, embeddings_of
from cimtool.report.html import html
from cimtool.report.markdown import markdown
from cimtool.report.terminal import terminal
from cimtool.verification.earlier import Earlier, earlier_of, read_earlier
from cimtool.verification.report import Report, VerificationFailed, report_schema
from cimtool.verification.report_format import FORMAT_VERSION, LARGEST_REPORT
from cimtool.verification.run import verify_bundle

from .conftest import MakeBundle, pairs

Change = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def written(report: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("before") / "report.json"
    file.write_text(report.json_text())
    return file


@pytest.fixture(scope="module")
def degraded(make_bundle: MakeBundle, written: Path, data: Embeddings) -> Report:
    bundle = make_bundle("degraded", weight_bits=3)
    with pytest.raises(VerificationFailed) as failed:
        verify_bundle(bundle, data, earlier=Earlier(read_earlier(written), {}))
    return failed.value.report


def test_a_report_reads_back_what_it_keeps(report: Report, written: Path) -> None:
    found = read_earlier(written)
    own = report.drift.queries.compiled.queries
    for side in ("text", "video"):
        kept, read = getattr(own, side), getattr(found.compiled, side)
        assert list(kept) == list(read)
        assert all(kept[name].tolist() == read[name].tolist() for name in kept)
    assert found.digest == report.subject.data.digest
    assert (found.bundle, found.reference) == (report.subject.bundle, "exact")
    assert found.sections["cost"]["layout"]["arrays"] > 0


def test_the_same_bundle_is_no_worse(bundle: Bundle, data: Embeddings, written: Path) -> None:
    found = verify_bundle(bundle, data, earlier=Earlier(read_earlier(written), {"logit_rmse": 0}))
    earlier = found.checks.earlier
    assert earlier is not None
    assert {one.loss.value for one in earlier.figures} == {0}
    assert len(earlier.beside) == 8
    assert all(one.now == one.before for one in earlier.beside)
    assert f"No worse than {written}" in terminal(found.document())
    values = json.loads(found.json_text())
    assert list(Draft202012Validator(report_schema()).iter_errors(values)) == []
    assert {one["verdict"] for one in values["earlier"]["figures"]} == {"no difference"}


@pytest.mark.thorough("two bundles and their reports")
def test_a_degraded_bundle_fails_and_says_where(degraded: Report) -> None:
    earlier = degraded.checks.earlier
    assert earlier is not None
    failed = [one.label for one in earlier.figures if one.failed]
    # These pairs are so far apart that ranks hardly change: the error tells.
    assert failed == ["centred logit RMSE", "logit RMSE"]
    assert degraded.failures[0].startswith("centred logit RMSE is ")
    shown = degraded.document()
    for text in (terminal(shown, verbose=True), markdown(shown), html(shown)):
        assert "WORSE" in text
        assert "conversions of a query" in text
    values = json.loads(degraded.json_text())
    assert list(Draft202012Validator(report_schema()).iter_errors(values)) == []
    assert values["passed"] is False


def test_other_data_are_refused_before_anything_runs(bundle: Bundle, written: Path) -> None:
    other = embeddings_of(pairs(40, seed=8), "others")
    with pytest.raises(CimError, match="reports on other data than others, or on other rows of it"):
        verify_bundle(bundle, other, earlier=Earlier(read_earlier(written), {}), say=pytest.fail)


def set_to(*path: str | int, value: object) -> Change:
    def change(values: dict[str, Any]) -> None:
        place: Any = values
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value

    return change


RANKS = ("queries", "compiled", "text", "rank")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (set_to("format_version", value=4), "has format_version 4; expected"),
        (set_to("format_version", value="5"), "is not a report"),
        (set_to("format_version", value=10**40), "is not a report"),
        (lambda values: values.pop("queries"), "is not a report"),
        (lambda values: values.pop("passed"), "is not a report"),
        (set_to("bundle", value="x" * 2000), "bundle is not a name"),
        (set_to("bundle", value="\x1b[2J"), "bundle is not a name"),
        (set_to("sections", value=[]), "sections is not a table"),
        (set_to("data", "digest", value=7), "digest is not a name"),
        (set_to(*RANKS, value=[]), r"queries\.compiled\.text\.rank is not a list of 1 to 16,384"),
        (set_to(*RANKS, value=[1] * 20_000), "is not a list of 1 to 16,384 numbers"),
        (
            set_to(*RANKS, 3, value="1"),
            r"compiled\.text\.rank\[3\] is not a number from 0 to "
            r"1e\+30",
        ),
        (set_to(*RANKS, 3, value=True), r"rank\[3\] is not a number"),
        (set_to(*RANKS, 3, value=-1), r"rank\[3\] is not a number"),
        (set_to(*RANKS, 3, value=1e300), r"rank\[3\] is not a number"),
        (set_to(*RANKS, 3, value=float("nan")), r"rank\[3\] is not a number"),
        (set_to(*RANKS, 3, value=10**30), r"rank\[3\] is not a number"),
        (set_to("queries", "reference", "video", value=None), "video is not a table"),
    ],
)
def test_what_is_no_report_is_one_sentence(
    change: Change, said: str, report: Report, tmp_path: Path
) -> None:
    values = json.loads(report.json_text())
    change(values)
    file = tmp_path / "other.json"
    file.write_text(json.dumps(values))
    with pytest.raises(CimError, match=said) as refused:
        read_earlier(file)
    assert str(refused.value).startswith(f"{file}: ")
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "not valid JSON"),
        (b"[" * 10_000, "nested more than 64 deep"),
        (b"[]", "is not a report"),
        (b" " * (LARGEST_REPORT + 1), "expected at most 16,777,216 of such a file"),
    ],
    ids=["cut", "deep", "list", "large"],
)
def test_hostile_files_are_one_sentence(content: bytes, said: str, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_bytes(content)
    with pytest.raises(CimError, match=said):
        read_earlier(file)


def test_another_file_with_a_version_is_no_report(small_bundle: Path) -> None:
    with pytest.raises(CimError, match=r"manifest\.json: is not a report; expected a report\.json"):
        read_earlier(small_bundle / "manifest.json")


def test_arguments_that_do_not_fit(written: Path, tmp_path: Path) -> None:
    assert earlier_of(None, None, tmp_path) is None
    with pytest.raises(CimError, match="tolerance is given without baseline"):
        earlier_of(None, {"r1_loss": 0.1}, tmp_path)
    with pytest.raises(CimError, match=r"tolerance r1_loss: -0\.1 is below 0"):
        earlier_of(written, {"r1_loss": -0.1}, tmp_path)
    with pytest.raises(CimError, match='"r1_los" is not known'):
        earlier_of(written, {"r1_los": 0.1}, tmp_path)
    with pytest.raises(CimError, match="the report is written over it"):
        earlier_of(written, {}, written.parent)
    assert FORMAT_VERSION == 8
