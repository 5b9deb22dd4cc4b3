"""Write what the documentation takes from the declaration of keys in `cimtool/hardware/keys.py`.

    python docs/keys.py

writes the JSON Schemas of a target's
file, of a settings file, of a project file, of that of a content-addressable memory and of a
hand-off's layout.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import click
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from cimtool.base.toml_files import allowed_text, value_text
from cimtool.cli import cli
from cimtool.cli.group import records_by_command
from cimtool.cli.project import DIALECT, project_schema
from cimtool.handoff.layout import LayoutFile
from cimtool.hardware.cam import Cam
from cimtool.hardware.keys import KEYS, Key, Keys
from cimtool.hardware.noise.mechanisms import kinds
from cimtool.hardware.noise.spec import preset_names
from cimtool.hardware.settings import Overrides
from cimtool.hardware.target import Target

DOCS = Path(__file__).parent


class FileSchema(GenerateJsonSchema):
    """Schemas of TOML files: a value may be left out, and there is no null."""

    def nullable_schema(self, schema: Any) -> dict[str, Any]:
        """The schema of a value that may be None."""
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: Any) -> dict[str, Any]:
        """The schema of a value with a default, which is not written where it is None."""
        found = super().default_schema(schema)
        if found.get("default", 0) is None:
            del found["default"]
        return found

    def field_title_should_be_set(self, schema: Any) -> bool:
        """True where a field without a title gets one of its name."""
        return False


def file_schema(table: type[BaseModel], title: str) -> dict[str, Any]:
    """The schema of a file that is read as a table."""
    found = table.model_json_schema(by_alias=True, schema_generator=FileSchema)
    return {"$schema": DIALECT} | found | {"title": title}


def target_schema() -> dict[str, Any]:
    """The schema of a target's file; what its base has, it may leave out."""
    schema = file_schema(Target, "cimtool target")
    tables = schema["$defs"]
    whole: dict[str, Any] = {"required": schema["required"], "properties": {}}
    for name, inner in schema["properties"].items():
        table = tables.get(inner.get("$ref", "").rpartition("/")[2])
        if table is not None and name != "noise" and "required" in table:
            whole["properties"][name] = {"required": table.pop("required")}
    schema["required"] = ["name", "title"]
    schema |= {"if": {"not": {"required": ["base"]}}, "then": whole}
    noise = tables["Noise"]
    for name, kind in kinds().items():
        mechanism = kind.model_json_schema(by_alias=True, schema_generator=FileSchema)
        tables |= mechanism.pop("$defs", {}) | {kind.__name__: mechanism}
        noise["properties"][name] = {"$ref": f"#/$defs/{kind.__name__}"}
    schema["$defs"] = dict(sorted(tables.items()))
    noise["properties"]["preset"] = {"type": "string", "examples": preset_names()}
    noise |= {
        "if": {"not": {"required": ["preset"]}},
        "then": {"required": noise.pop("required")},
    }
    return schema


def settings_schema() -> dict[str, Any]:
    """The schema of a settings file."""
    return file_schema(Overrides, "cimtool settings")


def key_table() -> str:
    """The table of keys in Markdown."""
    head = "| in a target's file | setting | value | left out | what it is |\n"
    rows = [_row(name, key, *_field(name)) for name, key in KEYS.items()]
    tables = _schema(Target)["$defs"]
    for name, table in _own_tables(tables).items():
        for entry, schema in table["properties"].items():
            key = Key(schema["title"], f"{name}.{entry}", setting="")
            if all(one.place != key.place for one in KEYS.values()):
                rows.append(_row(entry, key, schema, entry in table.get("required", ())))
    return head + "|---|---|---|---|---|\n" + "".join(rows)


@cache
def _schema(table: type[BaseModel]) -> dict[str, Any]:
    """The schema of a file, made once for the rows of all keys."""
    return file_schema(table, "")


def _own_tables(tables: dict[str, Any]) -> dict[str, Any]:
    """The tables of a target's file that have keys beside those of `Keys`."""
    names = {
        "adc": "AdcSpec",
        "array": "ArraySpec",
        "chip": "ChipSpec",
        "image": "ImageSpec",
        "process": "ProcessSpec",
        "write_verify": "WriteVerify",
    }
    return {name: tables[of] for name, of in (names | {"digital": "DigitalSpec"}).items()}


def _row(name: str, key: Key, schema: dict[str, Any], required: bool) -> str:
    place = f"`{key.place}`" if key.place else ""
    setting = name if key.setting is None else key.setting
    given = f"`{setting}`" if setting else ""
    if key.per_layer:
        given += ", a layer's own"
    left_out = value_text(schema["default"]) if "default" in schema else ""
    if required:
        left_out = "must be given"
    value = allowed_text(schema).replace(" | ", ", ")
    return f"| {place} | {given} | {value} | {left_out} | {key.help} |\n"


def _field(name: str) -> tuple[dict[str, Any], bool]:
    """The schema of a key, and whether a target's file must give it."""
    place = KEYS[name].place
    if not place:
        return _schema(Keys)["properties"][name], False
    schema, (table, entry) = _schema(Target), place.split(".")
    inside = schema["$defs"][schema["properties"][table]["$ref"].rpartition("/")[2]]
    return inside["properties"][entry], entry in inside.get("required", ())


def texts() -> dict[Path, str]:
    """The files that follow from the declaration, and their texts."""
    schemas = {
        "target": target_schema(),
        "settings": settings_schema(),
        "project": project_schema(dict(records_by_command(cli, click.Context(cli)))),
        "cam": file_schema(Cam, "cimtool content-addressable memory"),
        "handoff-layout": file_schema(LayoutFile, "layout.json of a cimtool hand-off"),
    }
    return {
        DOCS / f"{name}.schema.json": json.dumps(schema, indent=1) + "\n"
        for name, schema in schemas.items()
    }


if __name__ == "__main__":
    for file, text in texts().items():
        file.write_text(text, "utf-8")
