"""Notes of a compilation on scores that tell nothing apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from cimtool.bundle.compilation import FEW_NOTES, Compilation, prepare
from cimtool.ir.surrogate import FittedRange, Polynomial
from cimtool.passes.calibrate import CalibratePass
from cimtool.passes.pipeline import stage_of
from cimtool.report.document import Note
from cimtool.report.terminal import terminal
from cimtool.training.models.trunk import TrunkProjector

POLYNOMIAL = Polynomial(1, (-0.1, 0.0), 0.5, a=0.1, b=0.5)


def compiled(bias: float, polynomial: Polynomial = POLYNOMIAL) -> Compilation:
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
    return prepare(modules, polynomial, calibration=rows, drift="given", target="ideal")  # type: ignore[arg-type]


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


def test_calibration_pairs_far_beyond_the_fit_are_a_warning() -> None:
    """A polynomial of a model whose variances have grown since means nothing on its pairs."""

    def warnings(domain: FittedRange | None) -> list[str]:
        notes = compiled(0.0, replace(POLYNOMIAL, domain=domain)).notes
        return [note for note in notes if "was fitted on" in note]

    ranges = stage_of(compiled(0.0).stages, CalibratePass).program.score.calibration.ranges
    lo, hi = float(ranges["ed"].lo), float(ranges["ed"].hi)
    width = hi - lo
    assert warnings(None) == []
    assert warnings(FittedRange((lo, hi))) == []
    # Left by less than a quarter of its width on each side, and by more.
    assert warnings(FittedRange((lo + 0.1 * width, hi - 0.1 * width))) == []
    for ends in ((lo + 0.3 * width, hi), (lo, hi - 0.3 * width)):
        (said,) = warnings(FittedRange(ends))
        assert said == (
            f"warning: ed of the calibration pairs is {lo:.6g} to {hi:.6g}, and the polynomial was "
            f"fitted on {ends[0]:.6g} to {ends[1]:.6g}: pairs beyond it are extrapolated and may "
            "be wrong by any amount; expected one that was fitted on this model "
            "(`cimtool teacher`, `cimtool fit`)"
        )
