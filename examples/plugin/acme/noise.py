"""A noise mechanism: charge that cells lose between programming and reading."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from cimtool.base.arrays import FloatArray, IntArray
from cimtool.hardware.noise.model import DeviceChange, DeviceNoise, DeviceState, Redraw, Sigma


class Retention(DeviceNoise, name="retention"):
    """Each device keeps the share exp(-loss (1 + spread z)) of its conductance, z normal."""

    drawn: ClassVar[Redraw] = "die"

    loss: Sigma
    spread: Sigma = 0.0

    def change(self, state: DeviceState) -> DeviceChange:
        def lose(g: FloatArray, digits: IntArray, rng: np.random.Generator) -> FloatArray:
            return g * np.exp(-self.loss * (1 + self.spread * rng.standard_normal(g.shape)))

        return lose
