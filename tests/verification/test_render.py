from __future__ import annotations

from dataclasses import replace

import pytest

from cimtool.verification.answers import survival_sentence
from cimtool.verification.render import WIDTH, markdown, terminal_text
from cimtool.verification.report import Report

from .conftest import changed, of_target


@pytest.mark.parametrize("width", [64, 80, 100, 140])
def test_the_terminal_text_fits(report: Report, noisy_report: Report, width: int) -> None:
    for one in (report, noisy_report):
        text = terminal_text(one, width)
        assert max(len(line) for line in text.splitlines()) <= width
        assert "…" not in text
        for row in (*one.drift.shown, *one.drift.survivors):
            assert row.stage in text
        assert ("centred" in text) == (width >= WIDTH)
        words = " ".join(text.split())
        for sentence in (*one.headline.sentences, *one.causes.advice, *one.notes):
            assert sentence in words


def test_a_narrow_terminal_has_intervals_below_their_figures(report: Report) -> None:
    lines = terminal_text(report, 64).splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith(" compiled model"))
    assert "[" not in lines[at]
    assert lines[at + 1].count("[") == 3


def test_the_cause_is_marked(report: Report) -> None:
    marked = [line for line in terminal_text(report).splitlines() if " * " in line]
    assert [line.split()[0] for line in marked] == [report.headline.cause]


def test_what_is_not_known_says_so(unknown_report: Report) -> None:
    text = terminal_text(unknown_report)
    assert "exact              not known" in text
    assert "standard error" not in text


def test_markdown_answers_first_and_folds_the_rest(report: Report) -> None:
    text = markdown(report)
    first, rest = text.split("## Drift")
    assert f"**{survival_sentence(report)}.**" in first
    assert report.headline.sentences[0] in first
    assert first.startswith(f"# {report.subject.bundle}: all checks hold")
    assert markdown(changed(report, limits=())).startswith(
        f"# {report.subject.bundle}: bits agree, no limit was set"
    )
    assert "| compiled model |" in first
    assert all(
        f"Next: {one.partition(',')[0]}" in first.replace("\\", "") for one in report.causes.advice
    )
    assert len(first.splitlines()) < 30
    assert rest.count("<details>") == rest.count("</details>") == 3
    assert "| quantized |" in rest
    assert text.count("| ONNX Runtime |") == 2
    assert rest.index("| t>v R@1 |") > rest.index("<summary>Retrieval</summary>")


def test_markdown_says_what_failed(report: Report) -> None:
    limit = replace(report.checks.limits[0], limit=0.0)
    text = markdown(changed(report, limits=(limit,)))
    assert text.startswith(f"# {report.subject.bundle}: 1 check failed")
    assert f"* **{limit.sentence()}**".replace("_", "\\_") in text


def test_names_are_no_markup(report: Report) -> None:
    text = markdown(changed(replace(report, notes=("[c](d)",)), bundle="<img src=x> *a* |b|"))
    assert "<img" not in text
    assert "# &lt;img src=x> \\*a\\* \\|b\\|" in text
    assert "\\[c\\](d)" in text


def test_warnings_stand_under_the_headline_and_what_is_not_modelled_last(report: Report) -> None:
    noted = replace(report, notes=("warning: look", "not modelled: x"))
    lines = terminal_text(of_target(noted, unmodelled=("x",)), 200).splitlines()
    warning, first = lines.index("warning: look"), lines.index(f"Next: {report.causes.advice[0]}.")
    assert report.headline.sentences[-1] == lines[warning - 1]
    assert warning < first
    assert lines[-1] == "not modelled: x"
    assert lines.count("not modelled: x") == 1


def test_saturation_that_is_not_there_is_one_line(report: Report) -> None:
    inside = tuple(replace(one, outside=0.0) for one in report.saturation.domains)
    unclipped = tuple(replace(one, clipped=0.0) for one in report.saturation.stored)
    text = terminal_text(changed(report, domains=inside, stored=unclipped), 200)
    assert text.count("no pair is outside the domain of the compiled score") == 1
    assert "saturate" not in text
    assert "stored values: none is clipped" in text
    beyond = (replace(inside[0], outside=0.25), *inside[1:])
    text = terminal_text(changed(report, domains=beyond), 200)
    assert text.count(": 25.000% of the pairs are outside and saturate") == 1
    assert "no pair is outside" not in text
