"""The exporters for chip teams, one class in one file: importing this package registers them."""

from __future__ import annotations

from cimtool.base.named import register_modules

register_modules(__name__, __path__)
