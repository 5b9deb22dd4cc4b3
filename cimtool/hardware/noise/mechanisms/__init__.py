"""The mechanisms of noise: importing this package registers all of them."""

from __future__ import annotations

from cimtool.base.named import register_modules
from cimtool.hardware.noise.model import NonIdeality, kinds

__all__ = ["NonIdeality", "kinds"]

register_modules(__name__, __path__)
