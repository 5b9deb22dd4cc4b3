"""The exporters, one class in one file: importing this package registers all of them."""

from __future__ import annotations

from cimtool.base.named import register_modules
from cimtool.bundle.exporter import Exporter, Request, export_bundle

__all__ = ["Exporter", "Request", "export_bundle"]

register_modules(__name__, __path__)
