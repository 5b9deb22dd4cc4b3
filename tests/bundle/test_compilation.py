"""Notes of a compilation on scores that tell nothing apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from cimtool.bundle.compilation import FEW_NOTES, Compilation, prepare
from cimtool.ir.surrogate import Polynomial
from cimtool.report.document import Note
from cimtool.report.terminal import terminal
from cimtool.training.models.trunk import TrunkProjector

POLYNOMIAL = Polynomial(1, (-0.1, 0.0), 0.5, a=0.1, b=0.5)


def compiled(bias: float) -> Compilation:
    """A model whose first layer adds `bias` to sums of about 1."""
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
    return prepare(modules, POLYNOMIAL, calibration=rows, target="ideal")  # type: ignore[arg-type]


@pytest.mark.parametrize(("bias", "warned"), [(0.0, False), (3e4, True)])
def test_a_model_dominated_by_its_biases_is_a_warning(bias: float, warned: bool) -> None:
    said = "warning: the compiled scores of the calibration rows are"
    assert any(note.startswith(said) for note in compiled(bias).notes) == warned


def test_warnings_and_the_first_notes_are_shown_and_the_others_are_details() -> None:
    said = [f"note {i}" for i in range(7)]
    few = (*said[:3], "warning: w", *said[3:])
    shown = replace(compiled(0.0), notes=few).document()
    notes = [one for one in shown.blocks if isinstance(one, Note)]
    assert [one.text for one in notes if one.level == "shown"] == ["warning: w", *said[:FEW_NOTES]]
    assert [one.text for one in notes if one.level == "detail"] == said[FEW_NOTES:]
    assert f"* {said[-1]}" not in terminal(shown)
    assert f"* {said[-1]}" in terminal(shown, verbose=True)
