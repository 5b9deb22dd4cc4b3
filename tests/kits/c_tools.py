"""Compilers of C, for tests that compile what is exported."""

from __future__ import annotations

import os
import shutil

import pytest

STRICT = ("-std=c99", "-Wall", "-Wextra", "-pedantic", "-Wconversion", "-Werror")


def c_compiler(name: str) -> str:
    """Path of a compiler.

    Tests without it are skipped, or fail where CIMTOOL_REQUIRE_COMPILERS is set, as in `.ci/run`.
    """
    path = shutil.which(name)
    if path is None:
        missing = pytest.fail if os.environ.get("CIMTOOL_REQUIRE_COMPILERS") else pytest.skip
        missing(f"there is no {name}")
    return path
