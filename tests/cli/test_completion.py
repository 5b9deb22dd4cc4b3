"""Shell completion: the script of each shell, and what it is answered."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cimtool import cli

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "installation.md").read_text("utf-8")


def asked(
    instruction: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """The text that the command prints for a shell."""
    monkeypatch.setenv("_CIMTOOL_COMPLETE", instruction)
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("shell", "registers"),
    [
        ("bash", "complete -o nosort -F _cimtool_completion cimtool"),
        ("zsh", "#compdef cimtool"),
        ("fish", "complete --no-files --command cimtool"),
    ],
)
def test_each_shell_has_its_script(
    shell: str,
    registers: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert registers in asked(f"{shell}_source", monkeypatch, capsys)
    assert f"`_CIMTOOL_COMPLETE={shell}_source cimtool > " in PAGE


@pytest.mark.parametrize(
    ("line", "word", "completions"),
    [
        ("cimtool com", 1, ["plain,compile", "plain,compare"]),
        ("cimtool targets s", 2, ["plain,show"]),
        ("cimtool compile --weight-b", 2, ["plain,--weight-bits"]),
        ("cimtool compile --calibration ", 3, ["file,"]),
    ],
)
def test_commands_options_and_files_are_completed(
    line: str,
    word: int,
    completions: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(word))
    assert asked("bash_complete", monkeypatch, capsys).splitlines() == completions


def test_names_of_commands_are_completed_without_importing_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COMP_WORDS", "cimtool ")
    monkeypatch.setenv("COMP_CWORD", "1")
    for name, file in cli.COMMANDS.items():
        module = f"cimtool.{file.parents[1].name}.commands.{name}"
        monkeypatch.setitem(sys.modules, module, None)
    found = asked("bash_complete", monkeypatch, capsys).split()
    assert found == [f"plain,{name}" for name in cli.COMMANDS]


def test_an_unknown_shell_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_CIMTOOL_COMPLETE", "nu_source")
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 1
