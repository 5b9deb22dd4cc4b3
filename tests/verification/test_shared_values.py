from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cimtool.base.progress import silent
from cimtool.bundle.bundle import Bundle
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.arithmetic import Add, Mvm
from cimtool.ir.program import MODALITIES, Graph, Program
from cimtool.loading.embeddings import Embeddings
from cimtool.simulation.simulator import Simulator
from cimtool.verification.shared_values import (
    alike,
    same_program,
    shared_values,
    sharing,
    taken_over,
)
from cimtool.verification.stages import encode, run_sharing

from .conftest import MakeBundle, two_branch

LOSSLESS = {"target": "isaac-rram-128"}
LOSSY = {"target": "isaac-rram-128", "adc_bits": 5}


def with_node(graph: Graph, name: str, **values: object) -> Graph:
    """The graph with other fields of an operation."""
    nodes = tuple(
        replace(node, op=replace(node.op, **values)) if node.name == name else node
        for node in graph.nodes
    )
    return replace(graph, nodes=nodes)


@pytest.fixture(scope="module")
def lossless(make_bundle: MakeBundle) -> Bundle:
    return make_bundle("lossless", **LOSSLESS)


def programs(bundle: Bundle) -> dict[str, Program]:
    return {stage.name: stage.program for stage in bundle.stages}


@pytest.mark.thorough("one model stands for the others", quick=("lossy-trunk",))
@pytest.mark.parametrize("module", ["trunk", "two_branch"])
@pytest.mark.parametrize("choices", [LOSSLESS, LOSSY], ids=["lossless", "lossy"])
def test_stages_are_the_same_to_the_last_bit_as_each_alone(
    make_bundle: MakeBundle, module: str, choices: dict[str, object]
) -> None:
    other = {} if module == "trunk" else {"module": two_branch}
    width = 12 if module == "trunk" else 10
    rng = np.random.default_rng(5)
    rows = {k: rng.normal(size=(300, width)).astype(np.float32) for k in ("text", "video")}
    some = {name: one[:64] for name, one in rows.items()}
    bundle = make_bundle("alone", calibration=some, **other, **choices)
    data = Embeddings(rows["text"], rows["video"], np.arange(300))
    stages = bundle.stages[1:]
    groups = sharing(stages)
    assert [one.name for group in groups for one in group] == [stage.name for stage in stages]
    found = [one for group in groups for one in run_sharing(group, data, {}, silent)]
    for stage, result in zip(stages, found, strict=True):
        simulator = Simulator(stage.program)
        features = encode(simulator, data)
        for modality, values in features.items():
            assert values.keys() == result.features[modality].keys()
            for name, value in values.items():
                np.testing.assert_array_equal(result.features[modality][name], value)
        scores = simulator.score(features["text"], features["video"])
        np.testing.assert_array_equal(result.scores, scores)


def test_lowered_layers_are_the_folded_ones(lossless: Bundle) -> None:
    known = programs(lossless)
    taken = taken_over(known["folded"].text, known["lowered"].text)
    assert taken["fc1"] is None
    assert taken["logvar"] == "logvar"
    assert not taken_over(known["lowered"].text, known["quantized"].text)


def test_stages_on_lossless_converters_are_the_same(lossless: Bundle) -> None:
    *_, quantized = sharing(lossless.stages[1:])
    assert [(one.name, one.same) for one in quantized] == [
        ("quantized", False),
        ("tiled", True),
        ("converters fitted", True),
    ]


def test_converters_that_lose_something_are_not_the_same(make_bundle: MakeBundle) -> None:
    known = programs(make_bundle("lossy", **LOSSY))
    assert same_program(known["quantized"], known["tiled"])
    assert not same_program(known["tiled"], known["converters fitted"])


def test_a_layer_of_other_weights_and_all_behind_it_are_not_shared(lossless: Bundle) -> None:
    graph = programs(lossless)["quantized"].text
    op = graph.by_name["fc2"].op
    other = with_node(graph, "fc2", weight=op.weight + 1)
    found = shared_values(graph, other)
    assert "relu1.stored" in found
    assert not {"fc2", "relu2.stored", "mu", "mu_stored"} & found.keys()


def test_an_operation_on_other_inputs_is_not_shared(lossless: Bundle) -> None:
    graph = programs(lossless)["quantized"].text
    assert graph.by_name["fc2"].inputs == ("relu1.stored",)
    nodes = tuple(
        replace(node, inputs=("x.stored",)) if node.name == "fc2" else node for node in graph.nodes
    )
    found = shared_values(graph, replace(graph, nodes=nodes))
    assert {"x.stored", "relu1.stored"} <= found.keys()
    assert not {"fc2", "mu"} & found.keys()


def test_features_of_real_numbers_are_not_those_of_another_program(lossless: Bundle) -> None:
    known = programs(lossless)
    assert same_program(known["quantized"], known["quantized"])
    assert not same_program(known["folded"], known["folded"])


def test_an_operation_of_other_fields_is_another(lossless: Bundle) -> None:
    known = programs(lossless)
    for node in known["converters fitted"].text.nodes:
        same = known["tiled"].text.by_name[node.name].op
        assert alike(node.op, same)
        if isinstance(node.op, CrossbarMvm):
            assert not alike(node.op, replace(node.op, bias=node.op.bias + 1))
    requant = known["quantized"].text.by_name["relu1.stored"].op
    assert not alike(requant, replace(requant, hi=1))


def total(*factors: np.ndarray, offset: np.ndarray | None = None) -> Add:
    return Add(factors, np.zeros(3) if offset is None else offset)


def test_factors_are_compared_one_by_one() -> None:
    ones, twos = np.ones(3), np.full(3, 2.0)
    assert alike(total(ones, twos), total(ones.copy(), twos.copy()))
    assert not alike(total(ones, twos), total(twos, ones))
    assert not alike(total(ones, twos), total(ones))
    assert not alike(total(ones), total(ones.astype(np.int64)))
    assert not alike(total(np.float64(1)), total(np.ones(1)))
    assert not alike(total(ones), total(ones, offset=np.ones(3)))


def test_arrays_are_compared_by_what_they_hold(make_bundle: MakeBundle) -> None:
    graph = programs(make_bundle("lossy", **LOSSY))["converters fitted"].text
    one = graph.by_name["fc2"].op
    assert not one.exact
    again = replace(one, stored=replace(one.stored), bias=one.bias.copy())
    assert alike(one, again)
    assert not alike(one, replace(one, stored=replace(one.stored, weight=one.weight + 1)))
    first = one.references[0]
    other = (replace(first, offset=first.offset + 1), *one.references[1:])
    assert not alike(one, replace(one, references=other))


def test_a_kind_of_layer_of_another_is_not_its_product() -> None:
    class Other(Mvm):
        pass

    weight, bias = np.ones((2, 3)), np.zeros(3)
    assert alike(Mvm(weight, bias), Mvm(weight.copy(), bias))
    assert not alike(Mvm(weight, bias), Other(weight, bias))


def test_a_stage_that_takes_values_over_hands_none_on(lossless: Bundle) -> None:
    lowered = lossless.stages[2]
    chain = [*lossless.stages[1:3], *(replace(lowered, name=f"again {k}") for k in range(3))]
    groups = sharing(chain)
    assert [one.name for group in groups for one in group] == [stage.name for stage in chain]
    taken = [any(one.taken.values()) for group in groups for one in group]
    assert taken == [False, True, False, True, False]
    rows = np.random.default_rng(7).normal(size=(40, 12)).astype(np.float32)
    data = Embeddings(rows, rows[::-1].copy(), np.arange(40))
    results = [one for group in groups for one in run_sharing(group, data, {}, silent)]
    first, *last = results[1:]
    for result in last:
        for modality in MODALITIES:
            for name, value in first.features[modality].items():
                np.testing.assert_array_equal(result.features[modality][name], value)
        np.testing.assert_array_equal(result.scores, first.scores)
