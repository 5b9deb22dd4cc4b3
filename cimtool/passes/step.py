"""What a pass is: a name, a function from program to program, and what may stand after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cimtool.base.arrays import Array
from cimtool.hardware.settings import Settings
from cimtool.ir.op import Level
from cimtool.ir.program import Program


@dataclass(frozen=True)
class Job:
    """What all passes may look at beside the program.

    `text` and `video` are the calibration rows; `note` takes one line on what a pass decided that
    a user must know, such as the error of an approximation.
    """

    settings: Settings
    text: Array
    video: Array
    note: Callable[[str], None]

    def rows(self, modality: str) -> Array:
        """The calibration rows [n, width] float32 of one modality."""
        return self.text if modality == "text" else self.video


@dataclass(frozen=True)
class Pass:
    """One step of the pipeline; `leaves` is the level of the program that it makes.

    `name` is that of the stage it makes, `doing` what is told while it runs.
    """

    name: str
    doing: str
    apply: Callable[[Program, Job], Program]
    leaves: Level
