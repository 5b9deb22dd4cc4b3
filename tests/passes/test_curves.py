"""Chains of functions of one value become one curve, or several where one is out of reach."""

from __future__ import annotations

import numpy as np
import pytest

from cimtool.base.errors import CimError
from cimtool.ir.arithmetic import Add, Clip, plus, scalar
from cimtool.ir.op import Op
from cimtool.ir.program import Builder, Calibration, Graph, Range
from cimtool.ir.source import Elu, Exp, Gate, Reciprocal, Sigmoid, Tanh
from cimtool.ir.types import real
from cimtool.passes.approximate import SplitCurve
from cimtool.passes.curves import CURVE_TOLERANCE, FittedCurve, fuse

WIDTH = 4
X = np.linspace(-4, 4, 101)[:, None].repeat(WIDTH, axis=1)

Step = tuple[str, Op, tuple[str, ...]]


def calibrated(*steps: Step, outputs: tuple[str, ...] = ()) -> Graph:
    """A graph of steps with the ranges that it has on X; its outputs are the last step's."""
    builder = Builder("text", {"x": real(("n", WIDTH))})
    for name, op, inputs in steps:
        builder.add(name, op, *inputs)
    plain = builder.graph({name: name for name, _, _ in steps})
    values = {"x": X, **plain.run({"x": X})}
    ranges = {name: Range(v.min(axis=0), v.max(axis=0)) for name, v in values.items()}
    builder = Builder("text", plain.inputs, Calibration(ranges=ranges))
    for name, op, inputs in steps:
        builder.add(name, op, *inputs)
    return builder.graph({name: name for name in outputs or (steps[-1][0],)})


def kinds(graph: Graph) -> dict[str, tuple[str, ...] | type[Op]]:
    """The parts of each curve and the kind of each other operation, by name."""
    return {
        node.name: node.op.parts if isinstance(node.op, FittedCurve) else type(node.op)
        for node in graph.nodes
    }


SILU: tuple[Step, ...] = (("s", Sigmoid(), ("x",)), ("y", Gate(), ("x", "s")))


def test_a_chain_is_one_curve() -> None:
    graph = calibrated(*SILU, ("z", plus(2.0, offset=-1.0), ("y",)))
    fused = fuse(graph)
    assert kinds(fused) == {"z": ("sigmoid", "gate", "add")}
    exact, close = (one.run({"x": X})["z"] for one in (graph, fused))
    assert np.abs(close - exact).max() <= CURVE_TOLERANCE * np.abs(exact).max()


def test_a_wide_silu_is_one_curve_of_two_polynomials() -> None:
    gains = Add((np.full(WIDTH, 1.2),), scalar(-6.75))  # from -14 to 0.45, widened by a quarter
    low = ("l", gains, ("x",))
    chain = ("s", Sigmoid(), ("l",)), ("y", Gate(), ("l", "s"))
    graph = calibrated(low, *chain)
    fused = fuse(graph)
    (node,) = (one for one in fused.nodes if one.name == "y")
    assert isinstance(node.op, FittedCurve)
    assert isinstance(node.op.fit, SplitCurve)
    exact, close = (one.run({"x": X})["y"] for one in (graph, fused))
    assert np.abs(close - exact).max() <= CURVE_TOLERANCE * 0.3


def test_a_part_that_something_else_reads_is_a_curve_too() -> None:
    fused = fuse(calibrated(*SILU, outputs=("s", "y")))
    assert kinds(fused) == {"s": ("sigmoid",), "y": ("sigmoid", "gate")}
    assert {node.inputs for node in fused.nodes} == {("x",)}


def test_constants_a_channel_and_limits_end_a_chain() -> None:
    gains = Add((np.arange(1.0, WIDTH + 1),), scalar(0.0))
    limits = Clip(scalar(-1.0), scalar(2.0))
    fused = fuse(calibrated(("t", Tanh(), ("x",)), ("g", gains, ("t",)), ("e", Elu(1.0), ("g",))))
    assert kinds(fused) == {"t": ("tanh",), "g": Add, "e": ("elu",)}
    fused = fuse(
        calibrated(("c", limits, ("x",)), ("t", Tanh(), ("c",)), ("y", Gate(), ("x", "t")))
    )
    assert kinds(fused) == {"c": Clip, "t": ("tanh",), "y": Gate}


def test_what_bends_nothing_stays() -> None:
    graph = calibrated(("q", Gate(), ("x", "x")), ("c", Gate(), ("q", "x")))
    assert kinds(fuse(graph)) == {"q": Gate, "c": Gate}


def test_an_exp_at_the_end_stays_as_it_has_its_own_tolerance() -> None:
    graph = calibrated(("t", Tanh(), ("x",)), ("s", Exp(), ("t",)))
    assert kinds(fuse(graph)) == {"t": ("tanh",), "s": Exp}


def test_a_chain_out_of_reach_is_fitted_by_parts() -> None:
    square = ("q", Gate(), ("x", "x")), ("m", plus(20.0, offset=-80.0), ("q",))
    steep = calibrated(*square, ("t", Tanh(), ("m",)), ("y", Gate(), ("t", "x")))
    assert kinds(fuse(steep)) == {"q": Gate, "m": Add, "t": ("tanh",), "y": Gate}


def test_a_part_out_of_reach_is_refused_by_name() -> None:
    with pytest.raises(
        CimError,
        match=r"text\.r: reciprocal of values from -3\.999 to 4\.001 on these rows cannot be "
        r"fitted",
    ):
        fuse(calibrated(("p", plus(1.0, offset=1e-3), ("x",)), ("r", Reciprocal(), ("p",))))
