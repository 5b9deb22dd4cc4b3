"""Targets for readers: every value with its key, every figure with its source."""

from __future__ import annotations

from typing import Any

from cimtool.base.toml_files import TomlTable, dotted
from cimtool.hardware.cam import Cam
from cimtool.hardware.noise.spec import Noise
from cimtool.hardware.target import Target
from cimtool.report.page import render_text

ABSENT = {"array.rows": "unlimited", "array.columns": "unlimited", "adc.bits": "lossless"}
APART = ("name", "title", "operating_points", "figures", "retrievals", "unconfirmed", "unmodelled")


def describe(target: Target) -> str:
    """Describe a target: its values, operating points, figures, and what is not known of it."""
    values = _flat((), {k: v for k, v in target.to_json().items() if k not in APART})
    values = values | ABSENT | values
    values.pop("adc.settable", None)
    units, width = _units(target.noise), max(24, *map(len, values))
    return render_text(
        "cimtool.hardware", "target.txt", target=target, values=values, units=units, width=width
    )


def describe_cam(cam: Cam) -> str:
    """Describe a CAM: its values, its figures, and what is not known of it."""
    values = _flat((), {k: v for k, v in cam.to_json().items() if k not in APART})
    values.setdefault("sense.levels", "lossless")
    width = max(24, *map(len, values))
    return render_text("cimtool.hardware", "cam.txt", cam=cam, values=values, width=width)


def _flat(keys: tuple[str, ...], value: Any) -> dict[str, Any]:
    """The values inside nested tables, by their dotted keys as in a file."""
    if not isinstance(value, dict):
        return {dotted(keys): value}
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        flat |= _flat((*keys, key), inner)
    return flat


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
