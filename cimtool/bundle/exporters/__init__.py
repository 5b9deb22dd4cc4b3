"""The exporters, one class per file; importing this package registers them all."""

from __future__ import annotations

from cimtool.base.named import register_modules
from cimtool.bundle.exporter import Exporter, ExportOptions, Request, export_bundle

__all__ = ["ExportOptions", "Exporter", "Request", "export_bundle"]

register_modules(__name__, __path__)
