from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cimtool import cli
from cimtool.demo.data import DemoFiles

PARTS = re.compile(r"\A( *[0-9]+\.[0-9] s  (point|start|epoch|probe|shard|tried)[^\n]*\n)+")
"""Lines of progress at the beginning of a log."""


@dataclass(frozen=True)
class Ran:
    """Exit status and both streams of one command line."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one object on stdout."""
        assert (self.status, self.err) == (0, "")
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found

    @property
    def sentence(self) -> str:
        """The one line that a failed command leaves on stderr, behind those of its progress."""
        assert self.told.startswith("cimtool: error: ")
        assert self.told.count("\n") == 1
        return self.told.removeprefix("cimtool: error: ").rstrip("\n")

    @property
    def told(self) -> str:
        """The text on stderr behind the lines of parts that are done."""
        return PARTS.sub("", self.err)


Cimtool = Callable[..., Ran]


@pytest.fixture
def cimtool(capsys: pytest.CaptureFixture[str]) -> Cimtool:
    """Run a command line in this process."""

    def run(*arguments: object) -> Ran:
        capsys.readouterr()
        status = cli.run(list(map(str, arguments)))
        return Ran(status, *capsys.readouterr())

    return run


def compile_arguments(files: DemoFiles, output: Path | None, **changed: object) -> list[object]:
    """The command line that compiles a small model for `ideal`; None leaves an option out.

    The bits are those of the target: to choose them takes longer than all else.
    """
    options: dict[str, object] = {
        "projectors": files.projectors,
        "poly": files.poly if files.poly.exists() else None,
        "calibration": files.calibration,
        "target": "ideal",
        "drift": "given",
        "output": output,
    }
    options |= changed
    given = [(f"--{key.replace('_', '-')}", value) for key, value in options.items()]
    flat = [part for option, value in given if value is not None for part in (option, value)]
    return ["compile", *flat]


@pytest.fixture(scope="session")
def compiling() -> Callable[..., list[object]]:
    return compile_arguments
