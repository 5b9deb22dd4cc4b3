"""The grid of a sweep: keys with their values, checked before anything runs, and its points.

A key is a setting (`weight_bits`, `layers."text.*".adc_bits`), `target`, or a key of the target's
file (`target.array.rows_active`; the last name is enough where only one key ends so).
"""

from __future__ import annotations

import itertools
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.named import nearest, unknown
from cimtool.base.toml_files import check_value, dotted, leaves
from cimtool.hardware.configuration import Configuration
from cimtool.hardware.settings import LayerBits, Overrides, resolve
from cimtool.hardware.target import Target, derived, load_target

Value = int | float | str | bool
Key = tuple[str, ...]
Grid = Mapping[str, Sequence[Value]]

TARGET = "target"
LAYERS = "layers"
IDENTITY = (("name",), ("title",), ("base",))
"""Keys of a target that say which it is, not how it is."""

MOST_POINTS = 10_000
EXAMPLE = "such as weight_bits=4,6,8"


@dataclass(frozen=True)
class Axis:
    """One key of the grid and its values, in the order in which they are given."""

    key: Key
    values: tuple[Value, ...]

    @property
    def name(self) -> str:
        """What results call it."""
        return dotted(self.key)


@dataclass(frozen=True)
class Point:
    """One combination: its values in the grid's order, and what they make of target and settings.

    `refusal` is the sentence for values that contradict each other: then there is no `build`.
    """

    values: tuple[tuple[Key, Value], ...]
    base: str
    build: Configuration | None
    refusal: str = ""

    @property
    def named(self) -> dict[str, Value]:
        """The values by the names that results give their keys."""
        return {dotted(key): value for key, value in self.values}

    @property
    def unit(self) -> str:
        """What one of its arrays is: counts of arrays are comparable where this is the same."""
        if self.build is None:
            return ""
        settings = self.build.settings
        return f"{self.base}, {settings.rows}x{settings.columns}"


def read_grid(grid: Grid) -> tuple[Axis, ...]:
    """Check every key and value of a grid by itself; CimError for the first that is wrong."""
    if not grid:
        raise ArgumentError("{grid} is missing; expected at least one KEY=VALUE,VALUE, {}", EXAMPLE)
    axes = [_axis(key, _values(key, values)) for key, values in grid.items()]
    for index, axis in enumerate(axes):
        if any(axis.key == other.key for other in axes[:index]):
            raise ArgumentError(
                "{grid} {} is given twice; expected all of its values at once", axis.name
            )
    count = math.prod(len(axis.values) for axis in axes)
    if count > MOST_POINTS:
        raise ArgumentError(
            "{grid} makes {:,} points; expected at most {:,}, so leave values out or sweep in "
            "parts",
            count,
            MOST_POINTS,
        )
    return tuple(axes)


def _values(name: str, values: object) -> tuple[Value, ...]:
    """The values of a key as plain ones: paths as texts, NumPy's numbers as Python's."""
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if not isinstance(values, Iterable) or isinstance(values, str):
        raise ArgumentError("{grid} {}: {!r} is no list; expected a list of values", name, values)
    plain = []
    for value in values:
        one = value.item() if isinstance(value, np.generic) else value
        one = str(one) if isinstance(one, Path) else one
        if not isinstance(one, int | float | str):
            raise ArgumentError(
                "{grid} {}: {!r} is no value; expected a number, a text, true or false", name, value
            )
        plain.append(one)
    return tuple(plain)


def _axis(name: str, values: tuple[Value, ...]) -> Axis:
    key = _key(name)
    if not values:
        raise ArgumentError("{grid} {} has no values; expected KEY=VALUE,VALUE, {}", name, EXAMPLE)
    for index, value in enumerate(values):
        if value in values[:index]:
            raise ArgumentError(
                "{grid} {}: {} is given twice; expected each value once", name, value
            )
        _check(key, value, name)
    return Axis(key, values)


def _key(name: str) -> Key:
    """The place of a key among settings, or in the target's file after `target`."""
    parts = _parts(name)
    if parts[0] == TARGET and len(parts) > 1:
        return (TARGET, *_target_key(name, parts[1:]))
    settings = [key for key in Overrides.model_fields if key != LAYERS]
    if parts[0] == LAYERS:
        if len(parts) != 3 or parts[2] not in LayerBits.model_fields:
            raise ArgumentError(
                '{grid} {}: expected layers."PATTERN".KEY with one of {}{}',
                name,
                ", ".join(LayerBits.model_fields),
                nearest(parts[-1], LayerBits.model_fields),
            )
    elif len(parts) > 1 or parts[0] not in (*settings, TARGET):
        raise ArgumentError("{grid} {}", unknown("key", name, [*settings, TARGET]))
    return parts


def _parts(name: str) -> Key:
    """A dotted key as TOML reads it."""
    try:
        inner: Any = tomllib.loads(f"{name} = 0")
    except tomllib.TOMLDecodeError:
        raise ArgumentError(
            "{grid} {}: is no key; expected KEY=VALUE,VALUE, {}", name, EXAMPLE
        ) from None
    parts = []
    while isinstance(inner, dict):
        ((part, inner),) = inner.items()
        parts.append(part)
    return tuple(parts)


def _target_key(name: str, parts: Key) -> Key:
    """The one key of a target's file that ends in `parts`; CimError for none or several."""
    known = [key for key in leaves(Target) if key not in IDENTITY]
    if parts in known:
        return parts
    found = [key for key in known if key[-len(parts) :] == parts]
    names = [f"{TARGET}.{dotted(key)}" for key in found or known]
    if not found:
        short = {f"{TARGET}.{key[-1]}" for key in known}
        hint = nearest(name, [*names, *short])
        raise ArgumentError("{grid} {}: a target has no single value of this name{}", name, hint)
    if len(found) > 1:
        raise ArgumentError(
            "{grid} {}: several keys end so; expected one of {}", name, ", ".join(names)
        )
    return found[0]


def _check(key: Key, value: Value, name: str) -> None:
    if key == (TARGET,):
        load_target(str(value))
        return
    table, place = (Target, key[1:]) if key[0] == TARGET else (Overrides, key)
    try:
        check_value(table, place, value)
    except CimError as error:
        raise ArgumentError("{grid} {}: {}", name, error) from None


def points(axes: Sequence[Axis], target: str | Target | None, file: Path | None) -> list[Point]:
    """All combinations of a grid, the last key's values changing fastest.

    `target` is the one that all have where `target` is no key. Raises CimError where both or
    neither is given, and for a mistake in the settings `file`.
    """
    swept = any(axis.key == (TARGET,) for axis in axes)
    if swept == (target is not None):
        given = "given twice" if swept else "missing"
        raise ArgumentError(
            "target is {}; expected either {target} or {grid} target=NAME,NAME", given
        )
    known: dict[Value, Target] = {}
    if isinstance(target, Target):
        known[target.name] = target
    elif target is not None:
        known[target] = load_target(target)
    for axis in axes:
        if axis.key == (TARGET,):
            known |= {value: load_target(str(value)) for value in axis.values}
    for one in known.values():
        resolve(one, file, {})
    found = []
    for values in itertools.product(*(axis.values for axis in axes)):
        pairs = tuple((axis.key, value) for axis, value in zip(axes, values, strict=True))
        base = dict(pairs).get((TARGET,), next(iter(known)))
        found.append(_point(pairs, str(base), known[base], file))
    return found


def _point(
    values: tuple[tuple[Key, Value], ...], name: str, base: Target, file: Path | None
) -> Point:
    try:
        changes = target_changes(values)
        target = derived(base, changes | {"name": derived_name(base, values)}) if changes else base
        return Point(
            values, name, Configuration(target, resolve(target, file, setting_flags(values)))
        )
    except CimError as error:
        return Point(values, name, None, str(error))


def target_changes(values: Sequence[tuple[Key, Value]]) -> dict[str, Any]:
    """What a point changes of its target's file, as nested tables."""
    return _nested((key[1:], value) for key, value in values if key[0] == TARGET and key[1:])


def setting_flags(values: Sequence[tuple[Key, Value]]) -> dict[str, Any]:
    """What a point sets, by the names of settings; `layers` are nested tables."""
    return _nested((key, value) for key, value in values if key[0] != TARGET)


def _nested(values: Any) -> dict[str, Any]:
    tables: dict[str, Any] = {}
    for key, value in values:
        inner = tables
        for part in key[:-1]:
            inner = inner.setdefault(part, {})
        inner[key[-1]] = value
    return tables


def derived_name(base: Target, values: Sequence[tuple[Key, Value]]) -> str:
    """The name of a target that a point changed: another design, so not its base's."""
    changed = [(dotted(key[1:]), value) for key, value in values if key[0] == TARGET and key[1:]]
    text = "-".join([base.name, *(f"{name}-{value}" for name, value in changed)])
    return "".join(c if c.isalnum() or c in "._-" else "-" for c in text)
