"""Curves: chains of functions of one value that hardware lacks, each fitted as one function.

A GELU that an exporter wrote as division, erf, addition and products is one polynomial, and so is
any activation of such parts. If a chain is no function that a polynomial of few terms comes
close to, its parts are fitted one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from cimtool.base.arrays import Array, FloatArray
from cimtool.base.errors import RowsError
from cimtool.ir.arithmetic import Add
from cimtool.ir.op import Op
from cimtool.ir.program import Graph, Node, Range
from cimtool.ir.source import (
    Abs,
    Elu,
    Erf,
    Exp,
    Gate,
    Log,
    LogGamma,
    Power,
    Reciprocal,
    Sigmoid,
    Softplus,
    Tanh,
)
from cimtool.ir.types import Type, real
from cimtool.passes.approximate import PolynomialCurve, fit_curve
from cimtool.passes.base import RIGHT_ROWS

BENT = (Elu, Erf, Exp, Log, LogGamma, Power, Reciprocal, Sigmoid, Softplus, Tanh)
"""The functions of single numbers that a polynomial stands in for."""

CURVE_TOLERANCE = 2.0**-14
"""Error of a curve as a share of its largest value: a 64th of half a step of a signed 8-bit
activation."""

DOMAIN_MARGIN = 0.25
"""Share of a calibrated range by which a value may leave it on each side."""


@dataclass(frozen=True, eq=False)
class FittedCurve(Op):
    """A function of one value by its polynomials; `parts` names the operations that it was.

    It stands in no program, and so has no name by which a file holds it: `fuse` makes it, and
    `lower` takes it away.
    """

    parts: tuple[str, ...]
    fit: PolynomialCurve

    def infer(self, *inputs: Type) -> Type:
        return real(inputs[0].shape)

    def run(self, *inputs: Array) -> Array:
        return self.fit(inputs[0])


def fuse(graph: Graph) -> Graph:
    """A calibrated graph with a FittedCurve for each value that other operations read of a chain.

    Raises CimError if a function alone is beyond any polynomial.
    """
    roots = {name: name for name in graph.inputs}
    # The value that each value is a function of, number by number: itself if it is of none.
    for node in graph.nodes:
        own, op = {roots[i] for i in node.inputs}, node.op
        if isinstance(op, Add):
            function = all(np.ndim(constant) == 0 for constant in (*op.factors, op.offset))
        else:
            function = isinstance(op, (*BENT, Abs, Gate))
        roots[node.name] = own.pop() if function and len(own) == 1 else node.name
    read = set(graph.outputs.values())
    nodes = []
    for node in reversed(graph.nodes):
        if node.name not in read:
            continue
        fused = _fused(graph, node, roots)
        nodes.append(fused)
        read.update(fused.inputs)
    return replace(graph, nodes=tuple(reversed(nodes)))


def _fused(graph: Graph, node: Node, roots: Mapping[str, str]) -> Node:
    """A node as the FittedCurve of its chain's root, or of its input if the chain does not fit.

    It stays as it is if the whole chain is linear, or if it is an exp, which `lower` handles.
    """
    root = roots[node.name]
    if root == node.name or isinstance(node.op, Exp):
        return node
    chain = _chain(graph, node, root)
    bent = [one for one in chain if isinstance(one.op, BENT)]
    if not bent:
        return node
    fit = _fit(graph, chain, root)
    if fit is not None:
        return Node(node.name, FittedCurve(tuple(one.op.name for one in chain), fit), (root,))
    if not isinstance(node.op, BENT):
        return node
    (x,) = node.inputs
    alone = None if x == root else _fit(graph, (node,), x)
    if alone is None:
        seen = graph.types[x]
        raise RowsError(
            f"{graph.layer(node)}: {node.op.name} of values from {seen.lo.min():.4g} to "
            f"{seen.hi.max():.4g} on these rows cannot be fitted with a polynomial of degree 24; "
            f"expected a narrower range: {RIGHT_ROWS}, or a clamp before it"
        )
    return Node(node.name, FittedCurve((node.op.name,), alone), (x,))


def _chain(graph: Graph, last: Node, root: str) -> tuple[Node, ...]:
    """The nodes from the root, without it, to the last one, in order of use."""
    wanted, chain = {last.name}, []
    for node in reversed(graph.nodes):
        if node.name in wanted and node.name != root:
            chain.append(node)
            wanted.update(node.inputs)
    return tuple(reversed(chain))


def _fit(graph: Graph, chain: tuple[Node, ...], root: str) -> PolynomialCurve | None:
    """The polynomials of a chain on the widened range of its root, or on the range itself."""

    @np.errstate(all="ignore")
    def function(x: FloatArray) -> FloatArray:
        values: dict[str, Array] = {root: x}
        for node in chain:
            values[node.name] = node.op.run(*(values[i] for i in node.inputs))
        return values[chain[-1].name]

    seen = graph.types[root]
    wide = fit_curve(function, *widened_range(seen), CURVE_TOLERANCE)
    if wide is not None or not seen.lo.min() < seen.hi.max():
        return wide
    return fit_curve(function, float(seen.lo.min()), float(seen.hi.max()), CURVE_TOLERANCE)


def widened_range(seen: Range | Type) -> tuple[float, float]:
    """A calibrated range with a quarter of its span added on each side."""
    lo, hi = float(seen.lo.min()), float(seen.hi.max())
    margin = DOMAIN_MARGIN * (hi - lo) or 2.0**-10 * max(abs(hi), 1.0)
    return lo - margin, hi + margin
