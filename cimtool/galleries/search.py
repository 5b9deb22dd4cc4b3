"""Search of a gallery in shards: the best items of each query, on one or several machines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from threading import Lock

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.base.cluster import connected, on_cluster
from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.files import check_output, keeping_inputs
from cimtool.base.options import takes
from cimtool.base.progress import PartDone, Say, silent
from cimtool.base.threads import side_by_side
from cimtool.bundle.bounds import read_bounds, require_few, with_certain
from cimtool.bundle.matcher import checked_features, open_bundle
from cimtool.bundle.simulate import best_places, write_scores
from cimtool.galleries.encoding import GalleryShards, Shard, open_gallery
from cimtool.galleries.options import SearchOptions
from cimtool.ir.program import Program
from cimtool.loading.embeddings import read_rows
from cimtool.simulation.simulator import Features, Simulator


@dataclass(frozen=True)
class BestItems:
    """Each query's best items so far: rows in the gallery and scores, [n, k], best first.

    With equal scores, the lower row comes first, so the order of the shards does not matter.
    """

    items: IntArray
    scores: Array

    @classmethod
    def none(cls, queries: int) -> BestItems:
        """No items yet."""
        return cls(np.empty((queries, 0), np.int64), np.empty((queries, 0), np.float32))

    def least(self, top: int) -> Array:
        """The score [n] that a further item must reach to be among the `top` best."""
        if self.scores.shape[1] < top:
            return np.full(len(self.scores), -np.inf, np.float32)
        return self.scores[:, -1]

    def joined(self, other: BestItems, top: int) -> BestItems:
        """The `top` best of both, or all if they are fewer."""
        items = np.concatenate([self.items, other.items], axis=1)
        scores = np.concatenate([self.scores, other.scores], axis=1)
        order = np.lexsort((items, -scores), axis=1)[:, :top]
        return BestItems(*(np.take_along_axis(one, order, axis=1) for one in (items, scores)))


@dataclass(frozen=True)
class ShardSearch:
    """The part of a search that a worker needs to search shards, one after another."""

    program: Program
    text: Features
    top: int

    @cached_property
    def _simulator(self) -> Simulator:
        return Simulator(self.program)

    def best_of(self, shard: Shard) -> BestItems:
        """The best items of a shard; CimError if it changed since it was written."""
        found, lock = BestItems.none(len(self.text["mu"])), Lock()

        def look_through(block: slice) -> None:
            nonlocal found
            video = checked_features(self.program.video, items(block), self.program.score.inputs)
            best = self._best_of(video, shard.first + block.start, found)
            with lock:
                found = found.joined(best, self.top)

        with shard.opened(self.program) as items:
            side_by_side(look_through, shard.blocks)
        return found

    def _best_of(self, video: Features, first: int, known: BestItems) -> BestItems:
        """The best items of a block whose first item has the row `first`.

        For a text without an item that can enter its `top` best, any items are returned.
        """
        items, scores = [], []
        count = min(self.top, len(video["mu"]))
        for rows, part in self._simulator.iter_score(self.text, video):
            logit = part["logit"].astype(np.float32)
            places = np.tile(np.arange(count), (len(logit), 1))
            near = np.flatnonzero(logit.max(axis=1) >= known.least(self.top)[rows])
            for row in near:
                places[row] = best_places(logit[row], count)
            items.append(places)
            scores.append(np.take_along_axis(logit, places, axis=1))
        return BestItems(np.concatenate(items) + first, np.concatenate(scores))


@keeping_inputs
@takes(SearchOptions)
def search(options: SearchOptions, say: Say = silent) -> Mapping[str, Array]:
    """The best items of a gallery for each text, best first, by the exact scores of all items.

    Returns `top_index` int64 and `top_score` float32, both [n, top], as `simulate` does, and writes
    them as an `.npz` to `output`. `bounds` adds `certain` [n, top]: true at rank r if the float
    score has the r best items above all others too, by the margin in that report of `verify`. Items
    are scored in blocks, so that memory is bounded. `dask` is the address of a Dask scheduler: its
    workers take one shard at a time and must see the gallery under the same path; the answers are
    the same. Raises CimError for queries or a gallery that do not fit, a changed shard, bounds of
    another bundle or of fewer items, and a `top` that is not 1 to the number of items.
    """
    top, output = options.top, options.output
    if output is not None:
        check_output(Path(output), ".npz")
    opened = open_bundle(options.bundle)
    if opened.gallery is not None:
        raise CimError(
            f"{opened.folder}: holds a gallery in its arrays; expected the bundle before `cimtool "
            "program`, whose score is digital"
        )
    held = open_gallery(Path(options.gallery), opened)
    if not 1 <= top <= held.index.items:
        raise ArgumentError(
            "{top} is {}; expected 1 to {}, the number of items", top, held.index.items
        )
    bounds, more = None, top
    if options.bounds is not None:
        bounds = read_bounds(Path(options.bounds), opened)
        require_few(held.index.items, bounds, Path(options.bounds))
        more = min(top + 1, held.index.items)  # the next item says how far the last rank leads
    rows = read_rows(options.queries, "text", opened.model)
    program = opened.program
    wanted = ShardSearch(program, Simulator(program).encode("text", rows), more)
    found, done = BestItems.none(len(rows)), 0
    for best in _answers(wanted, held, options.dask):
        found, done = found.joined(best, more), done + 1
        say(PartDone(f"shard {done} of {len(held.shards)}: searched for {len(rows)} texts"))
    answer = {"top_index": found.items, "top_score": found.scores}
    if bounds is not None:
        answer = with_certain(answer, top, bounds.margin)
    if output is not None:
        write_scores(Path(output), answer)
    return answer


def _answers(wanted: ShardSearch, held: GalleryShards, dask: str | None) -> Iterator[BestItems]:
    """Yield the best items of each shard, in any order."""
    if dask is None:
        yield from map(wanted.best_of, held.shards)
        return
    with connected(dask) as client:
        # Workers start in other folders.
        calls = [(replace(shard, file=shard.file.absolute()),) for shard in held.shards]
        again = "run the command again"
        yield from on_cluster(client, dask, ShardSearch.best_of, wanted, calls, "a shard", again)
