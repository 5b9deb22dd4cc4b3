"""The search of a content-addressable memory as a test bench drives it: its arrays and queries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.bundle.bundle import Bundle
from cimtool.handoff.formats import lane_bits
from cimtool.handoff.stimuli import END_ROWS, SEED, embedding_rows
from cimtool.hardware.cam import Cam
from cimtool.hardware.cell_distance import DONT_CARE, CellDistance
from cimtool.hardware.image_file import array_name
from cimtool.ir.arithmetic import Add
from cimtool.ir.program import Graph, Program, as_inputs
from cimtool.loading.embeddings import Embeddings
from cimtool.simulation.simulator import Runner

RANDOM_QUERIES, SWEPT_QUERIES = 4, 64
"""Queries of a search that are drawn, and at most those that step a word through its codes."""


@dataclass(frozen=True, eq=False, kw_only=True)
class DrivenSearch:
    """A search with its queries [n, d], and the arrays of words that hold its items.

    Item m is word m % `height` of the arrays in row m // `height`; word c of an item lies in column
    c of the arrays. `lines` turns sums into estimates, the nearest `length` of which are listed.
    """

    name: str
    cam: Cam
    op: CellDistance
    lines: Add
    length: int
    queries: IntArray
    stimuli: tuple[str, ...]

    @property
    def height(self) -> int:
        """Words of an array."""
        return self.cam.array.words

    @property
    def items(self) -> int:
        """Items of the gallery."""
        return len(self.op.stored)

    @property
    def top(self) -> int:
        """The highest code of a word; the longest distance has it if the CAM sets no limit."""
        longest = self.op.cells * int(self.op.table.max())
        return int(self.op.converted(np.asarray(longest)))

    @property
    def cell_bits(self) -> int:
        """Bits of a lane of cells and of queries."""
        return lane_bits(DONT_CARE, (1 << self.op.bits) - 1)

    @property
    def distance_bits(self) -> int:
        """Bits of a lane of distances and of codes."""
        return lane_bits(0, self.op.cells * int(self.op.table.max()))

    def arrays(self) -> Iterator[tuple[int, int, slice]]:
        """Yield the row, the column and the items of each array, row by row."""
        for row, first in enumerate(range(0, self.items, self.height)):
            items = slice(first, min(first + self.height, self.items))
            yield from ((row, column, items) for column in range(len(self.op.words)))

    def array(self, row: int, column: int) -> str:
        """The name of an array."""
        return array_name(row, column)

    def in_cells(self, values: IntArray, column: int) -> IntArray:
        """The cells [n, cells] of word `column` of items or queries [n, d]; the rest are 0."""
        word = self.op.words[column]
        cells = np.zeros((len(values), self.op.cells), np.int64)
        cells[:, : word.stop - word.start] = values[:, word]
        return cells

    def cells(self, column: int, items: slice) -> IntArray:
        """The cells [words, cells] of an array; words of no item hold 0."""
        held = np.zeros((self.height, self.op.cells), np.int64)
        held[: items.stop - items.start] = self.in_cells(self.op.stored[items], column)
        return held

    def distances(self, column: int, items: slice) -> IntArray:
        """The distances [n, words] of all queries to the words of an array."""
        queries, cells = self.in_cells(self.queries, column), self.cells(column, items)
        found = [self.op.table[queries, word].sum(axis=1) for word in cells]
        return np.stack(found, axis=1)

    @cached_property
    def sums(self) -> IntArray:
        """The sums of codes [n, items], added array by array."""
        found = np.zeros((len(self.queries), self.items), np.int64)
        for _, column, items in self.arrays():
            distances = self.distances(column, items)[:, : items.stop - items.start]
            found[:, items] += self.op.converted(distances)
        return found

    @cached_property
    def estimates(self) -> IntArray:
        """The estimates [n, items] of the distance by which items are listed."""
        return np.asarray(self.lines.run(self.sums), np.int64)

    @property
    def factors(self) -> IntArray:
        """The factor of each item's line [items]."""
        (factor,) = self.lines.factors
        return np.broadcast_to(np.asarray(factor, np.int64), (self.items,))

    @property
    def offsets(self) -> IntArray:
        """The constant of each item's line [items]."""
        return np.broadcast_to(np.asarray(self.lines.offset, np.int64), (self.items,))

    @property
    def shortlist(self) -> IntArray:
        """The items [n, length] of the smallest estimates, the lower item first of equal ones."""
        return np.argsort(self.estimates, axis=1, kind="stable")[:, : self.length]

    @property
    def extents(self) -> dict[str, int]:
        """The extents of its files' axes."""
        return {
            "query": len(self.queries),
            "word": self.height,
            "cell": self.op.cells,
            "item": self.items,
            "place": self.length,
        }

    @property
    def widths(self) -> dict[str, int]:
        """Bits of the lanes of its files, by the names that `NumberFile.bits` gives."""
        return {"cam_cells": self.cell_bits, "distances": self.distance_bits}


def driven_search(bundle: Bundle, inputs: Embeddings | None) -> DrivenSearch | None:
    """The search of a bundle, None if no CAM holds its gallery."""
    gallery, graph = bundle.gallery, bundle.program.shortlist
    if gallery is None or gallery.cam is None or graph is None or gallery.shortlist is None:
        return None
    ((node, op),) = graph.operations(CellDistance).items()
    (listed,) = graph.outputs.values()
    lines = graph.by_name[listed].op
    assert isinstance(lines, Add)
    queries = _queries(bundle.program, graph, node, op, inputs)
    return DrivenSearch(
        name=f"{graph.name}.{node}",
        cam=gallery.cam,
        op=op,
        lines=lines,
        length=min(gallery.shortlist, len(op.stored)),
        queries=np.stack(list(queries.values())),
        stimuli=tuple(queries),
    )


def _queries(
    program: Program, graph: Graph, node: str, op: CellDistance, inputs: Embeddings | None
) -> dict[str, IntArray]:
    """Queries [d] by name: those of the texts in `taps/text`, then ends, drawn and swept ones."""
    text = program.text
    _, x = embedding_rows(text, inputs, END_ROWS, turns=True)
    features = Runner(text, fast=False).values({"x": x}, list(text.outputs.values()))
    given = as_inputs("text", {name: features[value] for name, value in text.outputs.items()})
    (query,) = graph.by_name[node].inputs
    taken = {name: value for name, value in given.items() if name in graph.inputs}
    driven = Runner(graph, fast=False).values(taken, [query])[query]
    found = {f"text row {number}": row.astype(np.int64) for number, row in enumerate(driven)}
    width, top = op.stored.shape[1], (1 << op.bits) - 1
    found |= {"smallest": np.zeros(width, np.int64), "largest": np.full(width, top)}
    rng = np.random.default_rng(SEED)
    found |= {
        f"random {n}": rng.integers(0, top, width, endpoint=True) for n in range(RANDOM_QUERIES)
    }
    swept = list(_swept(op, op.stored[0]))
    kept = np.unique(np.linspace(0, len(swept) - 1, SWEPT_QUERIES).astype(np.int64))
    return found | {f"item 0, step {n}": swept[n] for n in kept}


def _swept(op: CellDistance, stored: IntArray) -> Iterator[IntArray]:
    """Yield queries [d] from an item on, away from it, one for each new code of its first word."""
    query = np.maximum(stored, 0)
    farthest = op.table[:, stored].argmax(axis=0)
    word, last = op.words[0], -1
    for cell in range(word.stop):
        of_words = slice(cell, None, op.cells)
        for _ in range(1 << op.bits):
            distance = op.table[query[word], stored[word]].sum()
            code = int(op.converted(np.asarray(distance)))
            if code != last:
                last = code
                yield query.copy()
            query[of_words] += np.sign(farthest[of_words] - query[of_words])
