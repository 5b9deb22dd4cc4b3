"""The operations of every program that a bundle may hold: importing this module registers them."""

from __future__ import annotations

from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir import arithmetic, integer, source

__all__ = ["CrossbarMvm", "arithmetic", "integer", "source"]
