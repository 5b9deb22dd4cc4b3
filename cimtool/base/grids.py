"""Grids: keys with their values, checked one by one before anything runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cimtool.base.errors import ArgumentError
from cimtool.base.toml_files import dotted

Value = int | float | str | bool
KeyPath = tuple[str, ...]
Grid = Mapping[str, Sequence[Value]]

MOST_POINTS = 10_000


@dataclass(frozen=True)
class GridKey:
    """One key of the grid and its values, in the order in which they are given."""

    path: KeyPath
    values: tuple[Value, ...]

    @property
    def name(self) -> str:
        """The key as results write it."""
        return dotted(self.path)

    def __str__(self) -> str:
        return f"{self.name}={','.join(map(value_text, self.values))}"


@dataclass(frozen=True)
class KeyReader:
    """The keys of a kind of grid: the `path` of a name, a `check` of each value, an `example`.

    `check` gets the path, the value and the name. Both raise CimError for a wrong name or value.
    """

    path: Callable[[str], KeyPath]
    check: Callable[[KeyPath, Value, str], None]
    example: str

    def read(self, grid: Grid) -> tuple[GridKey, ...]:
        """Check every key and value of a grid by itself; CimError for the first that is wrong."""
        if not grid:
            raise ArgumentError(
                "{grid} is missing; expected at least one KEY=VALUE,VALUE, {}", self.example
            )
        keys: dict[KeyPath, GridKey] = {}
        for name, values in grid.items():
            key = self._key(name, _plain(name, values))
            if key.path in keys:
                raise ArgumentError(
                    "{grid} {} is given twice; expected all of its values at once", key.name
                )
            keys[key.path] = key
        count = math.prod(len(key.values) for key in keys.values())
        if count > MOST_POINTS:
            raise ArgumentError(
                "{grid} makes {:,} points; expected at most {:,}, so leave values out or sweep in "
                "parts",
                count,
                MOST_POINTS,
            )
        return tuple(keys.values())

    def _key(self, name: str, values: Sequence[Any]) -> GridKey:
        for value in values:
            if not isinstance(value, int | float | str):
                raise ArgumentError(
                    "{grid} {}: {!r} is not a value; expected a number, a text, true or false",
                    name,
                    value,
                )
        path = self.path(name)
        if not values:
            raise ArgumentError(
                "{grid} {} has no values; expected KEY=VALUE,VALUE, {}", name, self.example
            )
        for index, value in enumerate(values):
            if value in values[:index]:
                raise ArgumentError(
                    "{grid} {}: {} is given twice; expected each value once", name, value
                )
            self.check(path, value, name)
        return GridKey(path, tuple(values))


def _plain(name: str, values: object) -> list[Any]:
    """The values of a key: paths as texts, NumPy's numbers as Python's."""
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if not isinstance(values, Iterable) or isinstance(values, str):
        raise ArgumentError(
            "{grid} {}: {!r} is not a list; expected a list of values", name, values
        )
    plain = [one.item() if isinstance(one, np.generic) else one for one in values]
    return [str(one) if isinstance(one, Path) else one for one in plain]


def value_text(value: object) -> str:
    """A value as the text of a grid writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
