"""Options of a training: those of a model and of a loss by name, the optimiser's, and the seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields, replace
from numbers import Integral
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic_core import PydanticCustomError

from cimtool.base.errors import Argument, ArgumentError, CimError
from cimtool.base.escapes import number_of
from cimtool.base.named import nearest, unknown

KINDS = ("model", "loss")


class Options(BaseModel):
    """Base of models and losses: each field is an option, set as `<kind>.<field>`.

    A value may be given as text. Raises CimError naming the key if there is no such field or it
    cannot have the value.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: ClassVar[str]
    name: ClassVar[str]

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            errors = {one["type"]: one for one in reversed(error.errors(include_url=False))}
            first = errors.get("extra_forbidden", next(reversed(errors.values())))
            key = str(first["loc"][0])
            sentence = first["msg"]
            if first["type"] == "extra_forbidden":
                known = type(self).model_fields
                held = ", ".join(known) or "none"
                sentence = (
                    f'is not an option of {self.kind} "{self.name}": {held}{nearest(key, known)}'
                )
            raise CimError(f"{self.kind}.{key} {sentence}") from None


def refused(sentence: str) -> PydanticCustomError:
    """Build a validator's error for an option, whose sentence goes on after its key."""
    return PydanticCustomError("refused", sentence)


def choice(names: Collection[str]) -> AfterValidator:
    """Build the validator of a text that is one of some names."""

    def check(value: str) -> str:
        if value not in names:
            raise refused(str(unknown("", value, names)).lstrip())
        return value

    return AfterValidator(check)


def within(holds: Callable[[float], bool], expected: str) -> AfterValidator:
    """Build the validator of a range, which `expected` says in words."""

    def check(value: float) -> float:
        if not holds(value):
            raise refused(f"is {value:.10g}; expected {expected}")
        return value

    return AfterValidator(check)


def _reader(read: Callable[[Any], Any], expected: str) -> BeforeValidator:
    def value_of(value: Any) -> Any:
        try:
            return read(value)
        except (TypeError, ValueError):
            raise refused(f"is {value}; expected {expected}") from None

    return BeforeValidator(value_of)


def _as_float(value: Any) -> float:
    return number_of(value) if isinstance(value, str) else float(value)


def _integer(value: Any) -> int:
    number = _as_float(value)
    if isinstance(value, bool) or not number.is_integer() or abs(number) >= 2**63:
        raise ValueError(value)
    return int(number)


def _number(value: Any) -> float:
    number = _as_float(value)
    if isinstance(value, bool) or not math.isfinite(number):
        raise ValueError(value)
    return number


def _flag(value: Any) -> bool:
    if str(value).lower() not in ("true", "false"):
        raise ValueError(value)
    return str(value).lower() == "true"


_ABOVE_0 = within(lambda value: value > 0, "more than 0")
_NOT_BELOW_0 = within(lambda value: value >= 0, "0 or more")

Flag = Annotated[bool, _reader(_flag, "true or false")]
Text = Annotated[str, BeforeValidator(str)]
Number = Annotated[float, _reader(_number, "a finite number")]
Positive = Annotated[Number, _ABOVE_0]
NotNegative = Annotated[Number, _NOT_BELOW_0]
BelowOne = Annotated[Number, within(lambda value: 0 <= value < 1, "0 or more, and below 1")]
Share = Annotated[Number, within(lambda value: 0 < value < 1, "a share between 0 and 1")]
_Whole = Annotated[int, _reader(_integer, "an integer of 64 bits")]
Count = Annotated[_Whole, _ABOVE_0]
CountOrNone = Annotated[_Whole, _NOT_BELOW_0]


def by_kind(options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Part options by what stands before the dot; CimError for a key of neither kind."""
    parts: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
    for key, value in options.items():
        kind, name = kind_of_option(key)
        parts[kind][name] = value
    return parts


def kind_of_option(key: str) -> tuple[str, str]:
    """The kind and the field that a key such as `loss.tau` names; CimError for one of no kind."""
    kind, _, name = key.partition(".")
    if not name or kind not in KINDS:
        raise CimError(f'option "{key}" is not known; expected model.KEY or loss.KEY')
    return kind, name


MOST_EPOCHS, LARGEST_COUNT = 10_000, 1 << 40
"""Epochs of a training, and the largest count if nothing else is said."""

OPTIMIZERS = ("adamw", "sgd")
"""AdamW, and stochastic gradient descent without momentum."""


@dataclass(frozen=True)
class Optimisation:
    """An optimizer and its settings; CimError for one out of range. `batch` counts pairs."""

    epochs: int = 10
    batch: int = 64
    learning_rate: float = 1e-4
    weight_decay: float = 1e-4
    optimizer: str = OPTIMIZERS[0]

    def __post_init__(self) -> None:
        if self.optimizer not in OPTIMIZERS:
            raise unknown(Argument("optimizer"), self.optimizer, OPTIMIZERS)
        check_count("epochs", self.epochs, 0, MOST_EPOCHS)
        check_count("batch", self.batch, 2)
        if not 0 < self.learning_rate < float("inf"):
            raise ArgumentError("{learning_rate} is {:g}; expected more than 0", self.learning_rate)
        if not 0 <= self.weight_decay < float("inf"):
            raise ArgumentError("{weight_decay} is {:g}; expected 0 or more", self.weight_decay)

    def given(self, options: Mapping[str, Any]) -> Optimisation:
        """The same with those of its settings that are not None among options."""
        known = (one.name for one in fields(self) if options.get(one.name) is not None)
        return replace(self, **{name: options[name] for name in known})


def check_count(name: str, value: Any, low: int, high: int = LARGEST_COUNT) -> None:
    """Raise CimError for an argument that is no integer, below `low` or above `high`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < low:
        raise ArgumentError(
            "{} is {}; expected an integer of at least {}", Argument(name), value, low
        )
    if int(value) > high:
        raise ArgumentError("{} is {}; expected at most {:,}", Argument(name), value, high)


def check_seed(seed: int) -> None:
    """Raise CimError for a seed that torch's generators do not take."""
    if not 0 <= seed < 2**63:
        raise ArgumentError("{seed} is {}; expected 0 to 2^63 - 1", seed)
