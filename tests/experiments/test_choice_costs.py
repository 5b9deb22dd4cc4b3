"""Costs of a choice of bits: those that `cost` gives for the compiled bundle."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cimtool import api
from cimtool.base.progress import silent
from cimtool.base.toml_files import toml_text
from cimtool.costs.estimate import Estimate
from cimtool.costs.silicon import setup_width
from cimtool.demo.data import DemoFiles
from cimtool.experiments.choice_costs import ChoiceCosts
from cimtool.experiments.compiled import PointEvaluator
from cimtool.experiments.objectives import CostObjective
from cimtool.experiments.points import COMPILED, with_layers
from cimtool.experiments.references import kept_references, reference_name
from cimtool.experiments.widths import (
    MU,
    VARIANCE,
    LayerCosts,
    Width,
    by_layer,
    of_features,
    of_layers,
)
from cimtool.hardware.configuration import Configuration
from cimtool.loading.embeddings import read_data
from cimtool.loading.source import ModelSource
from cimtool.verification.ranked_data import ranked_data

ITEMS = 100_000


def costs_of(files: DemoFiles, target: str = "isaac-rram-128", **settings: Any) -> ChoiceCosts:
    source = ModelSource(files.projectors, files.poly).for_rows(files.calibration)
    model = source.load(silent)
    rows, data = read_data(files.calibration, model), ranked_data(model, files.eval, None, None)
    known = kept_references(None, [model], data, silent, reference_name(model), 10)
    evaluator = PointEvaluator.of({COMPILED: model}, rows, data, known, None, ITEMS)
    build = Configuration.of(target, None, settings)
    first = evaluator.estimated(build)
    layers = LayerCosts.of(first.program, build, (), first.gallery)
    return ChoiceCosts(layers, CostObjective.of("query_energy"), evaluator.estimated)


@pytest.mark.thorough("one target stands for the others", quick=("isaac",))
@pytest.mark.parametrize("target", ["isaac-rram-128", "dcim-28nm-isscc22"])
def test_they_are_those_of_the_compiled_bundle(
    target: str, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    """Features of other bits, and on ISAAC a layer, whose digital work changes a little too."""
    files, costs = small_trunk, costs_of(small_trunk, target)
    bits = {**costs.bits, MU: 5, VARIANCE: 3}
    if target == "isaac-rram-128":
        bits[Width("text.fc1", "weight_bits")] = 4
    settings = tmp_path / "bits.toml"
    settings.write_text(toml_text(with_layers(of_features(bits), by_layer(of_layers(bits)))))
    built = api.compile(
        files.projectors, files.poly, calibration=files.calibration, target=target,
        settings=settings, drift="given", output=tmp_path / "bundle",
    )  # fmt: skip
    found, own = api.cost(built.folder, gallery=ITEMS), costs.cost(bits)
    assert found.query is not None
    assert own["arrays"] == found.floorplan.arrays
    assert own["conversions"] == found.text.conversions + found.video.conversions
    encoding = found.text.energy_pj.value + found.video.energy_pj.value  # type: ignore[operator]
    assert own["encoding_energy"] == pytest.approx(encoding, rel=5e-3)
    assert own["query_energy"] == pytest.approx(found.query.energy_pj.value, rel=1e-5)
    assert own["latency"] == pytest.approx(found.query.latency_ns.value, rel=1e-3)


def test_bits_of_features_decide_a_query_and_no_encoding(small_trunk: DemoFiles) -> None:
    costs = costs_of(small_trunk)
    few = {**costs.bits, MU: 4, VARIANCE: 4}
    before, after = costs.cost(costs.bits), costs.cost(few)
    assert after["query_energy"] < 0.65 * before["query_energy"]
    assert after["encoding_energy"] == pytest.approx(before["encoding_energy"], rel=0.02)
    assert after["arrays"] == before["arrays"]
    assert (costs.worthwhile(MU), costs.worthwhile(VARIANCE)) == (True, True)
    assert not costs.worthwhile(Width("text.fc1", "weight_bits"))
    of_arrays = replace(costs, objective=CostObjective.of("arrays"))
    assert (of_arrays.worthwhile(MU), of_arrays.worthwhile(VARIANCE)) == (False, False)
    assert of_arrays.worthwhile(Width("text.fc1", "weight_bits"))


@pytest.mark.thorough("every width of every layer; one is in the first tier")
def test_bits_of_no_layer_decide_a_query(small_trunk: DemoFiles) -> None:
    costs = costs_of(small_trunk)
    assert not any(map(costs.worthwhile, costs.layers.bits))


def test_what_is_saved_has_an_interval_narrower_than_both_energies(small_trunk: DemoFiles) -> None:
    """Nearly all energy is DRAM: its price cancels but for the reads that are saved."""
    costs = costs_of(small_trunk)
    few = {**costs.bits, MU: 4, VARIANCE: 4}
    found, before, after = costs.changes(few, costs), costs.cost(costs.bits), costs.cost(few)
    assert list(found) == ["query_energy", "encoding_energy", "latency"]
    for name, one in found.items():
        assert (one.before.value, one.after.value) == (before[name], after[name])
        assert one.times.value == pytest.approx(after[name] / before[name])
        assert one.times == one.times_first
        assert (one.before.low or 0) < before[name] < (one.before.high or 0)
    saved = found["query_energy"].times
    assert saved.low < saved.value < saved.high < 0.65 * setup_width().high
    assert saved.high / saved.low < setup_width().high / setup_width().low
    own = found["query_energy"].before
    assert saved.high / saved.low < 0.2 * (own.high or 0) / (own.low or 1)


def test_a_gallery_in_the_arrays_has_bits_of_its_own(small_trunk: DemoFiles) -> None:
    """With products left out, the cost is that of the products that stay."""
    costs = costs_of(small_trunk, score_mapping="in-memory", accumulator_bits=48)
    assert MU not in costs.bits
    product = Width("score.s.mu2", "weight_bits")
    bits = {**costs.bits, product: 0}
    before, after = costs.cost(costs.bits), costs.cost(bits)
    assert after["arrays"] < before["arrays"]
    assert after["query_energy"] < before["query_energy"]


def test_bits_of_a_text_count_in_a_query_by_shortlist(small_trunk: DemoFiles) -> None:
    costs = costs_of(small_trunk, score_mapping="hybrid", shortlist=2500)
    few = {**costs.bits, Width("text.fc1", "activation_bits"): 2}
    before, after = costs.cost(costs.bits), costs.cost(few)
    own, placed = costs.estimated(costs.configured(few)), costs._estimate(few)
    assert after["query_energy"] < before["query_energy"]
    assert after["latency"] < before["latency"]
    assert placed.text.energy_pj.value == pytest.approx(own.text.energy_pj.value, rel=5e-3)
    assert placed.text.latency_ns.value == pytest.approx(own.text.latency_ns.value, rel=2e-2)


def test_counts_are_compared_without_a_schedule(
    small_trunk: DemoFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = costs_of(small_trunk, score_mapping="in-memory", accumulator_bits=48)
    all_costs, found = costs.cost(costs.bits), costs.estimated(costs.start)
    assert found.score is not None
    assert found.score.conversions > 0
    assert found.conversions == (found.text + found.video + found.score).conversions
    fresh = replace(costs, objective=CostObjective.of("arrays"), _known={})
    monkeypatch.setattr(Estimate, "latency", None)
    assert fresh.prices(costs.bits) == (all_costs["arrays"], all_costs["conversions"])
