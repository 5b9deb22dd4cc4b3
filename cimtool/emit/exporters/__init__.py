"""The exporters, one class in one file: importing this package registers all of them."""

from __future__ import annotations

from cimtool.base.named import register_modules
from cimtool.emit.exporter import Exporter

__all__ = ["Exporter"]

register_modules(__name__, __path__)
