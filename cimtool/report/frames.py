"""Tables as data frames of pandas or polars, neither of which cimtool needs itself."""

from __future__ import annotations

import importlib.util
import math
from contextlib import suppress
from typing import Any, Literal, get_args

from cimtool.base.named import unknown
from cimtool.base.plugins import needing
from cimtool.report.formats import numbered
from cimtool.report.table import Cell, Column, Table

Library = Literal["pandas", "polars"]
LIBRARIES = get_args(Library)


def data_frame(table: Table, library: Library | None = None) -> Any:
    """A table as a data frame; of pandas where nothing is said, of polars where that alone is.

    Raises CimError for another library, and where it is not installed.
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
    """The values of each column by its title, and the notes of its cells where it has any.

    Numbers are those that the table writes, in the unit of the heading; with a unit of its own a
    cell is a text, and so are all of a column of words and of the first, which names the rows. Of
    what is not there the value is None.
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
