"""Rounded weights make outputs and logits err less than nearest integers, the same everywhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threads import threads_of

from cimtool import api
from cimtool.demo.data import DemoFiles
from cimtool.ir.format import round_half_up
from cimtool.passes.gradients import LayerGradients
from cimtool.passes.moments import Factors, SecondMoments
from cimtool.passes.rounding import (
    BLOCK,
    GAIN_ROWS,
    GAIN_STEPS,
    PANEL,
    Evidence,
    LayerRows,
    Rounder,
    gain,
    least_error_weights,
    rounded_back,
)
from cimtool.passes.weight_grids import WeightGrid

N, K, COLUMNS, LIMIT = 400, 40, 12, 7


def whole(limit: int) -> WeightGrid:
    """Whole numbers up to a limit of at most 7."""
    return WeightGrid(np.ones((1, 1)), limit, precision=3)


WHOLE = whole(LIMIT)

Rng = np.random.Generator


def correlated(rng: Rng, count: int) -> np.ndarray:
    """Integer rows in which a few directions hold most of the energy, far from zero."""
    mixing = np.random.default_rng(9).normal(size=(5, K))
    rows = rng.normal(size=(count, 5)) @ mixing * 20 + rng.normal(size=(count, K)) * 4
    return np.rint(rows + 15).astype(np.int64)


def least(
    target: np.ndarray, rows: np.ndarray, centred: bool, units: np.ndarray, grid: WeightGrid = WHOLE
) -> tuple[np.ndarray, np.ndarray]:
    """Weights and units for rows of which no gradient is known."""
    known = LayerRows(rows, None, centred)
    return least_error_weights(target, np.ones(target.shape[1]), known, grid, units)


def halves(rows: np.ndarray) -> tuple[Evidence, Evidence]:
    known = LayerRows(rows, None, True)
    return Evidence.of(known, 0), Evidence.of(known, 1)


def error(rows: np.ndarray, difference: np.ndarray, centred: bool) -> float:
    errors = rows @ difference
    return float(np.square(errors - errors.mean(axis=0) * centred).mean())


@pytest.mark.parametrize("centred", [True, False])
def test_the_output_of_unseen_rows_errs_less(centred: bool) -> None:
    rng = np.random.default_rng(0)
    rows, unseen = correlated(rng, N), correlated(rng, N)
    target = rng.normal(size=(K, COLUMNS)) * 3
    nearest = np.clip(round_half_up(target), -LIMIT, LIMIT)
    found, units = least(target, rows, centred, np.ones(COLUMNS))
    assert found.dtype == np.int64
    assert np.abs(found).max() <= LIMIT
    errors = [error(unseen, q - target, centred) for q in (found * units, nearest)]
    assert errors[0] < 0.5 * errors[1]


def test_inputs_that_have_nothing_in_common_are_rounded_to_the_nearest() -> None:
    rows = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]]) * 8
    target = np.array([[2.4, -7.6], [0.5, 9.0]])
    found, units = least(target, rows, True, np.ones(2))
    assert found.tolist() == [[2, -7], [1, 7]]
    assert units.tolist() == [1, 1]


def test_rows_of_zeros_are_rounded_to_the_nearest() -> None:
    rows, target = np.zeros((3 * GAIN_ROWS, 2), int), np.array([[1.2], [-0.6]])
    found, units = least(target, rows, True, np.ones(1))
    assert found.tolist() == [[1], [-1]]
    assert units.tolist() == [1]


@st.composite
def layers(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int, np.ndarray]:
    """Real weights whose columns reach a limit, integer rows, few or many, and least units."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size, columns, limit = (
        draw(st.integers(1, 40)),
        draw(st.integers(1, 9)),
        draw(st.integers(1, 7)),
    )
    rows = rng.integers(-100, 101, size=(draw(st.integers(1, 80)), size))
    rows *= rng.integers(0, 2, size=size)  # some inputs are dead
    target = rng.standard_t(3, size=(size, columns))
    target *= limit / np.abs(target).max(axis=0)
    return target, rows, limit, rng.choice([0.3, 0.8, 1.0], size=columns)


@pytest.mark.thorough("many draws")
@given(layers(), st.booleans())
def test_no_column_errs_more_than_in_its_full_range(
    layer: tuple[np.ndarray, np.ndarray, int, np.ndarray], centred: bool
) -> None:
    target, rows, limit, least = layer
    factors, grid = SecondMoments.of(rows, centred).factors(), whole(limit)
    rounder = Rounder(factors, None)
    units = rounder.least_error_units(target, grid, least)
    assert np.all(units >= least)
    found = rounder.rounded(target / units, units, grid)
    assert np.abs(found).max() <= limit
    _, full = rounded_back(target[factors.order], factors, grid, None)
    left = np.triu(factors.upper) @ (target - found * units)[factors.order]
    errors = factors.pivots @ np.square(left)
    assert np.all(errors <= full * (1 + 1e-9) + 1e-9)


def test_few_bits_clip_the_largest_weights_and_err_less_on_unseen_rows() -> None:
    rng = np.random.default_rng(3)
    rows, unseen = correlated(rng, N), correlated(rng, N)
    target = rng.normal(size=(K, COLUMNS))
    target *= LIMIT / np.abs(target).max(axis=0)
    (full, one), (found, units) = (
        least(target, rows, True, np.full(COLUMNS, smallest)) for smallest in (1.0, 0.0)
    )
    np.testing.assert_allclose(one, one[0])  # the gain alone
    assert np.unique(units).size > 1
    assert units.min() < 0.9
    errors = [error(unseen, q - target, True) for q in (found * units, full * one)]
    assert errors[0] < 0.9 * errors[1]


def test_outputs_of_unseen_rows_keep_their_size() -> None:
    rng = np.random.default_rng(4)
    rows, unseen = correlated(rng, 2 * K), correlated(rng, N)
    target = rng.standard_t(3, size=(K, 200))
    target *= 1 / np.abs(target).max(axis=0)
    found, units = least(target, rows, True, np.zeros(200), whole(1))
    shares = Rounder(SecondMoments.of(rows, True).factors(), None).least_error_units(
        target, whole(1), np.zeros(200)
    )
    factor = gain(target / shares, shares, halves(rows), whole(1))
    np.testing.assert_array_equal(units, shares * factor)
    assert factor * GAIN_STEPS == int(factor * GAIN_STEPS)

    def size(weights: np.ndarray) -> float:
        real = unseen @ target - (unseen @ target).mean(axis=0)
        return float((real * (unseen @ weights)).sum() / np.square(real).sum())

    with_gain, without = (abs(size(found * own) - 1) for own in (units, units / factor))
    assert with_gain < 0.7 * without


def test_too_few_rows_tell_no_size() -> None:
    rng = np.random.default_rng(5)
    target, rows = rng.normal(size=(K, 3)), correlated(rng, 2 * GAIN_ROWS - 1)
    assert gain(target, np.full(3, 0.7), halves(rows), WHOLE) == 1
    assert gain(target, np.full(3, 0.7), halves(np.repeat(rows, 2, axis=0)), WHOLE) != 1


def test_many_bits_lose_no_size() -> None:
    rng = np.random.default_rng(5)
    target, rows = rng.normal(size=(K, 30)), correlated(rng, N)
    assert not np.any(least(target, rows, True, np.ones(30), whole(15))[1] == 1)
    assert np.all(least(target * 4, rows, True, np.ones(30), whole(16))[1] == 1)


@pytest.mark.thorough("more threads than a quiet core has")
def test_the_number_of_threads_changes_no_byte(medium_trunk: DemoFiles, tmp_path: Path) -> None:
    files, contents = medium_trunk, []
    for threads in (1, 2):
        place = tmp_path / str(threads)
        with threads_of(threads):
            api.compile(
                files.projectors, files.poly, calibration=files.calibration,
                target="isaac-rram-128", weight_bits=4, weight_rounding="gptq",
                output=place,
            )  # fmt: skip
        contents.append({path.name: path.read_bytes() for path in place.iterdir()})
    assert contents[0] == contents[1]
    assert contents[0]


def plainly(
    target: np.ndarray, upper: np.ndarray, right: np.ndarray, grid: WeightGrid
) -> np.ndarray:
    """As the docstring says it: what the others leave of `U (t - q) V^T` is rounded away."""
    found = target.copy()
    for k in reversed(range(len(target))):
        for n in reversed(range(target.shape[1])):
            owed = (upper @ (target - found) @ right.T)[k, n]
            one = np.array([k])
            nearest = grid.taken(one, np.array([n])).nearest(target[[k], n : n + 1] + owed)
            found[k, n] = nearest[0, 0]
    return found


def quarters(rng: Rng, size: int) -> np.ndarray:
    """An upper triangle, its diagonal 1, whose products with eighths are exact."""
    return np.triu(rng.integers(-1, 2, size=(size, size)) / 4.0, 1) + np.eye(size)


def grid_of(kind: str, rng: Rng, shape: tuple[int, int]) -> WeightGrid:
    if kind == "whole":
        return WHOLE
    steps = 2.0 ** rng.integers(-3, 1, size=shape)
    return WeightGrid(steps, *{"shared exponents": (7, 3), "floats": (12, 2)}[kind])


@pytest.mark.parametrize("kind", ["whole", "shared exponents", "floats"])
def test_each_row_makes_up_for_those_after_it(kind: str) -> None:
    rng = np.random.default_rng(0)
    size, columns = PANEL + 7, 2 * BLOCK + 7
    grid = grid_of(kind, rng, (size, columns))
    upper = quarters(rng, size)
    target = rng.integers(-30, 31, size=(size, columns)) / 8.0
    pivots = rng.integers(1, 9, size=size).astype(np.float64)
    factors = Factors(np.arange(size), upper, pivots)
    found, errors = rounded_back(target, factors, grid, None)
    some = [0, 1, BLOCK, columns - 1]
    plain = plainly(target[:, some], upper, np.eye(4), grid.taken(np.arange(size), np.array(some)))
    np.testing.assert_array_equal(found[:, some], plain)
    left = np.square(upper @ (target - found))
    np.testing.assert_allclose(errors, pivots @ left, rtol=1e-9)
    again, _ = rounded_back(target, factors, grid, np.eye(columns))
    np.testing.assert_array_equal(again, found)


@pytest.mark.parametrize("kind", ["whole", "shared exponents", "floats"])
@pytest.mark.parametrize("shape", [(3, 5), (PANEL + 3, 6), (5, BLOCK + 3)])
def test_each_number_makes_up_for_those_of_other_columns_too(
    kind: str, shape: tuple[int, int]
) -> None:
    rng = np.random.default_rng(shape[0])
    grid = grid_of(kind, rng, shape)
    upper, right = (quarters(rng, size) for size in shape)
    target = rng.integers(-30, 31, size=shape) / 8.0
    factors = Factors(np.arange(shape[0]), upper, np.ones(shape[0]))
    found, errors = rounded_back(target, factors, grid, np.ascontiguousarray(right.T))
    np.testing.assert_array_equal(found, plainly(target, upper, right, grid))
    left = np.square(upper @ (target - found) @ right.T)
    np.testing.assert_allclose(errors, left.sum(axis=0), rtol=1e-9)


def test_logits_of_unseen_rows_err_less_where_they_change_in_few_directions() -> None:
    rng = np.random.default_rng(7)
    rows, unseen = correlated(rng, N), correlated(rng, N)
    scale = 2.0 ** rng.integers(-2, 3, size=COLUMNS)
    target = rng.normal(size=(K, COLUMNS)) * 2
    mixing = rng.normal(size=(3, COLUMNS)) / scale
    drawn, new = (rng.normal(size=(N, 3)) @ mixing * 1000 for _ in range(2))
    gradients = LayerGradients(np.rint(drawn).astype(np.int64), np.zeros((N, COLUMNS)))
    errors = {}
    for known in (None, gradients):
        layer = LayerRows(rows, known, True)
        found, units = least_error_weights(target, scale, layer, WHOLE, np.ones(COLUMNS))
        off = (unseen - unseen.mean(axis=0)) @ ((found * units - target) * scale)
        errors[known is None] = float(np.square((off * new).sum(axis=1)).mean())
    assert errors[False] < 0.4 * errors[True]


def test_the_mean_logit_tells_the_size_of_outputs() -> None:
    """Outputs keep the size that the mean gradient sees, where single pairs see another."""
    rng = np.random.default_rng(8)
    rows = correlated(rng, 2 * K)
    target = rng.standard_t(3, size=(K, 60))
    target *= 1 / np.abs(target).max(axis=0)
    drawn = rng.integers(-9, 10, size=(len(rows), 60))
    outputs = (rows - rows.mean(axis=0)) @ target
    factors = []
    for mean in (np.zeros(outputs.shape), outputs * 1000):
        layer = LayerRows(rows, LayerGradients(drawn, mean), True)
        seen = Evidence.of(layer, 0), Evidence.of(layer, 1)
        factors.append(gain(target, np.ones(60), seen, whole(1)))
        own = Rounder.of(layer, seen)
        assert own.rounded(target, np.ones(60), whole(1)).shape == target.shape
    assert factors[0] != factors[1]
    # The second is the factor for which the mean logit of the other half does not move.
    one, two = (Evidence.of(layer, k) for k in (0, 1))
    moved = total = 0.0
    for mine, other in ((one, two), (two, one)):
        rounded = Rounder.of_half(mine).rounded(target, np.ones(60), whole(1))
        moved += float((other.along * rounded).sum()) * float((other.along * target).sum())
        total += float((other.along * target).sum()) ** 2
    assert factors[1] == pytest.approx(total / moved, abs=2e-3)


def test_tokens_of_an_item_stay_in_one_half() -> None:
    rows = np.arange(12)[:, None]
    layer = LayerRows(rows, LayerGradients(rows, rows / 2), True, of_item=3)
    one, other = (Evidence.of(layer, k) for k in (0, 1))
    assert one.inputs.rows[:, 0].tolist() == [0, 1, 2, 6, 7, 8]
    assert other.inputs.rows[:, 0].tolist() == [3, 4, 5, 9, 10, 11]
    assert one.outputs is not None
    assert one.outputs.rows.tolist() == one.inputs.rows.tolist()
    assert one.along is not None
    assert one.along.tolist() == [[14.5]]  # of two items
