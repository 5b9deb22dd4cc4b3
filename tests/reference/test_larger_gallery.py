"""R@1 in a larger gallery, against galleries that are as large."""

from __future__ import annotations

import numpy as np
import pytest

from cimtool.reference import larger_gallery
from cimtool.reference.larger_gallery import (
    LEAST,
    TAIL,
    best_listed,
    chance_of_a_rival,
    exceedance,
    first_of,
    shape_of,
)
from cimtool.reference.truth import Truth, truth_among_others


def drawn(kind: str, texts: int, videos: int) -> tuple[np.ndarray, Truth]:
    """Scores of a text's right video, and of wrong ones from a tail of this kind."""
    rng = np.random.default_rng(3)
    draw = {"normal": rng.normal, "exponential": rng.exponential, "logistic": rng.logistic}[kind]
    scores = draw(size=(texts, videos))
    right = np.arange(texts)
    scores[right, right] = rng.normal(4 if kind == "normal" else 7, 1.0, texts)
    return scores, Truth(right, videos)


@pytest.mark.parametrize("kind", ["normal", "exponential", "logistic"])
@pytest.mark.parametrize("times", [1, 4, 8])
def test_r1_of_a_larger_gallery_is_near_what_is_measured_there(kind: str, times: int) -> None:
    texts, videos = 600, 1000
    scores, truth = drawn(kind, texts, times * videos)
    measured = np.mean([row[i] > np.delete(row, i).max() for i, row in enumerate(scores)])
    chance = chance_of_a_rival(scores, truth, times)
    assert np.mean(first_of(chance, times * videos)) == pytest.approx(
        measured, abs=0.03 + 0.005 * np.log2(times)
    )


def test_texts_whose_wrong_scores_differ_in_shape_are_not_taken_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By distance a text far out has few rivals; tails of all texts together say otherwise."""
    rng, texts, times, off = np.random.default_rng(1), 1500, 8, 0.05
    text, video = rng.normal(size=(texts, 12)), rng.normal(size=(times * texts, 12))
    video[:texts] = text + 0.4 * rng.normal(size=(texts, 12))
    scores = 2 * text @ video.T - (video**2).sum(axis=1) - (text**2).sum(axis=1)[:, None]
    right = np.arange(texts)
    measured = np.mean(scores.argmax(axis=1) == right)

    def found() -> float:
        chance = chance_of_a_rival(scores[:, :texts], Truth(right, texts))
        return float(np.mean(first_of(chance, times * texts)))

    assert found() == pytest.approx(measured, abs=off)
    monkeypatch.setattr(larger_gallery, "MOST_PARTS", 1)
    assert found() < measured - 2 * off


@pytest.mark.parametrize("shape", [-0.3, 0.0, 0.2])
def test_the_shape_is_that_of_the_tails_in_any_unit(shape: float) -> None:
    rng = np.random.default_rng(5)
    uniform = rng.uniform(size=(2, 40_000))
    drawn_ = -np.log(uniform) if shape == 0 else (uniform**-shape - 1) / shape
    ends = [np.sort(drawn_[0]), 7.0 * np.sort(drawn_[1])]
    assert shape_of(ends) == pytest.approx(shape, abs=0.05)
    assert abs(shape_of(ends)) <= abs(shape) + 0.02
    assert shape_of([np.zeros(60)]) == 0.0
    values = np.array([0.5, 1.5, 3.0])
    expected = np.exp(-values) if shape == 0 else np.maximum(1 + shape * values, 0) ** (-1 / shape)
    assert exceedance(ends[0], values, shape) == pytest.approx(expected, rel=0.1, abs=0.003)


@pytest.mark.parametrize("most", [1, 1 << 20])
def test_chances_are_counted_where_many_rivals_are_ahead(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(larger_gallery, "PAIRS", most)
    scores = np.tile(np.arange(100.0), (4, 1))
    truth = Truth(np.array([20, 50, 89, 99]), 100)
    found = chance_of_a_rival(scores, truth)
    assert max(LEAST, round(TAIL * 100)) == 10
    assert found[:3] == pytest.approx([79 / 99, 49 / 99, 10 / 99], rel=0.01)
    assert 0 < found[3] < 2 / 99


def test_the_tail_goes_on_as_an_exponential() -> None:
    tail = np.sort(np.random.default_rng(0).exponential(size=20_000))
    values = np.array([0.0, 1.0, 5.0, 12.0, 20.0])
    assert np.log(exceedance(tail, values)) == pytest.approx(-values, rel=0.15)
    assert exceedance(np.ones(60), np.array([0.5, 1.0, 1.5])).tolist() == [1, 1, 0]


def test_equal_scores_count_against_the_right_item() -> None:
    found = chance_of_a_rival(np.zeros((2, 30)), Truth(np.array([0, 1]), 30))
    assert found.tolist() == [1.0, 1.0]
    assert first_of(found, 30).max() < 1e-100


@pytest.mark.filterwarnings("error")
def test_texts_without_right_or_wrong_items_have_no_chance() -> None:
    of_two = chance_of_a_rival(np.array([[2.0, 1.0], [0.0, 3.0]]), Truth(np.array([0, 1]), 2), 2)
    assert np.isnan(of_two).tolist() == [True, False]
    truth = truth_among_others(4, np.array([0, 0, 0, 1]))
    found = chance_of_a_rival(np.arange(16.0).reshape(4, 4), truth)
    assert np.isnan(found).tolist() == [False, False, False, True]


@pytest.mark.parametrize("most", [1, 1 << 20])
def test_the_best_right_item_is_looked_up_on_the_list(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(larger_gallery, "PAIRS", most)
    scores = np.array([[3.0, 9.0, 1.0], [3.0, 9.0, 1.0], [3.0, 9.0, 1.0]])
    listed = np.array([[True, False, False], [True, False, False], [False, True, True]])
    truth = Truth(np.array([0, 1, 2]), 3)
    assert best_listed(scores, listed, truth).tolist() == [True, False, True]
