"""The heads, one class in one file: importing this package registers all of them.

A head says which features of an item are stored and how two items are scored, as graphs of real
numbers.
"""

from __future__ import annotations

from cimtool.base.named import register_modules
from cimtool.ir.heads.base import (
    VARIANCE,
    Head,
    ScoreConstants,
    Span,
    TowerBuilder,
    assemble,
    dimension,
)

__all__ = ["VARIANCE", "Head", "ScoreConstants", "Span", "TowerBuilder", "assemble", "dimension"]

register_modules(__name__, __path__)
