"""Project files: `cimtool.toml`, whose values stand for options that are left out.

Options that commands share have a key by their `place`, such as `model.projectors`; any option may
stand in the table of its command, such as `verify.samples`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cimtool.base.errors import CimError
from cimtool.base.files import WRITTEN
from cimtool.base.named import nearest
from cimtool.base.options import (
    GridValues,
    IdsAndRows,
    Integer,
    IntegerList,
    KeyValues,
    Many,
    MetricLimits,
    NameList,
    OneName,
    OneOrTwoFiles,
    OnOrOff,
    Option,
    Place,
    PlainValue,
    Real,
    Switch,
    Switched,
    Words,
    options_of,
)
from cimtool.base.toml_files import dotted, is_path, read_toml, unknown_key, value_text
from cimtool.bundle.compilation import CompileOptions
from cimtool.hardware.settings import SETTINGS, Overrides, overrides_in, setting_keys
from cimtool.verification.options import VerifyOptions

LeftOut = Callable[[Mapping[str, Any]], Collection[str]]
"""The options that a project file does not give, by the texts of all options that are given."""

Schema = Mapping[str, Any]

TEXT: Schema = {"type": "string", "minLength": 1}
NUMBER: Schema = {"type": "number"}
PLAIN: Schema = {"anyOf": [NUMBER, TEXT, {"type": "boolean"}]}


@dataclass(frozen=True)
class ValueKind:
    """The values that an option may have in TOML: a JSON Schema, and words for a message."""

    schema: Schema
    expected: str


def kind_of_value(one: Option) -> ValueKind | None:
    """The values of an option; None if it cannot stand in a project file.

    Single settings cannot: they stand in [settings], or in a settings file.
    """
    match one.form:
        case None | Switched() | IdsAndRows() | PlainValue():
            return None
        case Switch() | OnOrOff():
            return ValueKind({"type": "boolean"}, "true or false")
        case Integer():
            least = {} if one.at_least is None else {"minimum": one.at_least}
            words = "" if one.at_least is None else f" of at least {one.at_least:,}"
            return ValueKind({"type": "integer", **least}, f"an integer{words}")
        case Real():
            return ValueKind(NUMBER, "a finite number")
        case OneName(_, names):
            return ValueKind({"enum": list(names)}, " | ".join(map(value_text, names)))
        case IntegerList():
            return ValueKind(_list({"type": "integer"}), "a list of integers")
        case OneOrTwoFiles():
            pair = {**_list(TEXT), "minItems": 2, "maxItems": 2}
            return ValueKind({"anyOf": [TEXT, pair]}, "a file, or a list of two")
        case Many() | Words() | NameList():
            return ValueKind(_list(TEXT), "a list of texts")
        case MetricLimits(_, names):
            named = {"properties": dict.fromkeys(names, NUMBER), "additionalProperties": False}
            return ValueKind({"type": "object", **named}, "a table of numbers by metric")
        case GridValues():
            return ValueKind(_table(_list(PLAIN)), "a table of lists of values")
        case KeyValues():
            return ValueKind(_table(PLAIN), "a table of values")
        case Place():
            return ValueKind(TEXT, "a file or folder")
    return ValueKind(TEXT, "a text")


def _list(of: Schema) -> Schema:
    return {"type": "array", "items": of, "minItems": 1}


def _table(of: Schema) -> Schema:
    return {"type": "object", "additionalProperties": of}


def fits_schema(value: Any, schema: Schema) -> bool:
    """True if a value of TOML is of a schema that `kind_of_value` gives."""
    if "anyOf" in schema:
        return any(fits_schema(value, one) for one in schema["anyOf"])
    if "enum" in schema:
        return value in schema["enum"]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    match schema["type"]:
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            whole = number and isinstance(value, int)
            return whole and value >= schema.get("minimum", value)
        case "number":
            return number and math.isfinite(value)
        case "array":
            size = len(value) if isinstance(value, list) else -1
            if not schema["minItems"] <= size <= schema.get("maxItems", size):
                return False
            return all(fits_schema(one, schema["items"]) for one in value)
        case "object":
            others, named = schema["additionalProperties"], schema.get("properties", {})
            return isinstance(value, dict) and all(
                (inner := named.get(key, others)) and fits_schema(one, inner)
                for key, one in value.items()
            )
    return isinstance(value, str) and bool(value.strip())


@cache
def shared_options() -> dict[str, Option]:
    """The options that commands share, by their keys, as `compile` and `verify` declare them."""
    records = (CompileOptions, VerifyOptions)
    found: dict[str, Option] = {}
    for one in (one for record in records for one in options_of(record).values() if one.place):
        found.setdefault(one.place, one)
    return found


def key_name(one: Option) -> str:
    """The key of an option in the table of its command: its name without dashes."""
    return (one.flag or one.name).replace("-", "_")


@dataclass(frozen=True)
class ProjectValue:
    """The value of an option in a project file.

    `text` has the words of the command line for it: a text, several, or true or false. `files` are
    the files and folders in it.
    """

    option: Option
    key: str
    value: Any
    text: Any
    files: tuple[Path, ...]

    @property
    def shown(self) -> str:
        """The value for a line of a help."""
        return value_text(self.value)


@dataclass(frozen=True)
class Project:
    """A project file whose keys and types are checked; paths in it are relative to its folder."""

    file: Path
    values: Mapping[str, Any]

    @classmethod
    def read(cls, file: Path, commands: Collection[str]) -> Project:
        """Read a file with keys that commands share, and tables of these `commands`.

        Raises CimError if it cannot be read, for an unknown key, and for a value of another type.
        The tables of commands are checked as the commands read them.
        """
        project = cls(file, read_toml(file))
        places = shared_options()
        tables = {place.partition(".")[0] for place in places if "." in place}
        singles = [place for place in places if "." not in place]
        for name, value in project.values.items():
            if name in singles:
                project._check(name, value, places[name])
            elif name in tables or name in commands:
                project._require_table(name, value)
            else:
                known = sorted({*singles, *tables, *commands})
                raise project._unknown((name,), value, known)
            if name in tables:
                within = [place for place in places if place.startswith(f"{name}.")]
                for key, inner in value.items():
                    place = f"{name}.{key}"
                    if place not in within:
                        raise project._unknown((name, key), inner, within)
                    project._check(place, inner, places[place])
        return project

    def given(
        self, command: Sequence[str], options: Mapping[str, Option]
    ) -> Iterator[ProjectValue]:
        """The values for the `options` of a command, by its words such as `targets compare`.

        Raises CimError for an unknown key in the command's table, and for a value of another type.
        """
        own: Any = self.values
        for depth, word in enumerate(command):
            own = own.get(word, {})
            self._require_table(dotted(tuple(command[: depth + 1])), own)
        held = {key_name(one): one for one in options.values() if _stands(one)}
        above = dotted(tuple(command))
        for key, value in own.items():
            if key not in held:
                raise self._unknown((*command, key), value, [f"{above}.{one}" for one in held])
        for key, one in held.items():
            place = f"{above}.{key}"
            if key in own:
                self._check(place, own[key], one)
                yield self._value(one, place, own[key])
            elif one.place and (value := self._shared(one.place)) is not None:
                yield self._value(one, one.place, value)

    def _shared(self, place: str) -> Any:
        table, _, key = place.rpartition(".")
        return (self.values.get(table, {}) if table else self.values).get(key)

    def _value(self, one: Option, key: str, value: Any) -> ProjectValue:
        if key == SETTINGS and isinstance(value, dict):
            return ProjectValue(one, key, value, str(self.file), ())
        folder = self.file.parent
        each = value if isinstance(value, list) else [value]
        named = isinstance(one.form, Place | OneOrTwoFiles)
        choice = one.form is not None and one.form.metavar in ("NAME|FILE", "NAME|TOML")
        if named or (choice and is_path(value)):
            files = tuple(folder / text for text in each)
            texts = [str(file) for file in files]
            return ProjectValue(one, key, value, texts if _repeats(one) else texts[0], files)
        if isinstance(one.form, Many):
            placed = [folder / text if (folder / text).exists() else text for text in each]
            return ProjectValue(one, key, value, list(map(str, placed)), ())
        return ProjectValue(one, key, value, _text(one, value), ())

    def _check(self, key: str, value: Any, one: Option) -> None:
        """Raise CimError for a value that the option of a key can never have."""
        if key == SETTINGS and isinstance(value, dict):
            overrides_in(self.file)
            return
        if isinstance(one.form, MetricLimits) and isinstance(value, dict):
            self._require_known(key, value, one.form.names)
        kind = kind_of_value(one)
        if kind is not None and not fits_schema(value, kind.schema):
            words = f"{kind.expected}, or a table" if key == SETTINGS else kind.expected
            name = value if isinstance(value, str) else ""
            near = nearest(name, one.form.names) if isinstance(one.form, OneName) else ""
            raise CimError(f"{self.file}: {key} = {value_text(value)}: must be {words}{near}")

    def _require_known(self, key: str, table: Mapping[str, Any], names: Sequence[str]) -> None:
        for name, value in table.items():
            if name not in names:
                said = unknown_key(f"{key}.{name}", name, value, names)
                raise CimError(f"{self.file}: {said}")

    def _require_table(self, key: str, value: Any) -> None:
        if not isinstance(value, dict):
            raise CimError(f"{self.file}: {key} = {value_text(value)}: must be a table")

    def _unknown(self, location: tuple[str, ...], value: Any, known: Sequence[str]) -> CimError:
        """The error for an unknown key; it says so if the key only stands in a wrong table."""
        key = dotted(location)
        elsewhere = [one for one in shared_options() if one.rpartition(".")[2] == location[-1]]
        if elsewhere and elsewhere[0] != key:
            place, (table, _, _) = elsewhere[0], elsewhere[0].rpartition(".")
            where = f"in the table [{table}]" if table else "above all tables"
            return CimError(f"{self.file}: unknown key {key}; {place} stands {where}")
        return CimError(f"{self.file}: {unknown_key(key, key, value, known)}")


def _stands(one: Option) -> bool:
    """True for an option that can stand in the table of its command."""
    return kind_of_value(one) is not None and one.name not in setting_keys()


def _repeats(one: Option) -> bool:
    """True if an option may stand several times on the command line."""
    return isinstance(one.form, OneOrTwoFiles | Words | MetricLimits | GridValues | KeyValues)


def _text(one: Option, value: Any) -> Any:
    """The words of the command line for a value that names no files."""
    match one.form:
        case Switch() | OnOrOff():
            return value
        case Words():
            return list(value)
        case MetricLimits() | KeyValues():
            return [f"{key}={_plain(inner)}" for key, inner in value.items()]
        case GridValues():
            return [f"{key}={','.join(map(_plain, inner))}" for key, inner in value.items()]
        case NameList() | IntegerList():
            return ",".join(map(_plain, value))
    return _plain(value)


def _plain(value: Any) -> str:
    return value_text(value) if isinstance(value, bool) else str(value)


def read_values(
    file: Path,
    commands: Collection[str],
    command: Sequence[str],
    options: Mapping[str, Option],
    typed: Mapping[str, Any],
    left_out: LeftOut | None,
) -> tuple[ProjectValue, ...]:
    """Read the values that a project file gives a command, by its words, for its `options`.

    `commands` are the names of all commands. It gives no option of the texts `typed`, which are on
    the command line, and none that `left_out` names. Raises CimError for a mistake in the file.
    """
    project = Project.read(file, commands)
    values = [one for one in project.given(command, options) if one.option.name not in typed]
    texts = {one.option.name: one.text for one in values} | dict(typed)
    unused = left_out(texts) if left_out else ()
    return tuple(one for one in values if one.option.name not in unused)


def require_files(project: Path, given: Sequence[ProjectValue]) -> None:
    """Raise CimError if a file to be read, which a project file names, does not exist."""
    for one in given:
        if one.option.name in WRITTEN or one.option.place in ("bundle", "report"):
            continue
        if isinstance(one.option.form, Place) and one.option.form.metavar != "FILE":
            continue
        for file in one.files:
            if not file.exists():
                raise CimError(
                    f"{project}: {one.key} = {value_text(one.value)}: there is no file "
                    f"{file}; expected a path from the project file"
                )


DIALECT = "https://json-schema.org/draft/2020-12/schema"


def project_schema(commands: Mapping[tuple[str, ...], Mapping[str, Option]]) -> dict[str, Any]:
    """The JSON Schema of a project file, by the options of `commands`, which are by their words."""
    settings = Overrides.model_json_schema(by_alias=True)
    tables = settings.pop("$defs")
    whole: dict[str, Any] = _closed()
    for place, one in shared_options().items():
        *table, key = place.split(".")
        _inner(whole, table)["properties"][key] = _described(one)
    either = {"anyOf": [TEXT, settings]}
    whole["properties"][SETTINGS] |= either
    del whole["properties"][SETTINGS]["type"], whole["properties"][SETTINGS]["minLength"]
    for words, options in commands.items():
        inner = _inner(whole, words)
        for one in options.values():
            if _stands(one):
                inner["properties"][key_name(one)] = _described(one)
    return {"$schema": DIALECT, "title": "cimtool project", **whole, "$defs": tables}


def _closed() -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": {}}


def _inner(schema: dict[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """The schema of a table in a table, made if it is missing."""
    for word in words:
        schema = schema["properties"].setdefault(word, _closed())
    return schema


def _described(one: Option) -> dict[str, Any]:
    kind = kind_of_value(one)
    schema = {} if kind is None else dict(kind.schema)
    plain = isinstance(one.default, bool | int | float | str)
    return {"description": one.said(), **schema, **({"default": one.default} if plain else {})}
