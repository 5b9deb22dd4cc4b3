"""Costs of a score by its head: operations of one pair, and energy in the memory of a target.

Both are of a compiled stand-in, whose projectors cost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from cimtool.base.arrays import Array
from cimtool.base.progress import silent
from cimtool.costs.estimate import ScoredQuery, estimate
from cimtool.costs.operations import Operations, digital
from cimtool.costs.totals import Cost, Quantity
from cimtool.hardware.configuration import Configuration
from cimtool.hardware.settings import resolve
from cimtool.hardware.target import Target, load_target
from cimtool.ir.arithmetic import MatMul, Mul, Mvm
from cimtool.ir.heads import Head, TowerBuilder, assemble
from cimtool.ir.heads.csd import Csd
from cimtool.ir.heads.pcme_poly import PcmePoly
from cimtool.ir.program import Graph, Program
from cimtool.passes.base import Job
from cimtool.passes.converters import FitConvertersPass
from cimtool.passes.gallery import program_gallery
from cimtool.passes.pipeline import passes_for, run_passes
from cimtool.reference.statistics import Gaussians
from cimtool.reference.surrogate import Polynomial, exponents
from cimtool.simulation.simulator import Simulator
from cimtool.training.items import Items

D, ROWS = 4, 16
"""Dimensions and calibration rows of the stand-in: what is counted does not depend on them."""

GALLERY = 64
"""Items that are programmed; each takes cells of its own, so that energies are those of one."""

LEAST_VARIANCE = 1e-30


@dataclass(frozen=True)
class ScoreCost:
    """The cost of one pair: `products` of all pairs, `features` of the item, `multiplications`.

    A product and a feature take d multiplications each; features are what the products need of an
    item beside its mean and variance.
    """

    products: int
    features: int
    multiplications: int

    def total(self, d: int) -> int:
        """All multiplications of a pair of d dimensions."""
        return self.vectors * d + self.multiplications

    @property
    def vectors(self) -> int:
        """Number of steps that take d multiplications each."""
        return self.products + self.features


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
    """Compile projectors of one layer with this head, and count what has the item in it."""
    rng = np.random.default_rng(0)
    text, video = (
        _tower(*(Mvm(rng.normal(size=(1, D)), rng.normal(size=D)) for _ in range(2)))
        for _ in range(2)
    )
    rows = rng.normal(size=(2, ROWS, 1)).astype(np.float32)
    job = Job(resolve(load_target("ideal"), None, {}), rows[0], rows[1], silent)
    graph = _compiled(assemble(text, video, head), job).score
    nodes = [node for node in graph.nodes if "m" in graph.types[node.name].shape]
    products = sum(isinstance(node.op, MatMul) for node in nodes)
    products_of_items = [node for node in nodes if isinstance(node.op, Mul)]
    features = sum(graph.types[node.name].shape == ("m", D) for node in products_of_items)
    work = Operations()
    for node in nodes:
        work += digital(graph, node, {"n": 1, "m": 1})
    return ScoreCost(products, features, work.multiplications - (products + features) * D)


def _compiled(program: Program, job: Job) -> Program:
    """The program of integers on arrays; no converter is fitted, as nothing runs."""
    passes = [one for one in passes_for(job.settings) if not isinstance(one, FitConvertersPass)]
    return run_passes(passes, program, job, silent)[-1].program


def _tower(mu: Mvm, logvar: Mvm) -> Graph:
    """A projector that is one layer for mu and one for logvar."""
    builder = TowerBuilder(mu.weight.shape[0])
    return builder.tower(builder.add("mu", mu, "x"), builder.add("logvar", logvar, "x"))


@dataclass(frozen=True)
class QueryCost:
    """The score of one query against `items` items in the memory of a target."""

    target: str
    items: int
    cost: Cost

    @property
    def of_an_item(self) -> Quantity:
        """The energy of one item, in pJ."""
        return self.cost.energy_pj.times(1 / self.items)


def costs_in_memory(items: Items, target: Target) -> tuple[QueryCost, QueryCost]:
    """The cost of a query by a score in ed alone, and by one in ed and vd.

    Projectors that hand means and log-variances on stand for the model's. Raises CimError if the
    target's arrays do not hold the gallery.
    """
    settings = resolve(target, None, {"score_mapping": "in-memory"})
    text, video = _rows(items.text), _rows(items.video)
    job, d = Job(settings, text, video, silent), items.text.d
    one, none = np.eye(d), np.zeros((d, d))
    tower = _tower(*(Mvm(np.concatenate(w), np.zeros(d)) for w in ((one, none), (none, one))))

    def cost(head: Head) -> QueryCost:
        program = _compiled(assemble(tower, tower, head), job)
        stored = Simulator(program).encode("video", video)
        held = replace(program, score=program_gallery(program.score, stored, settings))
        query = ScoredQuery(d, gallery=len(video))
        taken = estimate(held, Configuration(target, settings), query)
        assert taken.score is not None
        return QueryCost(target.name, len(video), taken.score)

    return cost(Csd(0.1, 0.0)), cost(PcmePoly(Polynomial(1, (-0.1, 0.005), 0.0)))


def _rows(items: Gaussians) -> Array:
    """Means and log-variances side by side, [items, 2 d] float32."""
    some = items[:GALLERY]
    logvar = np.log(np.maximum(some.s, LEAST_VARIANCE))
    return np.concatenate([some.mu, logvar], axis=1).astype(np.float32)
