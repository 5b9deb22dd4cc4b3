"""Commands made of records: an option of the command line for each field."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

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
    OneOfFamily,
    OneOrTwoFiles,
    OnOrOff,
    Option,
    Place,
    PlainValue,
    Real,
    Record,
    Switch,
    Switched,
    Words,
    options_of,
)
from cimtool.cli.group import (
    INTEGER,
    NUMBER,
    AtLeast,
    Command,
    FilePath,
    Integers,
    NameOf,
    OneOf,
)
from cimtool.cli.values import parse_grid, parse_limits, parse_options, plain_value

FORMS = "(.npz or .pt; or twice, .npy or .pt: text, then video)."


def record_command(
    *records: type[Record],
    defaults: Mapping[str, Any] | None = None,
    at_once: Mapping[str, Callable[[Any], None]] | None = None,
) -> Callable[[Callable[..., None]], Command]:
    """Make a command of a function of an `Output` and of these records.

    `defaults` are those of the command line alone, by the names of options; `...` is a required
    option. Calls of `at_once` get the value of an option before any other is looked at.
    """

    def make(function: Callable[..., None]) -> Command:
        def called(out: Any, values: dict[str, Any]) -> None:
            function(out, *(record.of(values) for record in records))

        called.__doc__ = function.__doc__
        return values_command(*records, defaults=defaults, at_once=at_once)(called)

    return make


def values_command(
    *records: type[Record],
    defaults: Mapping[str, Any] | None = None,
    groups: Mapping[str, Collection[str]] | None = None,
    at_once: Mapping[str, Callable[[Any], None]] | None = None,
) -> Callable[[Callable[..., None]], Command]:
    """Make a command of a function of an `Output` and of values by the names of options.

    They are what `Record.of` takes. The rest is as in `record_command`; `groups` as in `Command`.
    """
    options = _flat(records, defaults or {})

    def make(function: Callable[..., None]) -> Command:
        @click.pass_obj
        def called(out: Any, /, **texts: Any) -> None:
            for name, call in (at_once or {}).items():
                if texts[name] is not None:
                    call(texts[name])
            values = {name: _value(options[name], given) for name, given in texts.items()}
            function(out, values)

        called.__doc__ = function.__doc__
        flags = {name: f"--{_flag(one)}" for name, one in options.items()}
        params = [
            _parameter(one, one.said(lambda name: flags.get(name, name)))
            for one in options.values()
        ]
        return click.command("command", cls=Command, params=params, groups=groups)(called)

    return make


def _flat(records: Collection[type[Record]], defaults: Mapping[str, Any]) -> dict[str, Option]:
    """The options of records by name, the first of a name; inner records have a switch first."""
    found: dict[str, Option] = {}
    for one in (one for record in records for one in _of(record)):
        if one.form is not None and one.name not in found:
            default = defaults.get(one.name, one.default)
            found[one.name] = replace(one, default=default)
    return found


def _of(record: type[Record]) -> Iterator[Option]:
    for one in options_of(record).values():
        if not isinstance(one.form, Switched):
            yield one
            continue
        yield replace(one, form=Switch(), default=False)
        for name, inner in one.form.options.items():
            yield inner if name == "seed" else replace(inner, default=None)


def _flag(one: Option) -> str:
    return (one.flag or one.name).replace("_", "-")


def _parameter(one: Option, help_: str) -> click.Parameter:
    """The option or the argument of click."""
    type_, more = _type(one)
    if one.default is ...:
        more["required"] = True
    elif not more.get("multiple"):
        one_of_list = isinstance(one.form, IntegerList) and isinstance(one.default, int)
        more["default"] = str(one.default) if one_of_list else one.default
    if one.argument:
        return click.Argument([one.name], metavar=one.argument, type=FilePath("FILE"), **more)
    names = [f"--{_flag(one)}", *([f"-{one.short}"] if one.short else [])]
    if isinstance(one.form, OnOrOff):
        names = [f"--{_flag(one)}/--no-{_flag(one)}"]
    if isinstance(one.form, OneOrTwoFiles) and one.form.embeddings:
        help_ = f"{help_.removesuffix('.')} {FORMS}"
    return click.Option([*names, one.name], type=type_, help=help_, **more)


def _type(one: Option) -> tuple[Any, dict[str, Any]]:
    """The type of click for an option, and what else it is."""
    more: dict[str, Any] = {"metavar": one.form.metavar} if one.form and one.form.metavar else {}
    match one.form:
        case Switch():
            return None, {"is_flag": True}
        case OnOrOff():
            return None, {}
        case Integer():
            return INTEGER if one.at_least is None else AtLeast(one.at_least), more
        case Real():
            return NUMBER, more
        case IntegerList():
            return Integers(), more
        case OneName(_, names):
            return OneOf(list(names)), {}
        case OneOfFamily(_, family, checked):
            return NameOf(family, checked), {}
        case Many():
            return None, {"nargs": -1}
        case Place(kind):
            return FilePath(kind), {}
        case OneOrTwoFiles(kind):
            callback = _one_or_two(f"--{_flag(one)}")
            return FilePath(kind), {"multiple": True, "callback": callback}
        case MetricLimits() | GridValues() | KeyValues() | Words():
            return str, {"multiple": True, **more}
        case PlainValue():
            return plain_value, more
        case IdsAndRows():
            return (Integers(), FilePath("FILE")), more
    return str, more


def _one_or_two(name: str) -> Callable[..., Any]:
    def one_or_two(
        context: click.Context, option: click.Parameter, given: tuple[Path, ...]
    ) -> Path | tuple[Path, ...] | None:
        if len(given) > 2:
            raise click.UsageError(f"{name} is given {len(given)} times; expected once or twice")
        return given if len(given) == 2 else next(iter(given), None)

    return one_or_two


def _value(one: Option, given: Any) -> Any:
    """The value of an option for the library; ArgumentError for a text that is none."""
    match one.form:
        case MetricLimits():
            return parse_limits(one.name, given)
        case GridValues(_, example):
            return parse_grid(given, example)
        case KeyValues():
            return parse_options(given)
        case NameList() if given is not None:
            return tuple(name.strip() for name in given.split(","))
        case IntegerList(_, True):
            return given[0] if len(given) == 1 else given
    return given
