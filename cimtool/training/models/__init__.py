"""The models: importing this package registers all of them."""

from __future__ import annotations

from cimtool.base.named import register_modules
from cimtool.training.model import ProjectorModel

__all__ = ["ProjectorModel"]

register_modules(__name__, __path__)
