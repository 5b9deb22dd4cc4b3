"""Options of the form KEY=VALUE."""

from __future__ import annotations

import click
import pytest

from cimtool.base.errors import CimError
from cimtool.cli import COMMANDS, cli
from cimtool.cli.values import parse_grid, parse_limits, parse_options, plain_value


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
        (["logit_rmse=low"], '"low" is no finite number'),
        (["logit_rmse=nan"], '"nan" is no finite number'),
        (["logit_rmse=1_0"], '"1_0" is no finite number'),
        (["logit_rmse=٣"], '"٣" is no finite number'),
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
    for option in (one for one in command.params if one.type.name in NUMERIC):
        for text in ("1_0", "٣"):
            with pytest.raises(click.BadParameter):
                option.type.convert(text, option, None)


NUMERIC = ("integer", "float", "N,N,...")
"""The names of the types of numbers, click's own among them."""
