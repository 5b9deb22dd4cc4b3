from __future__ import annotations

import pytest
import torch
from torch import nn

from cimtool.base.errors import CimError
from cimtool.training.models.perceptron import Autoencoder, parse_widths, perceptron


def test_layers_and_activations_in_their_order() -> None:
    made = perceptron((6, 5, 4), "leaky-relu", "tanh")
    kinds = [type(part) for part in made]
    assert kinds == [nn.Linear, nn.LeakyReLU, nn.Linear, nn.Tanh]
    assert list(made.state_dict()) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert made(torch.zeros(3, 6)).shape == (3, 4)


def test_keys_are_the_same_whatever_the_activations() -> None:
    keys = {tuple(perceptron((6, 5, 4), one, "none").state_dict()) for one in ("none", "relu")}
    assert len(keys) == 1


def test_widths_are_read() -> None:
    assert parse_widths("500-200") == (500, 200)
    assert parse_widths("7") == (7,)
    assert parse_widths("none") == ()


@pytest.mark.parametrize("text", ["", "500-", "0", "a-b", "5.5", "-5", "٣", "1_0"])
def test_widths_that_are_none(text: str) -> None:
    with pytest.raises(CimError, match=rf'model\.hidden is "{text}"; expected widths'):
        Autoencoder(hidden=text)
