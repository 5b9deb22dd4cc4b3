"""The geometry of arrays: physical cells, what they hold of signed weights, how many there are."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from cimtool.base.toml_files import Table
from cimtool.hardware.crossbar import (
    AdcOn,
    Encoding,
    OffsetSum,
    ShiftAdd,
    UnusedRows,
    leak_of,
    slice_count,
)

Pairs = Literal["columns", "rows"]
CellBits = Annotated[int, Field(ge=1, le=8)]
Count = Annotated[int, Field(ge=1)]
OnOffRatio = Annotated[float, Field(gt=1, allow_inf_nan=False)]


class ArraySpec(Table):
    """One array: its physical cells (no `rows` or `columns`: unlimited) and what a cell holds.

    The cells of a differential pair lie in neighbouring columns or rows (`pairs`); of the rows
    `rows_active` are read at a time (left out: all). Without an `on_off_ratio` erased cells do not
    conduct.
    """

    rows: Count | None = Field(
        None, description="an integer of at least 1 (leave the key out for unlimited)"
    )
    columns: Count | None = Field(
        None, description="an integer of at least 1 (leave the key out for unlimited)"
    )
    cell_bits: CellBits
    cells_per_weight: Count
    encoding: Encoding
    pairs: Pairs = "columns"
    rows_active: Count | None = None
    offset_sum: OffsetSum = "digital"
    on_off_ratio: OnOffRatio | None = None
    unused_rows: UnusedRows = "off"
    signed_rows: Count | None = None
    signed_cols: Count | None = None
    weight_sets: Count = 1
    arrays: Count | None = None
    weights_total: Count | None = None


class ChipSpec(Table):
    """How arrays make a chip: arrays in a macro, macros in a core, cores on a chip.

    Without `cores` nobody has said how large the chip is.
    """

    arrays_per_macro: Count = 1
    macros_per_core: Count = 1
    cores: Count | None = None

    @property
    def arrays_per_core(self) -> int:
        """Arrays in one core."""
        return self.arrays_per_macro * self.macros_per_core

    @property
    def arrays(self) -> int | None:
        """Arrays on the chip; None where its size is not given."""
        return None if self.cores is None else self.cores * self.arrays_per_core

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if (self.arrays or self.arrays_per_core) > MOST_ARRAYS:
            raise ValueError(f"a chip of more than {MOST_ARRAYS:,} arrays is not placed")
        return self


MOST_ARRAYS = 1 << 24


def check_array(
    encoding: Encoding,
    cell_bits: int,
    pairs: Pairs,
    rows: int | None,
    rows_active: int | None,
    offset_sum: OffsetSum,
    on_off_ratio: float | None,
) -> None:
    """Raise ValueError where an array's keys contradict each other."""
    if pairs == "rows" and rows is not None and (encoding != "differential" or rows % 2):
        raise ValueError(
            f'pairs = "rows" with {rows} rows and encoding = "{encoding}": only a differential '
            "pair lies in two rows, and it takes an even number of them"
        )
    weight_rows = rows_of_weights(rows, pairs)
    if rows_active is not None and weight_rows is not None and rows_active > weight_rows:
        raise ValueError(
            f"rows_active = {rows_active}: must be at most {weight_rows}, the rows of weights in "
            "an array"
        )
    if encoding == "twos-complement" and on_off_ratio is not None:
        raise ValueError(
            f'on_off_ratio = {on_off_ratio:g}: an array with encoding = "twos-complement" adds '
            "digitally, so its cells conduct nothing; leave the key out"
        )
    if offset_sum == "unit-column" and leak_of(on_off_ratio, cell_bits):
        raise ValueError(
            f"on_off_ratio = {on_off_ratio:g}: a unit column of cells that leak is not modelled; "
            'expected offset_sum = "digital" with it'
        )


def check_meaning(
    encoding: Encoding, adc_on: AdcOn, shift_add: ShiftAdd, offset_sum: OffsetSum
) -> None:
    """Raise ValueError for a choice that means nothing with an encoding."""
    if adc_on == "polarity" and encoding != "differential":
        raise ValueError(
            f'adc_on = "polarity" with encoding = "{encoding}": only a differential pair has '
            'polarities; expected adc_on = "difference"'
        )
    if shift_add == "analog" and encoding == "twos-complement":
        raise ValueError(
            'shift_add = "analog": an array with encoding = "twos-complement" adds digitally; '
            'expected shift_add = "digital"'
        )
    if offset_sum == "unit-column" and encoding not in ("offset", "offset-flip"):
        raise ValueError(
            f'offset_sum = "unit-column" with encoding = "{encoding}": only offset weights need '
            'the sum of the inputs; expected offset_sum = "digital"'
        )


def rows_of_weights(rows: int | None, pairs: Pairs) -> int | None:
    """The rows of weights in an array of so many rows of cells."""
    return rows // 2 if rows is not None and pairs == "rows" else rows


def cells_per_weight(encoding: Encoding, weight_bits: int, cell_bits: int) -> int:
    """Count the cells of one signed weight: its slices, twice that where cells come in pairs."""
    polarities = 2 if encoding == "differential" else 1
    return polarities * slice_count(encoding, weight_bits, cell_bits)


def columns_per_weight(cells: int, pairs: Pairs) -> int:
    """The columns that the cells of a weight take: half of them where pairs lie in two rows."""
    return cells // 2 if pairs == "rows" else cells


def unit_columns(encoding: Encoding, offset_sum: OffsetSum) -> int:
    """Columns of an array that hold no weights: one that measures the inputs' sum, or none."""
    return int(encoding in ("offset", "offset-flip") and offset_sum == "unit-column")


def check_cells(array: ArraySpec, weight_bits: int) -> None:
    """Raise ValueError where an array's cells cannot hold one weight of so many bits."""
    needed = cells_per_weight(array.encoding, weight_bits, array.cell_bits)
    if array.cells_per_weight != needed:
        raise ValueError(
            f"array.cells_per_weight = {array.cells_per_weight}: must be {needed}, what encoding "
            f'"{array.encoding}" needs for {weight_bits}-bit weights in {array.cell_bits}-bit cells'
        )
    try:
        check_array(
            array.encoding,
            array.cell_bits,
            array.pairs,
            array.rows,
            array.rows_active,
            array.offset_sum,
            array.on_off_ratio,
        )
    except ValueError as error:
        raise ValueError(f"array.{error}") from None
    across = columns_per_weight(needed, array.pairs) + unit_columns(
        array.encoding, array.offset_sum
    )
    if array.columns is not None and array.columns < across:
        raise ValueError(
            f"array.columns = {array.columns}: must be at least {across}, the cells of one weight"
        )


def check_geometry(array: ArraySpec) -> None:
    """Hold the stated geometry against the cells; a weight's cells are columns of one row."""
    across = columns_per_weight(array.cells_per_weight, array.pairs)
    derived = {
        "signed_rows": rows_of_weights(array.rows, array.pairs),
        "signed_cols": array.columns
        and (array.columns - unit_columns(array.encoding, array.offset_sum)) // across,
    }
    for key, value in derived.items():
        stated = getattr(array, key)
        if stated is not None and stated != value:
            raise ValueError(
                f"array.{key} = {stated}: must be {value or 'left out'}, by the array's rows and "
                'columns and its cells_per_weight (in one row, or in two with pairs = "rows")'
            )
    if array.weights_total is None:
        return
    parts = (array.signed_rows, array.signed_cols, array.weight_sets, array.arrays)
    rows, cols, sets, arrays = (part or 0 for part in parts)
    if array.weights_total != rows * cols * sets * arrays:
        product = " x ".join("not given" if part is None else str(part) for part in parts)
        raise ValueError(
            f"array.weights_total = {array.weights_total}: must be signed_rows x signed_cols x "
            f"weight_sets x arrays = {product}"
        )
