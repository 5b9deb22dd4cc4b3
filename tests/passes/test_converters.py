"""Layers on crossbars, the same integers; converters are fitted where something can be lost."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import get_args

import numpy as np
import pytest
from crossbars import changed, crossbar_of, with_crossbar
from small_models import passed

from cimtool.api import prepare
from cimtool.base.arrays import IntArray
from cimtool.base.errors import CimError
from cimtool.demo.data import DemoFiles
from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.figures import SettableReference
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.references import AdcReferenceKind, AdcReferences
from cimtool.hardware.stored import StoredWeights
from cimtool.ir.program import Graph, Program
from cimtool.ir.types import integer
from cimtool.passes.base import Job
from cimtool.passes.bias_correction import layer_means
from cimtool.passes.converters import fit_references
from cimtool.passes.fitting import TRIED_STEPS, column_errors
from cimtool.simulation.simulator import Simulator


@pytest.mark.thorough("more of the same kind", quick=("isaac", "colonnade"))
@pytest.mark.parametrize("target", ["ideal", "isaac-rram-128", "hermes-pcm-14nm", "colonnade-65nm"])
def test_tiling_changes_no_number(models: SimpleNamespace, target: str) -> None:
    job = models.job(*models.data, target=target, array="8x128" if target != "ideal" else None)
    quantized, tiled = passed(models.small, job, "quantized", "tiled")
    for graph, other in zip(quantized.graphs[:2], tiled.graphs[:2], strict=True):
        rows = {"x": job.rows(graph.name)[:7]}
        expected, found = graph.run(rows), other.run(rows)
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value)
    a, b = (Simulator(p).scores(job.text, job.video) for p in (quantized, tiled))
    np.testing.assert_array_equal(a, b)


def test_a_layer_is_laid_out_as_the_settings_say(models: SimpleNamespace) -> None:
    layers = {"text.mu": {"weight_bits": 6, "adc_bits": 5}}
    job = models.job(*models.data, target="isaac-rram-128", layers=layers)
    _, tiled = passed(models.small, job, "quantized", "tiled")
    ops = {n.name: n.op for n in tiled.text.nodes if isinstance(n.op, CrossbarMvm)}
    assert ops.keys() == {"fc1", "fc2", "mu", "logvar"}
    assert (ops["mu"].crossbar.weights.bits, ops["mu"].crossbar.converter.bits) == (6, 5)
    assert (ops["fc1"].crossbar.weights.bits, ops["fc1"].crossbar.converter.bits) == (8, 8)
    assert ops["mu"].references == (None,) * 3
    assert ops["fc1"].crossbar.inputs.name == "twos-complement"
    assert ops["fc2"].crossbar.inputs.name == "unsigned"  # after a ReLU
    assert ops["fc2"].crossbar.inputs.bits == 8


@pytest.mark.parametrize(
    ("lo", "hi", "encoding", "bits"),
    [
        (0, 255, "unsigned", 8),
        (-127, 127, "bipolar", 8),
        (-128, 3, "bipolar", 9),  # 128 is a magnitude of 8 bits
        (-1, 0, "bipolar", 2),
    ],
)
def test_a_sign_and_magnitude_hold_every_input(
    models: SimpleNamespace, lo: int, hi: int, encoding: str, bits: int
) -> None:
    settings = models.job(*models.data, target="hermes-pcm-14nm").settings
    crossbar = settings.crossbar(settings.input_code(integer(("n", 3), lo, hi, 1.0)))
    assert (crossbar.inputs.name, crossbar.inputs.bits) == (encoding, bits)
    weight, steps = np.eye(3, dtype=np.int64), crossbar.no_references
    op = CrossbarMvm(StoredWeights(weight, crossbar), np.zeros(3, np.int64), np.ones(3), steps)
    x = np.array([[lo, hi, 0]])
    np.testing.assert_array_equal(op.run(x), x)


def stages(program: Program, job: Job) -> list[Program]:
    return passed(program, job, "tiled", "converters fitted")


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
    job = models.job(*models.data, target="hermes-pcm-14nm", adc_bits=4)
    tiled, fitted = stages(models.small, job)
    assert not all(op.exact for op in layers(fitted.text).values())
    wanted, found = (layer_means(p.text, job.text) for p in (tiled, fitted))
    for name, mean in found.items():
        unit = tiled.text.types[name].unit
        assert (np.abs(mean - wanted[name]) <= 0.51 * unit).all(), name
    a, b = (Simulator(p).scores(job.text, job.video) for p in (tiled, fitted))
    assert 0 < np.sqrt(np.square(a - b).mean()) < a.std() / 2


def test_more_converter_bits_cost_less(models: SimpleNamespace) -> None:
    errors = []
    for bits in (2, 4, 6):
        job = models.job(*models.data, target="hermes-pcm-14nm", adc_bits=bits)
        a, b = (Simulator(p).scores(job.text, job.video) for p in stages(models.small, job))
        errors.append(float(np.square(a - b).mean()))
    assert errors == sorted(errors, reverse=True)


def scatter(op: CrossbarMvm, x: IntArray) -> float:
    """Scatter of the layer's output around the exact one, means taken off."""
    off = (op.run(x) - x @ op.weight - op.bias) * op.scale
    return float(np.square(off - off.mean(axis=0)).sum())


@pytest.mark.parametrize("encoding", ["differential", "offset", "offset-flip"])
@pytest.mark.parametrize("inputs", ["twos-complement", "offset", "bipolar"])
@pytest.mark.parametrize("rounding", ["half-up", "half-even", "floor"])
def test_the_step_is_the_one_of_least_error(encoding: str, inputs: str, rounding: str) -> None:
    rng = np.random.default_rng(0)
    crossbar = crossbar_of(None, 8, 8, encoding, 8, inputs, 8, 6, rounding, 32)
    weight = rng.integers(-127, 128, (30, 5))
    x = np.rint(rng.normal(size=(40, 30)) * 30).astype(np.int64).clip(-127, 127)
    op = CrossbarMvm(StoredWeights(weight, crossbar), np.zeros(5, np.int64), np.ones(5), (None,))
    (found,) = fit_references(op, x)
    assert found is not None
    (tried,) = column_errors(op, x, op.crossbar.scope)
    assert tried is not None
    scatters = {
        one.step.item(): scatter(replace(op, references=(one,)), x) for one in tried.references
    }
    assert len(scatters) == TRIED_STEPS
    assert scatters[found.step.item()] <= min(scatters.values()) * 1.0001


PLAIN = crossbar_of(16, 4, 2, "offset", 8, "twos-complement", 8, 5, "half-up", 32)
FORMS = {
    "plain": PLAIN,
    "flipped": changed(PLAIN, encoding="offset-flip"),
    "fewer rows active": changed(PLAIN, rows_active=5),
    "polarity": changed(PLAIN, encoding="differential", adc_on="polarity"),
    "analog": changed(PLAIN, encoding="differential", shift_add="analog", input_encoding="bipolar"),
    "unit column": changed(PLAIN, encoding="offset-flip", offset_sum="unit-column"),
    "leak": changed(PLAIN, encoding="offset-flip", leak=900),
    "leak of idle rows": changed(PLAIN, leak=900, unused_rows="driven", input_encoding="offset"),
    "leak of polarities": changed(PLAIN, encoding="differential", adc_on="polarity", leak=900),
    "table": changed(PLAIN, rounding=None, transfer=tuple(range(3, 31 * 17, 17))),
    "table, leak": changed(PLAIN, rounding=None, transfer=tuple(range(3, 31 * 17, 17)), leak=900),
}


def random_layer(hardware: Crossbar) -> tuple[CrossbarMvm, IntArray]:
    rng = np.random.default_rng(7)
    weight = np.rint(rng.normal(size=(37, 4)) * 40).astype(np.int64).clip(-127, 127)
    weight[:, 0] = np.abs(weight[:, 0])
    x = np.rint(rng.normal(size=(30, 37)) * 40).astype(np.int64).clip(-127, 127)
    stored, scale = StoredWeights(weight, hardware), np.array([1.0, 0.25, 0.5, 1.0])
    return CrossbarMvm(stored, np.arange(4), scale, hardware.no_references), x


@pytest.mark.thorough(
    "every form of a layer; each kernel has some in the first tier", quick=("plain", "leak")
)
@pytest.mark.parametrize("kind", get_args(AdcReferenceKind))
@pytest.mark.parametrize("form", FORMS)
def test_candidates_err_what_the_contract_says(form: str, kind: AdcReferenceKind) -> None:
    """Each tried for each column alone, all other conversions lossless, against the reference."""
    op, x = random_layer(replace(FORMS[form], references=kind))
    places = op.crossbar.places
    tried = 0
    for k, column in enumerate(column_errors(op, x, op.crossbar.scope)):
        pairs = [] if column is None else zip(column.references, column.errors, strict=True)
        for one, errors in pairs:
            references = [one if k == i else None for i in range(len(op.references))]
            found = replace(op, references=tuple(references)).run(x)
            exact = x @ op.weight + op.bias
            np.testing.assert_array_equal(exact + (errors + (1 << places >> 1) >> places), found)
            tried += 1
    assert tried >= (5 if op.crossbar.scope.chosen else 1)


@pytest.mark.parametrize("form", FORMS)
def test_no_other_step_of_one_column_is_better(form: str) -> None:
    """The steps are chosen together: what conversions err adds up, or cancels."""
    op, x = random_layer(FORMS[form])
    references = fit_references(op, x)
    assert len(references) == op.crossbar.slices + (form == "unit column")
    fitted = replace(op, references=references)
    least = scatter(fitted, x)
    assert least > 0
    for k, one in enumerate(references):
        for other in [] if one is None else [one.step.item() >> 1, one.step.item() << 1]:
            if other:
                others = (*references[:k], AdcReferences.from_zero(other), *references[k + 1 :])
                assert scatter(replace(fitted, references=others), x) >= least * 0.9999


@pytest.mark.thorough(
    "each form of a layer; some are in the first tier", quick=("plain", "leak", "polarity")
)
@pytest.mark.parametrize("form", FORMS)
def test_references_that_are_set_err_less(form: str) -> None:
    """The more of them can be set, the less; fixed ones are steps and offsets like any other."""
    errors = {}
    for kind in get_args(AdcReferenceKind):
        op, x = random_layer(replace(FORMS[form], references=kind))
        errors[kind] = scatter(replace(op, references=fit_references(op, x)), x)
    # Steps of the full scale need be no power of two, which may suit a layer by chance.
    assert errors["fixed"] < 1.1 * errors["full-scale"]
    assert errors["column"] < errors["fixed"]
    assert errors["slice"] < 1.1 * errors["fixed"]
    assert errors["cycle"] < 1.05 * errors["column"]
    assert errors["gain"] < errors["fixed"]
    assert errors["levels"] < errors["column"]


@pytest.mark.parametrize("kind", get_args(AdcReferenceKind))
def test_sums_without_room_give_the_same_references(
    kind: AdcReferenceKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    op, x = random_layer(replace(FORMS["polarity"], references=kind))
    kept = fit_references(op, x)
    monkeypatch.setattr("cimtool.passes.fitting.MOST_KEPT", 0)
    again = fit_references(op, x)
    for one, other in zip(kept, again, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert np.array_equal(one.step, other.step)
            assert np.array_equal(one.offset, other.offset)


@pytest.mark.parametrize("kind", ["slice", "column"])
def test_each_polarity_has_a_step_and_an_offset_of_its_own(kind: AdcReferenceKind) -> None:
    """Weights of 60 to 120 beside a few of -10 to 0: other sums on each side of every pair."""
    hardware = replace(FORMS["polarity"], references=kind)
    rng = np.random.default_rng(5)
    weight = np.where(rng.random((16, 4)) < 0.7, 90, -5) + rng.integers(-5, 6, (16, 4))
    stored, x = StoredWeights(weight, hardware), rng.integers(64, 128, (30, 16))
    op = CrossbarMvm(stored, np.zeros(4, np.int64), np.ones(4), hardware.no_references)
    found = fit_references(op, x)
    assert len(found) == hardware.slices == 2 * hardware.weights.slices
    positive, negative = found[2], found[3]  # of the high slice
    assert positive is not None
    assert negative is None or negative.step.item() < positive.step.item()


def settable(reference: str, **limits: object) -> SettableReference:
    values = {"each": "slice", "source": "here", "status": "derived"}
    return SettableReference.model_validate({"reference": reference, **values, **limits})


def fitted(kind: AdcReferenceKind, *limits: SettableReference) -> list[AdcReferences]:
    """References of four slices, or of two in eight cycles, whose sums differ in size."""
    hardware = replace(changed(PLAIN, encoding="differential", adc_on="polarity"), references=kind)
    rng = np.random.default_rng(5)
    weight = np.where(rng.random((37, 4)) < 0.6, 90, -9) + rng.integers(-9, 10, (37, 4))
    stored, x = StoredWeights(weight, hardware), rng.integers(-128, 128, (30, 37))
    op = CrossbarMvm(stored, np.zeros(4, np.int64), np.ones(4), hardware.no_references)
    found = [one for one in fit_references(op, x, settable=limits) if one is not None]
    assert len(found) >= 3
    return found


@pytest.mark.parametrize("kind", ["slice", "column", "gain", "cycle"])
def test_no_step_or_offset_is_out_of_its_range(kind: AdcReferenceKind) -> None:
    free = fitted(kind)
    assert max(int(one.step.max()) for one in free) > 18
    assert min(int(one.offset.min()) for one in free) < 2
    limits = settable("step", range=[2.25, 4.5]), settable("offset", range=[0.5, 6.25])
    for one in fitted(kind, *limits):
        assert 9 <= one.step.min() <= one.step.max() <= 18
        assert 2 <= one.offset.min() <= one.offset.max() <= 25


@pytest.mark.parametrize("kind", ["slice", "column", "gain", "cycle"])
def test_references_are_those_that_there_are_settings_for(kind: AdcReferenceKind) -> None:
    """Steps of 1, 2, 4 and 8 digits, and offsets of -8, 0, 8, 16 and 24 digits."""
    steps = settable("step", range=[1, 8], settings=4)
    offsets = settable("offset", range=[-8, 24], settings=5)
    for one in fitted(kind, steps, offsets):
        assert set(one.step.ravel().tolist()) <= {4, 8, 16, 32}
        assert set(one.offset.ravel().tolist()) <= {-32, 0, 32, 64, 96}


@pytest.mark.thorough("one kind stands for the others", quick=("column",))
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("kind", ["slice", "column", "cycle"])
def test_a_layer_has_no_more_steps_than_there_are_settings(
    kind: AdcReferenceKind, count: int
) -> None:
    assert len({one.step.item() for one in fitted(kind)}) >= 3
    assert len({one.step.item() for one in fitted(kind, settable("step", settings=count))}) <= count
    said = settable("step", settings=count, range="words of the source")
    assert len({one.step.item() for one in fitted(kind, said)}) <= count


def test_steps_of_columns_follow_the_spread_of_their_sums_and_lose_less() -> None:
    """Columns whose weights differ by a factor of 8 share no step."""
    hardware = changed(
        PLAIN, encoding="differential", cell_bits=7, dac_bits=8, adc_bits=4,
        input_encoding="unsigned",
    )  # fmt: skip
    rng, wide = np.random.default_rng(2), np.repeat([15, 120], 5)
    weight, x = np.rint(wide * rng.uniform(-1, 1, (90, 10))), rng.integers(0, 256, (400, 90))
    errors, found = {}, {}
    for kind in ("column", "gain"):
        stored = StoredWeights(weight.astype(np.int64), replace(hardware, references=kind))
        bare = stored.crossbar.no_references
        op = CrossbarMvm(stored, np.zeros(10, np.int64), np.ones(10), bare)
        found[kind] = fit_references(op, x[:64])
        off = replace(op, references=found[kind]).run(x[64:]) - x[64:] @ op.weight
        errors[kind] = off.std(axis=0)
    (one,) = found["gain"]
    assert one is not None
    assert one.step.shape == (len(stored.groups), 10)
    assert one.step[:, 5:].min() > 2 * one.step[:, :5].max()
    assert errors["gain"][:5].max() < errors["column"][:5].min() / 2
    assert errors["gain"][5:].mean() < errors["column"][5:].mean() * 1.1


def test_nothing_binds_references_that_are_fixed() -> None:
    found = fitted("fixed", settable("step", range=[8, 16]), settable("offset", range=[1, 2]))
    assert [(one.step.item(), one.counts_from_zero) for one in found] == [(4, True)] * len(found)


def test_full_scale_is_one_step_whatever_the_sums() -> None:
    """16 rows of digits to 15, driven by digits to 3: 720 over 31 codes, 23.23 in quarters."""
    for limits in ((), (settable("step", range=[1, 2]),)):
        found = fitted("full-scale", *limits)
        assert [(one.step.item(), one.counts_from_zero) for one in found] == [(93, True)] * len(
            found
        )


@pytest.mark.parametrize(
    ("target", "flags", "said"),
    [
        ("charge-65nm-princeton", {}, "up to 9.25 times finer than if codes covered all"),
        ("charge-65nm-princeton", {"references": "full-scale"}, None),
        ("isaac-rram-128", {}, None),  # its codes cover what an array can sum
        ("sonos-40nm", {}, None),  # a source says that its range can be set
        ("dcim-28nm-isscc22", {}, None),
    ],
)
def test_a_range_that_is_taken_as_set_without_a_source_is_a_warning(
    target: str, flags: dict[str, str], said: str | None, small_trunk: DemoFiles
) -> None:
    files = small_trunk
    made = prepare(
        files.projectors,
        files.poly,
        calibration=files.calibration,
        drift="given",
        target=target,
        **flags,
    )
    noted = [note for note in made.notes if "range of converters is set" in note]
    assert len(noted) == (said is not None)
    for note in noted:
        assert note.startswith('warning: references = "fixed" takes for granted ')
        assert said in note
    for op in made.stages[-1].program.text.operations(CrossbarMvm).values():
        if flags:
            assert {one.step.item() for one in op.references if one is not None} == {37}


def test_offsets_of_levels_are_within_their_range() -> None:
    for one in fitted("levels", settable("offset", range=[1, 3])):
        assert 4 <= one.offset.min() <= one.offset.max() <= 12


def test_a_range_as_wide_as_the_sums_loses_nothing() -> None:
    """Sums of 40 to 100 digits need 6 bits from 40 on, and 7 from zero."""
    hardware = replace(changed(PLAIN, rows=None, adc_bits=6), references="column")
    weight = np.full((20, 2), 7 - 128)  # one slice of 4 bits holds 7, the other nothing
    rng = np.random.default_rng(3)
    x = np.stack([rng.permutation(np.repeat([0, 1], [20 - n, n])) for n in range(6, 15)])
    stored = StoredWeights(weight, hardware)
    op = CrossbarMvm(stored, np.zeros(2, np.int64), np.ones(2), hardware.no_references)
    fitted = replace(op, references=fit_references(op, x))
    np.testing.assert_array_equal(fitted.run(x), op.run(x))
    fixed = with_crossbar(op, replace(hardware, references="fixed"))
    found = replace(fixed, references=fit_references(fixed, x))
    assert (found.run(x) != op.run(x)).any()


def test_units_of_columns_count() -> None:
    """A column of a large unit decides over one of a small unit."""
    rng = np.random.default_rng(8)
    hardware = changed(PLAIN, encoding="differential", cell_bits=7, adc_bits=4, rows=None)
    weight = np.stack([np.full(30, 100), np.full(30, 1)], axis=1)
    x = rng.integers(-60, 60, (50, 30))
    stored = StoredWeights(weight, hardware)
    steps = []
    for unit in ((1.0, 1e-3), (1e-3, 1.0)):
        op = CrossbarMvm(stored, np.zeros(2), np.array(unit), (None,))
        (found,) = fit_references(op, x)
        assert found is not None
        steps.append(found.step.item())
    assert steps[0] > steps[1]


def test_slices_are_judged_one_by_one() -> None:
    """Slices of small digits are lossless where others are not."""
    crossbar = crossbar_of(16, 4, 1, "offset", 8, "twos-complement", 8, 7, "half-up", 32)
    weight = np.tile([[15 - 128, 2 - 128]], (16, 1))  # U = 15 and 2: the upper digit is 0
    stored = StoredWeights(weight, crossbar)
    op = CrossbarMvm(stored, np.zeros(2, np.int64), np.ones(2), (None, None))
    low, high = fit_references(op, np.full((3, 16), -1))
    assert low is not None
    assert high is None


def test_bipolar_inputs_drive_a_differential_column_from_both_sides() -> None:
    """Cells of both signs add up where inputs have their signs: 7-bit codes do not hold it."""
    crossbar = crossbar_of(None, 3, 8, "differential", 4, "bipolar", 5, 8, "half-up", 32)
    weight = np.array([[7], [-7]])
    op = CrossbarMvm(StoredWeights(weight, crossbar), np.zeros(1, np.int64), np.ones(1), (None,))
    x = np.array([[15, -15], [-15, 15]])  # 15 * 7 + 15 * 7 = 210 is beyond 127
    (found,) = fit_references(op, x)
    assert found is not None
    assert found.step.item() == 2


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
