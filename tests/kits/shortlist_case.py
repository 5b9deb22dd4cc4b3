"""A small program with features of its calibration rows, for tests of shortlists."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from cimtool.base.arrays import Array
from cimtool.galleries.few_bits import Examples
from cimtool.ir.heads import assemble
from cimtool.ir.heads.csd import Csd
from cimtool.ir.program import Graph
from cimtool.passes.pipeline import compile_program
from cimtool.simulation.simulator import Features, Simulator


class ShortlistCase:
    """A small program of head `csd` with the features of its calibration rows."""

    def __init__(self, models: SimpleNamespace):
        tower = models.trunk(np.random.default_rng(3)), models.trunk(np.random.default_rng(4))
        job = models.job(*models.data)
        source = assemble(*tower, Csd(0.5, 1.0))
        self.program = compile_program(source, job, lambda text: None)[-1].program
        simulator = Simulator(self.program)
        self.text: Features = simulator.encode("text", job.text)
        self.video: Features = simulator.encode("video", job.video)

    @property
    def examples(self) -> Examples:
        """The rows by which ranges are chosen."""
        return Examples(self.text["mu"], self.video["mu"])

    @property
    def exact(self) -> Array:
        """`ed` of all pairs, without what a query adds to all of its items."""
        score = self.program.score
        unit = float(score.inputs["text.mu"].unit) * float(score.inputs["video.mu"].unit)
        own = self.video["ed_self"] * float(score.inputs["video.ed_self"].unit)
        return own - 2 * unit * (self.text["mu"] @ self.video["mu"].T)


def distances(graph: Graph, text: Features) -> Array:
    """The distances of a shortlist's graph, by the readable operations."""
    return graph.run({"text.mu": text["mu"]})["ed"]
