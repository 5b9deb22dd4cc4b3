"""Changes of a gallery in the arrays: items are removed, replaced and added.

The bundle after a change is the one that programming the items anew gives, in the order of their
columns; the ledger says which cells that writes. An item that is added takes the lowest column that
a removed one leaves; columns that stay free then are filled by the last items, so that the columns
of a gallery never have a gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.base.errors import Argument, ArgumentError, CimError
from cimtool.base.progress import Say, silent
from cimtool.bundle.bundle import GALLERY, QUERIES, Bundle, Gallery, check_place
from cimtool.bundle.ledger import ITEMS, LEDGER, Ledger
from cimtool.bundle.matcher import features_sha256, open_bundle
from cimtool.deployment.gallery_job import GalleryJob
from cimtool.deployment.programming import (
    ProgrammedBundle,
    shortlist_length,
    source_of,
    stored_gallery,
    write_programmed,
)
from cimtool.deployment.wear import (
    array_writes,
    check_endurance,
    counts_after,
    first_counts,
    matrix_cells,
)
from cimtool.loading.embeddings import EmbeddingsLike, File, file_of, read_rows
from cimtool.simulation.simulator import Features, Simulator


@dataclass(frozen=True, eq=False)
class HeldItems:
    """The items of a gallery by column: ids [M] and features [M, ..].

    `following` is the id of the item that is added next: ids count up, and none is given twice.
    """

    ids: IntArray
    features: Features
    following: int

    def columns(self, ids: IntArray) -> IntArray:
        """The columns of items of these ids, which are all held."""
        order = np.argsort(self.ids)
        columns: IntArray = order[np.searchsorted(self.ids, ids, sorter=order)]
        return columns

    def changed(
        self, removed: IntArray, replaced: IntArray, replacing: Features, added: Features
    ) -> HeldItems:
        """The items after a change: of other ids `removed` and `replaced`, which keep theirs.

        `replacing` are the features of the replaced ones, in the order of their ids; items that are
        `added` get the next ids in the order of their rows.
        """
        count, new, more = len(self.ids), len(replaced), _rows(added)
        sources = np.arange(count)
        sources[self.columns(replaced)] = count + np.arange(new)
        incoming = count + new + np.arange(more)
        free = np.sort(self.columns(removed))
        taken, gaps = free[:more], free[more:]
        sources[taken] = incoming[: len(taken)]
        length = count - len(gaps)
        last = np.setdiff1d(np.arange(length, count), gaps)
        sources[gaps[gaps < length]] = sources[last]
        sources = np.concatenate([sources[:length], incoming[len(taken) :]])
        ids = np.concatenate([self.ids, replaced, self.following + np.arange(more)])
        parts = {
            name: (value, replacing[name], added[name]) for name, value in self.features.items()
        }
        features = {name: np.concatenate(three)[sources] for name, three in parts.items()}
        return HeldItems(ids[sources], features, self.following + more)

    def none(self) -> dict[str, Array]:
        """Features of no item."""
        return {name: value[:0] for name, value in self.features.items()}


def _rows(features: Features) -> int:
    return len(next(iter(features.values())))


def change_gallery(
    bundle: File,
    *,
    add: EmbeddingsLike | None = None,
    remove: Sequence[int] = (),
    replace: tuple[Sequence[int], EmbeddingsLike] | None = None,
    output: File | None = None,
    shortlist: int | None = None,
    chips: int | None = None,
    say: Say = silent,
) -> ProgrammedBundle:
    """Change the gallery in the arrays of a programmed bundle, all of it or nothing.

    The items of the ids `remove` are taken out, those of `replace` get the videos that follow, row
    by row, and the videos of `add` come in. The bundle is replaced, or the new one goes to
    `output`. A hybrid score keeps the length of its shortlist unless `shortlist` says another.
    Raises CimError for a bundle without a gallery, for ids that it does not hold or that stand
    twice, for a change that leaves no item, where a cell would be written more often than it
    endures, and as `program` does.
    """
    opened = open_bundle(bundle)
    held = _check_changeable(opened)
    folder = Path(output) if output else opened.folder
    check_place(folder)
    items = HeldItems(opened.items, opened.gallery_features, opened.ledger.next_item)
    others, file = replace or ((), None)
    removed, replaced = _checked_ids(opened, items.ids, remove, others)
    digital = Simulator(opened.compiled_stages[-1].program)
    sources: list[tuple[str, str]] = []

    def encoded(data: EmbeddingsLike | None) -> Features:
        if data is None:
            return items.none()
        rows = read_rows(data, "video", opened.model)
        sources.append(source_of(file_of(data, "video"), rows))
        say(f"encoding {len(rows)} videos")
        return digital.encode("video", rows)

    replacing, added = encoded(file), encoded(add)
    if _rows(replacing) != len(replaced):
        raise ArgumentError(
            "{replace} names {} items and {} has {} videos; expected one for each",
            len(replaced),
            sources[0][0],
            _rows(replacing),
        )
    if len(removed) == len(items.ids) and not _rows(added):
        raise ArgumentError(
            "{remove} names all {} items of {}; expected one that stays, or {add} with it",
            len(removed),
            opened.folder,
        )
    changed = items.changed(removed, replaced, replacing, added)
    if shortlist is None and held.shortlist is not None and held.shortlist > len(changed.ids):
        raise ArgumentError(
            "{}: its shortlist is {:,} items long and the gallery would have {:,}; expected "
            "{shortlist} with the change, 1 to {}",
            opened.folder,
            held.shortlist,
            len(changed.ids),
            len(changed.ids),
        )
    asked = held.shortlist if shortlist is None else shortlist
    length = shortlist_length(opened, len(changed.ids), asked)
    job = GalleryJob(opened, changed.features, digital)
    stored = stored_gallery(job, held.bits, length, chips, say)
    say("counting the cells that are written")
    graph = opened.program.shortlist or opened.program.score
    order, settings = opened.target.cell_order, opened.settings
    before = matrix_cells(graph, settings, order)
    after = matrix_cells(stored.graph, settings, order)
    counts = counts_after(opened.write_counts or first_counts(before), before, after)
    ledger = Ledger(changed.following, array_writes(counts))
    check_endurance(ledger.matrices, stored.use, opened.target.name)
    gallery = Gallery(
        held.file,
        held.sha256,
        len(changed.ids),
        held.mapping,
        length,
        features_sha256(changed.features),
        held.bits,
        held.changes + 1,
    )
    say(f"writing {folder}")
    made = write_programmed(
        folder, opened, stored.program, gallery, changed.features, sources, ledger,
        {ITEMS: changed.ids, **counts},
    )  # fmt: skip
    written = ledger.cells_written - opened.ledger.cells_written
    return ProgrammedBundle(made, gallery, stored.use, stored.accuracy, ledger, written)


def _check_changeable(bundle: Bundle) -> Gallery:
    """The gallery of a bundle that can be changed; CimError where it holds none, or too little."""
    if bundle.gallery is None:
        raise ArgumentError(
            "{}: holds no gallery that could be changed; program one first ({gallery})",
            bundle.folder,
        )
    for name in (GALLERY, QUERIES, LEDGER):
        if name not in bundle.manifest["files"]:
            raise CimError(
                f"{bundle.folder}: has no {name}, which earlier versions did not keep; program the "
                "gallery again"
            )
    return bundle.gallery


def _checked_ids(
    bundle: Bundle, held: IntArray, remove: Iterable[int], replace: Iterable[int]
) -> tuple[IntArray, IntArray]:
    """The ids of both, as arrays; ArgumentError for one that is not held, or stands twice."""
    known, seen = set(held.tolist()), set[int]()
    asked = {"remove": list(remove), "replace": list(replace)}
    for argument, ids in asked.items():
        for one in ids:
            if one not in known:
                raise ArgumentError(
                    "{} names item {}, which {} does not hold; expected ids of its {:,} items, "
                    "from {} to {}",
                    Argument(argument),
                    one,
                    bundle.folder,
                    len(known),
                    min(known),
                    max(known),
                )
            if one in seen:
                raise ArgumentError(
                    "{} names item {} a second time; expected each once", Argument(argument), one
                )
            seen.add(one)
    removed, replaced = (np.array(ids, np.int64) for ids in asked.values())
    return removed, replaced
