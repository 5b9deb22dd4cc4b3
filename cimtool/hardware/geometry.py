"""The geometry of arrays: physical cells, the signed weights that they hold, and their number."""

from __future__ import annotations

from typing import Self

import numpy as np
from pydantic import Field, model_validator

from cimtool.base.errors import invalid_at
from cimtool.base.toml_files import TomlTable
from cimtool.hardware.crossbar import leak_of
from cimtool.hardware.keys import AtLeastOne, Keys, in_table


@in_table("array", first="rows columns cell_bits cells_per_weight encoding pairs rows_active")
class ArraySpec(TomlTable):
    """One array: its physical cells and the signed weights that they hold."""

    cells_per_weight: AtLeastOne | None = Field(
        default=None, title="Cells of one signed weight; must follow from its bits and encoding."
    )
    signed_rows: AtLeastOne | None = Field(
        default=None, title="Rows of signed weights; must follow from rows."
    )
    signed_cols: AtLeastOne | None = Field(
        default=None,
        title="Columns of signed weights; must follow from columns and cells_per_weight.",
    )
    weight_sets: AtLeastOne = Field(
        default=1, title="Weights that one cell's place can hold in turn."
    )
    arrays: AtLeastOne | None = Field(
        default=None, title="Arrays on the chip; must agree with [chip]."
    )
    weights_total: AtLeastOne | None = Field(
        default=None, title="Weights on the chip: signed_rows x signed_cols x weight_sets x arrays."
    )


class ChipSpec(TomlTable):
    """The arrays of a chip: arrays in a macro, macros in a core, cores on a chip.

    Without `cores` nobody has said how large the chip is.
    """

    arrays_per_macro: AtLeastOne = Field(default=1, title="Arrays in a macro.")
    macros_per_core: AtLeastOne = Field(default=1, title="Macros in a core.")
    cores: AtLeastOne | None = Field(
        default=None, title="Cores on the chip; if left out, its size is not given."
    )

    @property
    def arrays_per_core(self) -> int:
        """Arrays in one core."""
        return self.arrays_per_macro * self.macros_per_core

    @property
    def arrays(self) -> int | None:
        """Arrays on the chip; None if its size is not given."""
        return None if self.cores is None else self.cores * self.arrays_per_core

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if (self.arrays or self.arrays_per_core) > MOST_ARRAYS:
            raise ValueError(f"a chip of more than {MOST_ARRAYS:,} arrays is not placed")
        return self


MOST_ARRAYS = 1 << 24


def check_array(keys: Keys) -> None:
    """Raise ValueError if an array's keys contradict each other."""
    code = keys.weight_code
    for name, most in keys.most_bits.items():
        if getattr(keys, name) > most:
            place = "weights.most_bits" if name == "weight_bits" else "input.most_bits"
            raise ValueError(
                f"{name} = {getattr(keys, name)}: the target takes at most {most} ({place})"
            )
    odd = keys.rows is not None and (not code.paired or keys.rows % 2)
    if keys.pairs == "rows" and odd:
        raise ValueError(
            f'pairs = "rows" with {keys.rows} rows and encoding = "{keys.encoding}": only a '
            "differential pair lies in two rows, and it takes an even number of them"
        )
    active, weight_rows = keys.rows_active, keys.weight_rows
    if active is not None and weight_rows is not None and active > weight_rows:
        raise ValueError(
            f"rows_active = {active}: must be at most {weight_rows}, the rows of weights in an "
            "array"
        )
    shared = code.shared_rows
    for name, rows in (("rows", keys.weight_rows), ("rows_active", active)):
        if shared is not None and rows is not None and rows % shared:
            raise ValueError(
                f'{name} = {rows}: {shared} rows share an exponent with encoding = "{code.name}"; '
                f"expected a multiple of {shared}"
            )
    if keys.columns is not None and keys.redundant_columns:
        most = keys.columns - keys.auxiliary_columns - keys.columns_per_weight
        if keys.redundant_columns > most >= 0:
            raise ValueError(
                f"redundant_columns = {keys.redundant_columns}: must be at most {most}, as one "
                f"weight takes {keys.columns_per_weight} of the array's {keys.columns} columns"
            )
    if not code.analog and keys.on_off_ratio is not None:
        raise ValueError(
            f'on_off_ratio = {keys.on_off_ratio:g}: an array with encoding = "{code.name}" adds '
            "digitally, so its cells conduct nothing; leave the key out"
        )
    if keys.offset_sum == "unit-column" and leak_of(keys.on_off_ratio, keys.cell_bits):
        raise ValueError(
            f"on_off_ratio = {keys.on_off_ratio:g}: a unit column of cells that leak is not "
            'modelled; expected offset_sum = "digital" with it'
        )


def check_meaning(keys: Keys) -> None:
    """Raise ValueError for a choice that means nothing with an encoding."""
    code = keys.weight_code
    _check_skips(keys)
    if code.widths is not None and not code.takes(code.bits):
        listed = ", ".join(map(str, code.widths))
        raise ValueError(
            f'weight_bits = {code.bits}: encoding = "{code.name}" has no weights of so many bits; '
            f"expected one of {listed}"
        )
    if keys.adc_on == "polarity" and not code.paired:
        raise ValueError(
            f'adc_on = "polarity" with encoding = "{keys.encoding}": only a differential pair has '
            'polarities; expected adc_on = "difference"'
        )
    if keys.shift_add == "analog" and not code.analog:
        raise ValueError(
            f'shift_add = "analog": an array with encoding = "{keys.encoding}" adds digitally; '
            'expected shift_add = "digital"'
        )
    if keys.offset_sum == "unit-column" and not code.is_offset:
        raise ValueError(
            f'offset_sum = "unit-column" with encoding = "{keys.encoding}": only offset weights '
            'need the sum of the inputs; expected offset_sum = "digital"'
        )


def _check_skips(keys: Keys) -> None:
    """Raise ValueError if an array that skips sums of 0 would read them as something else."""
    if not keys.skips:
        return
    said = f"skips = {list(keys.skips)}: a sum of 0 that is not read must count 0"
    if keys.references not in ("full-scale", "fixed"):
        raise ValueError(
            f'{said}, and references = "{keys.references}" sets offsets; expected references = '
            '"fixed" with it'
        )
    paired = keys.weight_code.paired and keys.adc_on == "difference"
    if keys.on_off_ratio is not None and not paired and not keys.weight_code.reference_column:
        raise ValueError(
            f"{said}, and erased cells conduct with on_off_ratio = {keys.on_off_ratio:g}; expected "
            "none with it"
        )
    for signed in (False, True):
        law, zero = keys.converter.law(signed), np.zeros(1, np.int64)
        if law is not None and law.values(law.codes(zero, 1), 1).any():
            raise ValueError(f"{said}, and this converter reads it as another number")


def check_cells(array: ArraySpec, keys: Keys) -> None:
    """Raise ValueError if an array's cells cannot hold one weight."""
    needed = keys.cells_per_weight
    if array.cells_per_weight not in (None, needed):
        raise ValueError(
            f"array.cells_per_weight = {array.cells_per_weight}: must be {needed}, as encoding "
            f'"{keys.encoding}" needs for {keys.weight_bits}-bit weights in {keys.cell_bits}-bit '
            "cells"
        )
    with invalid_at("array."):
        check_array(keys)
    across = keys.columns_per_weight + keys.auxiliary_columns
    if keys.columns is not None and keys.columns < across:
        raise ValueError(
            f"array.columns = {keys.columns}: must be at least {across}, the cells of one weight"
        )


def check_geometry(array: ArraySpec, keys: Keys) -> None:
    """Hold the stated geometry against the cells; a weight's cells are columns of one row."""
    derived = {"signed_rows": keys.weight_rows, "signed_cols": keys.weights_across}
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
