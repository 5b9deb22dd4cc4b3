"""Random crossbars, and weights and inputs that fill what their codes carry."""

from __future__ import annotations

from typing import Any

import numpy as np
from crossbars import changed, crossbar_of
from hypothesis import strategies as st

from cimtool.base.arrays import IntArray
from cimtool.hardware.converters import Law, StaircaseLaw
from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.references import LEVEL_SPAN_BITS
from cimtool.simulation.kernels.choice import CHECKED_COLUMNS, CHECKED_ROWS

ENCODINGS = (
    "differential",
    "offset",
    "offset-flip",
    "centred",
    "ternary",
    "twos-complement",
    "sign-magnitude",
)
"""Codes that hold every integer; of others `random_layers` draws weights."""
INPUTS = ("unsigned", "twos-complement", "offset", "bipolar")
ROUNDINGS = ("half-up", "half-even", "floor")

EXTRAS = {
    "rows_active": st.one_of(st.none(), st.integers(1, 9)),
    "adc_on": st.sampled_from(["difference", "polarity"]),
    "shift_add": st.sampled_from(["digital", "analog"]),
    "offset_sum": st.sampled_from(["digital", "unit-column"]),
    "unused_rows": st.sampled_from(["off", "driven"]),
}


def possible(hardware: Crossbar) -> Crossbar:
    """The crossbar without leak where a target with it is refused."""
    if hardware.unit_column or not hardware.weights.analog:
        return changed(hardware, leak=0)
    return hardware


def crossbar_with(**keys: Any) -> Crossbar:
    """The crossbar of these keys, with cells of one bit for a code that has no others."""
    if keys["encoding"] == "ternary":
        keys["cell_bits"] = 1
    return possible(crossbar_of(**keys))


CROSSBARS = st.builds(
    crossbar_with,
    rows=st.one_of(st.none(), st.integers(1, 9)),
    cell_bits=st.integers(1, 8),
    dac_bits=st.integers(1, 9),
    encoding=st.sampled_from(ENCODINGS),
    weight_bits=st.integers(2, 16),
    input_encoding=st.sampled_from(INPUTS),
    input_bits=st.integers(2, 16),
    adc_bits=st.none(),
    rounding=st.sampled_from(ROUNDINGS),
    accumulator_bits=st.just(62),
    leak=st.sampled_from([0, 0, 1, 777, 1 << 20]),
    **EXTRAS,
)

CONVERTING = st.builds(
    crossbar_with,
    rows=st.one_of(st.none(), st.integers(1, 9)),
    cell_bits=st.integers(1, 4),
    dac_bits=st.integers(1, 4),
    encoding=st.sampled_from(ENCODINGS[:5]),
    weight_bits=st.integers(2, 8),
    input_encoding=st.sampled_from(INPUTS),
    input_bits=st.integers(2, 8),
    adc_bits=st.integers(1, 8),
    rounding=st.sampled_from(ROUNDINGS),
    accumulator_bits=st.just(62),
    leak=st.sampled_from([0, 0, 1, 777, 1 << 14]),
    **EXTRAS,
)


def random_transfer(rng: np.random.Generator, bits: int) -> tuple[int, ...]:
    """Thresholds of a converter that is ideal, or off by noise, offset and missing codes."""
    ideal = 16 * np.arange((1 << bits) - 1) + 8
    if rng.integers(4) == 0:
        return tuple(ideal.tolist())
    off = rng.integers(-40, 40, ideal.size) + rng.integers(-100, 100)
    return tuple(np.sort(ideal + off).tolist())


def measured(hardware: Crossbar, seed: int) -> Crossbar:
    """The crossbar with a measured converter of as many bits."""
    bits = hardware.converter.bits
    assert bits is not None
    transfer = random_transfer(np.random.default_rng(seed), bits)
    return changed(hardware, rounding=None, transfer=transfer)


MEASURED = st.builds(measured, CONVERTING, st.integers(0, 2**32 - 1))


def random_levels(rng: np.random.Generator, law: Law | None) -> StaircaseLaw:
    """Any rising thresholds and values, of which neither need lie between the others."""
    assert law is not None
    codes = law.hi + 1 - law.lo
    most = codes << int(rng.integers(1, LEVEL_SPAN_BITS + 1))
    drawn = (rng.choice(2 * most - 1, n, replace=False) - most + 1 for n in (codes - 1, codes))
    thresholds, values = map(np.sort, drawn)
    return StaircaseLaw(law.lo, thresholds, values, places=0)


def input_limits(hardware: Crossbar) -> tuple[int, int]:
    """The smallest and largest input that the code can carry."""
    half = 1 << hardware.inputs.bits - 1
    if hardware.inputs.name == "unsigned":
        return 0, 2 * half - 1
    return (1 - half if hardware.inputs.name == "bipolar" else -half), half - 1


def weight_limits(hardware: Crossbar) -> tuple[int, int]:
    """The smallest and largest weight that the code can hold."""
    half = 1 << hardware.weights.bits - 1
    symmetric = hardware.weights.symmetric
    return (1 - half if symmetric else -half), half - 1


def drawn(rng: np.random.Generator, limits: tuple[int, int], shape: tuple[int, int]) -> IntArray:
    """Random numbers within limits, many of them at a limit."""
    inner = rng.integers(*limits, shape, endpoint=True)
    return np.where(rng.random(shape) < 0.4, rng.choice(limits, shape), inner)


FORMS = (
    *("mixed", "zeros", "largest", "least", "one row", "one column"),
    *("first zeros", "first largest", "first least"),
)
"""Forms of a layer's weights: mixed, all the same, a single row or column, and mixed ones whose
first rows and columns, by which a kernel is checked, are all the same."""


def weights_of_form(
    rng: np.random.Generator, form: str, limits: tuple[int, int], shape: tuple[int, int]
) -> IntArray:
    """Weights of one of `FORMS`; of `shape`, or one row or column of it."""
    weight = drawn(rng, limits, shape)
    if form == "one row":
        return weight[:1]
    if form == "one column":
        return weight[:, :1]
    where = (slice(CHECKED_ROWS), slice(CHECKED_COLUMNS)) if form.startswith("first ") else ...
    same = {"zeros": 0, "least": limits[0], "largest": limits[1]}
    if form != "mixed":
        weight[where] = same[form.removeprefix("first ")]
    return weight
