"""The energy of a score whose products are in the memory of a target, by the target's figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from cimtool.base.arrays import Array
from cimtool.base.progress import silent
from cimtool.costs.estimate import estimate
from cimtool.costs.totals import Cost, Quantity
from cimtool.hardware.settings import resolve
from cimtool.hardware.target import Target
from cimtool.ir.arithmetic import Mvm
from cimtool.ir.heads import Head, TowerBuilder, assemble
from cimtool.ir.heads.csd import Csd
from cimtool.ir.heads.pcme_poly import PcmePoly
from cimtool.ir.program import MODALITIES, Graph
from cimtool.passes.base import Job
from cimtool.passes.gallery import program_gallery
from cimtool.passes.pipeline import passes_for, run_passes
from cimtool.reference.montecarlo import DEFAULT_SAMPLES
from cimtool.reference.statistics import Gaussians
from cimtool.reference.surrogate import Polynomial
from cimtool.simulation.simulator import Simulator
from cimtool.training.items import Items

GALLERY = 64
"""Items that are programmed; each takes cells of its own, so that energies are those of one."""

LEAST_VARIANCE = 1e-30


@dataclass(frozen=True)
class QueryCost:
    """The score of one query against `items` items in the memory of a target."""

    target: str
    items: int
    cost: Cost

    @property
    def of_an_item(self) -> Quantity:
        """The energy of one item, in pJ."""
        energy = self.cost.energy_pj
        return energy if energy.value is None else replace(energy, value=energy.value / self.items)


def costs_in_memory(items: Items, target: Target) -> tuple[QueryCost, QueryCost]:
    """The cost of a query by a score in ed alone, and by one in ed and vd."""
    heads = {"ed": Csd(0.1, 0.0), "vd": PcmePoly(Polynomial(1, (-0.1, 0.005), 0.0))}
    found = score_in_memory(heads, items.text, items.video, target)
    return found["ed"], found["vd"]


def score_in_memory(
    heads: Mapping[str, Head], text: Gaussians, video: Gaussians, target: Target
) -> dict[str, QueryCost]:
    """The cost of a query by each head, of items that are compiled as they are.

    Projectors that hand means and log-variances on stand for the model's. Raises CimError where
    the target's arrays do not hold the gallery.
    """
    settings = resolve(target, None, {"score_mapping": "in-memory"})
    rows = {name: _rows(one) for name, one in zip(MODALITIES, (text, video), strict=True)}
    job = Job(settings, rows["text"], rows["video"], silent)
    passes = [step for step in passes_for(settings) if step.name != "converters fitted"]
    tower, found = _tower(text.d), {}
    for name, head in heads.items():
        program = run_passes(passes, assemble(tower, tower, head), job, silent)[-1].program
        stored = Simulator(program).encode("video", rows["video"])
        held = replace(program, score=program_gallery(program.score, stored, settings))
        items = len(rows["video"])
        taken = estimate(
            held, settings, target, samples=DEFAULT_SAMPLES, dimension=text.d, gallery=items
        )
        assert taken.score is not None
        found[name] = QueryCost(target.name, items, taken.score)
    return found


def _rows(items: Gaussians) -> Array:
    """Means and log-variances side by side, [items, 2 d] float32."""
    some = items[:GALLERY]
    logvar = np.log(np.maximum(some.s, LEAST_VARIANCE))
    return np.concatenate([some.mu, logvar], axis=1).astype(np.float32)


def _tower(d: int) -> Graph:
    """A projector that takes mu and logvar from its input."""
    builder, one, none = TowerBuilder(2 * d), np.eye(d), np.zeros((d, d))
    mu = builder.add("mu", Mvm(np.concatenate([one, none]), np.zeros(d)), "x")
    logvar = builder.add("logvar", Mvm(np.concatenate([none, one]), np.zeros(d)), "x")
    return builder.tower(mu, logvar)
