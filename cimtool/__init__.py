"""Deploys cross-modal matchers on compute-in-memory hardware, bit for bit."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

__version__ = "0.1.0"

API = ("compile", "load", "verify", "compare")


class _Package(ModuleType):
    """The package: its functions are loaded on first use, so that importing it costs nothing."""

    def __getattr__(self, name: str) -> Any:
        if name not in API:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module("cimtool.api"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        # Importing `cimtool.load.model` binds the folder as `cimtool.load`; the function stays.
        if not (name in API and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *API]


sys.modules[__name__].__class__ = _Package
