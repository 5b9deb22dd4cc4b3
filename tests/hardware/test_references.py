"""AdcReferences of converters that are set: any step, from any offset."""

from __future__ import annotations

from fractions import Fraction
from math import floor

import numpy as np
from crossbars import PLAIN, changed, mvm
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from random_crossbars import (
    CONVERTING,
    MEASURED,
    drawn,
    input_limits,
    random_levels,
    weight_limits,
)

from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.references import REFERENCE_BITS, AdcReferences
from cimtool.hardware.stored import StoredWeights
from cimtool.ir.types import integer

KINDS = ("slice", "column", "gain", "cycle", "levels")
SEEDS = st.integers(0, 2**32 - 1)


def set_at_random(
    rng: np.random.Generator, hardware: Crossbar, rows: int, columns: int
) -> tuple[AdcReferences | None, ...]:
    """Steps and offsets of all kinds about the sums that there are."""
    found: list[AdcReferences | None] = []
    groups = len(hardware.tiling.groups(rows))
    for k, one in enumerate(hardware.no_references):
        width = columns if k < hardware.reference_of(hardware.slices, 0) else 1
        shape, alike = (groups, width) if rng.integers(2) else (1, 1), not hardware.scope.gains
        step = rng.integers(1, 1 << rng.integers(1, 9), (1, 1) if alike else (groups, width))
        step <<= hardware.fraction_bits
        offset = rng.integers(-9 * int(step.max()), 9 * int(step.max()), shape)
        levels = random_levels(rng, hardware.law) if hardware.scope.levels else None
        found.append(one if rng.integers(5) == 0 else AdcReferences(step, offset, levels))
    return tuple(found)


def test_a_conversion_by_hand() -> None:
    """Sums 3, 9 and 30 in codes 0 to 7 of 2.5 digits from 2 digits on."""
    hardware = changed(
        PLAIN, encoding="differential", cell_bits=7, dac_bits=8, input_encoding="unsigned",
        adc_bits=3, rounding="half-up", adc_on="polarity", references="column",
    )  # fmt: skip
    assert hardware.places == REFERENCE_BITS
    stored = StoredWeights(np.array([[3, 9, 30]]), hardware)
    ten, eight = np.full((1, 1), 10), np.full((1, 3), 8)  # quarters of a digit
    x = np.ones((1, 1), np.int64)
    found = hardware.read(np.array([[3, 9, 30]]), AdcReferences(ten, eight), 0)
    # (3 - 2) / 2.5 = 0.4 and (9 - 2) / 2.5 = 2.8 are codes 0 and 3; 30 is beyond code 7.
    assert found.tolist() == [[8, 8 + 30, 8 + 70]]
    zero = AdcReferences.from_zero(1 << REFERENCE_BITS)
    # 2, 9.5 and 19.5 digits: whole digits again, halves up, only where the layer's sum is made.
    assert mvm(x, stored, (AdcReferences(ten, eight), zero)).tolist() == [[2, 10, 20]]


@settings(max_examples=examples(100))
@given(CONVERTING, st.sampled_from(KINDS), st.integers(1, 12), SEEDS)
def test_the_contract_in_fractions(hardware: Crossbar, kind: str, rows: int, seed: int) -> None:
    """Every reading of a column sum in exact arithmetic, and the sum of all."""
    rng = np.random.default_rng(seed)
    hardware = changed(hardware, references=kind, offset_sum="digital", leak=0)
    law = hardware.law
    assert law is not None
    weight = drawn(rng, weight_limits(hardware), (rows, 2))
    x = drawn(rng, input_limits(hardware), (3, rows))
    stored = StoredWeights(weight, hardware)
    references = set_at_random(rng, hardware, rows, 2)
    unit = Fraction(1, 1 << REFERENCE_BITS)
    weights, totals = hardware.weights, [[Fraction(0)] * 2 for _ in x]
    for c, (digits, cycle) in enumerate(zip(hardware.digits(x), hardware.cycles, strict=True)):
        for r, group in enumerate(stored.groups):
            for i, j in np.ndindex(len(x), 2):
                driven = int(digits[i, group].sum())
                for k, cells in enumerate(stored.slices):
                    one = references[k * (len(references) // hardware.slices)]
                    if kind == "cycle":
                        one = references[k * len(hardware.cycles) + c]
                    p = Fraction(int(digits[i, group] @ cells.digits[group, j].astype(np.int64)))
                    if one is not None:
                        step, offset = (int(part[j % len(part)]) * unit for part in one.of_group(r))
                        places = (p - offset) / step
                        half = {
                            "half-up": floor(places + Fraction(1, 2)),
                            "half-even": round(places),
                            "floor": floor(places),
                        }[law.rounding]  # type: ignore[union-attr]
                        if one.levels is None:
                            p = min(max(half, law.lo), law.hi) * step + offset
                        else:
                            code = sum(t <= places for t in one.levels.thresholds.tolist())
                            p = int(one.levels.levels[code]) * step + offset
                    if cells.flipped[r, j]:
                        p = weights.complement * driven - p
                    totals[i][j] += cycle.factor * cells.worth * p
                totals[i][j] -= cycle.factor * weights.offset * driven
    expected = [[floor(total + Fraction(1, 2)) for total in row] for row in totals]
    found = mvm(x, stored, references) + stored.correction
    assert found.tolist() == expected


@settings(max_examples=examples(150))
@given(st.one_of(CONVERTING, MEASURED), st.sampled_from(KINDS), st.integers(1, 15), SEEDS)
def test_no_run_leaves_the_bounds(hardware: Crossbar, kind: str, rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    hardware = changed(hardware, references=kind)
    (low, high), weights = input_limits(hardware), weight_limits(hardware)
    weight, x = drawn(rng, weights, (rows, 3)), drawn(rng, (low, high), (20, rows))
    x[:3] = np.where(weight.T > 0, high, low)
    x[3:6] = np.where(weight.T > 0, low, high)
    references = set_at_random(rng, hardware, rows, 3)
    stored = StoredWeights(weight, hardware)
    op = CrossbarMvm(stored, np.zeros(3, np.int64), np.ones(3), references)
    known, found = op.infer(integer(("n", rows), low, high, 1.0)), op.run(x)
    assert (found >= known.lo).all()
    assert (found <= known.hi).all()


def test_fixed_references_have_no_binary_places() -> None:
    assert changed(PLAIN, adc_bits=5).reference_bits == 0
    assert changed(PLAIN, references="column").reference_bits == 0  # lossless
    assert changed(PLAIN, references="column", adc_bits=5).reference_bits == REFERENCE_BITS
