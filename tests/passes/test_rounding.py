"""Weight rounding errs less than nearest integers, the same everywhere; corrected means meet."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_models import passed
from threads import threads_of

from cimtool import api
from cimtool.demo.data import DemoFiles
from cimtool.ir.arithmetic import Mvm
from cimtool.ir.format import round_half_up
from cimtool.ir.program import Graph
from cimtool.passes.rounding import (
    BLOCK,
    GAIN_ROWS,
    GAIN_STEPS,
    PANEL,
    LayerMoments,
    correct_bias,
    gain,
    layer_means,
    least_error_weights,
    rounded_back,
    second_moments,
    shrinkage,
    unit_triangle,
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


def error(rows: np.ndarray, difference: np.ndarray, centred: bool) -> float:
    errors = rows @ difference
    return float(np.square(errors - errors.mean(axis=0) * centred).mean())


@pytest.mark.parametrize("centred", [True, False])
def test_the_output_of_unseen_rows_errs_less(centred: bool) -> None:
    rng = np.random.default_rng(0)
    rows, unseen = correlated(rng, N), correlated(rng, N)
    target = rng.normal(size=(K, COLUMNS)) * 3
    nearest = np.clip(round_half_up(target), -LIMIT, LIMIT)
    found, units = least_error_weights(target, rows, WHOLE, centred, np.ones(COLUMNS))
    assert found.dtype == np.int64
    assert np.abs(found).max() <= LIMIT
    errors = [error(unseen, q - target, centred) for q in (found * units, nearest)]
    assert errors[0] < 0.5 * errors[1]


def test_inputs_that_have_nothing_in_common_are_rounded_to_the_nearest() -> None:
    rows = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]]) * 8
    target = np.array([[2.4, -7.6], [0.5, 9.0]])
    found, units = least_error_weights(target, rows, WHOLE, True, np.ones(2))
    assert found.tolist() == [[2, -7], [1, 7]]
    assert units.tolist() == [1, 1]


def test_rows_of_zeros_are_rounded_to_the_nearest() -> None:
    rows, target = np.zeros((3 * GAIN_ROWS, 2), int), np.array([[1.2], [-0.6]])
    found, units = least_error_weights(target, rows, WHOLE, True, np.ones(1))
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


@given(layers(), st.booleans())
def test_no_column_errs_more_than_in_its_full_range(
    layer: tuple[np.ndarray, np.ndarray, int, np.ndarray], centred: bool
) -> None:
    target, rows, limit, least = layer
    moments = LayerMoments.of(rows, centred)
    found, units = moments.least_error(target, whole(limit), least)
    assert np.abs(found).max() <= limit
    assert np.all(units >= least)
    _, full = moments.rounded(target, whole(limit))
    left = np.triu(moments.upper) @ (target - found * units)[moments.order]
    errors = moments.pivots @ np.square(left)
    assert np.all(errors <= full * (1 + 1e-9) + 1e-9)


def test_few_bits_clip_the_largest_weights_and_err_less_on_unseen_rows() -> None:
    rng = np.random.default_rng(3)
    rows, unseen = correlated(rng, N), correlated(rng, N)
    target = rng.normal(size=(K, COLUMNS))
    target *= LIMIT / np.abs(target).max(axis=0)
    (full, one), (found, units) = (
        least_error_weights(target, rows, WHOLE, True, np.full(COLUMNS, least))
        for least in (1.0, 0.0)
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
    found, units = least_error_weights(target, rows, whole(1), True, np.zeros(200))
    factor = gain(target, units, rows, whole(1), True)
    assert factor * GAIN_STEPS == int(factor * GAIN_STEPS)

    def size(weights: np.ndarray) -> float:
        real = unseen @ target - (unseen @ target).mean(axis=0)
        return float((real * (unseen @ weights)).sum() / np.square(real).sum())

    with_gain, without = (abs(size(found * own) - 1) for own in (units, units / factor))
    assert with_gain < 0.7 * without


def test_too_few_rows_tell_no_size() -> None:
    rng = np.random.default_rng(5)
    target, rows = rng.normal(size=(K, 3)), correlated(rng, GAIN_ROWS - 1)
    assert gain(target, np.full(3, 0.7), rows, WHOLE, True) == 1


def test_few_rows_are_believed_less_than_many() -> None:
    rng = np.random.default_rng(1)
    chance, many = (rng.integers(-9, 10, size=(n, K)) for n in (20, 2000))
    assert shrinkage(chance, True) > 0.7
    shares = [shrinkage(correlated(rng, n), True) for n in (10, 100, 1000)]
    assert shares == sorted(shares, reverse=True)
    assert shares[2] < 0.02
    assert shrinkage(many, True) > 0.7


def test_second_moments_are_exact() -> None:
    rng = np.random.default_rng(2)
    rows = rng.integers(-(2**15), 2**15, size=(64, 5))
    np.testing.assert_array_equal(second_moments(rows, False), (rows.T @ rows).astype(np.float64))
    centred = rows - rows.mean(axis=0)
    np.testing.assert_allclose(second_moments(rows, True), centred.T @ centred, rtol=1e-12)


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


@pytest.mark.parametrize("size", [1, 3, PANEL, PANEL + 5, 3 * PANEL + 2])
def test_the_triangle_makes_the_matrix(size: int) -> None:
    rng = np.random.default_rng(size)
    rows = rng.normal(size=(2 * size, size))
    matrix = rows.T @ rows
    upper, pivots = unit_triangle(matrix)
    upper = np.triu(upper)
    np.testing.assert_array_equal(upper.diagonal(), 1.0)
    below = np.linalg.cholesky(matrix)
    np.testing.assert_allclose(upper, (below / below.diagonal()).T, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(pivots, np.square(below.diagonal()), rtol=1e-9)


def plainly(target: np.ndarray, upper: np.ndarray, grid: WeightGrid) -> np.ndarray:
    found, errors = np.empty_like(target), np.zeros_like(target)
    for k in reversed(range(len(target))):
        wanted = target[k] + upper[k, k + 1 :] @ errors[k + 1 :]
        found[k] = grid.rows(np.array([k])).nearest(wanted[None])[0]
        errors[k] = target[k] - found[k]
    return found


def column_of(grid: WeightGrid, column: int) -> WeightGrid:
    return replace(grid, steps=grid.steps[:, [column % grid.steps.shape[1]]])


@pytest.mark.parametrize("kind", ["whole", "shared exponents", "floats"])
def test_each_row_makes_up_for_those_after_it(kind: str) -> None:
    rng = np.random.default_rng(0)
    size, columns = 23, 2 * BLOCK + 7
    grid = WHOLE
    if kind != "whole":
        steps = 2.0 ** rng.integers(-3, 1, size=(size, columns))
        grid = WeightGrid(steps, *{"shared exponents": (7, 3), "floats": (12, 2)}[kind])
    upper = np.triu(rng.integers(-8, 9, size=(size, size)) / 64.0, 1)
    target = rng.integers(-900, 901, size=(size, columns)) / 256.0
    pivots = rng.integers(1, 9, size=size).astype(np.float64)
    found, errors = rounded_back(target, upper, pivots, grid)
    np.testing.assert_array_equal(found, plainly(target, upper, grid))
    alone = [
        rounded_back(target[:, [c]], upper, pivots, column_of(grid, c))[0][:, 0]
        for c in range(columns)
    ]
    np.testing.assert_array_equal(found, np.stack(alone, axis=1))
    left = np.square((upper + np.eye(size)) @ (target - found))
    np.testing.assert_allclose(errors, pivots @ left, rtol=1e-9)


def biases(graph: Graph) -> dict[str, list[int]]:
    return {n.name: n.op.bias.tolist() for n in graph.nodes if isinstance(n.op, Mvm)}


def test_correcting_twice_is_correcting_once(models: SimpleNamespace) -> None:
    job = models.job(*models.data, weight_bits=4, bias_correction=False)
    lowered, quantized = passed(models.small, job, "lowered", "quantized")
    plain = quantized.text
    means = layer_means(lowered.text, job.text)
    once = correct_bias(plain, job.text, means)
    twice = correct_bias(once, job.text, means)
    assert biases(once) != biases(plain)
    assert biases(twice) == biases(once)


def test_means_are_real_numbers_whatever_the_units(models: SimpleNamespace) -> None:
    job = models.job(
        *models.data, weight_bits=16, activation_bits=16, input_bits=16, accumulator_bits=48
    )
    stages = passed(models.small, job, "lowered", "quantized")
    wanted, found = (layer_means(program.text, job.text) for program in stages)
    assert wanted.keys() == found.keys() == {"fc1", "fc2", "mu", "logvar"}
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], atol=1e-3)
