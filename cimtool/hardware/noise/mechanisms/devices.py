"""Mechanisms of single devices: programming error, drift, 1/f noise, read noise, a common scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from numpy.polynomial.polynomial import polyval
from pydantic import Field, model_validator

from cimtool.base.arrays import FloatArray
from cimtool.base.errors import invalid_at
from cimtool.hardware.noise.model import (
    Coefficients,
    Curve,
    DeviceNoise,
    DeviceState,
    Energy,
    NonIdeality,
    PositiveNumber,
    ReadNoise,
    ReadState,
    Sigma,
    activated,
    ageing,
    non_negative,
    parse_time,
)


class Programming(DeviceNoise, name="programming"):
    """g = g_target + sigma z, z normal, never below 0 (uS); sigma is a polynomial in x or g.

    `sigma` are its coefficients from x^0 on, or `sigma_after` such coefficients by the time after
    which they were fitted ("1s", "1d"): then no other times are known. `of` says whether they
    multiply powers of x = g / g_max or of g in uS. `tolerance` (uS) is that of write-verify: a
    device whose error is larger is written again, so errors are a normal cut off at it.
    """

    order: ClassVar[float] = 10
    stream: ClassVar[int | None] = 0

    sigma: Coefficients | None = None
    sigma_after: dict[str, Coefficients] | None = Field(
        None, description="a table of lists of numbers, by times such as 1s or 1d"
    )
    of: Literal["x", "g"] = "x"
    tolerance: PositiveNumber | None = Field(None, json_schema_extra={"unit": "uS"})

    @model_validator(mode="after")
    def _one_sigma(self) -> Self:
        if (self.sigma is None) == (not self.sigma_after):
            raise ValueError("expected either sigma or sigma_after, one of them")
        with invalid_at():
            for time in self.sigma_after or {}:
                parse_time(time, "a time in sigma_after")
        return self

    @property
    def times(self) -> dict[float, str] | None:
        if self.sigma_after is None:
            return None
        return {parse_time(text): text for text in self.sigma_after}

    def check(self, g_max: float, beside: Sequence[NonIdeality]) -> None:
        if self.times is not None and any(one.ages for one in beside):
            raise ValueError(
                f"sigma_after already includes drift: expected no {' or '.join(ageing())} beside it"
            )
        laws = {f"sigma_after.{time}": law for time, law in (self.sigma_after or {}).items()}
        if self.sigma is not None:
            laws["sigma"] = self.sigma
        for where, coefficients in laws.items():
            x = np.linspace(0.0, 1.0, 1001)
            non_negative(self._polynomial(coefficients, x, g_max), where)

    def deviation(self, x: FloatArray, g_max: float, seconds: float) -> FloatArray:
        """The standard deviation in uS at x = g / g_max, `seconds` after programming."""
        coefficients = self.sigma
        if self.sigma_after is not None:
            coefficients = {parse_time(k): v for k, v in self.sigma_after.items()}[seconds]
        return self._polynomial(coefficients or (0.0,), x, g_max)

    def _polynomial(self, coefficients: Coefficients, x: FloatArray, g_max: float) -> FloatArray:
        return np.asarray(polyval(x if self.of == "x" else x * g_max, coefficients))

    def effective(self, g: FloatArray, state: DeviceState) -> FloatArray:
        sigma = self.deviation(state.x, state.g_max, state.seconds)
        return np.maximum(g + self.draw(state.rng, sigma[state.digits]), 0.0)

    def draw(self, rng: np.random.Generator, sigma: FloatArray) -> FloatArray:
        """Errors in uS of devices with these standard deviations."""
        if self.tolerance is None:
            errors: FloatArray = rng.standard_normal(sigma.shape) * sigma
            return errors
        from scipy.special import ndtr, ndtri  # slow to load, and few models need it

        with np.errstate(divide="ignore"):
            below = ndtr(-self.tolerance / sigma)  # a sigma of 0 leaves nothing outside
        normal: FloatArray = ndtri(below + rng.random(sigma.shape) * (1 - 2 * below))
        return np.where(sigma > 0, normal * sigma, 0.0)


class ConductanceDrift(DeviceNoise, name="drift"):
    """g(t) = g (t / t0)^-nu with nu normal, its `mean` and `sigma` curves of the target's x.

    With an `activation_energy` (eV) the time after t0 counts as often, at another temperature than
    that of the figures, as Arrhenius' law says (JEDEC JEP122).
    """

    order: ClassVar[float] = 20
    stream: ClassVar[int | None] = 1
    ages: ClassVar[bool] = True

    mean: Curve
    sigma: Curve
    activation_energy: Energy | None = Field(None, json_schema_extra={"unit": "eV"})

    @property
    def energy(self) -> float | None:
        return self.activation_energy

    @model_validator(mode="after")
    def _positive(self) -> Self:
        non_negative(self.sigma, "sigma")
        return self

    def effective(self, g: FloatArray, state: DeviceState) -> FloatArray:
        if state.t0 is None or state.seconds <= 0:
            return g
        mean, sigma = self.mean.at(state.x), self.sigma.at(state.x)
        z = state.rng.standard_normal(g.shape)
        nu = z * sigma[state.digits] + mean[state.digits]
        seconds = state.seconds * activated(self.energy, state.heat)
        return g * self.factor(nu, seconds, state.t0)

    def factor(self, nu: FloatArray, seconds: float, t0: float) -> FloatArray:
        """The factor of conductances `seconds` after programming (that is, after t0)."""
        remaining: FloatArray = np.exp(nu * -math.log((seconds + t0) / t0))
        return remaining


class Flicker(DeviceNoise, name="flicker"):
    """1/f read noise, frozen at one time of reading: sigma = |g| q(x) sqrt(ln((t + tr) / 2 tr)).

    `t_read` is tr in seconds; q is a curve of the target's x, g the drifted conductance, and
    t = time + t0.
    """

    order: ClassVar[float] = 30
    redrawn: ClassVar[bool] = True
    stream: ClassVar[int | None] = 2
    ages: ClassVar[bool] = True

    q: Curve
    t_read: PositiveNumber = Field(json_schema_extra={"unit": "s"})

    @model_validator(mode="after")
    def _positive(self) -> Self:
        non_negative(self.q, "q")
        return self

    def effective(self, g: FloatArray, state: DeviceState) -> FloatArray:
        sigma = self.relative(state.x, state.seconds, state.t0 or 0.0)
        return g + np.abs(g) * (state.rng.standard_normal(g.shape) * sigma[state.digits])

    def relative(self, x: FloatArray, seconds: float, t0: float) -> FloatArray:
        """The standard deviation as a share of |g|, for targets x, `seconds` after t0."""
        t = seconds + t0
        return self.q.at(x) * math.sqrt(max(0.0, math.log((t + self.t_read) / (2 * self.t_read))))


class Read(ReadNoise, name="read"):
    """Each device reads g (1 + sigma z); z is drawn for every product (`mvm`) or every cycle.

    A column sum of inputs x then has the variance sum x^2 (sigma g)^2 over its rows: one normal
    number a conversion stands for all devices.
    """

    order: ClassVar[float] = 40
    stream: ClassVar[int | None] = 5

    sigma: Sigma
    redraw: Literal["mvm", "cycle"] = "mvm"

    @property
    def shared(self) -> bool:
        return self.redraw == "mvm"

    def variance(self, g: FloatArray, state: ReadState) -> FloatArray:
        return self.sigma**2 / state.devices * g**2


class CommonScale(DeviceNoise, name="scale"):
    """g -> factor g: currents against the references of converters, the same on every die.

    Supply and temperature change both; what is left after they track each other is the factor.
    With an `activation_energy` (eV) cells conduct exp(-Ea/k (1/T - 1/T0)) times that.
    """

    order: ClassVar[float] = 35

    factor: Annotated[float, Field(gt=0, le=10, description="a number above 0, up to 10")]
    activation_energy: Energy | None = Field(None, json_schema_extra={"unit": "eV"})

    @property
    def energy(self) -> float | None:
        return self.activation_energy

    def effective(self, g: FloatArray, state: DeviceState) -> FloatArray:
        return self.factor * activated(self.energy, state.heat) * g
