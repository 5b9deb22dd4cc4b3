"""The parts of a hand-off, in the order in which they are written and checked."""

from __future__ import annotations

from cimtool.emit.handoff.c_model import C_PART
from cimtool.emit.handoff.part import HandoffPart

PARTS: tuple[HandoffPart, ...] = (C_PART,)
