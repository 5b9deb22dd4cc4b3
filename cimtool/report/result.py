"""Results of the library as they show themselves: a few lines, tables, pictures, data frames.

A class of results derives from `Result`, and a module that renders it registers its `View`:

    @view.register
    def _(found: Evaluation) -> View: ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import singledispatch
from pathlib import Path
from typing import Any, Literal, TypeVar

from cimtool.base.errors import CimError
from cimtool.base.files import check_output, replace_files, text_bytes
from cimtool.base.json_files import plain_values
from cimtool.base.named import unknown
from cimtool.report import svg
from cimtool.report.frames import data_frame
from cimtool.report.page import picture_url, render_file, render_fragment
from cimtool.report.table import Table

PACKAGE = "cimtool.report"

Made = TypeVar("Made")

SAID = 4
"""Sentences of a result that its `repr` says."""


@dataclass(frozen=True)
class View:
    """A result as it is shown: a `title` of one line, `sentences`, and plain `values` by name.

    Tables and pictures (SVG) are made when they are asked for by name, the most telling first.
    """

    title: str
    sentences: Sequence[str] = ()
    values: Callable[[], Mapping[str, Any]] = dict
    tables: Mapping[str, Callable[[], Table]] = field(default_factory=dict)
    pictures: Mapping[str, Callable[[], str]] = field(default_factory=dict)


@singledispatch
def view(result: object) -> View:
    """The view of a result; TypeError for a class of which none is registered."""
    raise TypeError(f"{type(result).__name__} has no view")


@dataclass(frozen=True, repr=False)
class Picture:
    """A picture that a notebook shows and `save` writes: an SVG document with its style."""

    name: str
    svg: str

    def __repr__(self) -> str:
        """The name and the size, not the text."""
        return f'<Picture "{self.name}", SVG, {len(self.svg):,} characters>'

    def _repr_html_(self) -> str:
        """An image, where its style stays its own."""
        return render_fragment(PACKAGE, "picture.html", name=self.name, url=picture_url(self.svg))

    def save(self, file: Path | str) -> Path:
        """Write the picture to a `.svg`; CimError for another suffix, or where it cannot be."""
        path = Path(file)
        check_output(path, ".svg")
        replace_files(path.parent, {path.name: text_bytes(self.svg)}, "the picture")
        return path


class Result:
    """The value of a function of the library, shown the same way whatever it is of."""

    def __repr__(self) -> str:
        """A few lines: what it is, what it found, and what can be asked of it."""
        own = view(self)
        lines = [f"{type(self).__name__}: {own.title}", *own.sentences[:SAID]]
        return "\n".join([*lines, *_offers(own)])

    def _repr_html_(self) -> str:
        """The title, sentences, the first table and the first picture, as a part of a page."""
        own = view(self)
        picture = self.plot() if own.pictures else None
        return render_fragment(
            PACKAGE,
            "result.html",
            kind=type(self).__name__,
            title=own.title,
            sentences=own.sentences[:SAID],
            table=_first(own.tables),
            picture=None if picture is None else picture._repr_html_(),
            offers=_offers(own),
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values that JSON takes: numbers, texts, lists; NaN as None."""
        return plain_values(view(self).values())

    def to_markdown(self) -> str:
        """The title, all sentences and all tables as Markdown."""
        own = view(self)
        tables = [made() for made in own.tables.values()]
        return render_file(
            PACKAGE, "result.md", title=own.title, sentences=own.sentences, tables=tables
        )

    def to_dataframe(
        self, table: str | None = None, library: Literal["pandas", "polars"] | None = None
    ) -> Any:
        """A table (default: the first) as a data frame of pandas, or of polars.

        Numbers are those of the table, in the unit of their heading, and an interval is a text in
        a column of its own; `to_dict` has all digits. CimError for a table that there
        is not, and where no such library is installed.
        """
        return data_frame(_chosen(view(self).tables, "table", table)(), library)

    def plot(self, picture: str | None = None) -> Picture:
        """A picture (default: the first) that a notebook shows; CimError where there is none."""
        found = view(self).pictures
        name = picture or next(iter(found), "")
        return Picture(name, svg.as_file(_chosen(found, "picture", picture)()))


def _first(tables: Mapping[str, Callable[[], Table]]) -> Table | None:
    return next((made() for made in tables.values()), None)


def _chosen(of: Mapping[str, Made], kind: str, name: str | None) -> Made:
    """The one with this name, or the first; CimError where there is none."""
    if not of:
        raise CimError(f"there is no {kind} of this result; expected one of to_dict or to_markdown")
    if name is not None and name not in of:
        raise unknown(kind, name, of)
    return of[name or next(iter(of))]


def _offers(own: View) -> list[str]:
    """The names of tables and pictures, and how they are asked for."""
    offers = {"to_dataframe": own.tables, "plot": own.pictures}
    return [f"{call}: {', '.join(names)}" for call, names in offers.items() if names]
