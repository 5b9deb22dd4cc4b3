"""Perceptrons as torch modules, as layout `perceptron` reads them: what several models are."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

from torch import nn

from cimtool.base.errors import CimError

ACTIVATIONS: Mapping[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "leaky-relu": nn.LeakyReLU,
    "none": nn.Identity,
}
"""Activations by the names that checkpoints give them."""


def perceptron(widths: Sequence[int], activation: str, last: str) -> nn.Sequential:
    """Linear layers from `widths[0]` to `widths[-1]` numbers, `activation` between, `last` after.

    Its state dict has keys `0.weight`, `0.bias`, `2.weight`, ..., whatever the activations.
    """
    layers: list[nn.Module] = []
    for width, out in itertools.pairwise(widths):
        layers += [nn.Linear(width, out), ACTIVATIONS[activation]()]
    return nn.Sequential(*layers[:-1], ACTIVATIONS[last]())


def parse_widths(text: str, name: str) -> tuple[int, ...]:
    """Read `2000-500` as widths of layers, `none` as no layer; CimError naming the option."""
    if text == "none":
        return ()
    parts = text.split("-")
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise CimError(f'{name} is "{text}"; expected widths of layers such as 500-200, or none')
    return tuple(map(int, parts))
