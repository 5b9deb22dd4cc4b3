"""Bounds of column sums, and what conversions make of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from crossbars import PLAIN, at_steps, changed, mvm
from drawn import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from random_crossbars import CONVERTING, MEASURED, drawn, input_limits, weight_limits

from cimtool.hardware.bounds import column_bounds, conversion_error, full_scale, lossless
from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.references import REFERENCE_BITS, AdcReferences
from cimtool.hardware.stored import StoredWeights


def isaac(encoding: str, adc_bits: int = 8) -> Crossbar:
    return changed(PLAIN, rows=128, encoding=encoding, adc_bits=adc_bits, cell_bits=2, dac_bits=1)


def is_lossless(stored: StoredWeights) -> bool:
    """True where no conversion can change the sums of any slice."""
    return all(
        lossless(bounds, stored.crossbar, len(stored.weight)) for bounds in stored.cells.bounds
    )


@settings(max_examples=examples(50))
@given(st.integers(0, 2**32 - 1), st.sampled_from([(-128, 127), (127, 127), (-128, -128), (0, 0)]))
def test_isaac_is_lossless_with_flips_for_every_weight(seed: int, limits: tuple[int, int]) -> None:
    rng = np.random.default_rng(seed)
    weight = drawn(rng, limits, (300, 3))
    stored = StoredWeights(weight, isaac("offset-flip"))
    assert is_lossless(stored)
    x = drawn(rng, (-128, 127), (2, 300))
    np.testing.assert_array_equal(mvm(x, stored, at_steps(stored.crossbar, (0,) * 4)), x @ weight)


def test_isaac_without_flips_or_with_a_bit_less_is_not_lossless() -> None:
    weight = np.full((128, 1), 127)
    assert not is_lossless(StoredWeights(weight, isaac("offset")))
    half = np.where(np.arange(128) % 2, -128, 127)[:, None]
    assert not is_lossless(StoredWeights(half, isaac("offset-flip", 7)))
    x = np.full((1, 128), -1)
    stored = StoredWeights(weight, isaac("offset"))
    assert (mvm(x, stored, at_steps(stored.crossbar, (0,) * 4)) != x @ weight).any()


@pytest.mark.parametrize(
    ("given", "quarters"),
    [
        # 2304 cells of a bit by a bit over 255 codes: 9.04 digits, in quarters 9.25.
        ({"rows": 2304, "cell_bits": 1, "encoding": "offset"}, 37),
        # Half of 128 x 3 with complements: 192 of 255 codes, and a step is at least a digit.
        ({"rows": 128, "cell_bits": 2, "encoding": "offset-flip"}, 4),
        ({"rows": 128, "cell_bits": 2, "encoding": "offset"}, 7),
        # A pair's difference: 256 x 127 x 255 over 127 codes of a signed converter.
        ({"rows": 256, "cell_bits": 7, "encoding": "differential", "dac_bits": 8}, 261_120),
    ],
)
def test_the_full_scale_is_what_an_array_can_sum(given: dict[str, int], quarters: int) -> None:
    inputs = "unsigned" if given.get("dac_bits") else "twos-complement"
    crossbar = changed(PLAIN, **{"adc_bits": 8, "dac_bits": 1, "input_encoding": inputs, **given})
    law = crossbar.law
    assert law is not None
    assert full_scale(law, crossbar, 10) == quarters
    cut = replace(crossbar, tiling=replace(crossbar.tiling, active=crossbar.tiling.height // 2))
    assert full_scale(law, cut, 10) == max(-(-quarters // 2), 4)


@settings(max_examples=examples(100))
@given(CONVERTING, st.integers(1, 15), st.integers(0, 2**32 - 1))
def test_no_sum_is_beyond_the_full_scale(crossbar: Crossbar, rows: int, seed: int) -> None:
    whole, law = replace(crossbar, references="full-scale"), crossbar.law
    assert law is not None
    assume(law.ends[1])  # the codes -1 and 0 of one signed bit cover nothing above zero
    rng = np.random.default_rng(seed)
    stored = StoredWeights(drawn(rng, weight_limits(whole), (rows, 3)), whole)
    step = full_scale(law, whole, rows)
    lo, hi = (end * step for end in law.ends)
    for least, most in stored.cells.bounds[: len(stored.slices)]:
        assert lo <= least.min() << REFERENCE_BITS
        assert most.max() << REFERENCE_BITS <= hi
        if lossless((least, most), whole, rows):
            assert step == 1 << REFERENCE_BITS


@settings(max_examples=examples(200))
@given(
    st.one_of(CONVERTING, MEASURED),
    st.integers(1, 15),
    st.integers(0, 8),
    st.integers(0, 2**32 - 1),
)
def test_column_bounds_and_conversion_errors_hold(
    hardware: Crossbar, rows: int, step: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    weight = drawn(rng, weight_limits(hardware), (rows, 3))
    x = drawn(rng, input_limits(hardware), (8, rows))
    idle = hardware.column_leak * hardware.tiling.idle(rows)
    references = AdcReferences.from_zero(1 << step + hardware.fraction_bits)
    law = hardware.law
    assert law is not None
    stored = StoredWeights(weight, hardware)
    for cells, bounds in zip(stored.cells.slices, stored.cells.bounds, strict=False):
        down, up = column_bounds(cells.digits, hardware, stored.cells.idle_sums)
        np.testing.assert_array_equal((down, up), bounds)
        error = conversion_error(bounds, law, references.step, references.offset, 0)
        fits = lossless(bounds, hardware, rows)
        ends = [hardware.read(edge, references, 0) for edge in bounds]
        zeros = hardware.zero_digits
        for digits, zero in zip(hardware.digits(x), zeros, strict=True):
            for r, group in enumerate(hardware.tiling.groups(rows)):
                p = digits[:, group] @ cells.digits[group] + idle[r] * zero
                assert (p >= down[r]).all()
                assert (p <= up[r]).all()
                stands_for = law.codes(p, references.step) * references.step
                assert (np.abs(stands_for - p) <= error[r]).all()
                assert (ends[0][r] <= stands_for).all()
                assert (stands_for <= ends[1][r]).all()
                np.testing.assert_array_equal(hardware.read(p, references, r), stands_for)
                if fits:
                    np.testing.assert_array_equal(law.codes(p, 1), p)


def test_a_measured_converter_is_never_proved_lossless() -> None:
    stored = StoredWeights(np.array([[1], [-1]]), changed(PLAIN, rows=2, adc_bits=4))
    table = changed(stored.crossbar, transfer=tuple(range(8, 15 * 16, 16)))
    assert is_lossless(stored)
    assert not is_lossless(StoredWeights(stored.weight, table))
    assert is_lossless(StoredWeights(stored.weight, PLAIN))


def test_the_unit_column_sums_the_digits() -> None:
    hardware = changed(PLAIN, rows=4, dac_bits=3, offset_sum="unit-column")
    stored = StoredWeights(np.zeros((5, 2), np.int64), hardware)
    lo, hi = stored.cells.bounds[-1]
    assert lo.tolist() == [[0], [0]]
    assert hi.tolist() == [[4 * 7], [7]]
