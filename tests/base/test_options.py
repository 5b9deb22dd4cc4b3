"""Records of options: arguments of functions, and records of plain values."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest

from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.options import (
    FILE,
    OneName,
    Record,
    Switched,
    option,
    optional,
    options_of,
    takes,
)


class Dies(Record):
    """Dies."""

    trials: int = option("Number of dies.", "N", default=10)
    model: str | None = optional("A noise model.", "NAME", name="noise_model")
    seed: int = option("Seed.", default=0)


class Seeded(Record):
    """A seed."""

    seed: int = option("Seed of {data}.", default=0)


class Measure(Seeded):
    """A measurement."""

    way: str = option("The way.", OneName(names=("exact", "mc")), default="exact")
    noise: Dies | None = optional("Dies.", Switched(record=Dies, about="dies"))
    data: Path = option("Rows.", FILE, positional=True)
    quick: bool = option("Be quick.", default=False)


class Names(Record):
    """Any number of names."""

    names: tuple[str, ...] = option("Names.", None, positional=True, spread="str", default=())


@takes(Measure)
def measure(options: Measure, say: str = "") -> tuple[Measure, str]:
    """Measure."""
    return options, say


@takes(Names, Seeded)
def listed(names: Names, seeded: Seeded) -> tuple[tuple[str, ...], int]:
    """List."""
    return names.names, seeded.seed


def test_a_function_has_the_fields_of_its_record_as_arguments() -> None:
    assert str(inspect.signature(measure)) == (
        "(data: 'Path', *, seed: 'int' = 0, way: 'str' = 'exact', noise: 'Dies | None' = None, "
        "quick: 'bool' = False, say: 'str' = '') -> 'tuple[Measure, str]'"
    )
    assert inspect.getdoc(measure) == (
        "Measure.\n\n* `data`: Rows.\n* `seed`: Seed of data. [default: 0]\n"
        "* `way`: The way. [default: exact]\n* `noise`: Dies.\n"
        "* `quick`: Be quick. [default: False]"
    )
    found, said = measure(Path("a"), seed=3, say="x")
    assert (found.data, found.seed, found.way, found.noise, said) == (
        Path("a"), 3, "exact", None, "x",
    )  # fmt: skip
    assert measure(data=Path("b"))[0].data == Path("b")


def test_several_records_and_arguments_that_follow() -> None:
    assert listed("a", "b", seed=2) == (("a", "b"), 2)
    assert listed() == ((), 0)
    signature = "(*names: 'str', seed: 'int' = 0) -> 'tuple[tuple[str, ...], int]'"
    assert str(inspect.signature(listed)) == signature


def test_a_strange_argument_is_told_with_the_nearest() -> None:
    with pytest.raises(ArgumentError, match=r'^measure\(\) takes no argument sed; did you mean "s'):
        measure(Path("a"), sed=3)
    with pytest.raises(TypeError, match=r"^measure\(\) takes no argument foo$"):
        measure(Path("a"), foo=3)
    with pytest.raises(TypeError, match=r"^measure\(\): missing a required argument: 'data'$"):
        measure()


def test_a_name_has_to_be_known() -> None:
    sentence = r'^way "exakt" is not known: exact, mc; did you mean "exact"\?$'
    with pytest.raises(CimError, match=sentence):
        measure(Path("a"), way="exakt")


def test_a_record_is_made_of_plain_values_by_the_names_of_options() -> None:
    values = {"data": Path("a"), "seed": 4, "noise": True, "noise_model": "x", "other": 1}
    found = Measure.of(values)
    assert found.noise is not None
    assert (found.noise.model, found.noise.trials, found.noise.seed, found.seed) == ("x", 10, 4, 4)
    assert Measure.of({"data": Path("a"), "seed": 4}).noise is None
    with pytest.raises(
        ArgumentError, match=r"^trials applies only to dies; expected noise with it$"
    ):
        Measure.of({"data": Path("a"), "trials": 4})


def test_options_come_in_the_order_of_the_bases() -> None:
    assert list(options_of(Measure)) == ["data", "seed", "way", "noise", "quick"]
    assert options_of(Measure)["seed"].said(lambda name: f"--{name}") == "Seed of --data."


@pytest.mark.parametrize("value", [1.5, 1e3, True, "3", np.float64(2), np.True_, [1]])
def test_an_integer_is_no_other_number(value: object) -> None:
    class Counted(Record):
        """Counts."""

        items: int = option("Items.", at_least=2, name="gallery")
        seed: int | None = optional("Seed.")

    assert Counted(items=np.int64(3)).items == 3
    assert Counted(items=3, seed=None).seed is None
    with pytest.raises(CimError) as error:
        Counted(items=value)  # type: ignore[arg-type]
    assert str(error.value) == f"gallery is {value!r}; expected an integer of at least 2"
    with pytest.raises(CimError, match=r"seed is .*; expected an integer$"):
        Counted(items=2, seed=value)  # type: ignore[arg-type]


class Chip(Record, topic="Chips"):
    """Options of a topic, but for one."""

    cells: int = option("Cells.", default=1)
    name: str = option("The name.", "NAME", default="", topic="")


class Built(Seeded, Chip):
    """Options that keep their topics."""

    rows: int = option("Rows.", default=1)


class Tuned(Built, topic="Tuning"):
    """Options that get the topic of their heir, but for its own."""

    rate: float = option("The rate.", "X", default=0.1)
    target: str = option("The target.", "NAME", default="", topic="")


@pytest.mark.parametrize(
    ("record", "topics"),
    [
        (Chip, {"cells": "Chips", "name": ""}),
        (Built, {"seed": "", "cells": "Chips", "name": "", "rows": ""}),
        (
            Tuned,
            dict.fromkeys(("seed", "cells", "name", "rows", "rate"), "Tuning") | {"target": ""},
        ),
    ],
)
def test_an_heirs_topic_is_that_of_what_it_inherits(
    record: type[Record], topics: dict[str, str]
) -> None:
    assert {name: one.topic for name, one in options_of(record).items()} == topics
