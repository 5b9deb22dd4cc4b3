"""A gallery in a content-addressable memory as it is shown."""

from __future__ import annotations

from collections.abc import Iterator

from cimtool.galleries.cams import ProgrammedCam
from cimtool.galleries.render import changed_gallery, shortlisted, written_by_change
from cimtool.report.document import Document, notes
from cimtool.report.formats import ENERGIES, TIMES, counted


def document(found: ProgrammedCam) -> Document:
    """All that a user must know of a gallery that was programmed or changed."""
    gallery, cam = found.gallery, found.use.cam
    bits = "" if gallery.bits is None else f"cells of {counted(gallery.bits.item, 'bit')}, "
    return Document(
        f"{changed_gallery(gallery)} items in {cam.name} beside {found.bundle.target.name} "
        f"(hybrid, shortlist {gallery.shortlist}, {bits}distance {cam.array.distance})",
        notes(_taken(found)),
        found.to_json,
    )


def _taken(found: ProgrammedCam) -> Iterator[str]:
    """The words that a gallery takes, what a query costs, and what its shortlist keeps."""
    use, cam, score = found.use, found.use.cam, found.score
    yield (
        f"{use.width:,} cells an item, in {counted(use.words_per_item, 'word')} of "
        f"{cam.array.cells}; {use.words:,} words in {counted(use.arrays, 'array')} of "
        f"{cam.array.words}"
    )
    if found.gallery.changes:
        yield written_by_change(found.cells_written, found.ledger, use.programmings)
    levels = "without loss"
    if cam.sense.levels is not None:
        levels = f"to {cam.sense.levels} levels of {cam.sense.step}"
    yield (
        f"a query searches all of them at once (energy: {use.energy_pj.text(ENERGIES)}, time: "
        f"{use.latency_ns.text(TIMES)}), and {use.words:,} distances are converted {levels}"
    )
    yield (
        "with the exact scores of its shortlist a query takes "
        f"{score.energy_pj.full_text(ENERGIES)}, {score.latency_ns.full_text(TIMES)} (the energy "
        "of converters of words: not given)"
    )
    yield (
        f"{shortlisted(found.accuracy)}, on {found.accuracy.queries} calibration queries, none of "
        "which it was fitted on"
    )
