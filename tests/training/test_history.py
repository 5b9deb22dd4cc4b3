from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from cimtool.base.intervals import Interval
from cimtool.training.history import (
    RetrievalEpoch,
    best_epoch,
    history_text,
    recall_interval,
    recalls_of,
)
from cimtool.training.page import retrieval_headline, retrieval_page
from cimtool.training.pairs import Pairs


def epoch(number: int, r10: float, r1: float) -> RetrievalEpoch:
    shares = {1: r1, 5: r1, 10: r10}
    ways = ("text_to_video", "video_to_text")
    recalls = {f"r{k}_{way}": share for k, share in shares.items() for way in ways}
    if not number:
        return RetrievalEpoch(number, None, {}, {}, recalls)
    terms = {"info_nce": 2.0, "variance": 0.5}
    return RetrievalEpoch(number, 2.5, terms, {"outside": 0.25}, recalls)


RUN = [epoch(0, 0.1, 0.0), epoch(1, 0.5, 0.2), epoch(2, 0.5, 0.3), epoch(3, 0.5, 0.3)]


def test_the_best_is_by_r10_then_r1_then_the_earliest() -> None:
    assert best_epoch(RUN).number == 2
    assert best_epoch([*RUN, epoch(4, 0.6, 0.0)]).number == 4


def test_an_epoch_in_a_line_and_in_json() -> None:
    assert RUN[0].line(3) == "start; held out R@1 0.0%, R@5 0.0%, R@10 10.0% (mean of both ways)"
    assert RUN[1].line(3).startswith("epoch 1 of 3: loss 2.5; held out R@1 20.0%")
    assert RUN[1].line(3).endswith(", outside 25.0%")
    held = replace(RUN[0], watched={"outside held out": 0.5})
    assert held.line(3).endswith("(mean of both ways), outside held out 50.0%")
    assert RetrievalEpoch(**json.loads(json.dumps(RUN[1].to_json()))) == RUN[1]


def by_class(number: int, mean: float) -> RetrievalEpoch:
    plain = epoch(number, 0.5, 0.2)
    maps = {f"map_{way}": mean for way in ("text_to_video", "video_to_text")}
    return replace(plain, recalls={**maps, **plain.recalls})


def test_where_classes_are_trained_for_the_best_is_by_map() -> None:
    run = [by_class(0, 0.25), by_class(1, 0.75), by_class(2, 0.5)]
    assert best_epoch(run).number == 1
    assert "; held out mAP 75.0%, R@1 20.0%" in run[1].line(2)
    page = retrieval_page("t", {}, run, None)
    assert "Best of 2 epochs is epoch 1: mAP 75.0%" in page
    assert "mAP text to video" in page
    assert "mAP" not in retrieval_page("t", {}, RUN, None)


def test_the_page_says_which_epoch_is_kept_and_why_it_stopped() -> None:
    settings = {"loss.tau": 0.07, "poly": None}
    page = retrieval_page("trunk <b>", settings, RUN, "epoch 4: it diverged")
    assert retrieval_headline(RUN) in page
    assert "Best of 3 epochs is epoch 2: R@1 30.0%" in page
    assert "epoch 4: it diverged" in page
    assert "trunk &lt;b&gt;" in page
    assert page.count("<svg") == 2
    assert retrieval_page("t", {}, RUN[:1], None).count("<svg") == 1
    assert "the start, before any training" in retrieval_headline(RUN[:1])


def test_a_model_that_is_solved_has_an_interval() -> None:
    said = retrieval_headline(RUN[1:2], solved=Interval(0.125, 0.3))
    assert said.startswith(
        "The model is solved, not trained: held-out R@1 20.0% [12.5%, 30.0%], R@5 20.0%, R@10 "
        "50.0%, means of both ways. Raw "
    )
    assert "R@1 20.0% [12.5%, 30.0%]" in retrieval_page(
        "t", {}, RUN[1:2], None, solved=Interval(0.125, 0.3)
    )


def test_the_interval_of_a_recall_is_that_of_resampled_queries() -> None:
    rng = np.random.default_rng(0)
    rows = torch.zeros(200, 2)
    pairs = Pairs(rows, rows, torch.arange(200))
    scores = rng.normal(size=(200, 200)) + 2.5 * np.eye(200)
    recalls = recalls_of(scores, pairs)
    mean = (recalls["r1_text_to_video"] + recalls["r1_video_to_text"]) / 2
    found = recall_interval(scores, pairs, 0)
    half = 1.96 * np.sqrt(mean * (1 - mean) / 200 / 2)  # two ways, drawn apart
    assert found.low == pytest.approx(mean - half, abs=0.015)
    assert found.high == pytest.approx(mean + half, abs=0.015)
    assert recall_interval(scores, pairs, 0) == found


def test_the_history_is_plain_json() -> None:
    held = json.loads(history_text({"loss.tau": 0.07}, RUN, None, {"raw": None}))
    assert held["raw"] is None
    assert (held["best_epoch"], held["stopped"], len(held["epochs"])) == (2, None, 4)
    assert held["settings"] == {"loss.tau": 0.07}


def test_recalls_are_those_of_the_right_videos() -> None:
    scores = np.array([[3.0, 1.0], [2.0, 1.0], [0.0, 5.0]])
    pairs = Pairs(torch.zeros(3, 1), torch.zeros(2, 1), torch.tensor([0, 1, 1]))
    found = recalls_of(scores, pairs)
    assert found["r1_text_to_video"] == 2 / 3
    assert found["r1_video_to_text"] == 1.0
    assert found["r10_text_to_video"] == 1.0


def test_map_counts_all_of_a_class_as_right() -> None:
    """Classes 0, 1, 0: the second and third text rank a video of the other class first."""
    scores = np.array([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0], [2.0, 3.0, 1.0]])
    labels = torch.tensor([0, 1, 0])
    pairs = Pairs(torch.zeros(3, 1), torch.zeros(3, 1), torch.arange(3), labels)
    found = recalls_of(scores, pairs, by_class=True)
    first, second, third = (1 + 2 / 3) / 2, 1 / 2, (1 / 2 + 2 / 3) / 2
    assert found["map_text_to_video"] == pytest.approx((first + second + third) / 3)
    assert recalls_of(scores, pairs).keys() == found.keys() - {
        "map_text_to_video",
        "map_video_to_text",
    }


def test_map_is_that_of_the_texts_videos_where_they_are_shared() -> None:
    scores = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    labels = torch.tensor([4, 4, 2])
    pairs = Pairs(torch.zeros(3, 1), torch.zeros(2, 1), torch.tensor([1, 1, 0]), labels)
    found = recalls_of(scores, pairs, by_class=True)
    assert found["map_text_to_video"] == pytest.approx((0.5 + 0.5 + 1.0) / 3)


def test_items_of_one_modality_are_left_out_where_they_are_the_query() -> None:
    scores = np.array(
        [
            [9.0, 3.0, 5.0, 1.0, 4.0],
            [3.0, 9.0, 2.0, 7.0, 6.0],
            [5.0, 2.0, 9.0, 8.0, 0.0],
            [1.0, 7.0, 8.0, 9.0, 2.0],
            [4.0, 6.0, 0.0, 2.0, 9.0],
        ]
    )
    labels = torch.tensor([0, 0, 1, 1, 2])  # the last is alone in its class: no query
    rows = torch.zeros(5, 1)
    pairs = Pairs(rows, rows, torch.arange(5), labels, alone=True)
    found = recalls_of(scores, pairs, by_class=True)
    for way in ("text_to_video", "video_to_text"):
        assert found[f"r1_{way}"] == 2 / 4  # the right one of 0 and 1 is third
        assert found[f"r5_{way}"] == 1.0
        assert found[f"map_{way}"] == (1 / 3 + 1 / 3 + 1 + 1) / 4
    unlabelled = recalls_of(scores, Pairs(rows, rows, torch.arange(5), alone=True))
    assert unlabelled["r1_text_to_video"] == 1.0
