"""Programs: names, dead nodes, rewriting, and what `check_program` refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from crossbars import changed, crossbar_of

from cimtool.base.errors import CimError
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.stored import StoredWeights
from cimtool.ir.arithmetic import Add, Clip, Mul, Mvm, Sum, scalar
from cimtool.ir.heads import TowerBuilder, assemble
from cimtool.ir.heads.pcme_poly import PcmePoly
from cimtool.ir.op import Level
from cimtool.ir.program import (
    Builder,
    Calibration,
    Graph,
    Node,
    Program,
    Range,
    check_program,
    keep,
    rewrite,
    rewrite_each,
    score_inputs,
)
from cimtool.ir.surrogate import Polynomial
from cimtool.ir.types import Type, integer, real


def program(curve: bool = True) -> Program:
    """Projectors of one layer each; without a curve the log-variance stands for the variance."""
    builder = TowerBuilder(3)
    mu, logvar = (builder.add(k, Mvm(np.eye(3), np.zeros(3)), "x") for k in ("mu", "logvar"))
    tower = builder.tower(mu, logvar) if curve else builder.graph({"mu": mu, "s": logvar})
    return assemble(tower, tower, PcmePoly(Polynomial(1, (-0.1, 0.25), 0.0)))


def small() -> Builder:
    builder = Builder("text", {"x": integer(("n", 2), -3, 4, 1.0)})
    builder.add("square", Mul(), "x", "x")
    builder.add("dead", Sum(), "x")
    builder.add("total", Sum(), "square")
    return builder


def test_a_name_that_is_taken_gets_a_number() -> None:
    builder = small()
    assert builder.add("total", Sum(), "x") == "total.2"
    assert builder.add("total", Sum(), "x") == "total.3"
    assert builder.add("x", Sum(), "x") == "x.2"


def test_dead_nodes_go() -> None:
    graph = small().graph({"out": "total"})
    assert [node.name for node in graph.nodes] == ["square", "total"]
    assert graph.types["total"].hi == 32


def test_keeping_every_node_changes_nothing() -> None:
    graph = small().graph({"out": "total"})
    again = rewrite(graph, lambda op: keep, Builder.of(graph))
    assert again.nodes == graph.nodes
    assert again.outputs == graph.outputs


def test_a_rule_replaces_a_node_for_all_its_users() -> None:
    def doubled(builder: Builder, op: Mul, node: Node, inputs: tuple[str, ...]) -> str:
        return builder.add("twice", Add((np.asarray(2),), np.asarray(0), scalar(1.0)), inputs[0])

    graph = rewrite_each(small().graph({"out": "total"}), Mul, doubled)
    assert [(n.name, n.inputs) for n in graph.nodes] == [("twice", ("x",)), ("total", ("twice",))]
    assert graph.types["total"].hi == 16


def test_bounds_are_proved_once_for_the_same_inputs_and_anew_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    proved, infer = list[Type](), Mvm.infer

    def noted(self: Mvm, *inputs: Type) -> Type:
        proved.extend(inputs)
        return infer(self, *inputs)

    monkeypatch.setattr(Mvm, "infer", noted)
    layer = Mvm(np.array([[2, -1]]).T, np.array([1]), scalar(1.0))
    narrow, wide = (integer(("n", 2), -most, most, scalar(1.0)) for most in (3, 5))
    tops = []
    for known in (narrow, narrow, wide, narrow):
        builder = Builder("g", {"x": known})
        tops.append(int(np.max(builder.types[builder.add("layer", layer, "x")].hi)))
    assert tops == [10, 10, 16, 10]
    assert proved == [narrow, wide, narrow]


def test_calibrated_ranges_narrow_real_values_and_never_integers() -> None:
    seen = Calibration(ranges={"y": Range(np.asarray(-0.5), np.asarray(0.25))})
    node = Node("y", Add((scalar(1.0),), scalar(0.0)), ("x",))
    graph = Graph("text", {"x": real(("n", 2))}, (node,), {"out": "y"}, seen)
    assert (graph.types["y"].lo, graph.types["y"].hi) == (-0.5, 0.25)
    clip = Node("y", Clip(np.asarray(-9), np.asarray(9)), ("x",))
    graph = Graph("text", {"x": integer(("n", 2), -99, 99, 1.0)}, (clip,), {"out": "y"}, seen)
    assert graph.types["y"].hi == 9


def test_score_takes_what_text_and_video_return() -> None:
    made = program()
    names = ["mu", "s", "ed_self", "vd_self"]
    assert list(made.score.inputs) == [f"{m}.{k}" for m in ("text", "video") for k in names]
    known = score_inputs(made.text, made.video)
    assert known["text.mu"].shape == ("n", 3)
    assert known["video.mu"].shape == ("m", 3)
    assert known["video.ed_self"].shape == ("m",)
    assert made.score.types["logit"].shape == ("n", "m")


def test_a_sound_program_passes() -> None:
    check_program(program(), "folded", Level.FLOAT)


def test_an_operation_that_may_not_stand_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"lowered left exp in text\.s"):
        check_program(program(), "lowered", Level.MAC)
    with pytest.raises(RuntimeError, match=r"left polynomial_score in score\.logit"):
        check_program(program(curve=False), "lowered", Level.MAC)


def test_a_broken_order_a_doubled_name_and_a_lost_output_are_refused() -> None:
    made = program()
    for nodes in (made.text.nodes[::-1], (*made.text.nodes, made.text.nodes[0])):
        broken = replace(made, text=replace(made.text, nodes=nodes))
        with pytest.raises(RuntimeError, match="broke the order of values at text"):
            check_program(broken, "folded", Level.FLOAT)
    lost = replace(made.score, outputs={"logit": "nowhere"})
    with pytest.raises(RuntimeError, match="lost an output of score"):
        check_program(replace(made, score=lost), "folded", Level.FLOAT)


def test_score_must_take_the_features_in_their_order() -> None:
    made = program()
    shuffled = replace(made.score, inputs=dict(reversed(made.score.inputs.items())))
    with pytest.raises(RuntimeError, match="does not take what text and video return"):
        check_program(replace(made, score=shuffled), "folded", Level.FLOAT)


def test_an_accumulator_that_could_overflow_is_refused_by_name() -> None:
    crossbar = crossbar_of(None, 8, 8, "differential", 8, "twos-complement", 8, None, "floor", 17)
    x = integer(("n", 4), -127, 127, 1.0)

    def checked(weight: int) -> None:
        builder = Builder("text", {"x": x})
        stored = StoredWeights(np.full((4, 1), weight), crossbar)
        layer = CrossbarMvm(stored, np.array([0]), np.ones(1), (None,))
        builder.add("fc1", layer, "x")
        text = builder.graph({"mu": "fc1"})
        video = replace(text, name="video")
        score = Builder("score", score_inputs(text, video)).graph({})
        check_program(Program(text, video, score), "tiled", Level.CROSSBAR)

    checked(127)  # 4 * 127 * 127 = 64516 fits 17 bits
    crossbar = changed(crossbar, accumulator_bits=16)
    with pytest.raises(
        CimError, match=r"text\.fc1: its sums need 17 bits and the accumulator has 16; use fewer"
    ):
        checked(127)
    checked(64)
