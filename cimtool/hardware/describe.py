"""Targets for readers: every value with its key, every figure with its source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cimtool.hardware.figures import Figure, OperatingPoint
from cimtool.hardware.target import Target

ABSENT = {"array.rows": "unlimited", "array.columns": "unlimited", "adc.bits": "lossless"}
APART = ("name", "title", "operating_points", "figures", "unconfirmed", "unmodelled")


def describe(target: Target) -> str:
    """Describe a target: its values, operating points, figures, and what is not known of it."""
    values: dict[str, Any] = {}
    for key, value in target.to_json().items():
        if key not in APART:
            inside = value.items() if isinstance(value, dict) else ()
            values |= {f"{key}.{name}": one for name, one in inside} or {key: value}
    lines = [f"{target.name}: {target.title}"]
    lines += [f"  {key:<24} {value}" for key, value in (values | ABSENT | values).items()]
    lines += _listed("operating points", [_point_text(one) for one in target.operating_points])
    lines += _listed("figures", [_figure_text(one) for one in target.figures], "not given")
    lines += _listed("unconfirmed", target.unconfirmed)
    lines += _listed("not modelled", target.unmodelled)
    return "\n".join(lines)


def _listed(heading: str, texts: Sequence[str], absent: str = "") -> list[str]:
    if not texts:
        return [f"{heading}: {absent}"] if absent else []
    return [heading, *(f"  {text}" for text in texts)]


def _point_text(point: OperatingPoint) -> str:
    return f"{point.name}: {point.conditions()}"


def _figure_text(figure: Figure) -> str:
    voltage = f"{figure.voltage:g} V" if figure.voltage else None
    at = f"at {figure.at}" if figure.at else None
    conditions = (at, figure.precision, figure.mode, figure.activity, voltage)
    return (
        f"{figure.quantity} {figure.text()}, {figure.scope}: "
        f"{', '.join(filter(None, conditions)) or 'at every operating point'} "
        f"[{figure.status}: {figure.source}]"
    )
