"""The JSON Schema of `report.json`, made from the classes of the report."""

from __future__ import annotations

import json
from dataclasses import make_dataclass
from typing import Any, get_type_hints

from pydantic import TypeAdapter

from cimtool.verification.report import FORMAT_VERSION, RECORDS, Report

DIALECT = "https://json-schema.org/draft/2020-12/schema"

NUMBER = {"type": ["number", "null"]}
"""A number at 6 significant digits; null where it is not finite or not known."""

DERIVED: dict[str, dict[str, Any]] = {
    "ScoreDrift": {"relative_rmse": NUMBER, "relative_centred_rmse": NUMBER},
    "Change": {"is_real": {"type": "boolean"}},
    "Limit": {"kept": {"type": "boolean"}},
}
"""What `report.plain` adds to a class's own fields."""


def report_schema() -> dict[str, Any]:
    """The schema (draft 2020-12) of what `Report.to_json` gives."""
    hints = [hint for record in RECORDS for hint in get_type_hints(record).items()]
    fields = [*hints, ("notes", tuple[str, ...])]
    flat = make_dataclass("Flat", fields, namespace={"__doc__": Report.__doc__})
    found = TypeAdapter(flat).json_schema(mode="serialization")
    definitions = found.pop("$defs")
    for name, more in DERIVED.items():
        _add(definitions[name], more)
    _add(
        found,
        {
            "format_version": {"const": FORMAT_VERSION},
            "passed": {"type": "boolean"},
            "failures": {"type": "array", "items": {"type": "string"}},
        },
    )
    body = _plain({**found, "$defs": definitions})
    return {"$schema": DIALECT, "title": "cimtool report", **body}


def schema_text() -> str:
    """The text of `docs/report.schema.json`."""
    return json.dumps(report_schema(), indent=1) + "\n"


def _add(definition: dict[str, Any], more: dict[str, Any]) -> None:
    definition["properties"] |= more
    definition["required"] += more


def _plain(node: Any) -> Any:
    """A part of the schema with numbers that may be null, nothing unnamed, and no titles."""
    if isinstance(node, list):
        return [_plain(one) for one in node]
    if not isinstance(node, dict):
        return node
    if node.get("type") == "number":
        return NUMBER
    if "anyOf" in node and {"type": "number"} in node["anyOf"]:
        return NUMBER
    kept = {name: one for name, one in node.items() if name not in ("title", "default")}
    if "properties" not in node:
        return {name: _plain(one) for name, one in kept.items()}
    kept["properties"] = {name: _plain(one) for name, one in node["properties"].items()}
    return {name: one if name == "properties" else _plain(one) for name, one in kept.items()} | {
        "additionalProperties": False
    }
