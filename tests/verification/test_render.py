from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cimtool.base.escapes import markdown_text
from cimtool.bundle.placement_picture import placement_svg
from cimtool.reference.limits import DriftLimit
from cimtool.report.formats import number
from cimtool.report.html import html
from cimtool.report.markdown import markdown
from cimtool.report.page import picture_url
from cimtool.report.terminal import terminal
from cimtool.verification.answers import survival_sentence
from cimtool.verification.bits import BitCount
from cimtool.verification.margins import PairSample
from cimtool.verification.render import junit_text, reliability_chart, write_junit
from cimtool.verification.report import Report

from .conftest import changed, of_target


@pytest.mark.thorough("one width stands for the others", quick=("80",))
@pytest.mark.parametrize("width", [64, 80, 100, 140])
def test_the_terminal_text_fits(report: Report, noisy_report: Report, width: int) -> None:
    for one in (report, noisy_report):
        text = terminal(one.document(), width, verbose=True)
        assert max(len(line) for line in text.splitlines()) <= width
        assert "…" not in text
        for row in (*one.drift.shown, *one.drift.survivors):
            assert row.stage in text
        assert "corr." in text, "with all details a narrow table goes on below"
        assert "corr." not in terminal(one.document(), width)
        words = " ".join(text.split())
        for sentence in (*one.headline.sentences, *one.causes.advice, *one.notes):
            assert sentence in words


def test_a_narrow_terminal_has_intervals_below_their_figures(report: Report) -> None:
    lines = terminal(report.document(), 64, verbose=True).splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith(" compiled model"))
    assert "[" not in lines[at]
    assert lines[at + 1].count("[") == 3


def test_the_cause_is_marked(report: Report) -> None:
    lines = terminal(report.document(), verbose=True).splitlines()
    marked = [line for line in lines if " * " in line]
    assert [line.split()[0] for line in marked] == [report.headline.cause]


def test_what_is_not_known_says_so(unknown_report: Report) -> None:
    text = terminal(unknown_report.document(), verbose=True)
    assert re.search("exact +not known", text)
    assert "standard error" not in text


def test_markdown_answers_first_and_folds_the_rest(report: Report) -> None:
    text = markdown(report.document())
    first, rest = text.split("## Error budget")
    assert f"**{markdown_text(report.drift.worth.sentence)}**" in first
    assert markdown_text(survival_sentence(report)) in first
    assert report.headline.sentences[0] in rest.replace("\\", "")
    assert first.startswith(f"# {report.subject.bundle}: all checks hold")
    assert markdown(changed(report, limits=()).document()).startswith(
        f"# {report.subject.bundle}: bits agree"
    )
    assert "| compiled model |" in first
    assert all(
        f"Next: {one.partition(',')[0]}" in first.replace("\\", "") for one in report.causes.advice
    )
    assert first.index("| compiled model |") < 30 * 80
    assert rest.count("<details>") == rest.count("</details>") > 3
    assert "| quantized |" in rest.partition("<summary>Retrieval")[0]
    assert rest.index("| t>v R@1 |") > rest.index("<summary>Retrieval</summary>")


def test_markdown_says_what_failed(report: Report) -> None:
    limit = replace(report.checks.limits[0], limit=0.0)
    text = markdown(changed(report, limits=(limit,)).document())
    assert text.startswith(f"# {report.subject.bundle}: 1 check failed")
    assert f"* **Failed: {limit.sentence()}**".replace("_", "\\_") in text


def test_names_are_no_markup(report: Report) -> None:
    named = changed(replace(report, notes=("[c](d)",)), bundle="<img src=x> *a* |b|")
    text = markdown(named.document())
    assert "<img" not in text
    assert "# &lt;img src=x> \\*a\\* \\|b\\|" in text
    assert "\\[c\\](d)" in text


def test_warnings_stand_under_the_headline_and_what_is_not_modelled_last(report: Report) -> None:
    noted = replace(report, notes=("warning: look",), warnings=("look",))
    lines = terminal(of_target(noted, unmodelled=("x",)).document(), 300, verbose=True).splitlines()
    warning = lines.index("* warning: look")
    first = lines.index(f"Next: {report.causes.advice[0]}.")
    assert report.drift.worth.sentence in lines[:warning]
    assert warning < first < lines.index("What is not modelled?") < lines.index("* x")
    assert lines.count("* x") == 1


def test_saturation_that_is_not_there_is_one_line(report: Report) -> None:
    inside = tuple(replace(one, outside=0.0) for one in report.saturation.domains)
    unclipped = tuple(replace(one, clipped=0.0) for one in report.saturation.stored)
    text = terminal(changed(report, domains=inside, stored=unclipped).document(), 200, verbose=True)
    assert text.count("no pair is outside the domain of the compiled score") == 1
    assert "are outside and saturate" not in text
    assert "stored values: none is clipped" in text
    beyond = (replace(inside[0], outside=0.25), *inside[1:])
    text = terminal(changed(report, domains=beyond).document(), 200, verbose=True)
    assert text.count(": 25.000% of the pairs are outside and saturate") == 1
    assert "no pair is outside" not in text


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.sources: list[str] = []
        self.text = ""
        self.inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.inside.append(tag)
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        if self.inside[-1:] in (["td"], ["th"]):
            self.cells.append(data)
        self.text += data


def cards(text: str) -> dict[str, str]:
    """Text of each card of the first screen."""
    found = re.findall(r'<section id="(\w+)" class="span\d".*?>(.*?)</section>', text, re.DOTALL)
    return {name: " ".join(Page(card).text.split()) for name, card in found}


def test_the_page_needs_nothing_else(report: Report) -> None:
    page = Page(html(report.document()))
    assert not [s for s in page.sources if not s.startswith(("#", "data:"))]
    assert {row.stage for row in report.drift.rows} <= set(page.cells)
    assert number(report.drift.final.metrics["float_centred_rmse"]) in page.cells


def test_the_first_screen_answers_in_order(report: Report) -> None:
    found = cards(html(report.document()))
    assert list(found) == [
        "survive", "cause", "clipping", "fit", "energy", "unmodelled", "figures",
    ]  # fmt: skip
    assert report.headline.cause is not None
    assert report.headline.cause in found["cause"]
    assert all(text in found["cause"] for text in report.causes.advice)
    assert f"{report.subject.data.videos} items" in found["energy"]
    assert "no dies were drawn" in found["unmodelled"]
    figures = report.target.figures
    assert all(one.quantity in found["figures"] for one in figures)


def test_dies_stand_on_the_first_screen(noisy_report: Report) -> None:
    found = cards(html(noisy_report.document()))
    for one in noisy_report.drift.noisy:
        assert one.median.stage in found["survive"]
        assert one.worst.stage in found["survive"]
    assert "no dies were drawn" not in found["unmodelled"]


def test_what_is_not_known_leaves_a_whole_page(unknown_report: Report) -> None:
    text = html(unknown_report.document())
    assert "not known" in Page(text).cells
    assert "Monte Carlo as a measure" not in text
    assert len(cards(text)) == 7


def test_names_are_escaped(report: Report) -> None:
    bad = "<script>alert(1)</script>"
    figures = report.target.figures
    hostile = changed(
        of_target(
            replace(report, notes=(bad,)),
            unmodelled=(bad,),
            figures=tuple(replace(one, source=bad) for one in figures),
        ),
        bundle=bad, model=bad, target=bad, advice=(bad,),
        settings={bad: bad}, data=replace(report.subject.data, file=bad),
        rows=(*report.drift.rows[:-1], replace(report.drift.final, stage=bad)),
        reliability=tuple(replace(one, stage=bad) for one in report.drift.reliability),
        layers=tuple(replace(one, layer=bad) for one in report.causes.layers),
    )  # fmt: skip
    text = html(hostile.document())
    assert "<script>alert" not in text
    assert text.count("<script>") == 1
    assert text.count("&lt;script&gt;alert(1)") > 10


def test_the_placement_is_a_picture_of_its_own(report: Report) -> None:
    text, found = html(report.document()), report.sections["cost"]
    title = f"{report.subject.bundle} on {report.subject.target}"
    assert picture_url(placement_svg(found.placements, found.floorplan, title)) in text
    assert 'id="title"' not in text


def test_failures_come_first(report: Report) -> None:
    limit = replace(report.checks.limits[0], limit=0.0)
    text = html(changed(report, limits=(limit,)).document())
    assert "✗ 1 check failed" in text
    assert text.index(limit.sentence()) < text.index('id="survive"')


def test_a_report_that_lacks_much_is_a_page_all_the_same(report: Report) -> None:
    bare = changed(
        of_target(report, figures=()),
        margins=(), curves=(), domains=(), stored=(), limits=(), layers=(),
        pairs=PairSample((), (), ()),
        headline=replace(report.headline, cause=None, cause_before=None, r1_loss=None),
    )  # fmt: skip
    text = html(bare.document())
    assert list(cards(text)) == list(cards(html(report.document())))
    assert "No step changes any score" in text
    assert "The loss of R@1 is not known" in text


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


def test_the_verdict_leads(report: Report) -> None:
    worth = report.drift.worth
    for text in (terminal(report.document(), 100), html(report.document())):
        words = " ".join(text.split())
        first = words.index(worth.sentence)
        places = [
            words.index(one) for one in ("compared with", " against the exact", "polynomial: ")
        ]
        assert [first, *places] == sorted([first, *places])


def test_reliability_is_drawn_for_reference_distance_float_and_compiled(report: Report) -> None:
    picture = reliability_chart(report.drift)
    root = ElementTree.fromstring(picture)
    said = " ".join(root.itertext())
    assert "observed share of right pairs" in said
    for name in ("exact", "-ed", "polynomial", "compiled model"):
        assert name in said
    assert "ONNX Runtime" not in said
    few = changed(report, reliability=report.drift.reliability[:1])
    assert "compiled model" not in reliability_chart(few.drift)


def test_without_probabilities_there_is_no_section_of_them(report: Report) -> None:
    titles = markdown(report.document())
    assert "<summary>Probabilities</summary>" in titles or "## Probabilities" in titles
    none = markdown(changed(report, reliability=()).document())
    assert "Calibration error" in titles
    assert "Calibration error" not in none
