"""Drift compensation: known inputs are read back, and factors correct the converted sums."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from cimtool.base.arrays import FloatArray, IntArray
from cimtool.hardware.noise.mvm import FACTOR_BITS, NoisyMvm
from cimtool.ir.format import round_half_up
from cimtool.ir.types import Type
from cimtool.simulation.kernels.conversions import ConversionKernel

Compensation = Literal["none", "global", "column"]

READOUT_ROWS = 32
"""Number of known inputs. They drive the die right after programming and again when it is read."""

DENSITIES = tuple(2.0**-n for n in range(8))
"""Shares of the rows that known inputs may drive. The largest within MOST_CLIPPED is used."""

MOST_CLIPPED = 0.01
"""Largest share of clipped sums in a readout: a clipped sum shows no drift."""

LARGEST_FACTOR = 16.0


@dataclass(frozen=True)
class ReadoutCost:
    """The cost of reading known inputs back: products of whole layers, and conversions."""

    products: int = 0
    conversions: int = 0

    def __add__(self, other: ReadoutCost) -> ReadoutCost:
        return ReadoutCost(self.products + other.products, self.conversions + other.conversions)


def compensated(
    now: NoisyMvm,
    programmed: NoisyMvm,
    x: Type,
    scope: Compensation,
    rng: np.random.Generator,
) -> tuple[NoisyMvm, ReadoutCost]:
    """The layer with factors that correct its drift since it was `programmed`, and their cost.

    `rng` draws known inputs over the range of `x`. They drive as many rows as the converters can
    take. They are read twice: once with the converters and noise of `programmed`, once with those
    of `now`. The factor f minimises the squared error between `before` and f times `after`. With
    the scope `column` each physical column has a factor; with `global` the layer has one.
    """
    kernels = [ConversionKernel(op) for op in (programmed, now)]
    known = _known_inputs(kernels[0], x, rng)
    before, after = (
        kernel.readings(known) / (1 << kernel.op.cells.fraction_bits) for kernel in kernels
    )
    factors = _factors(before, after, [s.worth for s in now.cells.slices], scope)
    conversions = READOUT_ROWS * len(now.crossbar.cycles) * factors.size
    cost = ReadoutCost(2 * READOUT_ROWS, 2 * conversions)
    return replace(now, factors=factors), cost


def _known_inputs(kernel: ConversionKernel, x: Type, rng: np.random.Generator) -> IntArray:
    """Random inputs [READOUT_ROWS, K] that drive as many rows as MOST_CLIPPED allows."""
    height = kernel.op.perfect.weight.shape[0]
    lo, hi = (np.broadcast_to(edge, (height,)) for edge in (x.lo, x.hi))
    codes = rng.integers(lo, hi, (READOUT_ROWS, height), endpoint=True)
    chance = rng.random(codes.shape)
    known = codes
    for density in DENSITIES:
        known = np.where(chance < density, codes, 0)
        if kernel.clipped(known) <= MOST_CLIPPED:
            break
    return known


def _factors(
    before: FloatArray, after: FloatArray, worths: list[int], scope: Compensation
) -> IntArray:
    """Factors [groups, slices, N] in 2^-FACTOR_BITS from readings [groups, slices, rows, N]."""
    cross, square = (before * after).sum(axis=2), (after * after).sum(axis=2)
    if scope == "global":
        weight = np.square(np.array(worths, np.float64))[:, None]
        cross = np.full_like(cross, (cross * weight).sum())
        square = np.full_like(square, (square * weight).sum())
    ratio = np.divide(cross, square, out=np.ones_like(cross), where=square > 0)
    clipped = np.clip(ratio, 0.0, LARGEST_FACTOR)
    return round_half_up(clipped * (1 << FACTOR_BITS))
