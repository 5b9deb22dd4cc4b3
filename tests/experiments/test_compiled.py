"""Points that differ in their converters share the integers of their layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cimtool.base.progress import silent
from cimtool.demo.data import DemoFiles
from cimtool.experiments.compiled import PointEvaluator
from cimtool.experiments.points import COMPILED
from cimtool.experiments.references import kept_references, reference_name
from cimtool.hardware.configuration import Configuration
from cimtool.ir.program import Program
from cimtool.loading.embeddings import read_data
from cimtool.loading.source import ModelSource
from cimtool.passes.base import Job
from cimtool.passes.quantize import QuantizePass
from cimtool.simulation.simulator import Simulator
from cimtool.verification.ranked_data import ranked_data

SETTINGS: list[dict[str, Any]] = [
    {"adc_bits": 5},
    {"adc_bits": 5, "layers": {"text.*": {"adc_bits": 4}}},
    {"adc_bits": 4, "references": "slice"},
    {"adc_bits": 5, "layers": {"text.*": {"weight_bits": 4}}},
    {"adc_bits": 5},
]
"""Three points of the same layers, one of others, and the first again."""


def evaluators_of(files: DemoFiles, count: int) -> list[PointEvaluator]:
    """Evaluators that have compiled nothing yet, on the same model and rows."""
    model = ModelSource(files.projectors, files.poly).for_rows(files.calibration).load(silent)
    rows, data = read_data(files.calibration, model), ranked_data(model, files.eval, None, None)
    known = kept_references(None, [model], data, silent, reference_name(model), 10)
    given = {COMPILED: model}, rows, data, known, None, None
    return [PointEvaluator.of(*given) for _ in range(count)]


@pytest.mark.thorough("compiles each point twice")
def test_layers_are_quantized_once_for_all_converters_and_anew_for_other_weights(
    small_trunk: DemoFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = [Configuration.of("isaac-rram-128", None, one).settings for one in SETTINGS]
    quantized, apply = list[Job](), QuantizePass.apply

    def noted(self: QuantizePass, program: Program, job: Job) -> Program:
        quantized.append(job)
        return apply(self, program, job)

    monkeypatch.setattr(QuantizePass, "apply", noted)
    shared, *others = evaluators_of(small_trunk, 1 + len(points))
    notes = list[list[str]]()
    text, video = shared.text[:32], shared.video[:32]
    for settings, single in zip(points, others, strict=True):
        said: list[str] = []
        found = Simulator(shared.compiled(settings, said.append)).scores(text, video)
        alone = single.compiled(settings, silent)
        assert np.array_equal(found, Simulator(alone).scores(text, video))
        notes.append(said)
    assert len(quantized) == 3 + len(points)  # the evaluators of single points quantize too
    assert notes[0] == notes[-1]
