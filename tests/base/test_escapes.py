"""Hostile texts are read back as they were; the rule for names; numbers in ASCII digits."""

from __future__ import annotations

import math
import re
import subprocess
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from c_tools import STRICT, c_compiler
from drawn import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from cimtool.base.errors import CimError
from cimtool.base.escapes import (
    NAME,
    c_comment,
    c_string,
    clean_name,
    integer_of,
    is_shown,
    markdown_text,
    number_of,
    one_line,
    printable,
    require_name,
    toml_string,
    visible,
    xml_text,
)
from cimtool.report.document import Document
from cimtool.report.markdown import markdown
from cimtool.report.page import render_fragment
from cimtool.report.svg import file_text, text

MARKUP = [
    "*/",
    "/*",
    "??/",
    '"',
    "\\",
    "\n",
    "<script>",
    "]]>",
    "&amp;",
    "](x)",
    "`",
    "|",
    "# ",
    "1. ",
]
hostile = st.lists(st.one_of(st.text(max_size=8), st.sampled_from(MARKUP))).map("".join)
many = settings(max_examples=examples(300))


@many
@given(hostile)
def test_what_is_not_shown_is_replaced_in_files_and_a_code_on_a_terminal(value: str) -> None:
    assert all(map(is_shown, visible(value)))
    assert all(map(is_shown, printable(value)))
    assert len(visible(value)) == len(value)


@pytest.mark.parametrize(
    "character", ["\x00", "\x1b", "\x7f", "\x9b", "\r", "\u202e", "\ud800", "\ufffe"]
)
def test_characters_that_steer_are_not_shown(character: str) -> None:
    assert visible(f"a{character}b") == "a\ufffdb"


@settings(max_examples=10, suppress_health_check=list(HealthCheck))
@given(st.lists(hostile, min_size=20, max_size=40))
def test_strings_and_comments_of_c_hold_texts_and_no_code(
    tmp_path_factory: pytest.TempPathFactory, values: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("c")
    lines = [f"    /* {c_comment(one)} */ {{{c_string(one)}}}," for one in values]
    source = "#include <stdio.h>\nstatic const char held[][400] = {\n" + "\n".join(lines) + "};\n"
    source += (
        "int main(void) {\n    for (size_t i = 0; i < sizeof held / sizeof *held; i++)\n"
        "        fwrite(held[i], 1, sizeof *held, stdout);\n    return 0;\n}\n"
    )
    (folder / "held.c").write_text(source, "utf-8")
    command = [c_compiler("gcc"), *STRICT, "held.c", "-o", "held"]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert (built.returncode, built.stderr) == (0, "")
    found = subprocess.run([folder / "held"], capture_output=True, check=True).stdout
    for index, one in enumerate(values):
        assert found[400 * index : 400 * (index + 1)].rstrip(b"\0") == visible(one).encode()


@many
@given(hostile)
def test_xml_and_svg_are_read_back(value: str) -> None:
    read = ElementTree.fromstring(f'<a b="{xml_text(value)}">{xml_text(value)}</a>')
    assert (read.text or "") == visible(value)
    assert read.get("b", "").split() == visible(value).split()
    picture = file_text(9, 9, value, value, [text(0, 0, value, soft=value)])
    title, *_ = ElementTree.fromstring(picture)
    assert (title.text or "") == visible(value)


class Reader(HTMLParser):
    """The tags and the texts of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@many
@given(hostile)
def test_markdown_shows_the_text_and_nothing_else(value: str) -> None:
    shown = Reader(
        MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(markdown_text(value))
    )
    assert set(shown.tags) <= {"p"}
    assert "".join(shown.texts).split() == visible(one_line(value)).split()


@many
@given(hostile)
def test_markdown_keeps_a_text_in_its_cell(value: str) -> None:
    cell = f"| a | b |\n|---|---|\n| {markdown_text(value)} | end |\n"
    shown = Reader(MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(cell))
    assert shown.tags == ["table", "thead", "tr", "th", "th", "tbody", "tr", "td", "td"]
    assert "".join(shown.texts).split()[2:-1] == visible(one_line(value)).split()


@many
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_toml_is_read_back(value: str) -> None:
    assert tomllib.loads(f"a = {toml_string(value)}") == {"a": value}
    assert all(map(is_shown, toml_string(value)))


def test_half_of_a_pair_is_replaced_in_toml() -> None:
    assert toml_string("a\udc80b") == '"a\ufffdb"'


def test_values_of_pages_and_of_files_are_visible() -> None:
    named = render_fragment("picture.html", name='<b>"\x1b', url="")
    assert 'alt="&lt;b&gt;&#34;\ufffd"' in named
    assert markdown(Document("<b>\x1b*x*")) == "# &lt;b>\ufffd\\*x\\*\n"


def test_no_template_of_markdown_leaves_out_its_filter() -> None:
    """Words of others stand in it by way of the filter; these are cimtool's own."""
    own = {
        "part.folder", "part.title", "name", "what", "sentence", "axis", "word", "field", "folder",
        "file.told", "file.what[0] | upper", "file.what[1:]", "file.lanes", "where[file.where]",
        'one.extents.get(axis, "-")', "layout.files[name].bits", "layout.cells.path",
        "layout.cells.word_bits", "layout.cells.flags", "line", "examples[name]", "path",
        "one", "one.what[0] | upper", "one.what[1:]", "where[one.where]", "example",
    }  # fmt: skip
    folder = Path(__file__).parents[2] / "cimtool"
    for template in folder.rglob("templates/*.md"):
        for value in template.read_text("utf-8").split("{{")[1:]:
            said = value.partition("}}")[0].strip()
            # Names are checked where they are read; a quote begins one of two texts here.
            safe = said in own or said.startswith(("names(", '"'))
            assert "| markdown" in said or safe, f"{template.name}: {said}"


@pytest.mark.parametrize("name", ["a", "_a", "0", "text.fc1.2", "isaac-rram-128", "x" * 100])
def test_a_name_is_taken_as_it_is(name: str) -> None:
    require_name(name, "here")
    assert clean_name(name) == name


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("", '""'),
        (".", '"."'),
        ("-o", '"-o"'),
        ("../../../x", '"../../../x"'),
        ("a b", '"a b"'),
        ("a\n", r'"a\n"'),
        ("\x1b[2J", r'"\u001b[2J"'),
        ("\u00e9t\u00e9", r'"\u00e9t\u00e9"'),
        ("x */ int y;", '"x */ int y;"'),
        ("x" * 101, f'"{"x" * 56}...'),
        (None, "null"),
        (3, "3"),
    ],
)
def test_any_other_value_is_refused(value: object, said: str) -> None:
    with pytest.raises(CimError) as caught:
        require_name(value, "model.name")
    assert str(caught.value) == (
        f"model.name is {said}; expected a name of at most 100 letters (a to z), digits, dots, "
        "dashes and underscores, with no dot or dash first"
    )


@given(st.text(st.characters(codec=None), max_size=300))
def test_every_text_has_a_name(text: str) -> None:
    name = clean_name(text)
    require_name(name, "here")
    assert clean_name(name) == name == clean_name(text)
    assert name == text or re.fullmatch(r".+-[0-9a-f]{8}", name)


@given(st.lists(st.text(max_size=120), unique=True, min_size=2))
def test_two_texts_have_two_names(texts: list[str]) -> None:
    assert len({clean_name(text) for text in texts}) == len(texts)


def test_what_can_be_read_of_a_text_stays() -> None:
    assert clean_name("my model@home") == "my_model_home-8d23c185"
    assert NAME.fullmatch(clean_name("\u6a21\u578b")) is not None


def test_integers_and_numbers() -> None:
    assert [integer_of(text) for text in ("0", "-12", "+7", " 3\t")] == [0, -12, 7, 3]
    texts = ("1", ".5", "2.", "-1e-3", "1E5")
    assert [number_of(text) for text in texts] == [1, 0.5, 2, -1e-3, 1e5]
    assert number_of("-inf") == -math.inf
    assert math.isnan(number_of("NaN"))


@pytest.mark.parametrize("text", ["1_0", "٣", "１", " ", "-", "1\n", "0x1", "1 0", "²"])
def test_what_is_no_number(text: str) -> None:
    for read in (integer_of, number_of):
        with pytest.raises(ValueError, match=re.escape(text)):
            read(text)


def test_an_integer_has_no_point() -> None:
    with pytest.raises(ValueError, match=r"1\.0"):
        integer_of("1.0")
