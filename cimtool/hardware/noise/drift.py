"""Drift and 1/f noise: what becomes of a conductance between its programming and its reading."""

from __future__ import annotations

import math
from typing import ClassVar, Self

import numpy as np
from pydantic import model_validator

from cimtool.base.arrays import FloatArray, IntArray
from cimtool.hardware.noise.model import (
    Curve,
    DeviceChange,
    DeviceNoise,
    DeviceState,
    Positive,
    Redraw,
    non_negative,
)


class Drift(DeviceNoise, name="drift"):
    """g(t) = g (t / t0)^-nu with nu normal, its `mean` and `sigma` curves of the target's x."""

    drawn: ClassVar[Redraw] = "die"

    mean: Curve
    sigma: Curve

    @model_validator(mode="after")
    def _positive(self) -> Self:
        non_negative(self.sigma, "sigma")
        return self

    def change(self, state: DeviceState) -> DeviceChange | None:
        t0, seconds = state.t0, state.seconds
        if t0 is None or seconds <= 0:
            return None
        mean, sigma = self.mean.at(state.x), self.sigma.at(state.x)

        def change(g: FloatArray, digits: IntArray, rng: np.random.Generator) -> FloatArray:
            nu = rng.standard_normal(digits.shape) * sigma[digits] + mean[digits]
            return g * self.factor(nu, seconds, t0)

        return change

    def factor(self, nu: FloatArray, seconds: float, t0: float) -> FloatArray:
        """What conductances are multiplied by, `seconds` after programming (that is, after t0)."""
        remaining: FloatArray = np.exp(nu * -math.log((seconds + t0) / t0))
        return remaining


class Flicker(DeviceNoise, name="flicker"):
    """1/f read noise, frozen at one time of reading: sigma = |g| q(x) sqrt(ln((t + tr) / 2 tr)).

    `t_read` is tr in seconds; q is a curve of the target's x, g the drifted conductance, and
    t = time + t0.
    """

    drawn: ClassVar[Redraw] = "epoch"

    q: Curve
    t_read: Positive

    @model_validator(mode="after")
    def _positive(self) -> Self:
        non_negative(self.q, "q")
        return self

    def change(self, state: DeviceState) -> DeviceChange:
        sigma = self.relative(state.x, state.seconds, state.t0 or 0.0)

        def change(g: FloatArray, digits: IntArray, rng: np.random.Generator) -> FloatArray:
            return g + np.abs(g) * (rng.standard_normal(digits.shape) * sigma[digits])

        return change

    def relative(self, x: FloatArray, seconds: float, t0: float) -> FloatArray:
        """The standard deviation as a share of |g|, for targets x, `seconds` after t0."""
        t = seconds + t0
        return self.q.at(x) * math.sqrt(max(0.0, math.log((t + self.t_read) / (2 * self.t_read))))
