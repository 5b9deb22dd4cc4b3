from __future__ import annotations

import torch

from cimtool.training.hardware.straight_through import (
    Rounding,
    column_integers,
    round_ste,
)


def test_halves_go_up_or_to_even_and_the_derivative_is_one() -> None:
    x = torch.tensor([-1.5, -0.5, 0.5, 1.2], requires_grad=True)
    assert round_ste(x).tolist() == [-1.0, 0.0, 1.0, 1.0]
    assert round_ste(x, half_even=True).tolist() == [-2.0, -0.0, 0.0, 1.0]
    round_ste(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1.0] * 4


def test_a_stored_value_is_a_multiple_of_its_scale_and_clipped_ones_have_no_gradient() -> None:
    x = torch.tensor([[0.6, -3.0], [9.0, 1.4]], requires_grad=True)
    kept = Rounding(0, 15, torch.tensor([0.5, 1.0]), half_even=False)(x)
    assert kept.tolist() == [[0.5, 0.0], [7.5, 1.0]]
    kept.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_the_largest_weight_of_each_output_is_the_largest_integer() -> None:
    weights = torch.tensor([[0.7, -1.4, 0.3], [0.0, 0.0, 0.0]])
    whole, unit = column_integers(weights, 7)
    assert torch.allclose(unit[:, 0], torch.tensor([0.2, 1 / 7]))
    assert whole.tolist() == [[4.0, -7.0, 2.0], [0.0, 0.0, 0.0]]
