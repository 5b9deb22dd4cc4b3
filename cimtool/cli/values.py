"""Options of the form KEY=VALUE, given once a key."""

from __future__ import annotations

import math
from collections.abc import Iterable

from cimtool.base.errors import Argument, ArgumentError
from cimtool.base.escapes import number_of
from cimtool.base.grids import Value
from cimtool.base.toml_files import parse_line


def parse_grid(texts: Iterable[str], example: str = "weight_bits=4,6,8") -> dict[str, list[Value]]:
    """Read `KEY=V,V,V` of each `--grid`; CimError where that is not how one is written."""
    expected = f"KEY=VALUE,VALUE, such as {example}"
    grid: dict[str, list[Value]] = {}
    for text in texts:
        key, _, values = text.partition("=")
        key = key.strip()
        if not key or not values.strip():
            raise ArgumentError("{grid} {}: expected {}", text, expected)
        if key in grid:
            raise ArgumentError("{grid} {} is given twice; expected all of its values at once", key)
        found = [one.strip() for one in values.split(",")]
        if not all(found):
            raise ArgumentError("{grid} {}: a value is empty; expected {}", key, expected)
        grid[key] = list(map(plain_value, found))
    return grid


def plain_value(text: str) -> Value:
    """A number, true or false where the text is one in TOML, otherwise the text itself."""
    try:
        value = parse_line(f"value = {text}")["value"]
    except ValueError:
        return text
    return value if isinstance(value, int | float | str) else text


def parse_limits(argument: str, texts: Iterable[str]) -> dict[str, float]:
    """Read `METRIC=VALUE` of each option that gives an argument; CimError for no number."""
    limits: dict[str, float] = {}
    for text in texts:
        metric, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            expected = "METRIC=VALUE, such as logit_rmse=0.2"
            raise ArgumentError("{} {}: expected {}", Argument(argument), text, expected)
        if metric in limits:
            raise ArgumentError(
                "{} {} is given twice; expected one value", Argument(argument), metric
            )
        limits[metric] = _number(argument, metric, value)
    return limits


def _number(argument: str, metric: str, text: str) -> float:
    try:
        number = number_of(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ArgumentError(
            '{} {}: "{}" is no finite number; expected one', Argument(argument), metric, text
        )
    return number


def parse_options(texts: Iterable[str]) -> dict[str, str]:
    """Read `loss.tau=0.1`, ... as texts by key, the last of a key; CimError for no KEY=VALUE."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise ArgumentError('{options} "{}": expected model.KEY=VALUE or loss.KEY=VALUE', text)
        found[key.strip()] = value.strip()
    return found
