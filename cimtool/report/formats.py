"""Texts of numbers and quantities, the same in tables, charts and sentences."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

NOTHING = "-"
"""A cell without a value: a row compared with itself, a figure that does not exist."""

NOT_GIVEN = "not given"
"""A figure that a target does not give."""

NOT_KNOWN = "not known"

NumberFormat = Callable[[float], str]
"""The text of a number."""

Units = Sequence[tuple[float, str]]
TIMES: Units = ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1, "ns"))
"""Units of time with their size in ns."""

ENERGIES: Units = ((1e12, "J"), (1e9, "mJ"), (1e6, "uJ"), (1e3, "nJ"), (1, "pJ"))
"""Units of energy with their size in pJ."""

SIZES: Units = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B"))
"""Units of memory with their size in bytes."""

AREAS: Units = ((1, "mm2"),)


def number(value: float) -> str:
    """Four digits after the point or in total; an exponent if the number would read 0."""
    if value == 0:
        return "0"
    if abs(value) < 5e-5:
        return f"{value:.0e}"
    return f"{value:.4f}" if abs(value) < 10 else f"{value:.4g}"


def four_digits(value: float) -> str:
    """Four significant digits."""
    return f"{value:.4g}"


def digits(value: float, count: int = 2) -> str:
    """Significant digits, without an exponent where a number is large."""
    return f"{float(f'{value:.{count}g}'):,.15g}"


def digits_apart(low: float, high: float) -> int:
    """Digits, at least two, that tell the ends of an interval apart; two if they are equal."""
    return next((n for n in range(2, 16) if digits(low, n) != digits(high, n)), 2)


def whole(value: float) -> str:
    """An integer with its thousands separated."""
    return f"{value:,}"


def percent(share: float) -> str:
    """A share in percent with one digit after the point; NOTHING if it is not finite."""
    return f"{round(100 * share, 1) + 0.0:.1f}" if math.isfinite(share) else NOTHING


def percent_range(low: float, high: float) -> str:
    """An interval of shares in percent, `[24.4, 28.9]`."""
    return f"[{percent(low)}, {percent(high)}]"


def fine_percent(share: float) -> str:
    """A share in percent with three digits after the point, for rare events."""
    return f"{100 * share:.3f}"


def coverage(share: float) -> str:
    """A share in whole percent with a % sign; 100% only if the share is exactly 1."""
    return "100%" if share == 1 else f"{min(int(100 * share + 0.5), 99)}%"


def counted(count: int, noun: str) -> str:
    """A number of things: `1 chip`, `5 chips`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def numbered(names: Sequence[str]) -> tuple[str, ...]:
    """The names; equal names are numbered."""
    return tuple(
        name if names.count(name) == 1 else f"{name} ({names[: i + 1].count(name)})"
        for i, name in enumerate(names)
    )


def unit_of(value: float, units: Units) -> tuple[float, str]:
    """The largest of `units` that leaves a value at 1 or above, otherwise the smallest."""
    return next((unit for unit in units if value >= unit[0]), units[-1])


def scaled(value: float, units: Units) -> str:
    """A value in the unit that fits it."""
    size, unit = unit_of(value, units)
    return f"{value / size:.4g} {unit}"
