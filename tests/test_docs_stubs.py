"""The stub of the library is what `docs/stubs.py` writes from the records."""

from __future__ import annotations

import inspect
import runpy
from pathlib import Path

import cimtool

ROOT = Path(__file__).resolve().parents[1]
MADE = runpy.run_path(str(ROOT / "docs" / "stubs.py"))


def test_the_stub_is_current() -> None:
    assert (ROOT / "cimtool" / "api.pyi").read_text("utf-8") == MADE["stub"]()


def test_help_tells_each_argument_with_its_default() -> None:
    said = inspect.getdoc(cimtool.verify) or ""
    for name in inspect.signature(cimtool.verify).parameters:
        assert name == "say" or f"* `{name}`: " in said, name
    assert "* `samples`: Monte Carlo samples per side. [default: 10]" in said
