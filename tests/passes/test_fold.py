"""Fold: the same numbers without batch normalisation, and means without what both sides share."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from cimtool.base.arrays import single
from cimtool.base.progress import silent
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.arithmetic import Add, Mvm
from cimtool.ir.heads import Head, assemble
from cimtool.ir.heads.csd import Csd
from cimtool.ir.heads.inclusion import InclusionHead
from cimtool.ir.heads.pcme_poly import PcmePoly
from cimtool.ir.heads.points import Cosine, Euclidean
from cimtool.ir.heads.probcosine import ProbCosine
from cimtool.ir.program import Builder, Program
from cimtool.ir.source import BatchNorm
from cimtool.ir.types import real
from cimtool.passes.fold import FoldPass, round_to_bits
from cimtool.passes.pipeline import compile_program
from cimtool.simulation.simulator import Runner, Simulator
from tests.kits.small_models import QUADRATIC


def statistics(program: Program, data: np.ndarray) -> dict[str, np.ndarray]:
    """ed and vd of all pairs."""
    simulator = Simulator(program)
    features = [simulator.encode(m, x) for m, x in zip(("text", "video"), data, strict=True)]
    ((_, values),) = simulator.iter_score(*features, ["ed", "vd", "logit"])
    return values


@pytest.fixture(scope="module")
def folded(models: SimpleNamespace) -> Program:
    return FoldPass().apply(models.small, models.job(*models.data))


def test_no_batch_normalisation_is_left(folded: Program) -> None:
    kinds = [type(node.op) for node in folded.text.nodes]
    assert BatchNorm not in kinds
    assert kinds.count(Mvm) == 4
    assert {n.name for n in folded.text.nodes if isinstance(n.op, Mvm)} == {
        "fc1", "fc2", "mu", "logvar",
    }  # fmt: skip


def test_ed_vd_and_logit_stay_what_they_were(models: SimpleNamespace, folded: Program) -> None:
    before, after = (statistics(p, models.data) for p in (models.small, folded))
    for name, value in before.items():
        np.testing.assert_allclose(after[name], value, rtol=2e-6, err_msg=name)


def test_one_vector_is_taken_from_both_sides(models: SimpleNamespace) -> None:
    program = models.small
    data = models.data
    folded = FoldPass().apply(program, models.job(*data))
    shifts = []
    for modality, x in zip(("text", "video"), data, strict=True):
        before, after = (Simulator(p).encode(modality, x)["mu"] for p in (program, folded))
        shift = before - after
        assert np.ptp(shift, axis=0).max() < 1e-5
        shifts.append(shift.mean(axis=0))
    np.testing.assert_allclose(shifts[0], shifts[1], atol=1e-5)
    assert np.abs(shifts[0]).max() > 0.05
    simulator = Simulator(folded)
    after = [simulator.encode(m, x)["mu"] for m, x in zip(("text", "video"), data, strict=True)]
    ends = [np.concatenate(after).min(axis=0), np.concatenate(after).max(axis=0)]
    np.testing.assert_allclose(ends[0] + ends[1], 0, atol=2e-3)


def test_a_huge_shared_offset_goes(models: SimpleNamespace) -> None:
    rng = np.random.default_rng(3)
    towers = [models.trunk(rng) for _ in range(2)]
    far = [models.moved(t, 1e4) for t in towers]
    job = models.job(*models.data)
    near, moved = (FoldPass().apply(models.program(*pair), job) for pair in (towers, far))
    for modality, x in zip(("text", "video"), models.data, strict=True):
        a, b = (Simulator(p).encode(modality, x)["mu"] for p in (near, moved))
        # The offset is rounded to 12 bits of itself: what is left of it is shared too.
        assert np.abs(b).max() < 8
        assert np.ptp(b - a, axis=0).max() < 1e-4


def test_after_a_norm_the_centre_is_taken_off_by_an_addition(models: SimpleNamespace) -> None:
    folded = FoldPass().apply(models.branches, models.job(*models.unit))
    node = folded.text.by_name["mu_centred"]
    assert isinstance(node.op, Add)
    before, after = (statistics(p, models.unit) for p in (models.branches, folded))
    np.testing.assert_allclose(after["ed"], before["ed"], rtol=1e-12)
    np.testing.assert_allclose(after["vd"], before["vd"], rtol=1e-12)


def test_a_norm_that_cannot_go_into_a_layer_becomes_an_addition(models: SimpleNamespace) -> None:
    """A layer with a second reader keeps its weights."""
    builder = Builder("text", {"x": real(("n", 4))})
    rng = np.random.default_rng(0)
    first = builder.add("fc1", models.dense(rng, 4, 3), "x")
    normed = builder.add("bn", models.norm(rng, 3), first)
    graph = builder.graph({"mu": normed, "s": first})
    score = Builder("score", {}).graph({})
    x = rng.normal(size=(5, 4))
    folded = FoldPass().apply(Program(graph, replace(graph, name="video"), score), models.job(x, x))
    assert isinstance(folded.text.by_name["bn"].op, Add)
    before, after = (Runner(g).run({"x": x}) for g in (graph, folded.text))
    for name in ("mu", "s"):
        np.testing.assert_allclose(after[name], before[name], rtol=1e-12)


def test_dead_branches_go(models: SimpleNamespace) -> None:
    builder = Builder("text", {"x": real(("n", 4))})
    rng = np.random.default_rng(0)
    builder.add("unused", models.dense(rng, 4, 3), "x")
    builder.add("mu", models.dense(rng, 4, 3), "x")
    graph = builder.graph({"mu": "mu"})
    score = Builder("score", {}).graph({})
    x = rng.normal(size=(5, 4))
    folded = FoldPass().apply(Program(graph, replace(graph, name="video"), score), models.job(x, x))
    assert [node.name for node in folded.text.nodes] == ["mu"]


def test_rounding_is_to_bits_below_the_largest_entry() -> None:
    x = np.array([1000.3, -0.26, 0.1])
    assert round_to_bits(x, 12).tolist() == [1000.25, -0.25, 0.0]
    assert round_to_bits(np.zeros(2), 12).tolist() == [0.0, 0.0]


def test_folded_weights_are_float32(folded: Program) -> None:
    op = folded.text.by_name["fc1"].op
    assert isinstance(op, Mvm)
    np.testing.assert_array_equal(single(op.weight), op.weight)


@pytest.mark.parametrize(
    ("head", "moves"),
    [
        (Csd(0.1, 0.5), True),
        (Euclidean(), True),
        (InclusionHead(), True),
        (Cosine(), False),
        (ProbCosine(), False),
    ],
    ids=str,
)
def test_what_both_sides_share_is_taken_where_scores_are_of_differences(
    models: SimpleNamespace, head: Head, moves: bool
) -> None:
    rng = np.random.default_rng(5)
    program = assemble(models.trunk(rng), models.trunk(rng), head)
    folded = FoldPass().apply(program, models.job(*models.data))
    before, after = (
        np.concatenate([Simulator(p).encode(m, models.data[i])["mu"] for i, m in enumerate(SIDES)])
        for p in (program, folded)
    )
    shift = np.abs(before.mean(axis=0) - after.mean(axis=0)).max()
    assert (shift > 0.01) == moves
    scores = [Simulator(p).scores(*models.data) for p in (program, folded)]
    np.testing.assert_allclose(scores[1], scores[0], rtol=0, atol=1e-5)


SIDES = ("text", "video")


HEADS = (PcmePoly(QUADRATIC), Csd(0.1, 0.5), ProbCosine(2.0, 0.1), InclusionHead())


@pytest.mark.parametrize("head", HEADS, ids=lambda one: one.name)
def test_a_variance_that_no_row_changes_takes_no_array(models: SimpleNamespace, head: Head) -> None:
    towers, rng = [], np.random.default_rng(7)
    for _ in SIDES:
        tower = models.trunk(rng)
        logvar = tower.by_name["logvar"].op
        still = Mvm(np.zeros_like(logvar.weight), logvar.bias - 3)
        towers.append(models.with_ops(tower, logvar=still))
    program, notes = assemble(*towers, head), list[str]()
    job = models.job(*models.data, notes=notes)
    stages = compile_program(program, job, silent)
    assert sum("logvar: its weights are zeros" in one for one in notes) == 2
    final = stages[-1].program
    assert list(final.text.operations(CrossbarMvm)) == ["fc1", "fc2", "mu"]
    before, after = (Simulator(p).scores(*models.data) for p in (program, final))
    assert np.abs(after - before).max() < 0.1 * np.ptp(before)
    graph, rows = final.video, models.data[1].astype(np.float32)
    found, readable = Simulator(final).encode("video", rows), graph.run({"x": rows})
    for name, value in found.items():
        np.testing.assert_array_equal(value, readable[name])
    if isinstance(head, PcmePoly):
        assert np.ptp(found["s"], axis=0).max() == 0
        assert len(np.unique(found["s"])) > 1


def test_a_variance_that_rows_change_keeps_its_layer(models: SimpleNamespace) -> None:
    tower = models.trunk(np.random.default_rng(7))
    weight = np.zeros_like(tower.by_name["logvar"].op.weight)
    weight[0, 0] = 1e-3
    moved = models.with_ops(tower, logvar=Mvm(weight, tower.by_name["logvar"].op.bias))
    folded = FoldPass().apply(models.program(moved, moved), models.job(*models.data))
    assert "logvar" in folded.text.by_name
