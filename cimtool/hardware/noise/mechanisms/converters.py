"""Mechanisms of converters: offset, gain and non-linearity of each of them."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from cimtool.hardware.noise.model import CodeErrors, ConverterNoise, Sigma


class Adc(ConverterNoise, name="adc"):
    """p -> p + gain p + offset + inl 4 u (1 - u), u the place of p in the converter's range.

    `offset`, `gain` and `inl` are standard deviations over converters: of the offset in codes, of
    the gain relative to 1, and of the bow in the middle of the range in codes, zero at its ends.
    Each converter serves `columns_per_converter` neighbouring columns of an array.
    """

    order: ClassVar[float] = 60
    stream: ClassVar[int | None] = 4

    offset: Sigma = 0.0
    gain: Sigma = 0.0
    inl: Sigma = 0.0
    columns_per_converter: Annotated[int, Field(ge=1, le=1 << 20)] = 1

    @property
    def sharing(self) -> int:
        return self.columns_per_converter

    def errors(self, count: int, rng: np.random.Generator) -> CodeErrors:
        offset, gain, bow = rng.standard_normal((3, count))
        return CodeErrors(self.offset * offset, self.gain * gain, self.inl * bow)
