"""Kernels besides those of a layer with converters, each on numbers drawn beside such a layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from unittest.mock import patch

import numpy as np
from crossbars import at_steps, changed
from random_crossbars import FORMS, drawn, input_limits, weights_of_form
from random_layers import random_references

from cimtool.base.arrays import Array, IntArray
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.noise.die import Arrays, Die
from cimtool.hardware.noise.mvm import NoisyMvm
from cimtool.hardware.noise.spec import Noise
from cimtool.hardware.stored import StoredWeights
from cimtool.ir.arithmetic import MatMul
from cimtool.ir.types import integer
from cimtool.simulation.die_program import Conditions, LayerOnArrays, noisy_layer
from cimtool.simulation.kernels import noisy, paired
from cimtool.simulation.kernels.choice import FUSED_KERNELS, candidate_of
from cimtool.simulation.kernels.conversions import ConversionKernel
from cimtool.simulation.kernels.operations import fast_kernel

WIDE = np.array(1 << 50)
"""Limits of outputs that hide no difference."""

Case = tuple[Array, Array] | None
"""Outputs of a kernel and of the readable operation; None where the kernel is not for it."""


def noisy_case(op: CrossbarMvm, x: Array, rng: np.random.Generator) -> Case:
    """The layer on a die, read with fresh noise, by the kernel of bytes."""
    die = _on_die(op, x, rng)
    kernel = noisy.noisy_cells(die)
    return None if kernel is None else (kernel(x), die.run(x))


def conversions_case(op: CrossbarMvm, x: Array, rng: np.random.Generator) -> Case:
    """The same by the kernel that takes any layer."""
    if op.crossbar.unit_column:
        return None  # no target has one with noise
    die = _on_die(op, x, rng)
    return ConversionKernel(die)(x), die.run(x)


def any_form(rng: np.random.Generator, limits: tuple[int, int], shape: tuple[int, int]) -> IntArray:
    """Random numbers, every other time mixed ones."""
    form = FORMS[rng.integers(len(FORMS))] if rng.integers(2) else FORMS[0]
    return weights_of_form(rng, form, limits, shape)


def _on_die(op: CrossbarMvm, x: Array, rng: np.random.Generator) -> NoisyMvm:
    noise = Noise.model_validate({
        "source": "a test", "g_max": 20.0, "programming": {"sigma": [0.1]},
        "read": {"sigma": 0.05, "redraw": str(rng.choice(["cycle", "mvm"]))},
    })  # fmt: skip
    known = integer(("n", x.shape[1]), *input_limits(op.crossbar), 1.0)
    place = LayerOnArrays("text.fc1", "text.fc1", Arrays(None, "columns", None))
    seed = int(rng.integers(1 << 30))
    made = noisy_layer(op, known, place, Conditions(noise, 0.0, "none", seed), Die(seed, 0, 0.0))
    return replace(made, lo=-WIDE, hi=WIDE)


def pair_case(op: CrossbarMvm, x: Array, rng: np.random.Generator) -> Case:
    """Inner products of the layer's inputs and rows of up to two bytes."""
    most = 1 << int(rng.integers(1, 17))
    limits = [(0, most - 1), (1 - most // 2 - most % 2, most // 2)][rng.integers(2)]
    y = any_form(rng, limits, (int(rng.integers(1, 70)), x.shape[1]))
    x = x[:, : y.shape[1]]
    types = tuple(
        integer((rows, x.shape[1]), *ends, 1.0)
        for rows, ends in (("n", input_limits(op.crossbar)), ("m", limits))
    )
    return fast_kernel(MatMul(), types)(x, y), MatMul().run(x, y)


def serial_case(op: CrossbarMvm, x: Array, rng: np.random.Generator) -> Case:
    """The layer's weights on an array of few-bit cells and one bit a cycle, two cycles at once."""
    hardware = changed(
        op.crossbar, dac_bits=1, cell_bits=int(rng.integers(1, 4)),
        input_bits=2 * int(rng.integers(1, 5)), references="slice",
    )  # fmt: skip
    converts = hardware.law is not None
    steps = [int(step) if converts else None for step in rng.integers(0, 6, hardware.slices)]
    unit = 0 if converts and hardware.unit_column else None
    references = random_references(rng, at_steps(hardware, steps, unit), hardware, *op.weight.shape)
    made = replace(op, stored=StoredWeights(op.weight, hardware), references=references)
    candidate = candidate_of(made.layer)
    if candidate is None or not paired.fits(candidate.layer):
        return None
    rows = drawn(rng, input_limits(hardware), (len(x), x.shape[1]))
    with patch.dict(FUSED_KERNELS, {"two cycles": paired}, clear=True):
        kernel = fast_kernel(made, (integer(("n", x.shape[1]), *input_limits(hardware), 1.0),))
    return kernel(rows), made.run(rows)


CASES: dict[str, Callable[[CrossbarMvm, Array, np.random.Generator], Case]] = {
    "noisy": noisy_case,
    "conversions": conversions_case,
    "pair products": pair_case,
    "bit-serial": serial_case,
}
