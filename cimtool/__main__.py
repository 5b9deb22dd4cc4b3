"""`python -m cimtool` is the command `cimtool`."""

from __future__ import annotations

from cimtool.cli import main

main()
