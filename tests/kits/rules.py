"""Operations that a backend or a pass has no rule for, with every module of cimtool imported."""

from __future__ import annotations

import importlib
import pkgutil

import cimtool
from cimtool.ir.backends import Rules


def missing_rules() -> dict[str, list[str]]:
    """The operations of claimed levels that have no rule, by the name of the table."""
    for module in pkgutil.walk_packages(cimtool.__path__, "cimtool."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    return {table.name: table.missing() for table in Rules.declared}
