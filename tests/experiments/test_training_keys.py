"""The points of a grid of trainings: all combinations, without what means nothing to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cimtool.base.errors import CimError
from cimtool.experiments.training_grid import (
    TrainingPoint,
    read_training_grid,
    training_points,
)
from cimtool.training.arguments import TrainingOptions


def points(grid: Any, **common: Any) -> list[TrainingPoint]:
    options = TrainingOptions(**{"seed": None, **common})
    return training_points(read_training_grid(grid), options, None)


def test_points_are_all_combinations_with_the_last_key_fastest() -> None:
    found = points({"batch": [16, 32], "loss.tau": [0.1, 1]}, epochs=2, options={"loss.a": 5})
    assert [tuple(dict(one.values).values()) for one in found] == [
        (16, 0.1),
        (16, 1),
        (32, 0.1),
        (32, 1),
    ]
    assert found[1].wanted.options == {"loss.a": 5, "loss.tau": 1}
    assert (found[1].wanted.epochs, found[1].wanted.batch) == (2, 16)


def test_an_option_or_a_polynomial_that_a_loss_has_no_use_for_is_left_out() -> None:
    grid = {"loss": ["pairwise-bce", "pairwise-poly"], "loss.b": [1, 2]}
    found = points(grid, poly=Path("poly.json"), options={"loss.tau": 2, "loss.variance": 0.01})
    assert [dict(one.values) for one in found] == [
        {"loss": "pairwise-bce", "loss.b": 1},
        {"loss": "pairwise-bce", "loss.b": 2},
        {"loss": "pairwise-poly"},
    ]
    assert [one.wanted.poly for one in found] == [None, None, Path("poly.json")]
    shared = {"loss.variance": 0.01}
    assert found[0].wanted.options == {"loss.tau": 2, "loss.b": 1} | shared
    assert found[2].wanted.options == shared


def test_seeds_are_of_one_variant() -> None:
    found = points({"seed": [3, 4], "model.width": [8]})
    assert [one.seed for one in found] == [3, 4]
    assert {one.variant for one in found} == {(("model.width", 8),)}


@pytest.mark.parametrize(
    ("grid", "common", "message"),
    [
        ({}, {}, "grid is missing; expected at least one KEY=VALUE,VALUE, such as batch=16,64"),
        ({"model": ["trunck"]}, {}, 'did you mean "trunk"'),
        ({"model.widht": [8]}, {}, 'is not an option of model trunk: .*did you mean "width"'),
        ({"weight_decay": [-1]}, {}, "grid: weight_decay is -1; expected 0 or more"),
        ({"epochs": [True]}, {}, "grid: epochs is true; expected an integer"),
        ({"optimizer": ["adam"]}, {}, 'grid: optimizer "adam" is not known: adamw, sgd'),
        ({"batch": [16]}, {"poly": Path("poly.json")}, "no loss of grid has a polynomial"),
        ({"device": ["cpu"]}, {}, 'grid key "device" is not known'),
    ],
)
def test_a_mistake_is_one_sentence(grid: Any, common: Any, message: str) -> None:
    common = {"loss": "clip", **common} if "poly" in common else common
    with pytest.raises(CimError, match=message):
        points(grid, **common)
