"""The losses, one class in one file: importing this package registers all of them."""

from __future__ import annotations

import importlib
import pkgutil

for module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{module.name}")
