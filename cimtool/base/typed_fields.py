"""Values of a file against the annotations of the dataclass that they are to become."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

KINDS = {np.float64: "f", np.int64: "i", np.bool_: "b"}
"""The kinds of arrays that an annotation names; any other takes numbers and truths."""


Made = TypeVar("Made")


def made_of(kind: type[Made], values: Mapping[str, Any]) -> Made:
    """The dataclass `kind` of values by the names of its fields.

    Raises TypeError for values that are no table, for one that is none of its field's type, for a
    name that is none, and for a field that is left out and has no default.
    """
    if not isinstance(values, Mapping):
        raise TypeError(f"{kind.__name__} cannot be a {type(values).__name__}")
    if not is_dataclass(kind):
        raise TypeError(f"{kind.__name__} is no dataclass")
    hints = _hints(kind)
    for name, value in values.items():
        if name not in hints:
            raise TypeError(f"{kind.__name__} has no {name}; it has {', '.join(hints)}")
        if not fits(value, hints[name]):
            raise TypeError(f"{kind.__name__}.{name} cannot be a {type(value).__name__}")
    for one in fields(kind):
        if one.init and one.name not in values and MISSING is one.default is one.default_factory:
            raise TypeError(f"{kind.__name__} lacks {one.name}")
    return kind(**values)


def table_of(values: Any, where: str) -> Mapping[str, Any]:
    """The values where they are a table; TypeError, which says `where` they stand, for others."""
    if not isinstance(values, Mapping):
        raise TypeError(f"{where} cannot be a {type(values).__name__}")
    return values


def list_of(values: Any, where: str) -> tuple[Any, ...]:
    """The values where they are a list; TypeError, which says `where` they stand, for others."""
    if not isinstance(values, list):
        raise TypeError(f"{where} cannot be a {type(values).__name__}")
    return tuple(values)


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    known = get_type_hints(kind)
    return {one.name: known[one.name] for one in fields(kind) if one.init}


def fits(value: Any, hint: Any) -> bool:
    """True where a value is of an annotated type; whole numbers are real numbers, truths neither.

    A whole number has at most 64 bits. TypeError for an annotation that is none of those which this
    project's classes use.
    """
    origin, inner = get_origin(hint), get_args(hint)
    if hasattr(origin, "__value__"):  # NumPy's NDArray, an alias of a statement from 3.12 on
        return fits(value, origin.__value__[inner])
    if hint is Any:
        return True
    if hint in (None, NoneType):
        return value is None
    if origin in (Union, UnionType):
        return any(fits(value, one) for one in inner)
    if origin is Literal:
        return any(type(value) is type(one) and value == one for one in inner)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        each = (inner[0],) * len(value) if inner[1:] == (...,) else inner
        return len(each) == len(value) and all(map(fits, value, each))
    if origin is np.ndarray:
        number = get_args(inner[1])[0]
        return isinstance(value, np.ndarray) and value.dtype.kind in KINDS.get(number, "fib")
    if origin is not None and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(
            fits(k, inner[0]) and fits(v, inner[1]) for k, v in value.items()
        )
    if isinstance(value, int) and value.bit_length() > 63:
        return False
    if hint in (int, float):
        numbers = (int,) if hint is int else (int, float)
        return isinstance(value, numbers) and not isinstance(value, bool)
    if isinstance(hint, type):
        return isinstance(value, hint)
    raise TypeError(f"{hint} is an annotation that no value is checked against")
