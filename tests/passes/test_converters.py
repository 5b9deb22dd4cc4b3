"""Fit converters: none where nothing can be lost, else the step that costs least."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from cimtool.api import prepare
from cimtool.errors import CimError
from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.program import Graph, Program, check
from cimtool.passes.bias import layer_means
from cimtool.passes.calibrate import calibrate
from cimtool.passes.converters import fit_converters, fit_steps
from cimtool.passes.fold import fold
from cimtool.passes.lower import lower
from cimtool.passes.quantize import quantize
from cimtool.passes.step import Job
from cimtool.passes.tile import CROSSBAR_OPS, tile
from cimtool.simulator import Simulator
from cimtool.training.demo_data import DemoFiles


def stages(program: Program, job: Job) -> tuple[Program, Program]:
    tiled = tile(quantize(lower(calibrate(fold(program, job), job), job), job), job)
    fitted = fit_converters(tiled, job)
    check(fitted, "converters fitted", CROSSBAR_OPS)
    return tiled, fitted


def layers(graph: Graph) -> dict[str, CrossbarMvm]:
    return {n.name: n.op for n in graph.nodes if isinstance(n.op, CrossbarMvm)}


@pytest.mark.parametrize("target", ["ideal", "isaac-rram-128", "colonnade-65nm"])
def test_lossless_targets_keep_every_bit(models: SimpleNamespace, target: str) -> None:
    job = models.job(*models.data, target=target)
    tiled, fitted = stages(models.small, job)
    for before, after in zip(tiled.graphs[:2], fitted.graphs[:2], strict=True):
        assert all(op.exact for op in layers(after).values())
        for name, op in layers(before).items():
            np.testing.assert_array_equal(layers(after)[name].bias, op.bias)


def test_fewer_bits_get_steps_and_corrected_means(models: SimpleNamespace) -> None:
    job = models.job(*models.data, target="isaac-rram-128", adc_bits=3)
    tiled, fitted = stages(models.small, job)
    assert not all(op.exact for op in layers(fitted.text).values())
    wanted, found = (layer_means(p.text, job.text) for p in (tiled, fitted))
    for name, mean in found.items():
        unit = tiled.text.types[name].unit
        assert (np.abs(mean - wanted[name]) <= 0.51 * unit).all(), name
    a, b = (Simulator(p).scores(job.text, job.video) for p in (tiled, fitted))
    assert 0 < np.sqrt(np.square(a - b).mean()) < a.std()


def test_more_converter_bits_cost_less(models: SimpleNamespace) -> None:
    errors = []
    for bits in (2, 4, 6):
        job = models.job(*models.data, target="hermes-pcm-14nm", adc_bits=bits)
        a, b = (Simulator(p).scores(job.text, job.video) for p in stages(models.small, job))
        errors.append(float(np.square(a - b).mean()))
    assert errors == sorted(errors, reverse=True)


@pytest.mark.parametrize("encoding", ["differential", "offset", "offset-flip"])
@pytest.mark.parametrize("inputs", ["twos-complement", "offset", "bipolar"])
@pytest.mark.parametrize("rounding", ["half-up", "half-even", "floor"])
def test_the_step_is_the_one_of_least_error(encoding: str, inputs: str, rounding: str) -> None:
    rng = np.random.default_rng(0)
    crossbar = Crossbar(None, 8, 8, encoding, 8, inputs, 8, 6, rounding, 32)  # type: ignore[arg-type]
    weight = rng.integers(-127, 128, (30, 5))
    x = np.rint(rng.normal(size=(40, 30)) * 30).astype(np.int64).clip(-127, 127)
    op = CrossbarMvm(weight, np.zeros(5, np.int64), np.ones(5), crossbar, (None,))
    (step,) = fit_steps(op, x)
    assert step is not None
    errors = [
        np.square((replace(op, steps=(candidate,)).run(x) - x @ weight).astype(float)).sum()
        for candidate in range(20)
    ]
    assert errors[step] == min(errors)


def test_slices_are_judged_one_by_one() -> None:
    """Slices of small digits are lossless where others are not."""
    crossbar = Crossbar(16, 4, 1, "offset", 8, "twos-complement", 8, 7, "half-up", 32)
    weight = np.tile([[15 - 128, 2 - 128]], (16, 1))  # U = 15 and 2: the upper digit is 0
    op = CrossbarMvm(weight, np.zeros(2, np.int64), np.ones(2), crossbar, (None, None))
    low, high = fit_steps(op, np.full((3, 16), -1))
    assert low is not None
    assert high is None


def test_bipolar_inputs_drive_a_differential_column_from_both_sides() -> None:
    """Cells of both signs add up where inputs have their signs: 7-bit codes do not hold it."""
    crossbar = Crossbar(None, 3, 8, "differential", 4, "bipolar", 5, 8, "half-up", 32)
    weight = np.array([[7], [-7]])
    op = CrossbarMvm(weight, np.zeros(1, np.int64), np.ones(1), crossbar, (None,))
    x = np.array([[15, -15]])  # 15 * 7 + 15 * 7 = 210 is beyond 127
    (step,) = fit_steps(op, x)
    assert step == 1


WIDE = {"weight_bits": 14, "input_bits": 16, "activation_bits": 16}


@pytest.mark.parametrize("encoding", ["differential", "offset"])
def test_multipliers_make_room_for_what_converters_add(
    small_trunk: DemoFiles, encoding: str
) -> None:
    files = small_trunk
    made = prepare(
        files.projectors,
        files.poly,
        calibration=files.calibration,
        target="hermes-pcm-14nm",
        accumulator_bits=48,
        encoding=encoding,
        adc_bits=4,
        **WIDE,
    )
    layers = [n.op for n in made.stages[-1].program.text.nodes if isinstance(n.op, CrossbarMvm)]
    assert not any(layer.exact for layer in layers)


def test_an_accumulator_too_narrow_for_converted_sums_is_what_is_named(
    small_trunk: DemoFiles,
) -> None:
    files = small_trunk
    sentence = r"text\.fc1: its sums need \d+ bits and the accumulator has 24"
    with pytest.raises(CimError, match=sentence):
        prepare(
            files.projectors,
            files.poly,
            calibration=files.calibration,
            target="hermes-pcm-14nm",
            accumulator_bits=24,
            **WIDE,
        )
