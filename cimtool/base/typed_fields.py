"""A file's values, checked against the annotations of the dataclass that they become."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

KINDS = {np.float64: "f", np.int64: "i", np.bool_: "b"}
"""The kinds of arrays that an annotation names; any other takes numbers and booleans."""


Made = TypeVar("Made")
Test = Callable[[Any], bool]


def made_of(kind: type[Made], values: Mapping[str, Any]) -> Made:
    """The dataclass `kind` of values by the names of its fields.

    Raises TypeError if the values are no table, a value does not fit its field's type, a name is
    no field, or a field without a default is missing.
    """
    table_of(values, kind.__name__)
    tests, required = _form(kind)  # type: ignore[arg-type]  # classes can be hashed
    for name, value in values.items():
        if name not in tests:
            raise TypeError(f"{kind.__name__} has no {name}; it has {', '.join(tests)}")
        if not tests[name](value):
            raise TypeError(f"{kind.__name__}.{name} cannot be a {type(value).__name__}")
    for name in required:
        if name not in values:
            raise TypeError(f"{kind.__name__} lacks {name}")
    return kind(**values)


def table_of(values: Any, where: str) -> Mapping[str, Any]:
    """The values if they are a table; otherwise TypeError, which says `where` they stand."""
    if not isinstance(values, Mapping):
        raise TypeError(f"{where} cannot be a {type(values).__name__}")
    return values


def list_of(values: Any, where: str) -> tuple[Any, ...]:
    """The values if they are a list; otherwise TypeError, which says `where` they stand."""
    if not isinstance(values, list):
        raise TypeError(f"{where} cannot be a {type(values).__name__}")
    return tuple(values)


@cache
def _form(kind: type[Any]) -> tuple[dict[str, Test], list[str]]:
    """The test of each field that a dataclass is made of, and the fields without a default."""
    if not is_dataclass(kind):
        raise TypeError(f"{kind.__name__} is no dataclass")
    hints, given = get_type_hints(kind), [one for one in fields(kind) if one.init]
    required = [one.name for one in given if MISSING is one.default is one.default_factory]
    return {one.name: _test(hints[one.name]) for one in given}, required


def fits(value: Any, hint: Any) -> bool:
    """True if a value is of an annotated type; integers are also real, booleans are neither.

    An integer has at most 64 bits. TypeError for an annotation that this project's classes do not
    use.
    """
    return _test(hint)(value)


@cache
def _test(hint: Any) -> Test:
    """The test of `fits` for an annotation, which is taken apart once and not for every value."""
    origin, inner = get_origin(hint), get_args(hint)
    if hasattr(origin, "__value__"):  # NumPy's NDArray, an alias of a statement from 3.12 on
        return _test(origin.__value__[inner])
    if hint is Any:
        return lambda value: True
    if hint in (None, NoneType):
        return lambda value: value is None
    if origin in (Union, UnionType):
        either = [_test(one) for one in inner]
        return lambda value: any(test(value) for test in either)
    if origin is Literal:
        return lambda value: any(type(value) is type(one) and value == one for one in inner)
    if origin is tuple:
        return _tuple_test(inner)
    if origin is np.ndarray:
        kinds = KINDS.get(get_args(inner[1])[0], "fib")
        return lambda value: isinstance(value, np.ndarray) and value.dtype.kind in kinds
    if origin is not None and issubclass(origin, Mapping):
        key, held = map(_test, inner)
        return lambda value: (
            isinstance(value, Mapping) and all(key(k) and held(v) for k, v in value.items())
        )
    return partial(_is_of, hint)


def _tuple_test(inner: tuple[Any, ...]) -> Test:
    """The test for a tuple of these annotations; `...` after one repeats it."""
    if inner[1:] == (...,):
        each = _test(inner[0])
        return lambda value: isinstance(value, tuple) and all(map(each, value))
    tests = [_test(one) for one in inner]
    return lambda value: (
        isinstance(value, tuple)
        and len(value) == len(tests)
        and all(test(one) for test, one in zip(tests, value, strict=True))
    )


def _is_of(hint: Any, value: Any) -> bool:
    if isinstance(value, int) and value.bit_length() > 63:
        return False
    if hint in (int, float):
        numbers = (int,) if hint is int else (int, float)
        return isinstance(value, numbers) and not isinstance(value, bool)
    if isinstance(hint, type):
        return isinstance(value, hint)
    raise TypeError(f"{hint} is an annotation that no value is checked against")
