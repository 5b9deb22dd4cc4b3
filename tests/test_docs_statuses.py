"""The page of exit statuses has those of the code."""

from __future__ import annotations

import re
from pathlib import Path

from cimtool import cli
from cimtool.base.errors import CheckFailed, CimError

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "commands.md").read_text("utf-8")


def test_the_page_has_every_status_of_the_command_line_once() -> None:
    own = (CheckFailed.exit_status, CimError.exit_status)
    assert re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE) == [
        str(status) for status in (0, *own, cli.FAULT, cli.INTERRUPTED, cli.PIPE_CLOSED)
    ]
