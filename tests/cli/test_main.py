"""The command line as a user meets it: exit status, one sentence on stderr, JSON on stdout."""

from __future__ import annotations

import io
import json
import os
import pty
import shlex
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

import cimtool
from cimtool import cli
from cimtool.base.errors import CheckFailed, CimError
from cimtool.cli import output
from cimtool.cli.group import Command, Group, LazyGroup, OneOf
from cimtool.demo.data import DemoFiles
from cimtool.report.document import Document
from cimtool.simulation.kernels import choice

MODULE = [sys.executable, "-m", "cimtool"]


def in_a_process(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """A command line in a process of its own, which takes a second to start."""
    return subprocess.run(
        [*MODULE, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )


def cimtool_run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """A command line in this process."""
    given, out, err = list(map(str, arguments)), io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = cli.run(given)
    return subprocess.CompletedProcess(given, status, out.getvalue(), err.getvalue())


def only_sentence(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that a failed command leaves on stderr, and nothing on stdout."""
    assert done.stdout == ""
    assert done.stderr.startswith("cimtool: error: ")
    assert done.stderr.count("\n") == 1
    return done.stderr.removeprefix("cimtool: error: ").rstrip("\n")


def command_raising(error: BaseException) -> Group:
    @click.group(cls=Group)
    def group() -> None:
        pass

    @group.command(cls=Command)
    @click.option("--mapping", type=OneOf(["digital", "in-memory"]))
    @click.pass_obj
    def work(out: output.Output, mapping: str | None) -> None:
        raise error

    return group


def three_ways(monkeypatch: pytest.MonkeyPatch, warned: Callable[[], None]) -> tuple[Any, Any, Any]:
    """Runs of a command that warns: in text, as JSON, and with --debug."""

    @click.group(cls=Group)
    def group() -> None:
        pass

    @group.command(cls=Command)
    @click.pass_obj
    def work(out: output.Output) -> None:
        warned()
        out.result(Document("found 1", values=lambda: {"found": 1}))

    monkeypatch.setattr(cli, "cli", group)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        text, values, raw = (cimtool_run("work", *more) for more in ((), ("--json",), ("--debug",)))
    return text, values, raw


def test_warnings_of_libraries_are_notes_and_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def warned() -> None:
        for _ in range(2):
            warnings.warn("overflow met in\n  exp", RuntimeWarning, stacklevel=1)

    said = "warning: a library says: overflow met in exp; --debug shows where (RuntimeWarning)"
    text, values, raw = three_ways(monkeypatch, warned)
    assert (text.returncode, text.stdout, text.stderr) == (0, f"found 1\n\n{said}\n", "")
    assert json.loads(values.stdout) == {"found": 1, "notes": [said]}
    assert values.stderr == ""
    assert raw.stdout == "found 1\n"


def test_warnings_of_cimtool_are_its_own_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    def warned() -> None:
        assert not choice.warn_of("AMX")
        assert not choice.warn_of("popcount")

    said = [
        f"warning: the {name} kernel does not give the reference's integers on this CPU; a slower "
        "one is used"
        for name in ("AMX", "popcount")
    ]
    text, values, raw = three_ways(monkeypatch, warned)
    lines = "\n".join(said)
    assert (text.returncode, text.stdout, text.stderr) == (0, f"found 1\n\n{lines}\n", "")
    assert json.loads(values.stdout) == {"found": 1, "notes": said}
    assert (raw.stdout, values.stderr, raw.stderr) == (text.stdout, "", "")


def test_help_names_every_command_and_answers_in_under_400_ms() -> None:
    took = []
    for _ in range(5):
        started = time.perf_counter()
        done = in_a_process("--help")
        took.append(time.perf_counter() - started)
    assert done.returncode == 0
    listed = done.stdout.partition("Commands:")[2].splitlines()
    named = [line.split()[0] for line in listed if line.startswith("  ") and line[2] != " "]
    assert named == list(cli.COMMANDS)
    assert min(took) < 0.4


def test_no_arguments_show_the_help() -> None:
    assert in_a_process().stdout == in_a_process("--help").stdout


def test_version() -> None:
    assert in_a_process("--version").stdout == f"cimtool {cimtool.__version__}\n"


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_a_command_is_in_its_module_and_has_the_summary_of_the_table(name: str) -> None:
    group = cli.cli
    assert isinstance(group, LazyGroup)
    command = group.get_command(click.Context(group), name)
    assert command is not None
    assert (command.help or "").partition("\n\n")[0].replace("\n", " ") == cli.cli.summaries()[name]


def leaves(command: click.Command, path: str) -> dict[str, click.Command]:
    if not isinstance(command, click.Group):
        return {path: command}
    context = click.Context(command)
    found: dict[str, click.Command] = {}
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        found |= leaves(inner, f"{path} {name}")
    return found


def test_every_command_has_json_and_debug() -> None:
    for path, command in leaves(cli.cli, "cimtool").items():
        assert isinstance(command, Command), path


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["tagets"], ['"tagets"', 'did you mean "targets"?', "cimtool --help"]),
        (["targets", "shwo", "x"], ['"shwo"', 'did you mean "show"?', "cimtool targets --help"]),
        (["targets", "list", "--jsn"], ["--jsn", "--json", "cimtool targets list --help"]),
        (["targets", "show"], ["NAME|FILE"]),
        (["targets", "show", "isaac-rram"], ['"isaac-rram"', 'did you mean "isaac-rram-128"?']),
        (["inspect", "no-such.pth"], ["no-such.pth", "there is no such file"]),
    ],
)
def test_a_mistake_is_one_sentence_and_status_2(arguments: list[str], expected: list[str]) -> None:
    done = cimtool_run(*arguments)
    assert done.returncode == 2
    sentence = only_sentence(done)
    for part in expected:
        assert part in sentence


def test_a_wrong_choice_names_the_nearest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "cli", command_raising(CimError("not reached")))
    assert cli.run(["work", "--mapping", "digtal"]) == 2
    error = capsys.readouterr().err
    assert "'--mapping'" in error
    assert '"digtal" is not one of digital, in-memory; did you mean "digital"?' in error


@pytest.mark.parametrize(
    ("error", "status", "sentence"),
    [
        (CimError("model.pth: bad"), 2, "model.pth: bad"),
        (CheckFailed("r1_loss = 0.2: over its limit 0.1"), 1, "r1_loss = 0.2: over its limit 0.1"),
        (OSError(28, "No space left on device"), 2, "the disk is full"),
        (OSError(28, "No space left", "out/a.bin"), 2, "out/a.bin: the disk is full"),
        (PermissionError(13, "Permission denied", "out"), 2, "out: Permission denied"),
        (MemoryError("Unable to allocate 9 TiB"), 2, "not enough memory: Unable to allocate 9 TiB"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (KeyError("x"), 70, "a fault in cimtool itself; --debug shows where (KeyError: 'x')"),
    ],
)
def test_each_kind_of_error_has_its_status_and_one_line(
    error: BaseException,
    status: int,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(cli, "cli", command_raising(error))
    monkeypatch.setattr(cli, "_drop_stdout", lambda: None)
    assert cli.run(["work"]) == status
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", f"cimtool: error: {sentence}\n")


@pytest.mark.thorough("starts many whole processes")
def test_debug_adds_the_traceback() -> None:
    plain = in_a_process("targets", "show", "nothing")
    debug = in_a_process("targets", "show", "nothing", "--debug")
    assert "Traceback" not in plain.stderr
    assert "Traceback" in debug.stderr
    assert debug.stderr.endswith(plain.stderr)
    assert debug.returncode == plain.returncode == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [["--help"], ["targets", "show", "ideal"]])
def test_a_full_disk_under_stdout_is_one_sentence(arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*MODULE, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert done.stderr == "cimtool: error: the disk is full\n"


def test_a_closed_pipe_is_silent() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*MODULE, "targets", "show", "ideal"], stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def in_a_shell(redirected: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """A command line with its streams as a shell redirects them."""
    line = shlex.join([*MODULE, *map(str, arguments)])
    return subprocess.run(
        f"{line} {redirected}", shell=True, capture_output=True, text=True, check=False
    )


CLOSED = [">&-", "2>&-", "<&- >&- 2>&-"]


@pytest.mark.thorough("starts many whole processes")
@pytest.mark.parametrize("redirected", CLOSED)
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_closed_streams_take_what_is_said_and_the_work_is_done(
    redirected: str, form: tuple[str, ...], small_bundle: Path, small_trunk: DemoFiles,
    tmp_path: Path,
) -> None:  # fmt: skip
    given = ["verify", small_bundle, "--data", small_trunk.eval, "--calibration-rows", "allow"]
    given += ["--report", tmp_path / "report"]
    done = in_a_shell(redirected, *given, *form)
    assert (done.returncode, done.stderr) == (0, "")
    assert (done.stdout == "") == (">&-" in redirected.split())
    assert json.loads((tmp_path / "report" / "report.json").read_text("utf-8"))


@pytest.mark.thorough("starts many whole processes")
@pytest.mark.parametrize("redirected", CLOSED)
def test_a_mistake_is_status_2_where_streams_are_closed(redirected: str) -> None:
    done = in_a_shell(redirected, "targets", "show", "nothing")
    assert (done.returncode, done.stdout) == (2, "")
    assert ("cimtool: error: " in done.stderr) == (redirected == ">&-")


def test_no_file_of_a_command_takes_the_place_of_a_closed_stream(tmp_path: Path) -> None:
    program = (
        "import os, sys\nfrom cimtool.__main__ import open_streams\nopen_streams()\n"
        "file = open('out', 'w')\nos.write(1, b'a message')\nos.write(2, b'another')\n"
        "os.system('echo that of a process')\nprint('\\ud800', flush=True)\n"
        "sys.exit(file.fileno() < 3)"
    )
    line = shlex.join([sys.executable, "-c", program])
    done = subprocess.run(f"{line} <&- >&- 2>&-", shell=True, cwd=tmp_path, check=False)
    assert done.returncode == 0
    assert (tmp_path / "out").read_bytes() == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_mistake_is_status_2_where_stderr_takes_nothing() -> None:
    assert in_a_shell("2>/dev/full", "targets", "show", "nothing").returncode == 2


def test_an_interrupt_of_a_running_command_is_status_130_and_one_line() -> None:
    program = (
        "import signal, time, click\n"
        "from cimtool import cli\n"
        "from cimtool.cli.group import Command, Group\n"
        "@click.group(cls=Group)\n"
        "def group(): pass\n"
        "@group.command(cls=Command)\n"
        "@click.pass_obj\n"
        "def wait(out):\n"
        # A shell's background jobs, and what they start, ignore the signal.
        "    signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(60)\n"
        "cli.cli = group\n"
        "raise SystemExit(cli.run(['wait']))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=30)
    assert (process.returncode, error) == (130, "cimtool: error: interrupted\n")


def test_targets_list_as_text_and_as_json() -> None:
    names = ["colonnade-65nm", "hermes-pcm-14nm", "ideal", "isaac-rram-128"]
    text = cimtool_run("targets", "list", "--verbose").stdout
    short = cimtool_run("targets", "list").stdout
    rows = json.loads(cimtool_run("targets", "list", "--json").stdout)["targets"]
    assert set(names) <= {row["name"] for row in rows}
    named = [line.split()[0] for line in text.splitlines() if line.startswith(" ")]
    assert named == ["name", named[1], *(row["name"] for row in rows)]
    assert all(row["name"] in short for row in rows)
    assert len(short.splitlines()) <= 15


def test_targets_show_as_text_and_as_json() -> None:
    assert "array.cell_bits" in cimtool_run("targets", "show", "ideal", "--verbose").stdout
    assert "sums are exact" in cimtool_run("targets", "show", "ideal").stdout
    assert json.loads(cimtool_run("targets", "show", "ideal", "--json").stdout)["name"] == "ideal"


def test_targets_check_accepts_a_valid_file_and_refuses_an_unknown_key(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('base = "ideal"\nname = "mine"\ntitle = "Mine"\n')
    checked = cimtool_run("targets", "check", file).stdout.splitlines()
    assert checked[0] == f'{file}: a valid target, "mine"'
    assert checked[1].startswith("  an array of any number of cells of 8 bits holds weights of 8 ")
    file.write_text('base = "ideal"\nname = "mine"\ntitle = "Mine"\n[array]\ncel_bits = 2\n')
    done = cimtool_run("targets", "check", file)
    assert done.returncode == 2
    assert only_sentence(done).startswith(f"{file}: unknown key array.cel_bits; did you mean")


def test_inspect_as_text_and_as_json(tmp_path: Path) -> None:
    file = tmp_path / "data.npz"
    np.savez(file, text=np.ones((3, 4), np.float32), video=np.ones((3, 4), np.float32))
    assert cimtool_run("inspect", file).stdout.startswith(f"{file}: ")
    facts = json.loads(cimtool_run("inspect", file, "--json").stdout)
    assert (facts["file"], facts["bytes"]) == (str(file), file.stat().st_size)


def test_json_text_is_strict_json() -> None:
    values = {"a": np.float32(0.5), "b": float("nan"), "c": Path("x"), "d": (np.int64(3), [1.5])}
    found = json.loads(output.json_text(values), parse_constant=pytest.fail)
    assert found == {"a": 0.5, "b": None, "c": "x", "d": [3, [1.5]]}
    with pytest.raises(TypeError):
        output.json_text({"a": object()})


def test_each_line_of_progress_on_a_terminal_only_and_not_with_json(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def told(as_json: bool, stderr: int) -> bytes:
        reader, writer = os.pipe() if stderr == 0 else pty.openpty()
        with open(writer, "w") as stream:
            monkeypatch.setattr(sys, "stderr", stream)
            output.Output(as_json).say("training")
            stream.write(".")
            stream.flush()
            got = os.read(reader, 1000)
        os.close(reader)
        return got

    pipe, terminal = 0, 1
    assert told(False, pipe) == b"."
    assert told(True, terminal) == b"."
    assert b"training" in told(False, terminal)


@pytest.mark.thorough("starts many whole processes")
def test_without_a_stdout_a_command_ends_well() -> None:
    command = " ".join([*MODULE, "targets", "list", ">&-"])
    done = subprocess.run(command, shell=True, stderr=subprocess.PIPE, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_names_in_files_do_not_steer_the_terminal(tmp_path: Path) -> None:
    name = "a\x1b]0;owned\x07\x1b[2J\u202e"
    file = tmp_path / "settings.toml"
    file.write_text(
        f'"{name.encode("unicode_escape").decode()}" = "é\\u001b[31m"\n'.replace("\\x", "\\u00")
    )
    done = cimtool_run("inspect", file)
    assert done.returncode == 0
    assert r"a\x1b]0;owned\x07\x1b[2J\u202e: é\x1b[31m" in done.stdout
    broken = tmp_path / "x\x1b[2J.toml"
    broken.write_text("=")
    assert r"x\x1b[2J.toml: not valid TOML" in only_sentence(cimtool_run("inspect", broken))


def test_names_that_no_one_reads_to_their_end_are_cut(tmp_path: Path) -> None:
    long, many = "n" * 3000, "a b " * 900
    (tmp_path / "s.toml").write_text(f'"{long}" = "{long[:90]}"\nx = "{many}"\n')
    done = cimtool_run("inspect", tmp_path / "s.toml")
    assert (done.returncode, f"  {'n' * 60}... {'n' * 90}\n" in done.stdout) == (0, True)
    assert max(map(len, done.stdout.splitlines())) < 2000
    for name in (many, "a/" * 3000, f"{long}.toml"):
        said = only_sentence(cimtool_run("targets", "show", name))
        assert len(said) < 2500
        assert "..." in said
    whole = cimtool_run("inspect", tmp_path / "s.toml", "--json")
    assert json.loads(whole.stdout)[long] == "n" * 90


@pytest.mark.thorough("starts many whole processes")
@pytest.mark.parametrize("asked", [None, "ACTIVE"])
def test_threads_of_torch_wait_asleep_unless_the_user_asks_otherwise(
    tmp_path: Path, asked: str | None
) -> None:
    shown = {"OMP_DISPLAY_ENV": "TRUE"} | ({"OMP_WAIT_POLICY": asked} if asked else {})
    environment = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"} | shown
    command = [*MODULE, "train", "--data", str(tmp_path / "none.npz"), "-o", str(tmp_path / "out")]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert f"OMP_WAIT_POLICY = '{asked or 'PASSIVE'}'" in done.stderr
