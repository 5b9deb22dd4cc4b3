"""Targets for readers: every value with its key, every figure with its source."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from cimtool.base.toml_files import TomlTable, dotted
from cimtool.hardware.figures import Figure
from cimtool.hardware.noise.spec import Noise
from cimtool.hardware.target import Target

ABSENT = {"array.rows": "unlimited", "array.columns": "unlimited", "adc.bits": "lossless"}
APART = ("name", "title", "operating_points", "figures", "unconfirmed", "unmodelled")


def describe(target: Target) -> str:
    """Describe a target: its values, operating points, figures, and what is not known of it."""
    values: dict[str, Any] = {}
    for key, value in target.to_json().items():
        if key not in APART:
            values |= _flat((key,), value)
    values, units = values | ABSENT | values, _units(target.noise)
    width = max(24, *map(len, values))
    lines = [f"{target.name}: {target.title}"]
    for key, value in values.items():
        lines.append(f"  {key:<{width}} {_value_text(value)} {units.get(key, '')}".rstrip())
    lines += _listed(
        "operating points", [f"{p.name}: {p.conditions()}" for p in target.operating_points]
    )
    lines += _listed("figures", [_figure_text(one) for one in target.figures], "not given")
    lines += _listed("unconfirmed", target.unconfirmed)
    lines += _listed("not modelled", target.unmodelled)
    return "\n".join(lines)


def _flat(keys: tuple[str, ...], value: Any) -> dict[str, Any]:
    """The values inside nested tables, by their dotted keys as in a file."""
    if not isinstance(value, dict):
        return {dotted(keys): value}
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        flat |= _flat((*keys, key), inner)
    return flat


def _value_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _units(noise: Noise | None) -> dict[str, str]:
    """Units of what is not a count, a share or a text, by key; figures carry their own."""
    if noise is None:
        return {}
    tables: dict[str, TomlTable] = {"noise": noise} | {
        f"noise.{one.name}": one for one in noise.mechanisms
    }
    return {
        f"{place}.{name}": str(field.json_schema_extra["unit"])
        for place, table in tables.items()
        for name, field in type(table).model_fields.items()
        if isinstance(field.json_schema_extra, dict) and "unit" in field.json_schema_extra
    }


def _listed(heading: str, texts: Sequence[str], absent: str = "") -> list[str]:
    if not texts:
        return [f"{heading}: {absent}"] if absent else []
    return [heading, *(f"  {text}" for text in texts)]


def _figure_text(figure: Figure) -> str:
    voltage = f"{figure.voltage:g} V" if figure.voltage else None
    at = f"at {figure.at}" if figure.at else None
    conditions = (at, figure.precision, figure.mode, figure.activity, voltage)
    return (
        f"{figure.quantity} {figure.text()}, {figure.scope}: "
        f"{', '.join(filter(None, conditions)) or 'at every operating point'} "
        f"[{figure.status}: {figure.source}]"
    )
