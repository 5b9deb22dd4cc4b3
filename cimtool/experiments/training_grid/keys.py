"""The grid of a training: keys with their values, checked before anything runs, and its points.

A key is an argument of a training (`loss`, `model`, `batch`, `seed`, ...) or an option of the model
or the loss (`model.width`, `loss.tau`).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from cimtool.base.errors import Argument, ArgumentError, CimError
from cimtool.base.grids import Grid, GridKey, KeyPath, KeyReader, Value, value_text
from cimtool.base.named import nearest, unknown
from cimtool.training.arguments import TrainingOptions
from cimtool.training.job import Start, kinds_of
from cimtool.training.loss import Loss
from cimtool.training.model import ProjectorModel
from cimtool.training.options import KINDS, Optimisation, Options, check_seed, kind_of_option

SEED = "seed"
EXAMPLE = "such as batch=16,64"

FAMILIES: Mapping[str, type[ProjectorModel] | type[Loss]] = {"model": ProjectorModel, "loss": Loss}
OPTIMISATION = tuple(asdict(Optimisation()))
ARGUMENTS = (*FAMILIES, *OPTIMISATION, SEED)
"""The arguments of a training that a grid may have."""

Kinds = tuple[type[ProjectorModel], type[Loss]]


@dataclass(frozen=True)
class TrainingPoint:
    """One combination: its values in the grid's order, and the arguments of its training.

    A value that means nothing to its model or loss is left out of both.
    """

    values: tuple[tuple[str, Value], ...]
    wanted: TrainingOptions

    @property
    def seed(self) -> int:
        """The seed."""
        return self.wanted.seed or 0

    @property
    def variant(self) -> tuple[tuple[str, Value], ...]:
        """All values but the seed: what several seeds are the mean of."""
        return tuple(pair for pair in self.values if pair[0] != SEED)


def read_training_grid(grid: Grid) -> tuple[GridKey, ...]:
    """Check every key and value of a grid by itself; CimError for the first that is wrong."""
    return KeyReader(_path, _check_value, EXAMPLE).read(grid)


def _path(name: str) -> KeyPath:
    if name in ARGUMENTS:
        return (name,)
    try:
        return kind_of_option(name)
    except CimError:
        known = [*ARGUMENTS, *(f"{kind}.KEY" for kind in KINDS)]
        raise ArgumentError("{grid} {}", unknown("key", name, known)) from None


def _check_value(path: KeyPath, value: Value, name: str) -> None:
    key = path[0]
    if len(path) > 1:
        return  # with the models and losses of the points, whose option it is
    if key in FAMILIES:
        FAMILIES[key].named(str(value), f"grid {key}")
        return
    try:
        if key == SEED:
            _require_number(key, value, int)
            check_seed(int(value))
            return
        usual = asdict(Optimisation())[key]
        if not isinstance(usual, str):
            _require_number(key, value, type(usual))
        Optimisation(**{key: value})  # type: ignore[arg-type]
    except CimError as error:
        raise ArgumentError("{grid}: {}", error) from None


def _require_number(key: str, value: Value, kind: type) -> None:
    allowed = (int,) if kind is int else (int, float)
    if isinstance(value, bool) or not isinstance(value, allowed):
        expected = "an integer" if kind is int else "a number"
        raise ArgumentError("{} is {}; expected {}", Argument(key), value_text(value), expected)


def training_points(
    keys: Sequence[GridKey], common: TrainingOptions, start: Start | None
) -> list[TrainingPoint]:
    """All combinations of a grid, the last key's values changing fastest.

    `common` are the arguments of all, `start` the checkpoint that they name. An option that a
    point's model or loss does not have, where that of another point has it, is left out of the
    point, and so is a polynomial; those that are the same then are one. Raises CimError where a key
    is given twice, an option is of no point, or no point can have its value.
    """
    options = dict(common.options or {})
    for key in keys:
        name = key.name
        if len(key.path) > 1 and name in options:
            raise ArgumentError("{grid} {} and {options} {} are both given", name, name)
        if len(key.path) == 1 and getattr(common, name) is not None:
            raise ArgumentError("{grid} {} and {} are both given", name, Argument(name))
    names = [key.name for key in keys]
    combined = [
        tuple(zip(names, values, strict=True))
        for values in itertools.product(*(key.values for key in keys))
    ]
    kinds = {pairs: _kinds(dict(pairs), common, start) for pairs in combined}
    every = list(dict.fromkeys(kinds.values()))
    _check_options(keys, options, every)
    poly = common.poly
    if poly is not None and not any(loss.needs_polynomial for _, loss in every):
        raise ArgumentError("{poly} is given, and no loss of {grid} has a polynomial")
    found: dict[Any, TrainingPoint] = {}
    for pairs in combined:
        point = _point(pairs, common, kinds[pairs])
        found.setdefault(point.values, point)
    return list(found.values())


def _kinds(values: Mapping[str, Value], common: TrainingOptions, start: Start | None) -> Kinds:
    chosen: Any = {name: values[name] for name in FAMILIES if name in values}
    return kinds_of(replace(common, **chosen), start)


def _check_options(keys: Sequence[GridKey], options: Mapping[str, Any], every: list[Kinds]) -> None:
    """Raise CimError for an option that no point has, or a value that none can have."""
    given = [("grid", key.name, one) for key in keys if len(key.path) > 1 for one in key.values]
    given += [("options", name, value) for name, value in options.items()]
    for argument, key, value in given:
        kind, name = kind_of_option(key)
        index = list(FAMILIES).index(kind)
        types: list[type[Options]] = list(dict.fromkeys(one[index] for one in every))
        having = [one for one in types if name in one.model_fields]
        if not having:
            said = f"{kind} {', '.join(one.name for one in types)}"
            fields = list(dict.fromkeys(field for one in types for field in one.model_fields))
            raise ArgumentError(
                "{} {}: is no option of {}: {}{}",
                Argument(argument), key, said, ", ".join(fields) or "none", nearest(name, fields),
            )  # fmt: skip
        errors = []
        for one in having:
            try:
                one(**{name: value})
            except CimError as error:
                errors.append(error)
        if len(errors) == len(having):
            raise ArgumentError("{}: {}", Argument(argument), errors[0])


def _point(
    pairs: Sequence[tuple[str, Value]], common: TrainingOptions, kinds: Kinds
) -> TrainingPoint:
    fields = {one.kind: one.model_fields for one in kinds}

    def has(key: str) -> bool:
        if key in ARGUMENTS:
            return True
        kind, name = kind_of_option(key)
        return name in fields[kind]

    values = tuple(pair for pair in pairs if has(pair[0]))
    options = {k: v for k, v in (common.options or {}).items() if has(k)}
    options |= {key: value for key, value in values if key not in ARGUMENTS}
    plain: Any = {key: value for key, value in values if key in ARGUMENTS}
    poly = common.poly if kinds[1].needs_polynomial else None
    return TrainingPoint(values, replace(common, **plain, poly=poly, options=options))
