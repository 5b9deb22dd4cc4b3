"""Named options of models and losses: dataclass fields that `model.hidden=512` changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from numbers import Integral
from typing import Any, TypeVar

from cimtool.base.errors import Argument, ArgumentError, CimError
from cimtool.base.named import nearest

KINDS = ("model", "loss")

OptionsT = TypeVar("OptionsT")


def by_kind(options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Part options by what stands before the dot; CimError for a key of neither kind."""
    found: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
    for key, value in options.items():
        kind, _, name = key.partition(".")
        if not name or kind not in KINDS:
            raise CimError(f'option "{key}" is not known; expected model.KEY or loss.KEY')
        found[kind][name] = value
    return found


def with_options(cls: type[OptionsT], kind: str, name: str, values: Mapping[str, Any]) -> OptionsT:
    """Build a model or loss from its class and some of its fields, given as values or texts.

    Raises CimError naming the key where there is no such field or it cannot have the value.
    """
    known = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
    taken = {}
    for key, value in values.items():
        if key not in known:
            held = ", ".join(known) or "none"
            raise CimError(
                f'{kind}.{key} is no option of {kind} "{name}": {held}{nearest(key, known)}'
            )
        taken[key] = _value(f"{kind}.{key}", known[key], value)
    return cls(**taken)


def _value(key: str, field: Field[Any], value: Any) -> Any:
    read, expected = READERS[str(field.type)]
    try:
        return read(value)
    except (TypeError, ValueError):
        raise CimError(f"{key} is {value}; expected {expected}") from None


def _integer(value: Any) -> int:
    number = float(value)
    if isinstance(value, bool) or not number.is_integer() or abs(number) >= 2**63:
        raise ValueError(value)
    return int(number)


def _number(value: Any) -> float:
    number = float(value)
    if isinstance(value, bool) or not math.isfinite(number):
        raise ValueError(value)
    return number


def _flag(value: Any) -> bool:
    known = {"true": True, "false": False}
    if str(value).lower() not in known:
        raise ValueError(value)
    return known[str(value).lower()]


READERS: Mapping[str, tuple[Callable[[Any], Any], str]] = {
    "int": (_integer, "an integer of 64 bits"),
    "float": (_number, "a finite number"),
    "bool": (_flag, "true or false"),
    "str": (str, "a text"),
}
"""Reader of a field by its type, and the values that it takes in words."""


def whole(name: str, value: Any, low: int) -> None:
    """Raise CimError for an argument that is no integer, or below `low`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < low:
        raise ArgumentError(
            "{} is {}; expected an integer of at least {}", Argument(name), value, low
        )


def positive(options: Any, *names: str) -> None:
    """Raise CimError for a field of a model or loss that is not above 0."""
    for name in names:
        value = getattr(options, name)
        if not value > 0:
            raise CimError(f"{options.kind}.{name} is {value:g}; expected more than 0")


def not_negative(options: Any, *names: str) -> None:
    """Raise CimError for a field of a model or loss that is below 0."""
    for name in names:
        value = getattr(options, name)
        if not value >= 0:
            raise CimError(f"{options.kind}.{name} is {value:g}; expected 0 or more")
