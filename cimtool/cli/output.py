"""Output of a command: its result on stdout, its progress on a terminal's stderr."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import click

from cimtool.base.progress import Say, silent

PIPE_WIDTH = 100
"""Columns of a table that goes to a file or a pipe."""


@dataclass(frozen=True)
class Output:
    """The form in which a command prints."""

    as_json: bool

    @cached_property
    def say(self) -> Say:
        """Tells progress, one line a call."""
        return make_say(self.as_json)

    @cached_property
    def step(self) -> Say:
        """Tells the steps of a long walk, one line a call, in a pipe too; nothing with --json."""
        return silent if self.as_json else _timed()

    @property
    def width(self) -> int:
        """Columns that a table may take."""
        if not sys.stdout.isatty():
            return PIPE_WIDTH
        return shutil.get_terminal_size((PIPE_WIDTH, 24)).columns

    def result(self, values: Mapping[str, Any], text: str) -> None:
        """Print what the command found: `values` as one JSON object with --json, else `text`."""
        click.echo(json_text(values) if self.as_json else text)


def make_say(as_json: bool) -> Say:
    """Make the function that tells progress: on stderr if it is a terminal, otherwise nothing.

    Each line starts with the seconds since this call.
    """
    return silent if as_json or not sys.stderr.isatty() else _timed(err=True, dim=True)


def _timed(err: bool = False, dim: bool = False) -> Say:
    started = time.monotonic()

    def say(text: str) -> None:
        click.secho(f"{time.monotonic() - started:6.1f} s  {text}", err=err, dim=dim)

    return say


def json_text(values: Mapping[str, Any]) -> str:
    """Write one JSON object; NumPy numbers as numbers, paths as text, NaN and infinity as null."""
    return json.dumps(_plain(values), indent=2, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):  # a NumPy number or array, without importing NumPy
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def converters_text(adc_bits: int | None, steps: Sequence[int | None]) -> str:
    """Bits and step of each slice's conversion; `=` marks a slice that is proved lossless."""
    if adc_bits is None:
        return "lossless"
    if all(step is None for step in steps):
        return f"{adc_bits} bits, lossless"
    text = " ".join("=" if step is None else f"2^{step}" for step in steps)
    return f"{adc_bits} bits, steps {text}"
