"""A pass of the pipeline, with its options, what it requires of a program and what it leaves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from cimtool.base.arrays import Array
from cimtool.hardware.settings import Settings
from cimtool.ir.op import Level
from cimtool.ir.program import Program


@dataclass(frozen=True)
class Job:
    """Inputs of every pass beside the program: calibration rows, and the bits of layers.

    `text` and `video` are the rows of a `file`; `note` takes one line on what a pass decided that a
    user must know, such as the error of an approximation.
    """

    settings: Settings
    text: Array
    video: Array
    note: Callable[[str], None]
    file: str = "calibration"

    def rows(self, modality: str) -> Array:
        """The calibration rows [n, width] float32 of one modality."""
        return self.text if modality == "text" else self.video


RIGHT_ROWS = "rows of the scale that the model was trained on"
"""The first thing to look at where numbers of a model are beyond what it can be made for."""


class Pass(ABC):
    """A map from program to program: a frozen dataclass whose fields are its own options.

    `name` is that of the stage it makes, which bundles keep where `kept` says so or no other stage
    follows; `doing` is the line of progress while it runs. It takes a program at the level
    `requires`, calibrated where `requires_calibration` says so, to the level `leaves`.
    """

    name: ClassVar[str]
    doing: ClassVar[str]
    kept: ClassVar[bool] = True
    requires: ClassVar[Level]
    requires_calibration: ClassVar[bool] = False
    leaves: ClassVar[Level]

    @abstractmethod
    def apply(self, program: Program, job: Job) -> Program:
        """The program after this pass."""
