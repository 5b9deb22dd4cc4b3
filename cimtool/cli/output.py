"""Output of a command: its result on stdout, its progress on stderr."""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click

from cimtool.base.data_notes import DataNotes
from cimtool.base.escapes import printable
from cimtool.base.json_files import plain_values
from cimtool.base.progress import Say, Sparse, silent

if TYPE_CHECKING:
    from cimtool.report.document import Document

LONG_WORD = re.compile(r"[^\s/─]{256,}|[^\s─]{1024,}")
"""A name, value or path so long that only its ends are printed; rules of tables do not count."""

LONGEST_LINE = 2000

PIPE_WIDTH = 100
"""Columns of a table that goes to a file or a pipe."""

LOG_SECONDS = 30
"""Seconds between two lines of progress in a file or a pipe."""


@dataclass(frozen=True)
class Output:
    """The form in which a command prints, and the notes on the data that it reads."""

    as_json: bool
    of_data: DataNotes = field(default_factory=DataNotes)
    verbose: bool = False

    @cached_property
    def say(self) -> Say:
        """Tells progress on stderr, a line per call with the seconds so far; nothing with --json.

        If stderr is no terminal, every PartDone is a line, and at most one other per LOG_SECONDS.
        """
        if self.as_json:
            return silent
        say = _timed(err=True, dim=True)
        return say if sys.stderr.isatty() else Sparse(say, LOG_SECONDS)

    @cached_property
    def step(self) -> Say:
        """Tells the steps of a long walk, one line per call, in a pipe too; nothing with --json."""
        return silent if self.as_json else _timed()

    @property
    def width(self) -> int:
        """Columns that a table may take."""
        if not sys.stdout.isatty():
            return PIPE_WIDTH
        return shutil.get_terminal_size((PIPE_WIDTH, 24)).columns

    def result(self, found: Document) -> None:
        """Print the command's result: its values as one JSON object with --json, else its text.

        Details are printed with --verbose. Notes on the data that are not in either follow.
        """
        if self.as_json:
            values = dict(found.values())
            own = list(values.get("notes", ()))
            left = [note for note in self.of_data.sentences if note not in own]
            click.echo(json_text({**values, "notes": [*own, *left]} if left else values))
            return
        # Not for the help, which shows no result.
        from cimtool.report.terminal import LINES, fitted, terminal

        wrap = sys.stdout.isatty()
        if wrap and not self.verbose:
            found = fitted(found, self.width, LINES - 1)
        text = terminal(self._with_hint(found), self.width, self.verbose, wrap)
        printed = " ".join(text.split())
        left = [one for one in self.of_data.sentences if " ".join(one.split()) not in printed]
        click.echo(printable(shown("\n".join([text, *([""] if left else []), *left]))))

    def _with_hint(self, found: Document) -> Document:
        """The document with a line on what --verbose adds, before the final lines on files."""
        from cimtool.report.document import Sentence, Verbatim
        from cimtool.report.terminal import left_out

        left = left_out(found, self.width)
        if self.verbose or not left:
            return found
        last = next(
            (i for i, one in enumerate(reversed(found.blocks)) if not isinstance(one, Verbatim)), 0
        )
        at = len(found.blocks) - last
        hint = Sentence(f"--verbose has the rest: {left}")
        return replace(found, blocks=(*found.blocks[:at], hint, *found.blocks[at:]))


def shown(text: str) -> str:
    """A text for a person: overlong words and lines are cut to their ends."""
    lines = (LONG_WORD.sub(_cut, line) for line in text.split("\n"))
    return "\n".join(
        line if len(line) <= LONGEST_LINE else _ends(line, 1500, 300) for line in lines
    )


def _cut(word: re.Match[str]) -> str:
    return _ends(word[0], 60, 60 if "/" in word[0] else 0)


def _ends(text: str, first: int, last: int) -> str:
    return f"{text[:first]}...{text[len(text) - last :]}"


def _timed(err: bool = False, dim: bool = False) -> Say:
    started = time.monotonic()

    def say(text: str) -> None:
        line = f"{time.monotonic() - started:6.1f} s  {printable(text)}"
        click.secho(line, err=err, dim=dim)

    return say


def json_text(values: Mapping[str, Any]) -> str:
    """Write one JSON object: NumPy numbers as numbers, paths as text, NaN and infinity as null."""
    return json.dumps(plain_values(values), indent=2, allow_nan=False)
