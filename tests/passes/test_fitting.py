"""Levels: moved from equal steps to where the sums are."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from cimtool.base.arrays import FloatArray, IntArray
from cimtool.hardware.converters import UniformLaw
from cimtool.hardware.references import SCOPES, AdcReferences
from cimtool.passes.fitting import WeightedSums, fitted_levels

LAW = UniformLaw(0, 3, "half-up")


def sums_of(values: IntArray, weights: FloatArray) -> WeightedSums:
    def sums(references: AdcReferences) -> Iterator[tuple[IntArray, FloatArray]]:
        yield values - references.offset[0], weights

    return sums


def test_four_clusters_get_a_code_each() -> None:
    """Sums at 3, 5, 40 and 41, where equal steps have room for two of them."""
    values = np.repeat([3, 5, 40, 41], [5, 5, 5, 5])
    start = AdcReferences.from_zero(14).with_equal_levels(LAW)
    found = fitted_levels(start, sums_of(values, np.ones(20)))
    np.testing.assert_array_equal(found.read(LAW, values, 0), values)


def test_what_counts_more_is_read_finer() -> None:
    """Eight sums alike, of which the weight says where codes are worth most."""
    values = np.arange(0, 80, 10)
    for heavy in (slice(0, 4), slice(4, 8)):
        weights = np.ones(8)
        weights[heavy] = 1e6
        start = AdcReferences.from_zero(20).with_equal_levels(LAW)
        found = fitted_levels(start, sums_of(values, weights))
        off = np.abs(found.read(LAW, values, 0) - values)
        assert off[heavy].max() < np.delete(off, np.arange(8)[heavy]).max()


@pytest.mark.parametrize("rounding", ["half-up", "floor"])
@pytest.mark.parametrize("step", [1, 4, 7, 12, 80])
def test_equal_levels_convert_as_equal_steps_do(rounding: str, step: int) -> None:
    law = UniformLaw(-4, 3, rounding)  # type: ignore[arg-type]
    one = AdcReferences.alike(step, np.array([[3, -8]]))
    p = np.stack([np.arange(-600, 600)] * 2, axis=1)
    same = one.with_equal_levels(law)
    same.check(law, SCOPES["levels"])
    np.testing.assert_array_equal(same.read(law, p, 0), one.read(law, p, 0))
    assert (same.width, same.unclipped(law)[1] - same.unclipped(law)[0]) == (step, 8 * step - 1)
