"""One loop: the same bits however rows are cut into blocks, and fast as the readable operations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from random_heads import random_matcher

from cimtool.api import Compilation, prepare
from cimtool.demo.data import DemoFiles
from cimtool.ir.arithmetic import Arrange, Mul, Sum
from cimtool.ir.program import Builder, Program
from cimtool.ir.types import integer
from cimtool.simulation import simulator
from cimtool.simulation.simulator import Runner, Simulator

Array = np.ndarray


@pytest.fixture(scope="module", params=["ideal", "hermes-pcm-14nm"])
def compilation(request: pytest.FixtureRequest, small_trunk: DemoFiles) -> Compilation:
    flags = {} if request.param == "ideal" else {"adc_bits": 6, "array": "16x64"}
    return prepare(
        small_trunk.projectors, small_trunk.poly, calibration=small_trunk.calibration,
        drift="given", target=request.param, **flags,
    )  # fmt: skip


@pytest.fixture
def program(compilation: Compilation) -> Program:
    return compilation.stages[-1].program


@pytest.fixture
def rows(small_trunk: DemoFiles) -> tuple[Array, Array]:
    with np.load(Path(small_trunk.eval)) as data:
        return data["text"], data["video"]


def assert_same(expected: dict[str, Array], found: dict[str, Array]) -> None:
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)
        assert found[name].dtype == value.dtype


@pytest.mark.parametrize("block", [1, 3, 39, 40, 41])
def test_features_do_not_depend_on_the_block_of_rows(
    program: Program, rows: tuple[Array, Array], block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulator = Simulator(program)
    expected = [simulator.encode(m, x) for m, x in zip(("text", "video"), rows, strict=True)]
    monkeypatch.setattr("cimtool.simulation.simulator.ROW_BLOCK", block)
    for modality, x, features in zip(("text", "video"), rows, expected, strict=True):
        assert_same(features, simulator.encode(modality, x))
        turned = simulator.encode(modality, x[::-1].copy())
        assert_same(features, {name: value[::-1] for name, value in turned.items()})


@pytest.mark.parametrize("block", [1, 50, 40 * 7])
def test_logits_do_not_depend_on_the_block_of_pairs(
    program: Program, rows: tuple[Array, Array], block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulator = Simulator(program)
    expected = simulator.scores(*rows)
    assert expected.shape == (40, 40)
    monkeypatch.setattr("cimtool.simulation.simulator.PAIR_BLOCK", block)
    np.testing.assert_array_equal(simulator.scores(*rows), expected)
    features = [simulator.encode(m, x) for m, x in zip(("text", "video"), rows, strict=True)]
    slices = [block for block, _ in simulator.iter_score(*features)]
    assert [s.start for s in slices] == [0, *(s.stop for s in slices)][:-1]
    assert slices[-1].stop == 40
    few = {name: value[5:8] for name, value in features[1].items()}
    np.testing.assert_array_equal(simulator.score(features[0], few), expected[:, 5:8])


def test_fast_is_readable_on_a_whole_program(program: Program, rows: tuple[Array, Array]) -> None:
    fast, readable = Simulator(program), Simulator(program, fast=False)
    for modality, x in zip(("text", "video"), rows, strict=True):
        assert_same(readable.encode(modality, x[:9]), fast.encode(modality, x[:9]))
    few = [x[:9] for x in rows]
    np.testing.assert_array_equal(fast.scores(*few), readable.scores(*few))


def test_inner_values_are_those_on_the_way(program: Program, rows: tuple[Array, Array]) -> None:
    graph = program.text
    names = [node.name for node in graph.nodes]
    values = Simulator(program).values("text", rows[0], names)
    for node in graph.nodes:
        inputs = [rows[0] if i == "x" else values[i] for i in node.inputs]
        np.testing.assert_array_equal(node.op.run(*inputs), values[node.name])


def test_values_are_forgotten_after_their_last_use_unless_asked_for() -> None:
    builder = Builder("text", {"x": integer(("n", 2), -9, 9, 1.0)})
    builder.add("total", Sum(), builder.add("square", Mul(), "x", "x"))
    graph = builder.graph({"out": "total", "again": "x"})
    x = np.array([[1, -3]])
    assert graph.run({"x": x})["out"].tolist() == [10]
    assert Runner(graph).run({"x": x})["again"] is x
    found = Runner(graph).values({"x": x}, ["square", "x"])
    assert list(found) == ["square", "x"]


def of_tokens() -> Program:
    """A compiled matcher of several tokens an item."""
    return random_matcher(6, "maxsim").program


def test_scores_of_tokens_do_not_depend_on_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    program, rng = of_tokens(), np.random.default_rng(1)
    assert program.score.numbers_of_pair > 4
    text, video = (
        Simulator(program).encode(graph.name, rng.normal(size=(130, graph.extent("x"))))
        for graph in (program.text, program.video)
    )
    wanted = Simulator(program, fast=False).score(text, video)
    for block, columns in ((1 << 18, 4096), (1 << 10, 64)):
        monkeypatch.setattr(simulator, "PAIR_BLOCK", block)
        monkeypatch.setattr(simulator, "UNIT_COLUMNS", columns)
        for fast in (True, False):
            np.testing.assert_array_equal(Simulator(program, fast).score(text, video), wanted)


def test_given_values_of_several_rows_an_item_go_with_their_block() -> None:
    graph = of_tokens().text
    (tokens,) = graph.operations(Arrange).keys() - {"mu_of_item"}
    x = np.random.default_rng(2).normal(size=(simulator.ROW_BLOCK + 9, graph.extent("x")))
    runner = Runner(graph)
    given = runner.rows_of(x, [tokens])
    assert len(given[tokens]) > len(x)
    found = runner.rows_of(x, list(graph.outputs.values()), given)
    np.testing.assert_array_equal(found[graph.outputs["mu"]], runner.encode(x)["mu"])
