"""The losses: importing this package registers all of them."""

from __future__ import annotations

from cimtool.base.named import register_modules
from cimtool.training.loss import Loss

__all__ = ["Loss"]

register_modules(__name__, __path__)
