"""TOML read and validated at the door: each mistake becomes one sentence for the user."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, ValidationError
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError, core_schema

from cimtool.base.errors import Argument, ArgumentError, CimError
from cimtool.base.escapes import toml_string
from cimtool.base.named import Named, nearest, unknown
from cimtool.base.plugins import OWN, known_files, load_plugins, targets_folder
from cimtool.base.untrusted import read_bounded

Location = tuple[int | str, ...]

LARGEST, LONGEST_LINE = 100_000, 4096
"""Most bytes of a file and of a line: a key's memory grows with the square of its parts."""

DEEPEST = 64
"""Most tables and lists nested in one another."""


class TomlTable(BaseModel):
    """Base of every validated TOML table: frozen, strictly typed, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @classmethod
    def entries(cls) -> dict[str, Any]:
        """The keys of the table with the types of their values."""
        return {info.alias or name: info.annotation for name, info in cls.model_fields.items()}


SourceText = Annotated[
    str, Field(pattern=r"\S", description="a text that says where the figures come from")
]
"""The source of figures: no blank text."""

AnyTomlTable = TypeVar("AnyTomlTable", bound=TomlTable)


class _NameOf:
    """The type of a text that names a class of a family, out of the classes known by then."""

    def __init__(self, names: Callable[[], list[str]]):
        self.names = names

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        text = core_schema.str_schema(strict=True)
        return core_schema.no_info_after_validator_function(self.check, text)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"type": "string", "enum": self.names()}

    def check(self, name: str) -> str:
        """Return a known name; the error gives no details, as the table lists the names."""
        if name not in self.names():
            load_plugins()
        if name not in self.names():
            raise PydanticCustomError("unknown_name", "unknown name")
        return name


def name_of(family: type[Named], names: Callable[[], list[str]] | None = None) -> Any:
    """The type of a table's key that holds the name of a class of `family`, or one of `names`."""
    return Annotated[str, _NameOf(names or (lambda: list(family.family)))]


def read_toml(file: Path) -> dict[str, Any]:
    """Read a TOML file; CimError (with the line of a syntax error) if it cannot be read."""
    content = read_bounded(file, LARGEST)
    longest = max(map(len, content.split(b"\n")))
    if longest > LONGEST_LINE:
        raise CimError(
            f"{file}: has a line of {longest:,} bytes; expected at most {LONGEST_LINE:,}"
        )
    try:
        return parse_toml(content.decode("utf-8-sig").replace("\r\n", "\n"))
    except UnicodeDecodeError as error:
        raise CimError(f"{file}: not a text file in UTF-8: byte {error.start}") from None
    except ValueError as error:
        raise CimError(f"{file}: not valid TOML: {error}") from None


def parse_toml(text: str) -> dict[str, Any]:
    """The table of a text; ValueError if it is no TOML, or nested deeper than DEEPEST.

    Also for an integer beyond 64 bits, and for a line of more than LONGEST_LINE characters.
    """
    if max(map(len, text.split("\n"))) > LONGEST_LINE:
        raise ValueError(f"a line has more than {LONGEST_LINE:,} characters")
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:  # Python's sentence names an interpreter setting
        raise ValueError("it has an integer beyond 64 bits") from None
    level: list[Any] = [table]
    for _ in range(DEEPEST + 1):
        inner = [
            one for held in level for one in (held.values() if isinstance(held, dict) else held)
        ]
        if any(isinstance(one, int) and not -(1 << 63) <= one < 1 << 63 for one in inner):
            raise ValueError("it has an integer beyond 64 bits")
        level = [one for one in inner if isinstance(one, dict | list)]
        if not level:
            return table
    raise ValueError("nested too deep")


def parse_line(text: str) -> dict[str, Any]:
    """The table of one line, as `parse_toml` reads it; ValueError for several."""
    if "\n" in text:
        raise ValueError("it has several lines")
    return parse_toml(text)


def known_file(name: str, what: str, folder: str = "") -> tuple[Path, str]:
    """The file and origin of a target by name, or of a file in `folder` beside the targets.

    CimError for an unknown name: it says `what` is not known and gives the nearest name.
    """
    own = targets_folder() / folder / f"{name}.toml"
    if is_file_name(name) and own.is_file():
        return own, OWN
    files = known_files(folder)
    if name not in files:
        raise unknown(what, name, files)
    return files[name]


def is_file_name(name: str) -> bool:
    """True for a name that a file can have; False, not an error, for a name that is too long."""
    return re.fullmatch(r"[\w.+-]{1,100}", name) is not None


def is_path(name_or_path: str) -> bool:
    """True for the path of a file (it has a separator or ends in .toml), False for a name."""
    return name_or_path.endswith(".toml") or "/" in name_or_path or os.sep in name_or_path


def dotted(location: Location) -> str:
    """Write a key as TOML does: `array.rows`, `figures[2].unit`, `layers."video.mu".adc_bits`."""
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            bare = re.fullmatch(r"[A-Za-z0-9_-]+", part)
            text += ("." if text else "") + (part if bare else toml_string(part))
    return text


def validated(
    table: type[AnyTomlTable],
    values: Mapping[str, Any],
    where: str,
    key_text: Callable[[Location], str] = dotted,
) -> AnyTomlTable:
    """Validate `values` as a `table`; CimError in one sentence that starts with `where`, if given.

    `key_text` writes a key in that sentence; it may be an Argument.
    """
    try:
        return table.model_validate(values)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        # A misspelt key is missing and unknown; only the latter can say what was meant.
        first = next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])
        said = _complaint(table, first, key_text)
        raise (ArgumentError("{}: {}", where, said) if where else said) from None


def _complaint(
    table: type[TomlTable], error: ErrorDetails, key_text: Callable[[Location], str]
) -> CimError:
    """Say in one clause which key is wrong, its value, and the allowed values."""
    location, owner, field = _located(table, error["loc"])
    key = key_text(location)
    if error["type"] == "value_error":
        text = str(error["ctx"]["error"])
        return ArgumentError("{}: {}", key, text) if key else CimError(text)
    if error["type"] == "extra_forbidden":
        known = [key_text((name,)) for name in owner.entries()]
        own = key_text(location[-1:])
        return CimError(unknown_key(key, own, error["input"], known))
    if field is not None:
        allowed = allowed_text(owner.model_json_schema()["properties"][field])
    else:
        allowed = "a list of tables" if error["type"] == "tuple_type" else "a table"
    if error["type"] == "missing":
        return ArgumentError("{} is missing: must be {}", key, allowed)
    if error["type"] == "finite_number":
        allowed = allowed.replace("a number above", "a finite number above")
    value = value_text(error["input"])
    if isinstance(key, Argument):
        return ArgumentError("{} is {}; expected {}", key, value, allowed)
    return CimError(f"{key} = {value}: must be {allowed}")


def unknown_key(key: str, name: str, value: Any, known: Sequence[str]) -> str:
    """Say that a key, called `name` in its table, is unknown; name the nearest or all known."""
    said = nearest(name, known) or f" = {value_text(value)}; expected {', '.join(known)}"
    return f"unknown key {key}{said}"


def _located(
    table: type[TomlTable], location: Location
) -> tuple[Location, type[TomlTable], str | None]:
    """Follow a location down the tables, without the marks that pydantic appends for a union.

    Returns the location, the innermost table reached, and the field of it that holds the value
    (None if the location ends at a table, a list or an unknown key).
    """
    free_key = False
    for depth, part in enumerate(location):
        if isinstance(part, int) or free_key:
            free_key = False
            continue
        annotation = table.entries().get(part)
        if annotation is None:
            return location[: depth + 1], table, None
        inner = _table_in(annotation)
        if inner is None:
            return location[: depth + 1], table, part
        table, free_key = inner, get_origin(annotation) is dict
    return location, table, None


def _table_in(annotation: Any) -> type[TomlTable] | None:
    """Return the table inside `T`, `T | None`, `tuple[T, ...]` or `dict[str, T]`."""
    if isinstance(annotation, type) and issubclass(annotation, TomlTable):
        return annotation
    found = (_table_in(argument) for argument in get_args(annotation))
    return next((inner for inner in found if inner is not None), None)


FREE = "NAME"
"""Stands for any key of a table of values, in a list of keys."""


def leaves(table: type[TomlTable]) -> list[tuple[str, ...]]:
    """Keys of all single values of a table and its inner tables, no lists; FREE for any key."""
    found: list[tuple[str, ...]] = []
    for name, annotation in table.entries().items():
        inner = _table_in(annotation)
        origins = {get_origin(part) for part in (annotation, *get_args(annotation))}
        if inner is not None and not origins & {tuple, dict}:
            found += [(name, *rest) for rest in leaves(inner)]
        elif inner is None and tuple not in origins:
            found.append((name, FREE) if dict in origins else (name,))
    return found


def check_value(table: type[TomlTable], location: tuple[str, ...], value: Any) -> None:
    """Raise CimError for a value that a key can never have."""
    place, owner, field = _located(table, location)
    for free in reversed(location[len(place) :]):
        value = {free: value}
    if field is None:
        raise TypeError(f"{dotted(location)} is no single value of {table.__name__}")
    try:
        owner.model_validate({field: value})
    except ValidationError as error:
        if any(one["loc"][:1] == (field,) for one in error.errors(include_url=False)):
            allowed = allowed_text(owner.model_json_schema()["properties"][field])
            raise CimError(f"{value_text(value)}: must be {allowed}") from None


def value_text(value: Any) -> str:
    """Write a value as in its file, cut to 60 characters."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def allowed_text(schema: Mapping[str, Any]) -> str:
    """The values that a field's JSON schema allows, in words."""
    if "description" in schema:
        return str(schema["description"])
    if "anyOf" in schema:
        kinds = [kind for kind in schema["anyOf"] if kind.get("type") != "null"]
        return " or ".join(map(allowed_text, kinds))
    if "const" in schema:
        return value_text(schema["const"])
    if "enum" in schema:
        return " | ".join(map(value_text, schema["enum"]))
    if schema["type"] == "integer" and "maximum" in schema:
        return f"an integer from {schema['minimum']} to {schema['maximum']}"
    if schema["type"] == "integer":
        return f"an integer of at least {schema['minimum']}"
    if schema["type"] == "number" and "maximum" in schema:
        return f"a number from {schema['minimum']:.10g} to {schema['maximum']:.10g}"
    if schema["type"] == "number":
        return f"a number above {schema['exclusiveMinimum']:g}"
    if schema["type"] == "array" and "items" not in schema:
        return f"a list of {len(schema['prefixItems'])}"
    if schema["type"] == "array" and "$ref" in schema["items"]:
        return "a list of tables"
    if schema["type"] == "array":
        return f"a list, each {allowed_text(schema['items'])}"
    words = {"string": "a text", "boolean": "true or false", "object": "a table"}
    return words[schema["type"]]


def toml_text(values: Mapping[str, Any], above: tuple[str, ...] = ()) -> str:
    """Write texts, numbers, true, false, lists and tables of them as TOML, tables last."""
    single, tables = list[str](), list[str]()
    for name, value in values.items():
        if isinstance(value, Mapping):
            tables.append(toml_text(value, (*above, name)))
        elif isinstance(value, str):
            single.append(f"{dotted((name,))} = {toml_string(value)}\n")
        else:
            single.append(f"{dotted((name,))} = {json.dumps(value, ensure_ascii=False)}\n")
    heading = f"\n[{dotted(above)}]\n" if above and single else ""
    return "".join([heading, *single, *tables])
