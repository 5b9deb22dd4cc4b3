"""Commands made from records: an option of the command line for each field."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cimtool.base.errors import Argument, ArgumentError
from cimtool.base.escapes import integer_of, number_of
from cimtool.base.grids import Value
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
from cimtool.base.toml_files import parse_line
from cimtool.cli.group import Command, FilePath, NameOf, OneOf, Parsed, long_name

if TYPE_CHECKING:
    from cimtool.cli.project import LeftOut

FORMS = "(.npz or .pt; or twice, .npy or .pt: text, then video)."


def record_command(
    *records: type[Record],
    defaults: Mapping[str, Any] | None = None,
    at_once: Mapping[str, Callable[[Any], None]] | None = None,
    left_out: LeftOut | None = None,
) -> Callable[[Callable[..., None]], Command]:
    """Make a command from a function of an `Output` and of these records.

    `defaults` apply only on the command line, by the names of options; `...` makes an option
    required. The calls in `at_once` get an option's value before any other is looked at.
    `left_out` is as in `Command`.
    """

    def make(function: Callable[..., None]) -> Command:
        def called(out: Any, values: dict[str, Any]) -> None:
            function(out, *(record.of(values) for record in records))

        called.__doc__ = function.__doc__
        return values_command(*records, defaults=defaults, at_once=at_once, left_out=left_out)(
            called
        )

    return make


def values_command(
    *records: type[Record],
    defaults: Mapping[str, Any] | None = None,
    at_once: Mapping[str, Callable[[Any], None]] | None = None,
    left_out: LeftOut | None = None,
) -> Callable[[Callable[..., None]], Command]:
    """Make a command from a function of an `Output` and of values by the names of options.

    `Record.of` takes these values. The rest is as in `record_command`.
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
        topics = {name: one.topic for name, one in options.items() if one.topic}
        return click.command(
            "command", cls=Command, params=params, topics=topics, records=options, left_out=left_out
        )(called)

    return make


def _flat(records: Collection[type[Record]], defaults: Mapping[str, Any]) -> dict[str, Option]:
    """The options of records by name, the first of each name; a switch precedes an inner record."""
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
    """The click option or argument."""
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
    """The click type for an option, and further arguments."""
    more: dict[str, Any] = {"metavar": one.form.metavar} if one.form and one.form.metavar else {}
    match one.form:
        case Switch():
            return None, {"is_flag": True}
        case OnOrOff():
            return None, {}
        case Integer():
            return IntegerText(one.at_least), more
        case Real():
            return Parsed("float", parse_number), more
        case IntegerList():
            return INTEGERS, more
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
            return (INTEGERS, FilePath("FILE")), more
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
    """The value of an option for the library; ArgumentError for a wrong text."""
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


class IntegerText(click.ParamType[int]):
    """An integer in ASCII digits; UsageError for another text, or less than `at_least`."""

    name = "integer"

    def __init__(self, at_least: int | None):
        self.at_least = at_least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the integer of a text; a default that is no text stays as it is."""
        if not isinstance(value, str):
            return int(value)
        try:
            number = integer_of(value)
        except ValueError:
            number = None
        if number is None or (self.at_least is not None and number < self.at_least):
            name = "a value" if param is None else long_name(param)
            least = "" if self.at_least is None else f" of at least {self.at_least}"
            said = f"{name} is {value or 'empty'}; expected an integer{least}"
            raise click.UsageError(said, ctx)
        return number


def parse_number(text: str) -> float:
    """Read a number in ASCII digits; ValueError for another text."""
    try:
        return number_of(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a valid float.") from None


def parse_integers(text: str) -> list[int]:
    """Read integers with commas between; ValueError for another text."""
    try:
        return [integer_of(one) for one in text.split(",")]
    except ValueError:
        raise ValueError(f'"{text}" is not one integer, 4, or several, 1,2,3') from None


INTEGERS = Parsed("N,N,...", parse_integers)


def parse_grid(texts: Iterable[str], example: str = "weight_bits=4,6,8") -> dict[str, list[Value]]:
    """Read `KEY=V,V,V` of each `--grid`; CimError for a text of another form."""
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
    """A number, true or false if the text is one in TOML, otherwise the text itself."""
    try:
        value = parse_line(f"value = {text}")["value"]
    except ValueError:
        return text
    return value if isinstance(value, int | float | str) else text


def parse_limits(argument: str, texts: Iterable[str]) -> dict[str, float]:
    """Read `METRIC=VALUE` of each option for an argument; CimError if VALUE is no finite number."""
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
        try:
            limits[metric] = number_of(value)
        except ValueError:
            limits[metric] = math.nan
        if not math.isfinite(limits[metric]):
            raise ArgumentError(
                '{} {}: "{}" is not a finite number; expected one',
                Argument(argument),
                metric,
                value,
            )
    return limits


def parse_options(texts: Iterable[str]) -> dict[str, str]:
    """Read `loss.tau=0.1`, ... as texts by key; the last of a key counts. CimError without `=`."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise ArgumentError('{options} "{}": expected model.KEY=VALUE or loss.KEY=VALUE', text)
        found[key.strip()] = value.strip()
    return found
