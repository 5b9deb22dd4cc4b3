"""Mixtures of rows: as many as asked, of the same mean and covariance, halves kept apart."""

from __future__ import annotations

import numpy as np
import pytest

from cimtool.passes.mixtures import FEWEST, MOST, with_mixtures


def rows(count: int) -> np.ndarray:
    rng = np.random.default_rng(count)
    mixed = rng.normal(size=(count, 5)) @ rng.normal(size=(5, 8)) + 3
    return mixed.astype(np.float32)


def test_mixtures_have_the_mean_and_the_covariance_of_the_rows() -> None:
    given = rows(500)
    own, found = with_mixtures(given, room=10**9)
    assert (own, len(found), found.dtype) == (500, MOST // 500 * 500, np.float32)
    np.testing.assert_array_equal(found[:own], given)
    mixed = found[own:]
    np.testing.assert_allclose(mixed.mean(axis=0), given.mean(axis=0), atol=1e-5)
    scale = np.sqrt(np.cov(given.T).diagonal())
    np.testing.assert_allclose(
        np.cov(mixed.T) / np.outer(scale, scale), np.corrcoef(given.T), atol=0.1
    )
    # Hardly any pair comes twice.
    assert len(np.unique(found.round(4), axis=0)) > 0.95 * len(found)


@pytest.mark.parametrize("count", [64, 65])
def test_every_second_row_is_of_other_rows(count: int) -> None:
    given = rows(count)
    own, found = with_mixtures(given, room=10**9)
    assert own == 64
    other = given.copy()
    other[1:64:2] = given[1:64:2][::-1]  # the same mean
    again = with_mixtures(other, room=10**9)[1]
    np.testing.assert_allclose(again[0::2], found[0::2], atol=1e-5)
    assert np.abs(again[1::2] - found[1::2]).max() > 1


def test_no_more_than_there_is_room_for() -> None:
    assert [len(with_mixtures(rows(64), room)[1]) for room in (64, 127, 128, 300)] == [
        64, 64, 128, 256,
    ]  # fmt: skip


def test_few_rows_stay_alone() -> None:
    own, found = with_mixtures(rows(FEWEST - 1), room=10**9)
    assert own == len(found) == FEWEST - 1
