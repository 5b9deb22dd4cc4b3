"""Programs that tests run, where they are installed."""

from __future__ import annotations

import os
import shutil

import pytest


def installed(program: str, required: str) -> str:
    """Path of a program.

    Tests without it are skipped, or fail where the environment variable `required` is set, as in
    `.ci/run`.
    """
    path = shutil.which(program)
    if path is None:
        missing = pytest.fail if os.environ.get(required) else pytest.skip
        missing(f"there is no {program}")
    return path
