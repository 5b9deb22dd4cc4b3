"""What a pass is: a name, a function from program to program, and what may stand after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cimtool.arrays import Array
from cimtool.ir.op import Op
from cimtool.ir.program import Program
from cimtool.settings import Settings


@dataclass(frozen=True)
class Job:
    """What all passes may look at beside the program: settings, calibration rows, a place to talk."""

    settings: Settings
    text: Array
    video: Array
    say: Callable[[str], None]

    def rows(self, modality: str) -> Array:
        """The calibration rows [n, width] float32 of one modality."""
        return self.text if modality == "text" else self.video


@dataclass(frozen=True)
class Pass:
    """One step of the pipeline; `leaves` are the operations that may stand after it."""

    name: str
    apply: Callable[[Program, Job], Program]
    leaves: frozenset[type[Op]]
