"""Results show themselves: short in a notebook, whole in tables, frames and pictures."""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import cast
from xml.etree import ElementTree

import pytest

from cimtool import api
from cimtool.base.errors import CimError
from cimtool.base.escapes import markdown_text
from cimtool.base.plugins import load_plugins
from cimtool.demo.data import DemoFiles
from cimtool.report.document import Document, Sentence
from cimtool.report.result import Result, frame_columns
from cimtool.report.table import Cell, Column, make_table
from cimtool.verification.report import Report

LONGEST_REPR, LONGEST_HTML = 2_000, 20_000
"""Characters that a result may put into a notebook."""


@dataclass(frozen=True, repr=False)
class Found(Result):
    share: float

    def document(self) -> Document:
        columns = (
            *(Column("what"), Column("R@1", str, unit="%"), Column("energy", str)),
            Column("step", str),
        )
        interval = Cell("1,024.5", self.share, "[1, 2]")
        rows = [
            ("<b>", interval, Cell("3 uJ", 3e6), Cell("0.5", 0.5, "*")),
            ("none", None, None, 0.25),
        ]
        return Document(
            "a | b",
            (Sentence("It <i>is</i>."), make_table("All", columns, rows).named("all")),
            lambda: {"share": self.share, "file": Path("x")},
        )


def test_values_are_those_of_json() -> None:
    assert Found(float("nan")).to_dict() == {"share": None, "file": "x"}


def test_names_from_users_are_escaped_in_html_and_markdown() -> None:
    shown = Found(0.5)._repr_html_()
    assert "<b>" not in shown
    assert "&lt;b&gt;" in shown
    assert "It &lt;i&gt;is&lt;/i&gt;." in shown
    assert Found(0.5).to_markdown().startswith("# a \\| b\n")


def test_a_frame_has_numbers_in_the_unit_of_the_heading() -> None:
    table = Found(0.5).document().tables["all"]
    assert frame_columns(table) == {
        "what": ["<b>", "none"],
        "R@1, %": [1024.5, None],
        "R@1, %, interval": ["[1, 2]", None],
        "energy": ["3 uJ", None],
        "step": [0.5, 0.25],
        "step, note": ["*", None],
    }


def test_a_frame_of_either_library_has_the_same_values() -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("polars")
    of_pandas, of_polars = (Found(0.5).to_dataframe(library=one) for one in ("pandas", "polars"))
    assert list(of_pandas.columns) == of_polars.columns
    assert of_polars["R@1, %"].to_list() == [1024.5, None]
    assert of_pandas["R@1, %"][0] == 1024.5


def test_without_a_library_of_frames_its_extra_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(CimError, match=r"to_dataframe needs the package pandas; .*cimtool\[rep"):
        Found(0.5).to_dataframe()


def test_what_there_is_not_is_told_in_a_sentence() -> None:
    with pytest.raises(CimError, match='table "al" is not known: all'):
        Found(0.5).to_dataframe("al")
    with pytest.raises(CimError, match="there is no picture of this result"):
        Found(0.5).plot()
    with pytest.raises(CimError, match='library of data frames "spark" is not known: pandas, pol'):
        Found(0.5).to_dataframe(library="spark")  # type: ignore[arg-type]


class Tags(HTMLParser):
    """The tags of a part of a page that are open, and those that were never closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag != "img":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def results(
    small_bundle: Path, small_trunk: DemoFiles, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Result]:
    folder, data = tmp_path_factory.mktemp("results"), small_trunk.eval
    return {
        "bundle": api.load(small_bundle).bundle,
        "matcher": api.load(small_bundle),
        "report": api.verify(small_bundle, data, report=folder),
        "comparison": api.compare([small_bundle, small_bundle], data),
        "estimate": api.cost(small_bundle, gallery=100),
        "evaluation": api.evaluate(data, small_bundle),
        "shards": api.encode(small_bundle, data, output=folder / "shards"),
        "teacher": api.teacher(small_trunk.projectors, data, pairs=50, a=0.1, b=0.0),
    }


@pytest.mark.thorough("starts many whole processes")
def test_each_is_short_in_a_notebook(results: dict[str, Result]) -> None:
    for name, found in results.items():
        assert 20 < len(repr(found)) < LONGEST_REPR, name
        shown = found._repr_html_()
        assert len(shown) < LONGEST_HTML, name
        assert Tags(shown).open == [], name
    report = cast(Report, results["report"])
    for name, part in vars(report).items():
        assert name in ("notes", "warnings") or len(repr(part)) < LONGEST_REPR, name


def test_each_has_all_of_itself_as_values_and_as_markdown(results: dict[str, Result]) -> None:
    for found in results.values():
        assert json.loads(json.dumps(found.to_dict(), allow_nan=False))
        text = found.to_markdown()
        assert text.startswith("# ")
        for table in found.document().tables.values():
            assert markdown_text(table.title) in text
            assert markdown_text(table.columns[-1].title) in text


def test_each_table_is_a_frame_and_each_picture_a_file(
    results: dict[str, Result], tmp_path: Path
) -> None:
    pictures = 0
    for name, found in results.items():
        for table in found.document().tables.values():
            lengths = {len(values) for values in frame_columns(table).values()}
            assert len(lengths) == 1, name
        for picture in found.document().pictures:
            file = found.plot(picture).save(tmp_path / f"{name}-{picture}.svg")
            root = ElementTree.parse(file).getroot()
            assert root.tag == "{http://www.w3.org/2000/svg}svg"
            assert root.find(".//{http://www.w3.org/2000/svg}style") is not None
            pictures += 1
    assert pictures > 6


def test_a_picture_goes_into_an_svg_alone(results: dict[str, Result], tmp_path: Path) -> None:
    with pytest.raises(CimError, match=r"\.svg"):
        results["report"].plot().save(tmp_path / "p.png")
    assert not list(tmp_path.iterdir())


def test_each_class_has_a_module_that_shows_it() -> None:
    """The name of a module is a text: that it is there, and for this class, is checked here."""
    load_plugins()
    for name in ("bundle", "galleries", "experiments", "training", "costs", "verification"):
        importlib.import_module(f"cimtool.{name}.api")
    importlib.import_module("cimtool.training.trainer")
    classes = [one for one in Result.__subclasses__() if one is not Found]
    named = {one: one.shown_by for one in classes if "shown_by" in vars(one)}
    assert len(classes) > 8
    leaves = [one for one in classes if not one.__subclasses__()]
    assert all("document" in vars(one) for one in leaves if one not in named)
    for kind, module in named.items():
        document = importlib.import_module(module).document
        first = next(iter(inspect.signature(document).parameters.values()))
        shown = [one.partition("[")[0] for one in str(first.annotation).split(" | ")]
        assert kind.__name__ in shown
