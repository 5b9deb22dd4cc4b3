"""Notes of a compilation on scores that tell nothing apart."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cimtool.bundle.compilation import prepare
from cimtool.reference.surrogate import Polynomial
from cimtool.training.models.trunk import TrunkProjector

POLYNOMIAL = Polynomial(1, (-0.1, 0.0), 0.5, a=0.1, b=0.5)


def notes(bias: float) -> tuple[str, ...]:
    """The notes on a model whose first layer adds `bias` to sums of about 1."""
    torch.manual_seed(0)
    modules = tuple(TrunkProjector(12, 24, 10).eval() for _ in range(2))
    for module in modules:
        torch.nn.init.zeros_(module.logvar.weight)
        for layer in module.modules():
            if isinstance(layer, torch.nn.Linear) and layer.in_features == 12:
                torch.nn.init.constant_(layer.bias, bias)
    rng = np.random.default_rng(0)
    text = rng.normal(size=(64, 12)).astype(np.float32)
    rows = {"text": text, "video": text + np.float32(0.1)}
    return prepare(modules, POLYNOMIAL, calibration=rows).notes  # type: ignore[arg-type]


@pytest.mark.parametrize(("bias", "warned"), [(0.0, False), (3e4, True)])
def test_a_model_dominated_by_its_biases_is_a_warning(bias: float, warned: bool) -> None:
    said = "warning: the compiled scores of the calibration rows are"
    assert any(note.startswith(said) for note in notes(bias)) == warned
