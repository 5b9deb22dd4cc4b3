"""The ledger of a gallery in the arrays: writes of its cells since it was programmed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cimtool.base.errors import CimError
from cimtool.base.json_files import LARGEST, parse_json
from cimtool.base.typed_fields import made_of
from cimtool.base.untrusted import read_bounded

LEDGER = "ledger.json"
LEDGER_ARRAYS = "ledger.safetensors"
"""The file with item ids and the writes of every cell; only a changed gallery has it."""

ITEMS = "items"
"""The array of ids; the other arrays have the names of the stored matrices."""


@dataclass(frozen=True)
class ArrayWrites:
    """Writes of one array: the sum over its cells, and the writes of the most written cell."""

    array: str
    cells_written: int
    most_written: int


@dataclass(frozen=True)
class Ledger:
    """Writes of a gallery's cells by stored matrix, array by array.

    `next_item` is the id of the next item to be added; ids are not reused.
    """

    next_item: int
    matrices: Mapping[str, tuple[ArrayWrites, ...]]

    @property
    def cells_written(self) -> int:
        """Writes of all cells."""
        return sum(one.cells_written for arrays in self.matrices.values() for one in arrays)

    @property
    def most_written(self) -> int:
        """Writes of the most written cell."""
        writes = (one.most_written for arrays in self.matrices.values() for one in arrays)
        return max(writes, default=0)

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        return {
            "next_item": self.next_item,
            "cells_written": self.cells_written,
            "most_written": self.most_written,
            "matrices": {
                name: [asdict(one) for one in arrays] for name, arrays in self.matrices.items()
            },
        }

    def text(self) -> str:
        """The content of the ledger's file, one array per line."""
        matrices = ",\n".join(
            f"  {json.dumps(name)}: [\n   "
            + ",\n   ".join(json.dumps(asdict(one)) for one in arrays)
            + "\n  ]"
            for name, arrays in self.matrices.items()
        )
        totals = {key: value for key, value in self.to_json().items() if key != "matrices"}
        lines = "".join(f" {json.dumps(key)}: {value},\n" for key, value in totals.items())
        return f'{{\n{lines} "matrices": {{\n{matrices}\n }}\n}}\n'


def read_ledger(file: Path) -> Ledger:
    """Read a ledger's file; CimError if it is missing or not a ledger."""
    try:
        values = parse_json(read_bounded(file, LARGEST))
        matrices = {
            name: tuple(made_of(ArrayWrites, one) for one in arrays)
            for name, arrays in values["matrices"].items()
        }
        return Ledger(int(values["next_item"]), matrices)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise CimError(f"{file}: is not a gallery's ledger; program the gallery again") from error
