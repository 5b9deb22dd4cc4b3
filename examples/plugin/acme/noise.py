"""A noise mechanism: charge that cells lose between programming and reading."""

from __future__ import annotations

import numpy as np

from cimtool.base.arrays import FloatArray
from cimtool.hardware.noise.model import DeviceNoise, DeviceState, Sigma


class Retention(DeviceNoise, name="retention"):
    """Each device keeps the share exp(-loss (1 + spread z)) of its conductance, z normal."""

    loss: Sigma
    spread: Sigma = 0.0

    def effective(self, g: FloatArray, state: DeviceState) -> FloatArray:
        z = state.rng.standard_normal(g.shape)
        return g * np.exp(-self.loss * (1 + self.spread * z))
