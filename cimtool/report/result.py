"""Display of the library's results: a few lines, tables, pictures, data frames.

A class of results derives from `Result` and has a method `document`, or names the module with a
function `document`:

    class Fit(Result, shown_by="cimtool.training.fit_page"): ...
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar, Literal, TypeVar, get_args

from cimtool.base.errors import CimError
from cimtool.base.json_files import plain_values
from cimtool.base.named import unknown
from cimtool.base.plugins import needing
from cimtool.report.document import Document, Picture, sentences
from cimtool.report.formats import numbered
from cimtool.report.html import SAID, fragment
from cimtool.report.markdown import markdown
from cimtool.report.svg import as_file
from cimtool.report.table import Cell, Column, Table

Made = TypeVar("Made")


class Result:
    """The value of a library function; all results are shown the same way.

    The module that shows it is imported only then: it depends on the module of the class.
    """

    shown_by: ClassVar[str]

    def __init_subclass__(cls, shown_by: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if shown_by is not None:
            cls.shown_by = shown_by

    def document(self) -> Document:
        """The result for display: sentences, tables, pictures, plain values."""
        made: Document = importlib.import_module(self.shown_by).document(self)
        return made

    def __repr__(self) -> str:
        """A few lines: title, first sentences, and the names of tables and pictures."""
        own = self.document()
        lines = [f"{type(self).__name__}: {own.title}", *sentences(own.blocks)[:SAID]]
        return "\n".join([*lines, *_offers(own)])

    def _repr_html_(self) -> str:
        """The title, sentences, the first table and the first picture, as a part of a page."""
        own = self.document()
        return fragment(own, type(self).__name__, _offers(own))

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values for JSON: numbers, texts, lists; NaN as None."""
        return plain_values(self.document().values())

    def to_markdown(self) -> str:
        """The title, all sentences and all tables as Markdown."""
        return markdown(self.document())

    def to_dataframe(
        self, table: str | None = None, library: Literal["pandas", "polars"] | None = None
    ) -> Any:
        """A table (default: the first) as a data frame of pandas, or of polars.

        Numbers are as in the table, in the unit of their heading; intervals are texts in a separate
        column. `to_dict` has all digits. CimError if there is no such table, or the library is not
        installed.
        """
        return data_frame(_chosen(self.document().tables, "table", table), library)

    def plot(self, picture: str | None = None) -> Picture:
        """A picture (default: the first) that a notebook shows; CimError if there is none."""
        found = _chosen(self.document().pictures, "picture", picture)
        return replace(found, svg=as_file(found.svg))


def _chosen(of: Mapping[str, Made], kind: str, name: str | None) -> Made:
    """The table or picture with this name, or the first; CimError if there is none."""
    if not of:
        raise CimError(f"there is no {kind} of this result; expected one of to_dict or to_markdown")
    if name is not None and name not in of:
        raise unknown(kind, name, of)
    return of[name or next(iter(of))]


def _offers(own: Document) -> list[str]:
    """The names of tables and pictures, after the method that returns them."""
    offers = {"to_dataframe": list(own.tables), "plot": list(own.pictures)}
    return [f"{call}: {', '.join(names)}" for call, names in offers.items() if names]


Library = Literal["pandas", "polars"]
LIBRARIES = get_args(Library)


def data_frame(table: Table, library: Library | None = None) -> Any:
    """A table as a data frame; by default of pandas, or of polars if only that is installed.

    Raises CimError for another library, and if the library is not installed.
    """
    if library is not None and library not in LIBRARIES:
        raise unknown("library of data frames", library, LIBRARIES)
    if library is None:
        only_polars = not importlib.util.find_spec("pandas") and importlib.util.find_spec("polars")
        library = "polars" if only_polars else "pandas"
    columns = frame_columns(table)
    with needing("to_dataframe"):
        if library == "polars":
            import polars

            return polars.DataFrame(columns, strict=False)
        import pandas
    return pandas.DataFrame(columns)


def frame_columns(table: Table) -> dict[str, list[Any]]:
    """The values of each column by its title, and the notes of its cells if it has any.

    Numbers are as in the table, in the unit of the heading. Texts are the cells with another unit,
    columns of words, and the first column, which names the rows. A missing value is None.
    """
    found: dict[str, list[Any]] = {}
    titles = numbered([column.title or "row" for column in table.columns])
    for index, (title, column) in enumerate(zip(titles, table.columns, strict=True)):
        cells = [row.cells[index] for row in table.rows]
        found[title] = [_value(column, cell, index == 0) for cell in cells]
        notes = [cell.note or None for cell in cells]
        if any(notes):
            kind = "interval" if any(note and "[" in note for note in notes) else "note"
            found[f"{title}, {kind}"] = notes
    return found


def _value(column: Column, cell: Cell, first: bool) -> float | str | None:
    if first or not column.numeric:
        return cell.text
    for number in (int, float):
        with suppress(ValueError):
            return number(cell.text.replace(",", ""))
    nothing = cell.value is not None and math.isnan(cell.value)
    return None if nothing or not cell.text else cell.text
