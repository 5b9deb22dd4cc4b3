"""The command line: every command parses, calls one function of the library, and prints."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

import click
from click.shell_completion import shell_complete

from cimtool import __version__
from cimtool.base.errors import CimError
from cimtool.base.escapes import printable
from cimtool.base.plugins import as_plugin_fault, broken_plugins
from cimtool.cli.group import LazyGroup, Refusal, command_files
from cimtool.cli.output import shown

WALK = (
    *("demo", "init", "run", "compile", "program", "simulate", "encode", "search", "verify"),
    *("compare", "sweep"),
    *("tune", "cost", "export", "embed", "teacher", "fit", "train", "evaluate", "inspect"),
    *("targets", "noise", "doctor"),
)
"""The order of the commands in the help; other commands follow by name."""

COMMANDS = command_files(WALK)

INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it
PIPE_CLOSED = 141  # 128 + SIGPIPE
FAULT = 70  # EX_SOFTWARE: neither a failed check (1) nor the user's mistake (2)

COMPLETE = "_CIMTOOL_COMPLETE"
"""The variable by which a shell asks for its completion script, or for completions of a line."""

WAITING = "OMP_WAIT_POLICY"
"""The variable that OpenMP reads on loading, for how its threads wait."""


@click.group(cls=LazyGroup, files=COMMANDS)
@click.version_option(__version__, message="%(prog)s %(version)s")
def cli() -> None:
    """Put a trained cross-modal matcher on compute-in-memory hardware, and see what it costs."""


def main() -> None:
    """Run the command line in `sys.argv`, or complete one for a shell; exit with its status."""
    if asked := os.environ.get(COMPLETE):
        sys.exit(shell_complete(cli, {}, "cimtool", COMPLETE, asked))
    # Otherwise torch's threads spin while they wait, on cores that other threads need.
    os.environ.setdefault(WAITING, "PASSIVE")
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line; print an error in one line, return the exit status."""
    try:
        with cli.make_context("cimtool", list(arguments)) as context:
            cli.invoke(context)
        sys.stdout.flush()
        return 0
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except (Refusal, CimError) as error:
        return _complain(str(error), error.exit_status)
    except click.ClickException as error:
        return _complain(_usage_text(error), error.exit_code)
    except KeyboardInterrupt:
        return _complain("interrupted", INTERRUPTED)
    except BrokenPipeError:
        _drop_stdout()
        return PIPE_CLOSED
    except OSError as error:
        _drop_stdout()
        return _complain(_system_text(error), CimError.exit_status)
    except MemoryError as error:
        return _complain(f"not enough memory: {error}", CimError.exit_status)
    except Exception as error:  # the outermost frame: no caller could say it better
        fault = as_plugin_fault(error)
        if isinstance(fault, CimError):
            return _complain(f"{fault}; --debug shows where", fault.exit_status)
        what = f"{type(error).__name__}: {error}"
        return _complain(f"a fault in cimtool itself; --debug shows where ({what})", FAULT)
    finally:
        for sentence in broken_plugins():
            _tell(f"cimtool: warning: {sentence}")


def _complain(sentence: str, status: int) -> int:
    # A user's name may hold a line break; the sentence still takes one line.
    line = " ".join(sentence.splitlines())
    _tell(f"cimtool: error: {printable(shown(line))}")
    return status


def _tell(line: str) -> None:
    """Print a line on stderr; if that fails, only the exit status is left."""
    with suppress(OSError):
        click.echo(line, err=True)


def _usage_text(error: click.ClickException) -> str:
    text = error.format_message().removesuffix(".")
    if isinstance(error, click.UsageError) and error.ctx is not None:
        text += f' (see "{error.ctx.command_path} --help")'
    return text


def _system_text(error: OSError) -> str:
    reason = error.strerror or str(error)
    if error.errno == errno.ENOSPC:
        reason = "the disk is full"
    return f"{error.filename}: {reason}" if error.filename else reason


def _drop_stdout() -> None:
    """Drop the text that stdout still holds, so that closing it at exit does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
