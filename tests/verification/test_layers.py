from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from crossbars import at_steps, changed, crossbar_of

from cimtool import api
from cimtool.base.arrays import IntArray
from cimtool.bundle.bundle import Bundle, read_bundle
from cimtool.handoff.taps import column_places, taps
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.stored import StoredWeights
from cimtool.loading.embeddings import Embeddings, embeddings_of
from cimtool.passes.gallery import COMPONENTS_LAYER, score_layers
from cimtool.simulation.simulator import Simulator
from cimtool.verification import layers as layers_module
from cimtool.verification.layers import (
    BINS,
    SUM_ROWS,
    LayerFinding,
    describe_columns,
    layer_findings,
    sqnr_db,
    worst_clipping,
)
from cimtool.verification.report import json_values

from .conftest import HIDDEN, WIDTH, D, MakeBundle, pairs

PLAIN = crossbar_of(8, 3, 2, "offset-flip", 6, "offset", 5, 4, "half-up", 32)
FORMS = {
    "unsigned": PLAIN,
    "floor": changed(PLAIN, rounding="floor"),
    "half even": changed(PLAIN, rounding="half-even", adc_bits=3),
    "lossless": changed(PLAIN, adc_bits=None),
    "difference": changed(PLAIN, encoding="differential", rows_active=3, adc_bits=3),
    "polarity": changed(PLAIN, encoding="differential", adc_on="polarity"),
    "analog": changed(PLAIN, encoding="differential", shift_add="analog", input_encoding="bipolar"),
    "unit column": changed(PLAIN, offset_sum="unit-column", input_encoding="twos-complement"),
    "leak": changed(PLAIN, leak=900, unused_rows="driven"),
    "cycles": changed(PLAIN, references="cycle", offset_sum="unit-column"),
    "table": changed(PLAIN, rounding=None, transfer=tuple(range(8, 15 * 16, 16))),
}


def layer(form: str) -> tuple[CrossbarMvm, IntArray]:
    rng = np.random.default_rng(3)
    hardware = FORMS[form]
    steps: tuple[int | None, ...] = (None,) * hardware.slices
    if hardware.converter.bits is not None:
        steps = tuple(int(s) for s in hardware.fraction_bits + rng.integers(1, 4, hardware.slices))
    unit_step = 1 if hardware.unit_column else None
    weight = rng.integers(-31, 32, (21, 4))
    stored, bias = StoredWeights(weight, hardware), rng.integers(-9, 9, 4)
    op = CrossbarMvm(stored, bias, np.ones(4), at_steps(hardware, steps, unit_step))
    return op, rng.integers(-15, 16, (6, 21))


def rounded(sums: IntArray, step: int, rounding: str | None) -> np.ndarray:
    """Codes without limits, in floating point: these sums are small."""
    p = sums / step
    if rounding == "floor":
        return np.floor(p)
    return np.rint(p) if rounding == "half-even" else np.floor(p + 0.5)


@pytest.mark.parametrize("form", FORMS)
def test_column_sums_are_those_at_the_taps(form: str) -> None:
    op, x = layer(form)
    sums = taps(op, x).sums
    columns = list(zip(column_places(op.layer), op.layer.columns, strict=True))
    found = describe_columns(op, x)
    assert len(found) == len(columns)
    for one, (part, column) in zip(found, columns, strict=True):
        seen = sums[:, :, column.cycles, part]
        step = None if column.law is None else column.one_step
        assert (one.lowest, one.highest) == (seen.min(), seen.max())
        assert one.conversions == seen.size
        assert one.step == (None if step is None else step / (1 << op.crossbar.places))
        assert len(one.counts) == len(one.edges) - 1 == BINS
        assert len(set(np.diff(one.edges))) == 1
        assert one.edges[0] <= one.lowest
        inside = [
            np.count_nonzero((seen >= a) & (seen < b))
            for a, b in zip(one.edges[:-1], one.edges[1:], strict=True)
        ]
        assert list(one.counts) == inside
        assert sum(inside) == seen.size
        if step is None:
            assert one.clipped == 0
            assert 0 < one.used <= 1
            continue
        law = op.crossbar.law
        assert law is not None
        lo, hi = law.lo, law.hi
        in_digits = step / (1 << op.crossbar.reference_bits)
        codes = rounded(seen, in_digits, getattr(law, "rounding", None))
        assert one.clipped == np.mean((codes < lo) | (codes > hi))
        ends = np.clip([codes.min(), codes.max()], lo, hi)
        assert one.used == max(
            end / limit for end, limit in zip(ends, (lo, hi), strict=True) if limit
        )


def test_some_forms_clip_and_others_do_not() -> None:
    """Otherwise the comparison above would be of zeros."""
    shares = {form: max(c.clipped for c in describe_columns(*layer(form))) for form in FORMS}
    assert min(shares[form] for form in ("unsigned", "difference", "analog", "table")) > 0.01
    assert shares["lossless"] == 0


def test_a_slice_by_hand() -> None:
    """One group of three rows and one slice, which holds |W|: sums 7 and 1, then -7 and 2."""
    hardware = crossbar_of(4, 3, 4, "differential", 4, "unsigned", 2, 3, "half-up", 32)
    weight = np.array([[7, 1], [-7, 2], [0, 3]])
    stored, steps = StoredWeights(weight, hardware), at_steps(hardware, (1,))
    op = CrossbarMvm(stored, np.zeros(2, np.int64), np.ones(2), steps)
    (found,) = describe_columns(op, np.array([[1, 0, 0], [0, 1, 0]]))
    # In steps of 2, halves up: codes 4 (clipped to 3) and 1, then -3 and 1.
    assert (found.lowest, found.highest, found.conversions) == (-7, 7, 4)
    assert (found.clipped, found.used) == (0.25, 1.0)
    assert (found.column, found.adc_bits, found.step) == ("slice 0", 3, 2)
    assert found.edges[:2] == (-7, -6)
    assert (found.counts[0], found.counts[8], found.counts[9], found.counts[14]) == (1, 1, 1, 1)


def test_the_used_part_of_a_lossless_range_is_that_of_the_proved_bounds() -> None:
    hardware = crossbar_of(4, 3, 4, "differential", 4, "unsigned", 2, None, None, 32)
    weight = np.array([[7, 1], [-5, 2]])
    op = CrossbarMvm(StoredWeights(weight, hardware), np.zeros(2, np.int64), np.ones(2), (None,))
    (found,) = describe_columns(op, np.array([[1, 1], [0, 2]]))  # sums 2, 3 and -10, 4
    assert (found.clipped, found.step) == (0, None)
    assert found.used == 10 / 15  # bounds are -3 * 5 and 3 * 7


def test_polarities_have_names() -> None:
    names = [one.column for one in describe_columns(*layer("polarity"))]
    assert names == ["slice 0 +", "slice 0 -", "slice 1 +", "slice 1 -"]
    assert describe_columns(*layer("unit column"))[-1].column == "unit column"
    names = [one.column for one in describe_columns(*layer("cycles"))]
    assert names[:4] == [f"slice 0, cycle {c}" for c in range(3)] + ["slice 1, cycle 0"]
    assert names[-1] == "unit column, cycle 2"


def test_the_ratio_of_signal_to_noise() -> None:
    assert sqnr_db(np.array([3.0, 4.0]), np.array([3.0, 5.0])) == pytest.approx(13.9794, abs=1e-4)
    assert sqnr_db(np.ones(3), np.ones(3)) is None
    assert sqnr_db(np.zeros(3), np.ones(3)) == -math.inf


@pytest.fixture(scope="module")
def coarse(make_bundle: MakeBundle) -> Bundle:
    return make_bundle("coarse", target="isaac-rram-128", adc_bits=3)


def programs(bundle: Bundle) -> SimpleNamespace:
    found = {stage.name: stage.program for stage in bundle.stages}
    return SimpleNamespace(lowered=found["lowered"], compiled=bundle.program)


def decibels(signal: np.ndarray, found: np.ndarray) -> float:
    return float(10 * np.log10((signal**2).sum() / ((signal - found) ** 2).sum()))


@pytest.mark.parametrize("height", [24, 7])
def test_a_layer_against_the_float_model_and_against_itself(
    coarse: Bundle, data: Embeddings, monkeypatch: pytest.MonkeyPatch, height: int
) -> None:
    """With readable operations and plain NumPy, for a layer in the middle of the video's."""
    rows = 24
    monkeypatch.setattr(layers_module, "block_height", lambda *_: height)
    found = {one.layer: one for one in layer_findings(coarse.stages, data, rows)}["video.fc2"]
    both = programs(coarse)
    lowered, compiled = both.lowered.video, both.compiled.video
    readable = Simulator(both.compiled, fast=False)
    names = ["relu1.stored", "fc2"]
    values = readable.values("video", data.video[:rows], names)
    x, y = (values[name] * compiled.types[name].scale for name in names)
    layers = [lowered.by_name[name].op for name in ("fc1", "fc2")]
    hidden = np.maximum(data.video[:rows] @ layers[0].weight + layers[0].bias, 0)
    trained = hidden @ layers[1].weight + layers[1].bias
    alone = x @ layers[1].weight + layers[1].bias
    assert found.sqnr_db == pytest.approx(decibels(trained, y), abs=1e-6)
    assert found.own_sqnr_db == pytest.approx(decibels(alone, y), abs=1e-6)
    assert (found.inputs, found.outputs) == (HIDDEN, HIDDEN)
    op = compiled.by_name["fc2"].op
    assert isinstance(op, CrossbarMvm)
    assert found.converters == describe_columns(op, values["relu1.stored"][:SUM_ROWS])


def test_every_layer_is_found_with_its_converters(coarse: Bundle, data: Embeddings) -> None:
    found = layer_findings(coarse.stages, data, simulator=Simulator(coarse.program))
    names = [f"{m}.{name}" for m in ("text", "video") for name in ("fc1", "fc2", "logvar", "mu")]
    assert [one.layer for one in found] == names
    assert (found[0].inputs, found[3].outputs) == (WIDTH, D)
    for one in found:
        op = (
            getattr(coarse.program, one.layer.partition(".")[0]).by_name[one.layer.split(".")[1]].op
        )
        assert [column.step for column in one.converters] == list(op.steps)
    assert found == layer_findings(coarse.stages, data)


@pytest.mark.thorough("one place of a gallery stands for the other", quick=("hybrid",))
@pytest.mark.parametrize("mapping", ["in-memory", "hybrid"])
def test_products_with_a_gallery_in_the_memory(
    mapping: str, make_bundle: MakeBundle, tmp_path: Path
) -> None:
    rows = pairs(40, seed=7)
    np.savez(tmp_path / "items.npz", **rows)
    digital = make_bundle(mapping, target="isaac-rram-128", adc_bits=3, score_mapping=mapping)
    folder = api.program(digital.folder, tmp_path / "items.npz").bundle.folder
    bundle, data = read_bundle(folder), embeddings_of(rows)
    before, found = (layer_findings(one.stages, data) for one in (digital, bundle))
    assert found[: len(before)] == before
    one = next(one for one in found if one.layer.endswith(".mu.mu"))
    layers = [one for one in score_layers(digital.model.head, mapping) if one != COMPONENTS_LAYER]
    assert [one.layer for one in found[len(before) :]] == layers
    program = bundle.program
    graph = program.score if program.shortlist is None else program.shortlist
    op = graph.by_name["mu.mu"].op
    mu = Simulator(program).encode("text", data.text)["mu"]
    gallery = Simulator(program).encode("video", data.video)["mu"]
    assert (one.inputs, one.outputs, one.sqnr_db) == (D, 40, None)
    exact = decibels((mu @ gallery.T).astype(float), op.run(mu).astype(float))
    assert one.own_sqnr_db == pytest.approx(exact, abs=1e-9)
    assert one.converters == describe_columns(op, mu[:SUM_ROWS])


def test_the_worst_clipping(coarse: Bundle, bundle: Bundle, data: Embeddings) -> None:
    found = layer_findings(coarse.stages, data)
    worst = worst_clipping(found)
    assert worst is not None
    assert worst[1].clipped == max(c.clipped for one in found for c in one.converters) > 0
    assert worst[1] in next(one.converters for one in found if one.layer == worst[0])
    assert worst_clipping(layer_findings(bundle.stages, data)) is None
    assert worst_clipping(()) is None


def test_findings_become_plain_values(coarse: Bundle, data: Embeddings) -> None:
    one = json_values(layer_findings(coarse.stages, data)[0])
    assert set(one) == set(LayerFinding.__dataclass_fields__)
    assert all(type(count) is int for column in one["converters"] for count in column["counts"])
    assert all(type(edge) is int for column in one["converters"] for edge in column["edges"])
