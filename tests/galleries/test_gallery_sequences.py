"""Random sequences of changes against programming anew: graphs, cells and ids, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cimtool import api
from cimtool.base.arrays import Array
from cimtool.bundle.bundle import Bundle, read_bundle
from cimtool.bundle.serial import ConstantTable, graph_text
from cimtool.demo.data import DemoFiles
from cimtool.galleries.cam_shortlist import CamShortlist
from cimtool.galleries.few_bits import Examples
from cimtool.galleries.gallery_changes import HeldItems
from cimtool.galleries.gallery_job import GalleryJob
from cimtool.galleries.wear import ArrayCells, counts_after, matrix_cells, word_cells
from cimtool.hardware.cam import load_cam
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.program import Graph
from cimtool.passes.gallery import ShortlistBits, distance_graph
from cimtool.simulation.simulator import Features, Simulator

POOL, FIRST, SEQUENCES = 40, 8, 1000

WAYS: dict[str, tuple[str, ShortlistBits | None]] = {
    "in-memory": ("in-memory", None),
    "hybrid": ("hybrid", None),
    "few bits": ("hybrid", ShortlistBits(2, 4)),
    "components": ("hybrid", ShortlistBits(3, 5, dimensions=6)),
    "cam": ("hybrid", None),
}
CAM = load_cam("fefet-mcam")


@dataclass
class Encoded:
    """A compiled bundle with the features of a pool of videos, of very different sizes."""

    bundle: Bundle
    digital: Simulator
    pool: Features

    def rows(self, rows: list[int]) -> dict[str, Array]:
        return {name: value[rows] for name, value in self.pool.items()}

    @cached_property
    def cam(self) -> CamShortlist:
        job = GalleryJob(self.bundle, self.pool, self.digital)
        examples = Examples(job.queries["mu"], job.right["mu"])
        return CamShortlist(distance_graph(self.digital.program.score), examples, CAM, 3)

    def graph(self, way: str, items: Features) -> Graph:
        if way == "cam":
            return self.cam.graph(items)
        return GalleryJob(self.bundle, items, self.digital).maker(WAYS[way][1])(items)

    def cells(self, way: str, graph: Graph) -> Mapping[str, ArrayCells]:
        bundle = self.bundle
        if way == "cam":
            return word_cells(graph, CAM)
        return matrix_cells(graph, bundle.settings, bundle.target.cell_order)

    def kept(self, way: str, items: Features, graph: Graph) -> tuple[str, dict[str, bytes]]:
        """The graph of these items, as the files of a bundle keep it: all else is the bundle's."""
        job = GalleryJob(self.bundle, items, self.digital)
        if way not in ("in-memory", "cam"):  # of a whole score it takes long, a CAM has none
            graph = job.fitted(job.maker(WAYS[way][1]), graph)
        programmed, compiled = job.program_with(graph), self.digital.program
        known = {id(graph), *map(id, compiled.graphs)}
        assert known.issuperset(map(id, programmed.graphs))
        table = ConstantTable()
        text = graph_text(graph, table, graph.name)
        return text, {name: value.tobytes() for name, value in table.arrays.items()}


@pytest.fixture(scope="module")
def encoded(small_trunk: DemoFiles, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Encoded]:
    folder = tmp_path_factory.mktemp("sequences")
    video = np.load(small_trunk.eval)["video"][:POOL]
    video = video * np.random.default_rng(1).choice([0.02, 0.3, 1, 4], (POOL, 1))
    found = {}
    for mapping in ("in-memory", "hybrid"):
        api.compile(
            small_trunk.projectors, small_trunk.poly, calibration=small_trunk.calibration,
            target="isaac-rram-128", adc_bits=4, score_mapping=mapping, output=folder / mapping,
        )  # fmt: skip
        bundle = read_bundle(folder / mapping)
        digital = Simulator(bundle.program)
        pool = digital.encode("video", video.astype(np.float32))
        found[mapping] = Encoded(bundle, digital, pool)
    return found


@dataclass
class Chip:
    """Arrays that take only the writes that are counted, and a plain list of their columns.

    A column is an item's id with its row in the pool.
    """

    columns: list[tuple[int, int] | None]
    following: int
    cells: dict[str, Array] = field(default_factory=dict)

    def change(self, removed: set[int], replaced: dict[int, int], added: list[int]) -> None:
        """The rule of the columns, one item at a time."""
        for place, (one, row) in enumerate(self.held()):
            self.columns[place] = None if one in removed else (one, replaced.get(one, row))
        for row in added:
            place = self.columns.index(None) if None in self.columns else len(self.columns)
            self.columns[place : place + 1] = [(self.following, row)]
            self.following += 1
        length = sum(one is not None for one in self.columns)
        last = [one for one in self.columns[length:] if one is not None]
        self.columns = [last.pop(0) if one is None else one for one in self.columns[:length]]

    def held(self) -> list[tuple[int, int]]:
        return [one for one in self.columns if one is not None]

    def write(self, name: str, written: Array, contents: Array) -> None:
        before = padded(self.cells.get(name, np.zeros((0,) * 4, np.uint8)), written.shape)
        self.cells[name] = np.where(written, padded(contents, written.shape), before)


places = st.lists(st.integers(0, 99), max_size=4)
rows = st.lists(st.integers(0, POOL - 1), max_size=4)
replacements = st.lists(st.tuples(st.integers(0, 99), st.integers(0, POOL - 1)), max_size=3)
steps = st.tuples(places, replacements, rows)


@pytest.mark.thorough("a long random sequence")
@settings(max_examples=SEQUENCES)
@given(way=st.sampled_from(sorted(WAYS)), sequence=st.lists(steps, min_size=1, max_size=5))
def test_a_sequence_of_changes_is_programming_anew(
    encoded: dict[str, Encoded],
    way: str,
    sequence: list[tuple[list[int], list[tuple[int, int]], list[int]]],
) -> None:
    one = encoded[WAYS[way][0]]
    chip = Chip([(row, row) for row in range(FIRST)], FIRST)
    items = HeldItems(np.arange(FIRST), one.rows(list(range(FIRST))), FIRST)
    graph = one.graph(way, items.features)
    cells = one.cells(way, graph)
    counts = counts_after({}, {}, cells)
    programmed(chip, {}, counts, cells)
    ever = set[int]()
    for taken, others, added in sequence:
        live = items.ids.tolist()
        removed = {live[place % len(live)] for place in taken}
        replaced = {live[place % len(live)]: row for place, row in others}
        replaced = {known: row for known, row in replaced.items() if known not in removed}
        if len(removed) == len(live) and not added:
            continue
        ever |= removed
        chip.change(removed, replaced, added)
        gone, kept = (np.array(sorted(known), np.int64) for known in (removed, replaced))
        replacing = one.rows([replaced[known] for known in kept.tolist()])
        items = items.changed(gone, kept, replacing, one.rows(added))
        graph = one.graph(way, items.features)
        before, cells = cells, one.cells(way, graph)
        earlier, counts = counts, counts_after(counts, before, cells)
        programmed(chip, earlier, counts, cells)
    ids, held = zip(*chip.held(), strict=True)
    assert items.ids.tolist() == list(ids)
    assert items.following == chip.following
    assert not ever & set(ids)
    anew = one.rows(list(held))
    graph_anew = one.graph(way, anew)
    assert one.kept(way, items.features, graph) == one.kept(way, anew, graph_anew)
    for name, matrix in one.cells(way, graph_anew).items():
        for part, found in enumerate(chip.cells[name]):
            contents, used = matrix.laid(part)
            np.testing.assert_array_equal(found[: len(used)][used], contents[used])


def programmed(
    chip: Chip,
    earlier: Mapping[str, Array],
    counts: Mapping[str, Array],
    cells: Mapping[str, ArrayCells],
) -> None:
    for name, matrix in cells.items():
        before = padded(earlier.get(name, np.zeros((0,) * 4, np.int32)), counts[name].shape)
        contents = np.stack([matrix.laid(part)[0] for part in range(matrix.row_parts)])
        chip.write(name, counts[name] > before, contents)


def padded(values: Array, shape: tuple[int, ...]) -> Array:
    found = np.zeros(shape, values.dtype)
    found[tuple(slice(extent) for extent in values.shape)] = values
    return found


@pytest.mark.thorough("a check of the test's own pool")
def test_items_of_the_pool_need_different_widths(encoded: dict[str, Encoded]) -> None:
    one = encoded["in-memory"]
    widths = {
        op.crossbar.weights.bits
        for row in range(POOL)
        for op in one.graph("in-memory", one.rows([row])).operations(CrossbarMvm).values()
    }
    assert len(widths) > 4
