"""Points of a grid that are read back: files of others, of other values or measurements."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cimtool.experiments.trained_points import TrainedPoint, Unseen
from cimtool.reference.queries import Queries
from cimtool.reference.truth import Truth
from cimtool.training.history import Question

COUNT = 3


def measured(count: int = COUNT, *more: str) -> Queries:
    names = ("rank", "precision", *more)
    return Queries(*({name: np.ones(count) for name in names} for _ in range(2)))


POINT = TrainedPoint(2, 3, 10, 40, measured(), Question(4, 0.5, 0.6, None, None))


def test_what_is_written_is_read() -> None:
    found = TrainedPoint.from_json(json.loads(json.dumps(POINT.to_json())))
    assert found.to_json() == POINT.to_json()


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "an epoch that is a text": lambda p: p.update(best_epoch="2"),
    "an epoch beyond the last": lambda p: p.update(best_epoch=4),
    "weights below 0": lambda p: p.update(weights=-1),
    "pairs of 100 bits": lambda p: p.update(pairs=1 << 100),
    "no queries": lambda p: p.pop("queries"),
    "queries that are a list": lambda p: p.update(queries=[]),
    "a side that is a list": lambda p: p["queries"].update(text=[]),
    "a rank that is a text": lambda p: p["queries"]["text"]["rank"].__setitem__(0, "1"),
    "ranks that are lists": lambda p: p["queries"]["text"].update(rank=[[1.0]]),
    "a rank that is infinite": lambda p: p["queries"]["text"]["rank"].__setitem__(0, 1e999),
    "a question that is a number": lambda p: p.update(question=3),
    "a question of other keys": lambda p: p["question"].update(cost=1.0),
    "a question of texts": lambda p: p["question"].update(loss="low"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_other_values_are_no_point(name: str) -> None:
    values = POINT.to_json()
    CHANGES[name](values)
    with pytest.raises((KeyError, TypeError, ValueError)):
        TrainedPoint.from_json(values)


@pytest.mark.parametrize("raw", [None, measured(COUNT, "cosine_gap")])
def test_measurements_are_those_of_the_unseen_pairs(raw: Queries | None) -> None:
    unseen = Unseen(Truth(np.arange(COUNT), COUNT), COUNT, raw)
    right = measured(COUNT, "cosine_gap")
    del right.video["cosine_gap"]
    if raw is not None:
        del raw.video["cosine_gap"]
    assert unseen.measured_in(right)
    assert not unseen.measured_in(measured())
    assert not unseen.measured_in(measured(COUNT + 1, "cosine_gap"))
