"""Commands made of records: options, arguments and their values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import pytest

from cimtool.base.errors import CimError
from cimtool.base.options import (
    DIR,
    FILE,
    GridValues,
    IdsAndRows,
    IntegerList,
    KeyValues,
    Many,
    MetricLimits,
    NameList,
    OneName,
    OneOrTwoFiles,
    OnOrOff,
    PlainValue,
    Record,
    Switched,
    Words,
    option,
    optional,
)
from cimtool.cli import COMMANDS, cli
from cimtool.cli.group import Refusal
from cimtool.cli.output import Output
from cimtool.cli.records import (
    parse_grid,
    parse_limits,
    parse_options,
    plain_value,
    record_command,
)
from cimtool.report.document import Document


class Dies(Record):
    """Dies."""

    trials: int = option("Number of dies.", "N", default=10)
    seed: int = option("Seed of the dies.", at_least=0, default=0)


class Everything(Record):
    """An option of each form."""

    files: Sequence[Path] = option("Files.", Many(), positional=True, argument="FILE...")
    data: Any = option("Rows.", OneOrTwoFiles(), positional=True)
    map: Any = optional("Names in {data}.", FILE, flag="layers")
    places: int | Sequence[int] = option("Places.", IntegerList(or_one=True), default=4)
    limits: Mapping[str, float] | None = optional("Limits.", MetricLimits())
    grid: Mapping[str, Any] = optional("Grid.", GridValues(example="a=1,2"))
    set: Mapping[str, str] = optional("Set.", KeyValues())
    times: Sequence[str] = option("Times.", Words("TIME"), default=())
    names: Sequence[str] | None = optional("Names.", NameList("A,B"))
    way: str = option("Way.", OneName(names=("exact", "mc")), default="mc")
    share: float = option("Share.", "X", default=0.5)
    bits: Any = optional("Bits.", PlainValue("N|lossless"))
    swap: Any = optional("Swap.", IdsAndRows())
    stages: bool = option("Stages.", OnOrOff(), default=True)
    quick: bool = option("Quick.", default=False)
    title: str | None = optional("Title.", "TEXT")
    noise: Dies | None = optional("Dies.", Switched(record=Dies, about="dies"))
    output: Path | None = optional("Folder.", DIR, short="o")


@record_command(Everything, defaults={"output": Path("out")})
def everything(out: Output, found: Everything) -> None:
    """Take everything."""
    noise = None if found.noise is None else vars(found.noise)
    out.result(Document("", values=lambda: {**vars(found), "noise": noise}))


def ran(*arguments: str) -> None:
    with everything.make_context("x", ["a", "--data", "x.npz", *arguments]) as context:
        everything.invoke(context)


def help_of() -> str:
    with click.Context(everything, info_name="everything", show_default=True) as context:
        return everything.get_help(context)


def test_the_help_has_every_option() -> None:
    said = " ".join(help_of().split())
    for text in (
        "FILE...",
        "--data FILE Rows (.npz or .pt; or twice, .npy or .pt: text, then video). [required]",
        "--layers FILE Names in --data.",
        "--places N,N,... Places. [default: 4]",
        "--limits METRIC=VALUE Limits.",
        "--grid KEY=V,V,V Grid.",
        "--way [exact|mc] Way. [default: mc]",
        "--share X Share. [default: 0.5]",
        "--stages / --no-stages Stages. [default: stages]",
        "--noise Dies.",
        "--trials N Number of dies.",
        "--seed INTEGER Seed of the dies. [default: 0]",
        "-o, --output DIR Folder. [default: out]",
    ):
        assert text in said, text


def test_texts_become_values(capsys: pytest.CaptureFixture[str]) -> None:
    ran("b", "--data", "y.npz", "--places", "1,2", "--limits", "r1_loss=0.5", "--grid", "a=1,2.5",
        "--set", "loss.tau=1", "--times", "1s", "--times", "1h", "--names", "a, b", "--bits", "6",
        "--swap", "1,2", "z.npz", "--no-stages", "--noise", "--trials", "3", "--seed", "5",
        "--json")  # fmt: skip
    found = json.loads(capsys.readouterr().out)
    assert found == {
        "files": ["a", "b"],
        "data": ["x.npz", "y.npz"],
        "map": None,
        "places": [1, 2],
        "limits": {"r1_loss": 0.5},
        "grid": {"a": [1, 2.5]},
        "set": {"loss.tau": "1"},
        "times": ["1s", "1h"],
        "names": ["a", "b"],
        "way": "mc",
        "share": 0.5,
        "bits": 6,
        "swap": [[1, 2], "z.npz"],
        "stages": False,
        "quick": False,
        "title": None,
        "noise": {"trials": 3, "seed": 5},
        "output": "out",
    }
    ran("--bits", "lossless", "--places", "3", "--json")
    found = json.loads(capsys.readouterr().out)
    assert (found["bits"], found["places"], found["data"]) == ("lossless", 3, "x.npz")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("--limits", "r1"), "--limits r1: expected METRIC=VALUE, such as logit_rmse=0.2"),
        (("--trials", "3"), "--trials applies only to dies; expected --noise with it"),
    ],
)
def test_a_text_that_is_no_value_is_told_by_its_option(
    given: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(Refusal) as caught:
        ran(*given)
    assert str(caught.value) == sentence


def test_a_third_file_and_a_seed_below_0_are_usage_errors() -> None:
    with pytest.raises(click.UsageError, match="--data is given 3 times; expected once or twice"):
        ran("--data", "y", "--data", "z")
    with pytest.raises(
        click.UsageError, match=r"^--seed is -1; expected an integer of at least 0$"
    ):
        ran("--seed", "-1")


def test_values_are_read_as_toml_reads_them() -> None:
    assert parse_grid(["weight_bits=4, 6", "equalise=true,false", "array=64x64,128x128"]) == {
        "weight_bits": [4, 6],
        "equalise": [True, False],
        "array": ["64x64", "128x128"],
    }
    assert parse_grid(["adc_bits=5,lossless", "on_off_ratio=1.5e3"]) == {
        "adc_bits": [5, "lossless"],
        "on_off_ratio": [1500.0],
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("weight_bits", "expected KEY=VALUE,VALUE"),
        ("=4", "expected KEY=VALUE,VALUE"),
        ("weight_bits=", "expected KEY=VALUE,VALUE"),
        ("weight_bits=4,,6", "a value is empty"),
    ],
)
def test_a_grid_has_a_key_and_values(text: str, message: str) -> None:
    with pytest.raises(CimError, match=message):
        parse_grid([text])


def test_a_key_is_given_once() -> None:
    with pytest.raises(CimError, match="weight_bits is given twice"):
        parse_grid(["weight_bits=4", "weight_bits=6"])


def test_limits_are_read() -> None:
    assert parse_limits("budget", ["logit_rmse=0.2", "r1_loss = -0.01"]) == {
        "logit_rmse": 0.2,
        "r1_loss": -0.01,
    }


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["logit_rmse"], "budget logit_rmse: expected METRIC=VALUE"),
        (["logit_rmse=low"], '"low" is not a finite number'),
        (["logit_rmse=nan"], '"nan" is not a finite number'),
        (["logit_rmse=1_0"], '"1_0" is not a finite number'),
        (["logit_rmse=٣"], '"٣" is not a finite number'),
        (["r1_loss=1", "r1_loss=2"], "given twice"),
    ],
)
def test_what_is_no_limit_is_refused(texts: list[str], message: str) -> None:
    with pytest.raises(CimError, match=message):
        parse_limits("budget", texts)


def test_options_of_a_model_and_a_loss_are_texts_by_key() -> None:
    assert parse_options(["loss.tau = 0.5", "model.hidden=16", "loss.tau=1"]) == {
        "loss.tau": "1",
        "model.hidden": "16",
    }
    with pytest.raises(CimError, match=r'options "tau": expected model.KEY=VALUE'):
        parse_options(["tau"])


@pytest.mark.parametrize("text", ["[" * 5000, "9" * 5000, "0x" + "f" * 5000, "1\nb = 2"])
def test_a_value_that_toml_refuses_is_a_text(text: str) -> None:
    assert plain_value(text) == text


@pytest.mark.parametrize("name", COMMANDS)
def test_every_number_of_a_command_is_in_ascii_digits(name: str) -> None:
    assert isinstance(cli, click.Group)
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    for one in (one for one in command.params if one.type.name in NUMERIC):
        for text in ("1_0", "٣"):
            with pytest.raises(click.UsageError):
                one.type.convert(text, one, None)


NUMERIC = ("integer", "float", "N,N,...")
"""The names of the types of numbers, click's own among them."""
