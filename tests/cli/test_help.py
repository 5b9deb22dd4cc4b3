"""The help of commands: the options that most need, and all of them by topic."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest

from cimtool.cli import cli, run
from cimtool.cli.group import EVERY_COMMAND, Command

Printed = pytest.CaptureFixture[str]
MOST_USUAL = 13
"""The most options in a short help, with the four of every command."""


def commands(group: click.Group, *names: str) -> Iterator[tuple[list[str], Command]]:
    for name in group.list_commands(click.Context(group)):
        found = group.get_command(click.Context(group), name)
        if isinstance(found, click.Group):
            yield from commands(found, *names, name)
        elif isinstance(found, Command):
            yield [*names, name], found


EVERY = {" ".join(names): one for names, one in commands(cli)}


def shown(text: str) -> list[str]:
    """The long names of the options that a help describes, in its order."""
    tables = text[text.index("\nOptions:\n") :] if "\nOptions:\n" in text else text
    return re.findall(r"^  (?:-\w, )?(--[\w-]+)", tables, re.M)


def helps(name: str, capsys: Printed) -> tuple[str, str]:
    assert run([*name.split(), "--help"]) == 0
    short = capsys.readouterr().out
    assert run([*name.split(), "--help-all"]) == 0
    return short, capsys.readouterr().out


@pytest.mark.parametrize("name", EVERY)
def test_the_whole_help_has_each_option_once_and_the_short_one_counts_the_rest(
    name: str, capsys: Printed
) -> None:
    short, whole = helps(name, capsys)
    options = [one for one in EVERY[name].params if isinstance(one, click.Option)]
    flags = sorted(one.opts[0] if one.opts[0].startswith("--") else one.opts[1] for one in options)
    assert sorted(shown(whole)) == sorted([*flags, "--help"])
    counted = [int(one) for one in re.findall(r"\((\d+)\)", short.partition("--help-all shows")[2])]
    assert len(shown(short)) + sum(counted) == len(shown(whole))
    assert len(shown(short)) <= MOST_USUAL
    assert f"{EVERY_COMMAND} (" in " ".join(short.split())
    assert f"\n{EVERY_COMMAND}:\n" in whole
    required = {f"--{one.name}".replace("_", "-") for one in options if one.required}
    assert not required - {*shown(short), "--format-name"}


def test_a_first_user_sees_a_model_its_rows_a_target_and_a_folder(capsys: Printed) -> None:
    short, whole = helps("compile", capsys)
    first = ["--projectors", "--poly", "--head", "--calibration", "--target", "--drift", "--output"]
    assert shown(short)[:7] == first
    assert "--adc-bits" not in shown(short)
    topics = re.findall(r"^(\S.*):$", whole, re.M)
    titles = ["Options", "The model and its score", "Hardware settings", "What is written"]
    assert topics == [*titles, EVERY_COMMAND]
    assert "Hardware settings (30)" in " ".join(short.split())


def test_a_first_training_takes_pairs_a_folder_a_model_and_a_loss(capsys: Printed) -> None:
    short, whole = helps("train", capsys)
    first = ["--data", "--output", "--test", "--model", "--loss", "--poly", "--start", "--epochs"]
    assert shown(short)[:-4] == first
    topic = whole.partition("\nFine-tuning for a target:\n")[2].partition("\n\n")[0]
    fine_tuning = {"--hardware", "--adc-bits", "--head", "--calibration", "--settings"}
    assert fine_tuning <= set(shown(topic))
    topic = whole.partition("\nResuming, and grids:\n")[2].partition("\n\n")[0]
    assert shown(topic) == ["--resume", "--grid"]
