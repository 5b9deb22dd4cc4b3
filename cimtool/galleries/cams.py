"""Programming of a gallery into a content-addressable memory beside a bundle's target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cimtool.base.errors import ArgumentError
from cimtool.base.files import keeping_inputs
from cimtool.base.options import takes
from cimtool.base.progress import Say, silent
from cimtool.bundle.arrays_file import features_sha256
from cimtool.bundle.bundle import IN_MEMORY, Bundle, Gallery
from cimtool.bundle.ledger import LEDGER, Ledger
from cimtool.bundle.matcher import open_bundle
from cimtool.bundle.simulate import best_items
from cimtool.costs.cam_search import CamUse
from cimtool.costs.totals import Cost
from cimtool.galleries.cam_shortlist import SEARCH, CamShortlist
from cimtool.galleries.few_bits import Examples
from cimtool.galleries.gallery_job import GalleryJob
from cimtool.galleries.options import CamOptions
from cimtool.galleries.programming import (
    Accuracy,
    check_onnx_size,
    check_programmable,
    read_gallery_rows,
    shortlist_length,
    source_of,
    write_programmed,
)
from cimtool.galleries.shortlists import Places, places_of
from cimtool.galleries.wear import check_endurance, word_cells
from cimtool.hardware.cam import Cam, load_cam
from cimtool.hardware.cell_distance import CellDistance
from cimtool.ir.op import Level
from cimtool.ir.program import Graph, Program, check_program
from cimtool.passes.gallery import ShortlistBits, distance_graph
from cimtool.report.result import Result
from cimtool.simulation.simulator import Simulator


@dataclass(frozen=True, repr=False)
class ProgrammedCam(Result, shown_by="cimtool.galleries.cam_render"):
    """A bundle whose gallery a CAM holds: its use, its recall, and the cost of a query's score.

    `cells_written` are those of this call.
    """

    bundle: Bundle
    gallery: Gallery
    use: CamUse
    accuracy: Accuracy
    ledger: Ledger
    cells_written: int
    score: Cost

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        return {
            "bundle": self.bundle.folder,
            "target": self.bundle.target.name,
            "gallery": self.gallery.to_json(),
            "memory": self.use.to_json(),
            "cells_written": self.cells_written,
            "ledger": self.ledger.to_json(),
            "accuracy": vars(self.accuracy),
            "score": self.score.to_json(),
            "files": self.bundle.manifest["files"],
        }


@keeping_inputs
@takes(CamOptions)
def program_cam(options: CamOptions, say: Say = silent) -> ProgrammedCam:
    """Program a gallery's videos into a CAM and write the bundle that it proposes items for.

    `cam` is the name of one or the path of its file; its cells hold `shortlist_bits` of a value, by
    default all that they can. The other arguments, and where the bundle goes, are as for `program`.
    Raises CimError for a bundle that has no hybrid score or is programmed already, a CAM that is
    not known, more bits than its cells have, and a gallery that does not fit ONNX.
    """
    compiled = open_bundle(options.bundle)
    check_programmable(compiled)
    known = load_cam(options.cam)
    bits = _checked_bits(compiled, known, options.shortlist_bits)
    file, folder, rows = read_gallery_rows(compiled, options.gallery, options.output)
    length = shortlist_length(compiled, len(rows), options.shortlist)
    assert length is not None
    digital = Simulator(compiled.program)
    say(f"encoding {len(rows)} items")
    job = GalleryJob(compiled, digital.encode("video", rows), digital)
    stored = stored_in_cam(job, known, bits, length, say)
    cells = word_cells(stored.graph, known)
    ledger = Ledger(len(rows), {name: one.first for name, one in cells.items()})
    check_endurance(ledger.matrices, stored.use, known.name)
    source = source_of(file, rows)
    features, both = features_sha256(job.video), ShortlistBits(bits, bits)
    held = Gallery(*source, len(rows), "hybrid", length, features, both, cam=known)
    say(f"writing {folder}")
    beside = {LEDGER: ledger.text().encode()}
    made = write_programmed(folder, compiled, stored.program, held, job.video, [source], beside)
    return ProgrammedCam(
        made, held, stored.use, stored.accuracy, ledger, ledger.cells_written, stored.score
    )


@dataclass(frozen=True)
class StoredInCam:
    """A gallery in a CAM: the graph that searches it, the program with it, and what it takes."""

    graph: Graph
    program: Program
    use: CamUse
    accuracy: Accuracy
    score: Cost


def stored_in_cam(job: GalleryJob, cam: Cam, bits: int, length: int, say: Say) -> StoredInCam:
    """The gallery of a job in a CAM, so many bits a cell, with shortlists of `length` items."""
    say(f"programming {cam.name}")
    graph = _graph(job, cam, bits)
    op = graph.operations(CellDistance)[SEARCH]
    items, width = op.stored.shape
    check_onnx_size(items, width * ((1 << op.bits) - 1))
    program = job.program_with(graph)
    check_program(program, IN_MEMORY, Level.CROSSBAR)
    say("measuring recall")
    accuracy = _accuracy(job, cam, bits, length)
    score = job.cost(graph, length, cam).score
    assert score is not None
    return StoredInCam(graph, program, CamUse.of(op, cam), accuracy, score)


def _checked_bits(bundle: Bundle, cam: Cam, asked: int | None) -> int:
    """The bits of a cell; ArgumentError where the bundle or the CAM does not allow for them."""
    if bundle.settings.score_mapping != "hybrid":
        raise ArgumentError(
            "{cam} is {}; {} was compiled with score_mapping = in-memory, which draws up no "
            "shortlist (compile with {score_mapping} hybrid)",
            cam.name,
            bundle.name,
        )
    most = cam.array.cell_bits
    if asked is not None and not 1 <= asked <= most:
        raise ArgumentError(
            "{shortlist_bits} is {}; expected 1 to {}, the bits of a cell of {}",
            asked,
            most,
            cam.name,
        )
    return asked or most


def _graph(job: GalleryJob, cam: Cam, bits: int) -> Graph:
    """The graph of all items, fitted on the queries of a job."""
    examples = Examples(job.queries["mu"], (job.right or job.video)["mu"])
    score = distance_graph(job.digital.program.score)
    return CamShortlist(score, examples, cam, bits).graph(job.video)


def _accuracy(whole: GalleryJob, cam: Cam, bits: int, length: int) -> Accuracy:
    """Recall of queries that nothing was fitted on: each half's, in what is fitted on the other."""
    found = []
    for fit, ask in whole.halves:
        best = best_items(ask.digital.score(ask.queries, whole.video))
        programmed = Simulator(whole.program_with(_graph(fit, cam, bits)))
        for part, ed in programmed.iter_distances(ask.queries):
            found.append(Places(places_of(ed, best[part]), None, None))
    return Accuracy.of_places(Places.joined(found), length)
