"""Options as records: each field says its type, its default, its help, and how it is written.

A record gives keyword arguments to a function of the library (`takes`), options to a command
(`cli/records.py`), stubs to editors and tables to the docs.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import wraps
from inspect import Parameter
from numbers import Integral
from typing import Any, ClassVar, TypeVar, dataclass_transform

from cimtool.base.errors import Argument, ArgumentError, sentence_of
from cimtool.base.named import Named, nearest, unknown

T = TypeVar("T")
RecordT = TypeVar("RecordT", bound="Record")
OPTION = "option"


@dataclass(frozen=True)
class OptionForm:
    """The form of an option's value as a text; `metavar` stands for the value in the help."""

    metavar: str = ""


class Word(OptionForm):
    """A text."""


class Words(OptionForm):
    """Texts: the option may repeat."""


class NameList(OptionForm):
    """Names with commas between."""


class PlainValue(OptionForm):
    """A number, true or false, or else a text."""


@dataclass(frozen=True)
class Integer(OptionForm):
    """An integer."""

    metavar: str = "INTEGER"


@dataclass(frozen=True)
class Real(OptionForm):
    """A finite number."""

    metavar: str = "FLOAT"


@dataclass(frozen=True)
class IntegerList(OptionForm):
    """Integers with commas between; with `or_one` a single one is an integer."""

    metavar: str = "N,N,..."
    or_one: bool = False


@dataclass(frozen=True)
class OneName(OptionForm):
    """One of these names."""

    names: Sequence[str] = ()


@dataclass(frozen=True)
class OneOfFamily(OptionForm):
    """The name of a class of a family; if it is not `checked`, the library judges it."""

    family: type[Named] = Named
    checked: bool = True


class Place(OptionForm):
    """A file or folder; `metavar` is its kind."""


FILE, DIR, NPZ, TOML = map(Place, ("FILE", "DIR", "NPZ", "TOML"))


@dataclass(frozen=True)
class OneOrTwoFiles(OptionForm):
    """A file or, if the option stands twice, a pair of them."""

    metavar: str = "FILE"
    embeddings: bool = True


EMBEDDINGS, FILES = OneOrTwoFiles(), OneOrTwoFiles(embeddings=False)


class Many(OptionForm):
    """Files or folders one after the other, without an option before them."""


class Switch(OptionForm):
    """True if it is given."""


class OnOrOff(OptionForm):
    """True or false, with an option for each."""


@dataclass(frozen=True)
class MetricLimits(OptionForm):
    """Numbers by metric, of these `names`; the option may repeat."""

    metavar: str = "METRIC=VALUE"
    names: Sequence[str] = ()


@dataclass(frozen=True)
class GridValues(OptionForm):
    """Values by key, such as `example`; the option may repeat."""

    metavar: str = "KEY=V,V,V"
    example: str = "weight_bits=4,6,8"


@dataclass(frozen=True)
class KeyValues(OptionForm):
    """Texts by key; the option may repeat."""

    metavar: str = "KEY=VALUE"


@dataclass(frozen=True)
class IdsAndRows(OptionForm):
    """Integers, and a file whose rows belong to them."""

    metavar: str = "IDS NPZ"


@dataclass(frozen=True)
class Switched(OptionForm):
    """Another record, whose options need a switch; `about` says in a word what they are about.

    If the outer record has a `seed`, both share it, and it needs no switch. `only` lists the
    fields that are options; without it all are.
    """

    record: type[Record] = field(default_factory=lambda: Record)
    about: str = ""
    only: Sequence[str] | None = None

    @property
    def options(self) -> dict[str, Option]:
        """The record's options by field."""
        own = options_of(self.record)
        return own if self.only is None else {name: own[name] for name in self.only}


class Topic:
    """Titles of options that few need, in the whole help of a command."""

    MODEL = "The model and its score"
    SETTINGS = "Hardware settings"
    DIES = "Noise of devices"
    MEASUREMENT = "The measurement"
    BUILD_SERVERS = "Build servers"
    FIT = "The fit"
    DATA = "Data"
    OPTIMISATION = "Optimisation"
    FINE_TUNING = "Fine-tuning for a target"
    RUNS = "Resuming, and grids"
    SHORTLIST = "The shortlist"
    CHANGES = "Changes of a gallery"
    WORKERS = "Workers"
    WRITTEN = "What is written"


@dataclass(frozen=True)
class Option:
    """A field's option: its help, its names, and how Python and the command line take it.

    `help` may name other options as `{data}`. In Python a `positional` option may be given without
    its name, and a `spread` one takes all values that follow, each of that type. `name` is its name
    among all options of a command ("": the field's). On the command line it is called `flag` and
    `short` ("": `name`, none), it is missing without a `form`, an `argument` such as BUNDLE stands
    without a name, and an integer must be `at_least` that. An option with a `topic` is one that few
    need: a command's short help leaves it out, and the whole help has it under that title.
    `place` is its key in a project file if commands share it, such as `model.projectors`; others
    stand in the table of their command.
    """

    help: str
    form: OptionForm | None = None
    at_least: int | None = None
    positional: bool = False
    spread: str = ""
    argument: str = ""
    name: str = ""
    flag: str = ""
    short: str = ""
    place: str = ""
    default: Any = ...
    topic: str | None = None

    def said(self, called: Callable[[str], str] = str) -> str:
        """The help, with other options as they are `called`."""
        return sentence_of(self.help, (), called)


def option(
    help_: str, form: OptionForm | str | None = "", *, default: Any = ..., **more: Any
) -> Any:
    """Declare a field of a record; without a default it is required. The rest is as in `Option`.

    For a field of a plain type, `form` may be just the metavar.
    """
    usual = MISSING if default is ... else default
    return field(default=usual, metadata={OPTION: (help_, form, {"default": default, **more})})


def optional(help_: str, form: OptionForm | str | None = "", **more: Any) -> Any:
    """Declare a field that is None if it is not given."""
    return option(help_, form, default=None, **more)


PLAIN = {"int": Integer, "float": Real, "bool": Switch, "str": Word}
"""Forms of the plain types."""


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(option,))
class Record:
    """Base of the records: a subclass is a frozen dataclass whose fields are options.

    Raises CimError for a value that is not among its field's names, and for one that is no integer
    if the field is of integers: `1e3`, `True`. A record's `topic` is that of its fields, of
    inherited ones too; a field of its own may have another.
    """

    topic: ClassVar[str | None] = None

    def __init_subclass__(cls, kw_only: bool = True, topic: str | None = None) -> None:
        cls.topic = topic
        dataclass(frozen=True, kw_only=kw_only, eq=False)(cls)

    def __post_init__(self) -> None:
        for name, one in options_of(type(self)).items():
            value = getattr(self, name)
            if isinstance(one.form, OneName) and value is not None and value not in one.form.names:
                raise unknown(Argument(one.name), value, one.form.names)
            if isinstance(one.form, Integer) and value is not None and not _is_integer(value):
                least = "" if one.at_least is None else f" of at least {one.at_least:,}"
                name = Argument(one.name)
                raise ArgumentError("{} is {!r}; expected an integer{}", name, value, least)

    def part(self, record: type[Record]) -> dict[str, Any]:
        """The fields of `record`, a base of this one, by name, with their values here."""
        return {name: getattr(self, name) for name in options_of(record)}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Any:
        """The record made of its options among `values`, which are by the options' names."""
        given = {}
        for name, one in options_of(cls).items():
            if isinstance(one.form, Switched):
                given[name] = _switched(one, one.form, values)
            elif one.name in values:
                given[name] = values[one.name]
        return cls(**given)


def _is_integer(value: object) -> bool:
    """True for an integer of Python or numpy; not for True, which Python counts as 1."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def _switched(switch: Option, form: Switched, values: Mapping[str, Any]) -> Record | None:
    """The inner record if its switch is on; if not, ArgumentError for an option that needs it."""
    named = {field: one.name for field, one in form.options.items()}
    given = {f: values[n] for f, n in named.items() if values.get(n) is not None}
    if values.get(switch.name):
        return form.record(**given)
    stray = [named[field] for field in given if field != "seed"]
    if stray:
        raise ArgumentError(
            "{} applies only to {}; expected {} with it",
            Argument(stray[0]),
            form.about,
            Argument(switch.name),
        )
    return None


def options_of(record: type[Record]) -> dict[str, Option]:
    """The options of a record by field: positional ones first, inherited ones before new ones."""
    known = {one.name: one for one in fields(record)}  # type: ignore[arg-type]  # subclasses are
    found = {}
    for name in dict.fromkeys(_field_names(record)):
        one = _option(name, str(known[name].type), *known[name].metadata[OPTION])
        found[name] = replace(one, topic=_topic(record, name, one.topic))
    return dict(sorted(found.items(), key=lambda item: not item[1].positional))


def _topic(record: type[Record], field: str, own: str | None) -> str:
    """The topic of a field: of the record that inherits it, its own, or of the record it is in."""
    records = [one for one in record.__mro__ if issubclass(one, Record)]
    place = next(one for one in records if field in inspect.get_annotations(one))
    heirs = [one.topic for one in records if issubclass(one, place) and one is not place]
    return next((one for one in (*heirs, own, place.topic) if one is not None), "")


def _option(
    field: str, type_: str, help_: str, form: OptionForm | str | None, more: dict[str, Any]
) -> Option:
    """The option of a field as it is declared."""
    if isinstance(form, str):
        (plain,) = (one for name, one in PLAIN.items() if type_ in (name, f"{name} | None"))
        form = plain(form) if form else plain()
    return Option(help_, form, **{"name": field, **more})


def _field_names(record: type) -> Iterator[str]:
    """The fields in the order in which the bases of a record are written."""
    for base in record.__bases__:
        if issubclass(base, Record):
            yield from _field_names(base)
    if record is not Record:
        yield from inspect.get_annotations(record)


def takes(*records: type[Record]) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Let callers give the fields of `records`, which are a function's first parameters.

    The signature and the docstring of the function list every field.
    """

    def taking(function: Callable[..., T]) -> Callable[..., T]:
        own = inspect.signature(function)
        parameters = [one for record in records for one in parameters_of(record)]
        for one in list(own.parameters.values())[len(records) :]:
            parameters.append(one.replace(kind=Parameter.KEYWORD_ONLY))
        signature = own.replace(parameters=sorted(parameters, key=lambda one: one.kind))

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> T:
            for name in kwargs:
                if name not in signature.parameters:
                    raise StrangeArgument(
                        "{}() takes no argument {}{}",
                        function.__name__,
                        name,
                        nearest(name, signature.parameters),
                    )
            try:
                given = signature.bind(*args, **kwargs).arguments
            except TypeError as error:
                raise TypeError(f"{function.__name__}(): {error}") from None
            made = []
            for record in records:
                names = [name for name in options_of(record) if name in given]
                made.append(record(**{name: given.pop(name) for name in names}))
            return function(*made, **given)

        listed = [
            textwrap.fill(f"* `{name}`: {said}", 92, subsequent_indent="  ")
            for name, said in told(*records)
        ]
        call.__doc__ = "\n\n".join([inspect.cleandoc(function.__doc__ or ""), "\n".join(listed)])
        call.__dict__ |= {"__signature__": signature, "__records__": records}
        return call

    return taking


class StrangeArgument(ArgumentError, TypeError):
    """An argument by a name that a function does not have."""


def parameters_of(record: type[Record]) -> Iterator[Parameter]:
    """The fields of a record as parameters of a function."""
    types = {field.name: field.type for field in fields(record)}  # type: ignore[arg-type]
    for name, one in options_of(record).items():
        named = Parameter.POSITIONAL_OR_KEYWORD if one.positional else Parameter.KEYWORD_ONLY
        kind = Parameter.VAR_POSITIONAL if one.spread else named
        default = Parameter.empty if one.default is ... or one.spread else one.default
        yield Parameter(name, kind, default=default, annotation=one.spread or types[name])


def told(*records: type[Record]) -> Iterator[tuple[str, str]]:
    """The name of each argument that records give a function, and its help with the default."""
    for record in records:
        for name, one in options_of(record).items():
            usual = "" if one.default in (..., None, ()) else f" [default: {one.default}]"
            yield name, one.said() + usual
