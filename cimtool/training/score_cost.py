"""The integer operations of one pair's score, by its head: those of a compiled stand-in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from cimtool.base.progress import silent
from cimtool.costs.operations import Operations, digital
from cimtool.hardware.settings import resolve
from cimtool.hardware.target import load_target
from cimtool.ir.arithmetic import MatMul, Mvm
from cimtool.ir.heads import Head, TowerBuilder, assemble
from cimtool.ir.heads.csd import Csd
from cimtool.ir.heads.pcme_poly import PcmePoly
from cimtool.ir.program import Graph
from cimtool.passes.base import Job
from cimtool.passes.pipeline import passes_for, run_passes
from cimtool.reference.surrogate import Polynomial, exponents

D, ROWS = 4, 16
"""Dimensions and calibration rows of the stand-in: what is counted does not depend on them."""


@dataclass(frozen=True)
class ScoreCost:
    """The cost of one pair: matrix `products` of d multiplications each, and `multiplications`."""

    products: int
    multiplications: int

    def total(self, d: int) -> int:
        """All multiplications of a pair of d dimensions."""
        return self.products * d + self.multiplications


@cache
def polynomial_cost(degree: int, ed_alone: bool) -> ScoreCost:
    """The cost of a polynomial of a degree that has all of its terms."""
    coeff = tuple(0.0 if ed_alone and j else 1.0 for _, j in exponents(degree))
    return _counted(PcmePoly(Polynomial(degree, coeff, 0.0, 8.0, 16.0)))


@cache
def distance_cost() -> ScoreCost:
    """The cost of a line in ed: head `csd`, and -ed."""
    return _counted(Csd(0.1, 0.0))


def _counted(head: Head) -> ScoreCost:
    """Compile projectors of one layer with this head, and count what has both items in it."""
    rng = np.random.default_rng(0)
    text, video = (_tower(rng) for _ in range(2))
    rows = rng.normal(size=(2, ROWS, 1)).astype(np.float32)
    job = Job(resolve(load_target("ideal"), None, {}), rows[0], rows[1], silent)
    passes = [step for step in passes_for(job.settings) if step.name != "converters fitted"]
    graph = run_passes(passes, assemble(text, video, head), job, silent)[-1].program.score
    pairs = [node for node in graph.nodes if {"n", "m"} <= set(graph.types[node.name].shape)]
    products = sum(isinstance(node.op, MatMul) for node in pairs)
    work = Operations()
    for node in pairs:
        work += digital(graph, node, {"n": 1, "m": 1})
    return ScoreCost(products, work.multiplications - products * D)


def _tower(rng: np.random.Generator) -> Graph:
    builder = TowerBuilder(1)
    mu, logvar = (Mvm(rng.normal(size=(1, D)), rng.normal(size=D)) for _ in range(2))
    return builder.tower(builder.add("mu", mu, "x"), builder.add("logvar", logvar, "x"))
