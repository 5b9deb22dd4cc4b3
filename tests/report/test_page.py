from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from cimtool.base.escapes import one_line
from cimtool.report import page, svg
from cimtool.report.document import Document, FactList, Note, Picture, Section, Sentence, Verbatim
from cimtool.report.html import html
from cimtool.report.page import picture_url
from cimtool.report.table import Cell, Column, make_table

STYLE = Path(page.__file__).parent / "templates" / svg.STYLE
TABLE = make_table(
    "<b>caption</b>",
    (Column("name"), Column("value", str, "what it is")),
    (
        ("<i>a</i>", Cell("10", 10.0, "[9, 11]")),
        ("b", Cell("-", float("nan"), picture="<svg></svg>", style="bad")),
        ("c", Cell("no end", float("inf"))),
    ),
    ["result", "", ""],
    ["a <note>"],
)


PICTURE = '<svg class="chart"></svg>'


@pytest.fixture
def text() -> str:
    """A page with a block of each kind."""
    blocks = (
        Sentence("<b>first</b>", "verdict", "bad"),
        Note("<i>more</i>", "detail"),
        Section("A <card>", (FactList((("<u>", "x"),)),), "card", 2),
        Section("All", (TABLE, Picture("p", PICTURE, "a <caption>"), Verbatim("run <it>")), "all"),
    )
    return html(Document("<b>t</b>", blocks))


def test_everything_but_pictures_is_escaped(text: str) -> None:
    assert not re.search(r"<(b|i|u|card|it)>", text)
    assert (text.count("<svg></svg>"), text.count(PICTURE)) == (1, 1)
    assert "a &lt;caption&gt;" in text


def test_the_verdict_is_in_the_head_and_details_are_folded(text: str) -> None:
    head = text.partition("<header>")[2].partition("</header>")[0]
    assert '<p class="big bad">&lt;b&gt;first&lt;/b&gt;</p>' in head
    assert "<li>&lt;i&gt;more" in head.partition("<details>")[2]
    assert '<section id="card" class="span2" aria-labelledby="card-title">' in text
    assert '<li><a href="#all">All</a></li>' in text
    assert "<code>run &lt;it&gt;</code>" in text


def test_a_table_says_by_what_it_sorts(text: str) -> None:
    assert 'data-value="10.0">10 <small>[9, 11]</small>' in text
    assert '<td class="bad" data-value="NaN"><svg>' in text
    assert 'data-value="Infinity">no end' in text
    assert "<dt>value</dt><dd>what it is</dd>" in text
    assert '<tr class="result"><th scope="row" class="words" data-value="0.0">&lt;i&gt;a' in text
    assert '<p class="small">a &lt;note&gt;</p>' in text


def test_only_this_style_and_this_script_may_run(text: str) -> None:
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy
    allowed = policy[1].replace("&#39;", "'")
    assert allowed.startswith("default-src 'none'; ")
    assert "unsafe" not in allowed
    assert "http" not in allowed
    for tag in ("style", "script"):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in allowed


class Landmarks(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs


def test_the_base_has_landmarks_and_nothing_from_outside(text: str) -> None:
    found = Landmarks()
    found.feed(text)
    assert {"header", "main", "h1", "caption", "thead"} <= set(found.tags)
    assert ("lang", "en") in found.attributes
    assert ("href", "#content") in found.attributes
    assert ("id", "content") in found.attributes
    outside = [v for k, v in found.attributes if k in ("src", "href") and v and v[0] != "#"]
    assert outside == ["data:,"]
    assert not [1 for name, _ in found.attributes if name == "style" or name.startswith("on")]


def test_a_picture_keeps_its_styles_to_itself() -> None:
    url = picture_url("<svg><style>text { fill: red }</style></svg>")
    kind, _, data = url.partition(",")
    assert kind == "data:image/svg+xml;base64"
    assert base64.b64decode(data) == b"<svg><style>text { fill: red }</style></svg>"


def schemes() -> list[dict[str, str]]:
    """The colours of the light scheme, and of the dark one on top of it."""
    light, dark = re.findall(r":root \{(.*?)\}", STYLE.read_text(), re.DOTALL)
    colours = [dict(re.findall(r"--([\w]+): (#\w+);", text)) for text in (light, dark)]
    return [colours[0], colours[0] | colours[1]]


def luminance(colour: str) -> float:
    """WCAG's relative luminance of #rgb or #rrggbb."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * c for c in colour[1:])
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("ground", ["page", "card", "mark"])
@pytest.mark.parametrize("ink", ["ink", "soft", "accent", "good", "bad", "s0", "s1", "s2", "s3"])
def test_colours_can_be_read(ink: str, ground: str, dark: bool) -> None:
    colours = schemes()[dark]
    assert contrast(colours[ink], colours[ground]) >= 4.5


def test_the_lines_of_a_sentence_become_one() -> None:
    assert (
        one_line("* a sentence\n  of two  words\n\nand more\n")
        == "* a sentence of two  words and more"
    )
