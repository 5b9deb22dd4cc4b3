from __future__ import annotations

import math

import pytest
import torch

from cimtool.training.hardware.fine_tune import distillation

WANTED = torch.tensor([[0.0, -2.0, -3.0], [-2.5, 1.0, -4.0]])


def test_equal_logits_cost_nothing() -> None:
    assert distillation(WANTED, WANTED).item() == pytest.approx(0.0, abs=1e-6)


def test_a_common_offset_counts_by_its_square_in_units_of_the_variance() -> None:
    variance = float(WANTED.numpy().var())
    for offset in (0.1, 2.0, 30.0):
        expected = math.log1p(offset**2 / variance)
        assert distillation(WANTED + offset, WANTED).item() == pytest.approx(expected, rel=1e-4)


def test_a_leader_that_falls_behind_costs_more_than_its_square() -> None:
    variance = float(WANTED.numpy().var())
    others, leader = WANTED.clone(), WANTED.clone()
    others[:, 2] -= 3.0
    leader[0, 0] -= 3.0
    of_one, of_two = (math.log1p(count * 9 / 6 / variance) for count in (1, 2))
    assert distillation(leader, WANTED) - of_one > 3 * (distillation(others, WANTED) - of_two) > 0


def test_a_large_offset_leaves_the_rankings_their_gradient() -> None:
    logits = (WANTED.flip(1) + 30.0).requires_grad_()
    distillation(logits, WANTED).backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert logits.grad[0, 0] < 0 < logits.grad[0, 2]
