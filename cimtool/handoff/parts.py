"""The parts of a hand-off, in the order in which they are written and checked."""

from __future__ import annotations

from cimtool.handoff.array_parts import CONSTANTS_PART, IMAGES_PART, TAPS_PART
from cimtool.handoff.bench import BENCH_PART
from cimtool.handoff.c_model import C_PART
from cimtool.handoff.dies import DIES_PART
from cimtool.handoff.directed import DIRECTED_PART
from cimtool.handoff.part import HandoffPart
from cimtool.handoff.random_inputs import RANDOM_PART

PARTS: tuple[HandoffPart, ...] = (
    IMAGES_PART,
    CONSTANTS_PART,
    TAPS_PART,
    DIRECTED_PART,
    BENCH_PART,
    C_PART,
    DIES_PART,
    RANDOM_PART,
)
