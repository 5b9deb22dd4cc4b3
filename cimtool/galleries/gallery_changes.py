"""Changes of a gallery in the arrays: items are removed, replaced and added.

The bundle after a change equals the bundle from programming the items anew in the order of their
columns; the ledger says which cells are written. An added item takes the lowest column that a
removed item leaves. If columns stay free, the last items move there, so that the columns of a
gallery never have a gap.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.base.errors import Argument, ArgumentError, CimError, naming
from cimtool.base.files import keeping_inputs
from cimtool.base.folders import alone_with
from cimtool.base.options import takes
from cimtool.base.progress import Say, silent
from cimtool.bundle.arrays_file import features_sha256
from cimtool.bundle.bundle import (
    GALLERY,
    QUERIES,
    Bundle,
    Gallery,
    check_place,
    features_bytes,
    read_bundle,
)
from cimtool.bundle.ledger import ITEMS, LEDGER, LEDGER_ARRAYS, Ledger
from cimtool.bundle.matcher import bundle_folder
from cimtool.galleries.gallery_job import GalleryJob
from cimtool.galleries.options import ChangeOptions
from cimtool.galleries.programming import (
    ProgrammedBundle,
    ProgrammedCam,
    cells_of,
    shortlist_length,
    source_of,
    stored_in_arrays,
    stored_in_cam,
    write_programmed,
)
from cimtool.galleries.wear import array_writes, check_endurance, counts_after, first_counts
from cimtool.loading.embeddings import EmbeddingsLike, file_of, read_rows
from cimtool.report.formats import counted
from cimtool.simulation.simulator import Features, Simulator


@dataclass(frozen=True, eq=False)
class HeldItems:
    """The items of a gallery by column: ids [M] and features [M, ..].

    `following` is the id of the next added item: ids count up, and no id is given twice.
    """

    ids: IntArray
    features: Features
    following: int

    def columns(self, ids: IntArray) -> IntArray:
        """The columns of the items with these ids; all ids must be held."""
        order = np.argsort(self.ids)
        columns: IntArray = order[np.searchsorted(self.ids, ids, sorter=order)]
        return columns

    def changed(
        self, removed: IntArray, replaced: IntArray, replacing: Features, added: Features
    ) -> HeldItems:
        """The items after a change; `removed` and `replaced` are ids, without a common id.

        Replaced items keep their ids; `replacing` has their new features, in the order of
        `replaced`. Items that are `added` get the next ids in the order of their rows.
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
        """Features of zero items."""
        return {name: value[:0] for name, value in self.features.items()}


def _rows(features: Features) -> int:
    return len(next(iter(features.values())))


@keeping_inputs
@takes(ChangeOptions)
def change_gallery(options: ChangeOptions, say: Say = silent) -> ProgrammedBundle | ProgrammedCam:
    """Change the gallery in the arrays of a programmed bundle, or in its CAM: all or nothing.

    Items with the ids `remove` are taken out. `replace` has ids and videos: row by row, a video
    replaces the item with that id. The videos of `add` are added. The bundle is replaced, or the
    new bundle goes to `output`. A hybrid score keeps the length of its shortlist unless `shortlist`
    gives another. Raises CimError for a bundle without a gallery, for an id that it does not hold
    or that is given twice, for a change that leaves no item, if a cell would be written more often
    than it endures, if another process is changing the bundle, and as `program` does.
    """
    place = bundle_folder(options.bundle)
    folder = Path(options.output) if options.output else place
    check_place(folder)
    with alone_with(folder):
        opened = read_bundle(place)
        held = _check_changeable(opened)
        digital = Simulator(opened.compiled_stages[-1].program)
        items, sources = _changed_items(opened, digital, options, say)
        length = _length(opened, held, len(items.ids), options.shortlist)
        job = GalleryJob(opened, items.features, digital)
        if held.cam is None or held.bits is None:
            stored = stored_in_arrays(job, held.bits, length, options.chips, say)
        elif options.chips is None:
            stored = stored_in_cam(job, held.cam, held.bits.item, length, say)
        else:
            raise ArgumentError(
                "{chips} is {}; the items of {} are in {}, whose arrays are not counted by chips",
                options.chips,
                opened.folder,
                held.cam.name,
            )
        say("counting the cells that are written")
        before = cells_of(opened, opened.program.shortlist or opened.program.score, held.cam)
        with naming(opened.folder / LEDGER_ARRAYS):
            counts = counts_after(opened.write_counts or first_counts(before), before, stored.cells)
        ledger = Ledger(items.following, array_writes(counts))
        check_endurance(ledger.matrices, stored.use, stored.memory)
        gallery = dataclasses.replace(
            held,
            items=len(items.ids),
            shortlist=length,
            features=features_sha256(items.features),
            changes=held.changes + 1,
        )
        say(f"writing {folder}")
        beside = {LEDGER_ARRAYS: features_bytes({ITEMS: items.ids, **counts})}
        return write_programmed(folder, job, stored, gallery, ledger, sources, beside)


def _changed_items(
    bundle: Bundle, digital: Simulator, options: ChangeOptions, say: Say
) -> tuple[HeldItems, list[tuple[str, str]]]:
    """The items after a change, and the files that were read for it, with their checksums."""
    items = HeldItems(bundle.items, bundle.gallery_features, bundle.ledger.next_item)
    others, data = options.replace or ((), None)
    removed, replaced = _checked_ids(bundle, items.ids, options.remove, others)
    sources: list[tuple[str, str]] = []

    def encoded(data: EmbeddingsLike | None) -> Features:
        if data is None:
            return items.none()
        rows = read_rows(data, "video", bundle.model)
        sources.append(source_of(file_of(data, "video"), rows))
        say(f"encoding {len(rows)} items")
        return digital.encode("video", rows)

    replacing = encoded(data)
    if _rows(replacing) != len(replaced):
        raise ArgumentError(
            "{replace} names {} and {} has {}; expected one for each",
            counted(len(replaced), "item"),
            sources[0][0],
            counted(_rows(replacing), "row"),
        )
    if len(removed) == len(items.ids) and options.add is None:
        raise ArgumentError(
            "{remove} names all {} items of {}; keep at least one, or give {add} with it",
            len(removed),
            bundle.folder,
        )
    return items.changed(removed, replaced, replacing, encoded(options.add)), sources


def _length(bundle: Bundle, held: Gallery, items: int, asked: int | None) -> int | None:
    """The length of the shortlist: `asked`, else as before; CimError if it is not possible."""
    if asked is None and held.shortlist is not None and held.shortlist > items:
        raise ArgumentError(
            "{}: its shortlist is {:,} items long but the gallery would have {:,}; give "
            "{shortlist} with the change, 1 to {}",
            bundle.folder,
            held.shortlist,
            items,
            items,
        )
    return shortlist_length(bundle, items, held.shortlist if asked is None else asked)


def _check_changeable(bundle: Bundle) -> Gallery:
    """The gallery of a bundle; CimError if there is none, or if it cannot be changed."""
    if bundle.gallery is None:
        raise ArgumentError(
            "{}: holds no gallery to change; program one first ({gallery})",
            bundle.folder,
        )
    if bundle.gallery.cam is None and bundle.target.rewritable == "factory":
        raise CimError(
            f'{bundle.folder}: target {bundle.target.name} has rewritable = "factory", so its '
            'cells are written once; expected "field" or "per-inference", or another chip'
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
    """Both lists of ids as arrays; ArgumentError for an id that is not held or is given twice."""
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
