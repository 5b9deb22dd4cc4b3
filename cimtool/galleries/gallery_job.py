"""The making of a gallery in the arrays of a bundle: how items are stored and converters fitted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, partial

import numpy as np

from cimtool.base.arrays import Array, BoolArray
from cimtool.base.errors import CimError
from cimtool.bundle.bundle import Bundle
from cimtool.costs.estimate import Estimate, ScoredQuery, estimate
from cimtool.galleries.few_bits import Examples, FewBitShortlist
from cimtool.hardware.cam import Cam
from cimtool.hardware.configuration import Configuration
from cimtool.ir.program import Graph, Program, features_of
from cimtool.passes.converters import FIT_ROWS
from cimtool.passes.gallery import ShortlistBits, distance_graph, fit_gallery, program_gallery
from cimtool.passes.product_bits import ProductExamples
from cimtool.simulation.simulator import Features, Simulator

Maker = Callable[[Mapping[str, Array]], Graph]
"""Makes the graph that holds items, of their features."""


class GalleryJob:
    """A gallery to put into a bundle: `video` are its features, `queries` those that it kept.

    `digital` runs the compiled program, whose score is digital. Fits use the kept `rows`.
    """

    def __init__(
        self,
        compiled: Bundle,
        video: Features,
        digital: Simulator,
        rows: slice | BoolArray = slice(None),
    ):
        self.compiled, self.video, self.digital = compiled, video, digital
        program = digital.program
        kept = {name: value[rows] for name, value in compiled.queries.items()}
        self.queries = features_of(program.text, kept)
        self.right = features_of(program.video, kept)

    def maker(self, bits: ShortlistBits | None) -> Maker:
        """The way to store items: all of the score, `mu` for a shortlist, or few bits of it."""
        settings = self.compiled.settings
        if bits is not None:
            return partial(self.few_bits.graph, bits)
        if settings.score_mapping == "hybrid":
            distances = distance_graph(self.digital.program.score)
            return lambda items: program_gallery(distances, items, settings)
        return self.whole

    def whole(self, items: Mapping[str, Array]) -> Graph:
        """The whole score of items, products in the bits that settings give them."""
        score, settings = self.digital.program.score, self.compiled.settings
        examples = ProductExamples(self.queries, self.right or self.video)
        return program_gallery(score, items, settings, examples)

    @cached_property
    def few_bits(self) -> FewBitShortlist:
        """Items in few bits, whose ranges are chosen on the kept queries."""
        score = distance_graph(self.digital.program.score)
        examples = Examples(self.queries["mu"], (self.right or self.video)["mu"])
        return FewBitShortlist(score, examples, self.compiled.settings)

    def fitted(self, make: Maker, tiled: Graph) -> Graph:
        """A graph of items with its converters set."""
        few, right = (
            {name: value[:FIT_ROWS] for name, value in features.items()}
            for features in (self.queries, self.right)
        )
        return fit_gallery(
            tiled, few, make(right) if right else None, self.compiled.target.settable
        )

    def program_with(self, graph: Graph) -> Program:
        """The bundle's program with a graph that holds the items."""
        return replace(self.digital.program, **{graph.name: graph})

    def cost(self, graph: Graph, shortlist: int | None = None, cam: Cam | None = None) -> Estimate:
        """The cost of a query against the items of a graph."""
        compiled = self.compiled
        build = Configuration(compiled.target, compiled.settings)
        query = ScoredQuery(compiled.model.dimension, 1, shortlist=shortlist, cam=cam)
        return estimate(self.program_with(graph), build, query)

    @cached_property
    def halves(self) -> tuple[tuple[GalleryJob, GalleryJob], tuple[GalleryJob, GalleryJob]]:
        """Two pairs of jobs: the first of a pair fits on half of the kept rows, the second asks.

        So nothing is tried on queries that it was fitted on. Rows of one item, such as the captions
        of an image, are in the same half. The first pair asks the rows of the items 0, 2, .. in the
        order of their first rows. Raises CimError if all rows have one item.
        """
        known = (self.right or self.queries)["mu"]
        _, first, group = np.unique(known, axis=0, return_index=True, return_inverse=True)
        if len(first) < 2:
            raise CimError(
                f"{self.compiled.name}: its {len(known)} kept calibration rows are of one item, "
                "which leave none to check on; expected rows of at least 2"
            )
        odd_rows = first.argsort().argsort()[group.reshape(-1)] % 2 == 1
        even, odd = (
            GalleryJob(self.compiled, self.video, self.digital, rows)
            for rows in (~odd_rows, odd_rows)
        )
        return (odd, even), (even, odd)
