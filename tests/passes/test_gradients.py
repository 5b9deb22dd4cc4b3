"""Gradients of logits against differences, through every operation and through whole models."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from small_models import passed

from cimtool.ir.arithmetic import (
    Add,
    Arrange,
    Axis,
    BatchMatMul,
    Clip,
    MatMul,
    Mul,
    Mvm,
    Store,
    Sum,
    SumOfMaxima,
)
from cimtool.ir.backends import GRADIENTS
from cimtool.ir.op import Op
from cimtool.ir.program import MODALITIES, Program
from cimtool.passes.gradients import DRAWS, GRADIENT_BITS, backwards, logit_gradients
from cimtool.passes.lower import LowerPass
from cimtool.simulation.simulator import Runner, Simulator

RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape)


OPERATIONS: list[tuple[Op, tuple[np.ndarray, ...]]] = [
    (Mvm(normal(4, 3), normal(3)), (normal(5, 4),)),
    (MatMul(), (normal(5, 4), normal(6, 4))),
    (BatchMatMul(2, 3), (normal(8, 4), normal(12, 4))),
    (SumOfMaxima(2, 3), (normal(8, 15),)),
    (Mul(), (normal(5, 4), normal(5, 4))),
    (Mul(), (normal(5, 4), normal(5, 1))),
    (Mul(), (normal(5, 4), normal(4))),
    (Add((normal(4), np.asarray(2.0)), normal(4)), (normal(5, 4), normal(5, 4))),
    (Add((np.asarray(1.0), np.asarray(-3.0)), np.asarray(0.5)), (normal(5, 1), normal(1, 6))),
    (Sum(), (normal(5, 4),)),
    (Clip(np.asarray(-0.5), normal(4) + 1), (normal(5, 4),)),
    (Axis(0), (normal(5),)),
    (Axis(1), (normal(5),)),
    (Store("activation", 8), (normal(5, 4),)),
    (Arrange(2, np.array([[0, 3, 3], [5, 3, 1]])), (normal(6, 3),)),
]


@pytest.mark.parametrize(("op", "inputs"), OPERATIONS, ids=lambda value: getattr(value, "name", ""))
def test_the_gradient_of_an_operation_is_its_slope(op: Op, inputs: tuple[np.ndarray, ...]) -> None:
    result = op.run(*inputs)
    towards = normal(*result.shape)
    found = GRADIENTS.of(op)(op, list(inputs), towards)
    assert [one.shape for one in found] == [x.shape for x in inputs]
    for place, x in enumerate(inputs):
        step = 1e-6 * normal(*x.shape)
        moved = [*inputs[:place], x + step, *inputs[place + 1 :]]
        back = [*inputs[:place], x - step, *inputs[place + 1 :]]
        wanted = float((towards * (op.run(*moved) - op.run(*back))).sum()) / 2
        assert float((found[place] * step).sum()) == pytest.approx(wanted, rel=1e-5, abs=1e-12)


def lowered(models: SimpleNamespace) -> tuple[Program, object]:
    job = models.job(*models.data)
    return passed(models.small, job, LowerPass.name)[0], job


def with_bias(program: Program, modality: str, layer: str, change: np.ndarray) -> Program:
    graph = getattr(program, modality)

    def changed(op: Op) -> Op:
        assert isinstance(op, Mvm)
        return replace(op, bias=op.bias + change)

    nodes = tuple(
        replace(node, op=changed(node.op)) if node.name == layer else node for node in graph.nodes
    )
    return replace(program, **{modality: replace(graph, nodes=nodes)})


@pytest.mark.parametrize("modality", ["text", "video"])
@pytest.mark.parametrize("layer", ["fc1", "fc2", "mu", "logvar"])
def test_the_mean_logit_moves_with_a_bias_as_its_gradient_says(
    models: SimpleNamespace, modality: str, layer: str
) -> None:
    program, job = lowered(models)
    gradients = logit_gradients(program, job)[f"{modality}.{layer}"]
    count = len(gradients.mean)
    assert count == len(job.text) // 2 * 2
    width = gradients.mean.shape[1]
    # In a unit of their own: from one direction's slope to the next.
    slopes = []
    for k in range(min(width, 4)):
        step = 1e-5 * np.eye(width)[k]
        ends = [
            Simulator(with_bias(program, modality, layer, sign * step)).scores(
                job.text[:count], job.video[:count]
            ).mean()
            for sign in (1, -1)
        ]  # fmt: skip
        slopes.append((ends[0] - ends[1]) / 2e-5)
    found = gradients.mean.mean(axis=0)[: len(slopes)]
    unit = float(found @ slopes / (found @ found))
    assert np.log2(unit) == pytest.approx(round(np.log2(unit)), abs=0.02)
    np.testing.assert_allclose(found * unit, slopes, atol=2e-3 * np.abs(slopes).max())


def test_signs_add_the_squares_of_single_pairs(models: SimpleNamespace) -> None:
    program, job = lowered(models)
    drawn = logit_gradients(program, job)["text.mu"].drawn
    assert 1 << GRADIENT_BITS - 1 <= np.abs(drawn).max() <= 1 << GRADIENT_BITS
    rows = len(drawn) // DRAWS
    names = ["x", *(node.name for node in program.text.nodes)]
    values = Runner(program.text).values({"x": job.text[:rows]}, names)
    features = {m: Simulator(program).encode(m, job.rows(m)[:rows]) for m in ("text", "video")}
    inputs = {f"{m}.{k}": x for m, own in features.items() for k, x in own.items()}
    score = program.score
    pairs = Runner(score).values(inputs, [*score.inputs, *(node.name for node in score.nodes)])
    squares = np.zeros((rows, drawn.shape[1]))
    for other in range(rows):
        one = np.zeros((rows, rows))
        one[:, other] = 1
        (logit,) = score.outputs.values()
        seen = backwards(score, pairs, {logit: one}, score.inputs)
        starts = {v: seen[f"text.{k}"] for k, v in program.text.outputs.items()}
        squares += np.square(backwards(program.text, values, starts, ["mu"])["mu"]) / rows
    found = np.square(drawn.astype(float)).reshape(DRAWS, rows, -1).mean(axis=(0, 1))
    wanted = squares.mean(axis=0)
    shares = found / wanted
    np.testing.assert_allclose(shares / shares.mean(), 1, atol=0.25)


def test_a_layer_that_no_logit_reads_has_no_gradient(models: SimpleNamespace) -> None:
    program, job = lowered(models)
    score = replace(program.score, outputs={"logit": "mu.mu"}).pruned()
    found = logit_gradients(replace(program, score=score), job)
    assert found.keys() == {f"{m}.{layer}" for m in MODALITIES for layer in ("fc1", "fc2", "mu")}


def test_nothing_is_derived_behind_the_layers_that_are_asked_for(models: SimpleNamespace) -> None:
    program, job = lowered(models)
    graph, layers = program.text, program.text.operations(Mvm)
    names = ["x", *(node.name for node in graph.nodes)]
    values = Runner(graph).values({"x": job.text[:4]}, names)
    starts = {name: np.ones_like(values[name]) for name in graph.outputs.values()}
    every = backwards(graph, values, starts, ["x", *layers])
    asked = layers.keys() - {"fc1"}
    before = names[: names.index("fc1")]
    assert before
    found = backwards(graph, {k: v for k, v in values.items() if k not in before}, starts, layers)
    assert found.keys() == every.keys() - {"x"}
    later = backwards(
        graph, {k: v for k, v in values.items() if k not in [*before, "fc1"]}, starts, asked
    )
    assert later.keys() == asked
    for name, gradient in (found | later).items():
        np.testing.assert_array_equal(gradient, every[name])
