from __future__ import annotations

import math

import pytest
import torch

from cimtool.training.losses.acmr import reverse_gradient, rising_strength


def test_values_pass_and_gradients_turn_round() -> None:
    x = torch.tensor([[1.0, -2.0], [0.5, 3.0]], requires_grad=True)
    passed = reverse_gradient(x, 0.25)
    assert torch.equal(passed, x)
    passed.square().sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, -0.25 * 2 * x.detach())


def test_layers_behind_it_get_their_ordinary_gradient() -> None:
    before = torch.nn.Linear(3, 2, bias=False)
    behind = torch.nn.Linear(2, 1, bias=False)
    rows = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    found = {}
    for strength in (None, 0.5):
        before.zero_grad()
        behind.zero_grad()
        hidden = before(rows)
        hidden = hidden if strength is None else reverse_gradient(hidden, strength)
        behind(hidden).tanh().sum().backward()
        found[strength] = [one.weight.grad.clone() for one in (before, behind)]
    torch.testing.assert_close(found[0.5][0], -0.5 * found[None][0])
    torch.testing.assert_close(found[0.5][1], found[None][1])


def test_the_strength_rises_from_nothing_to_nearly_one() -> None:
    assert rising_strength(0.0) == 0.0
    assert rising_strength(0.1) == pytest.approx(2 / (1 + math.exp(-1)) - 1)
    assert 0.9999 < rising_strength(1.0) < 1.0
