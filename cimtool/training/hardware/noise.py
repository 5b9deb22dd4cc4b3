"""Errors of integer weights and of their sums under a noise model, as moments to draw from."""

from __future__ import annotations

import numpy as np

from cimtool.base.arrays import FloatArray
from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.noise.die import Devices, Die
from cimtool.hardware.stored import StoredWeights
from cimtool.simulation.die_program import Conditions
from cimtool.training.hardware.plan import PERFECT, LayerErrors, tensor

SAMPLES = 4096
"""Devices that are drawn for each digit to know their mean error and its variance."""


def layer_errors(
    op: CrossbarMvm, conditions: Conditions | None, on_off_ratio: float | None
) -> LayerErrors:
    """Errors of a layer: of its converters alone, or on dies of the conditions of its cells too.

    Programming, drift, 1/f and read noise are drawn as independent normal errors of each weight;
    stuck cells, wires and converters' own errors are not. A conversion rounds by an error of
    variance step^2 / 12.
    """
    steps = op.steps
    if conditions is None:
        return PERFECT if op.exact else LayerErrors(None, _rounding(op, steps))
    if op.crossbar.law is not None:
        steps = tuple(step or 0 for step in steps)  # a lossless converter rounds noise
    mean, variance = _digit_errors(conditions, op.crossbar, on_off_ratio)
    off, spread = _weight_errors(op.stored, mean, variance)
    return LayerErrors((tensor(off.T), tensor(spread.T)), _rounding(op, steps))


def _digit_errors(
    conditions: Conditions, crossbar: Crossbar, on_off_ratio: float | None
) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of a cell's error by the digit that it holds, in digits."""
    noise, top = conditions.noise, crossbar.cell_maximum
    devices = Devices(noise, top, on_off_ratio, Die(conditions.seed, 0, conditions.seconds))
    digits = np.repeat(np.arange(top + 1)[:, None], SAMPLES, axis=1)
    conducting = devices.conductances(digits, "fine-tuning") / devices.unit
    off = conducting - devices.asked(digits) / devices.unit
    variance = off.var(axis=1)
    if noise.read is not None:
        variance += noise.read.sigma**2 / noise.devices * np.square(conducting).mean(axis=1)
    return off.mean(axis=1), variance


def _weight_errors(
    stored: StoredWeights, mean: FloatArray, variance: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Mean and deviation [K, N] of the errors of integer weights, in their unit."""
    off, spread = np.zeros(stored.shape), np.zeros(stored.shape)
    for cells in stored.slices:
        worth = np.empty(stored.shape)
        for group, signs in zip(stored.groups, cells.signs, strict=True):
            worth[group] = signs * float(1 << cells.shift)
        for sign in (1, -1) if stored.crossbar.by_difference else (1,):
            held = np.maximum(sign * cells.digits.astype(np.int64), 0)
            off += sign * worth * mean[held]
            spread += worth**2 * variance[held]
    return off, np.sqrt(spread)


def _rounding(op: CrossbarMvm, steps: tuple[int | None, ...]) -> float:
    """The deviation of a layer's integer sums that comes from rounding in its converters."""
    conversions = len(op.stored.groups)
    drive = sum(4.0**cycle.shift for cycle in op.crossbar.cycles)
    total = sum(
        4.0 ** (step + cells.shift)
        for cells, step in zip(op.stored.slices, steps, strict=True)
        if step is not None
    )
    return float(np.sqrt(conversions * drive * total / 12))
