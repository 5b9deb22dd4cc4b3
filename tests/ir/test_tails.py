"""Tails: what is expected beyond the rows that were seen, and the limits of least error."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cimtool.ir.tails import Tails, shape_of, tails_of

Positive = st.floats(1e-6, 1e6)


@given(
    st.floats(1 / 64, 1),
    st.lists(st.tuples(Positive, Positive), min_size=1, max_size=5),
    st.integers(2, 16),
    st.floats(0, 0.4),
)
def test_no_other_limit_has_a_smaller_expected_error(
    share: float, channels: list[tuple[float, float]], bits: int, shape: float
) -> None:
    threshold, excess = np.array(channels).T
    tails, largest = Tails(share, threshold, excess, shape), 2 ** (bits - 1) - 1
    limits = tails.limits(largest)
    assert np.all(limits >= threshold)

    def errors(limit: np.ndarray) -> np.ndarray:
        return np.square(limit / largest) / 12 + tails.clipped(limit)

    least = errors(limits)
    for factor in 2.0 ** (np.arange(-16, 17) / 4):
        other = np.maximum(factor * limits, threshold)
        assert np.all(least <= errors(other) * (1 + 1e-9))


def pareto(rng: np.random.Generator, shape: float, size: tuple[int, ...]) -> np.ndarray:
    """Numbers of a generalised Pareto distribution of scale 1."""
    return np.asarray(np.expm1(shape * rng.exponential(size=size)) / shape)


@pytest.mark.parametrize("limit", [0.7, 1.5, 3.0])
def test_clipping_errs_as_it_does_of_an_exponential_tail(limit: float) -> None:
    numbers = np.random.default_rng(0).exponential(0.5, (1_000_000, 1))
    found = tails_of(np.sort(numbers, axis=0)[-len(numbers) // 4 :], len(numbers))
    excess = np.square(np.maximum(numbers - limit, 0)).mean(axis=0)
    np.testing.assert_allclose(found.clipped(np.array([limit])), excess, rtol=0.1)


@pytest.mark.parametrize("shape", [0.1, 0.25])
def test_clipping_errs_as_it_does_of_a_tail_of_any_shape(shape: float) -> None:
    numbers = pareto(np.random.default_rng(0), shape, (1_000_000, 1))
    found = tails_of(np.sort(numbers, axis=0)[-len(numbers) // 4 :], len(numbers), shape)
    for beyond in (0.0, 0.3, 0.6):
        limit = found.threshold + beyond * found.excess
        excess = np.square(np.maximum(numbers - limit, 0)).mean(axis=0)
        np.testing.assert_allclose(found.clipped(limit), excess, rtol=0.05)


@pytest.mark.parametrize("shape", [0.1, 0.2, 0.35])
def test_the_shape_is_found_where_numbers_are_many(shape: float) -> None:
    rng = np.random.default_rng(0)
    top, sizes = pareto(rng, shape, (4000, 100)), pareto(rng, shape, (4000,))
    assert shape_of(top, sizes) == pytest.approx(shape, abs=0.05)


def test_rows_that_are_far_out_as_a_whole_make_tails_heavier() -> None:
    rng = np.random.default_rng(0)
    light = rng.normal(size=(1024, 50))
    heavy = light * pareto(rng, 0.3, (1024, 1))

    def of(rows: np.ndarray) -> float:
        sizes = np.sort(np.sqrt(np.square(rows).sum(axis=1)))[-256:]
        return shape_of(np.sort(np.abs(rows), axis=0)[-64:], sizes)

    assert of(light) == 0
    assert of(heavy) > 0.1


def test_sizes_of_rows_count_by_how_many_there_are() -> None:
    """Lighter ones change nothing; what heavier ones add is drawn towards the channels' shape."""
    rng = np.random.default_rng(2)
    top, heavy = pareto(rng, 0.1, (64, 200)), pareto(rng, 0.3, (256,))
    ends = np.linspace(1, 2, 256)
    own = (shape_of(top, ends) - 1 / 64) * (256 + 25) / 256
    assert own == pytest.approx(0.1, abs=0.02)
    whole = (shape_of(heavy[:, None], ends) - 1 / 256) * (256 + 25) / 256
    added = shape_of(top, heavy) - shape_of(top, ends)
    assert added == pytest.approx((whole - own) * (256 / (256 + 25)) ** 2)


def test_a_tail_that_ends_is_taken_for_an_exponential() -> None:
    top = np.linspace(1, 2, 64)[:, None]
    assert shape_of(top, top[:, 0]) == 0


def test_channels_that_are_nearly_always_0_do_not_make_the_others_heavier() -> None:
    """Without a channel that reaches above 0 in k rows there is nothing to tell a shape from."""
    rng = np.random.default_rng(3)
    alive, ends = rng.exponential(size=(64, 200)) + 1, np.linspace(1, 2, 256)
    dead = rng.exponential(size=(64, 200)) * (rng.random((64, 200)) < 0.1)
    assert dead.min(axis=0).max() == 0
    assert shape_of(np.hstack([alive, dead]), ends) == shape_of(alive, ends)
    assert shape_of(dead, ends) == 1 / 64
    assert shape_of(dead + 1, ends) > 0.3


def test_few_numbers_make_an_exponential_tail_heavier() -> None:
    drawn = np.random.default_rng(0).exponential(size=(8, 2000))
    assert shape_of(drawn, np.linspace(1, 2, 8)) == pytest.approx(1 / 8, abs=0.02)


DRAWN = {
    "normal": (lambda rng, size: rng.normal(size=size), 1.05),
    "laplace": (lambda rng, size: rng.laplace(size=size), 1.0),
    "student 5": (lambda rng, size: rng.standard_t(5, size), 1.0),
    "student 3": (lambda rng, size: rng.standard_t(3, size), 0.9),
    "rows of student 4": (
        lambda rng, size: rng.normal(size=size) * np.sqrt(4 / rng.chisquare(4, (size[0], 1))),
        0.9,
    ),
    "uniform": (lambda rng, size: rng.uniform(-1, 1, size), 1.5),
}
"""Distributions, and the most that limits by tails may err as a share of those by the ends seen."""


@pytest.mark.thorough("a statistical check over many draws")
@pytest.mark.parametrize("rows", [64, 512])
@pytest.mark.parametrize("name", DRAWN)
def test_rows_that_were_not_seen_lose_less_than_by_the_ends_that_were(name: str, rows: int) -> None:
    """In 6 and 8 bits, over 200 channels. A sharp end is taken for one farther out: it costs."""
    rng, (draw, allowed) = np.random.default_rng(1), DRAWN[name]
    seen, unseen = (draw(rng, (n, 200)) for n in (rows, 100_000))
    size = np.abs(seen)
    top = np.sort(size, axis=0)[-min(rows // 4, 64) :]
    shape = shape_of(top, np.sort(np.sqrt(np.square(size).sum(axis=1)))[-rows // 4 :])
    for largest in (31, 127):
        limits = tails_of(top, rows, shape).limits(largest)
        errors = []
        for limit in (limits, size.max(axis=0)):
            step = limit / largest
            codes = np.clip(np.rint(unseen / step), -largest, largest)
            errors.append(float(np.sqrt(np.square(codes * step - unseen).mean())))
        assert errors[0] < allowed * errors[1], largest


def test_a_channel_of_one_magnitude_has_it_as_its_limit() -> None:
    tails = tails_of(np.full((8, 1), 3.0), 32)
    assert tails.limits(127) == 3.0
    assert tails.clipped(np.array([3.0])) == 0.0


def test_numbers_that_are_alike_lose_the_difference_where_they_clip() -> None:
    """So does a channel of CLIP rows, whose numbers are all large: no share of it may clip."""
    rng = np.random.default_rng(0)
    numbers = 10 + 0.1 * rng.normal(size=(512, 1))
    tails = tails_of(np.sort(numbers, axis=0)[-64:], 512)
    for limit in (2.5, 5.0, 7.5):
        lost = np.square(numbers - limit).mean(axis=0)
        assert lost <= tails.clipped(np.array([limit])) <= 1.2 * lost


def test_a_channel_of_zeros_has_no_limit() -> None:
    assert tails_of(np.zeros((8, 1)), 32).limits(127) == 0.0
