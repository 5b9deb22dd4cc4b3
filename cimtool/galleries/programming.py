"""Programming of a gallery into the arrays of a bundle, or into a CAM beside its target."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cimtool.base.arrays import Array
from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.files import keeping_inputs, sha256
from cimtool.base.options import takes
from cimtool.base.progress import Say, silent
from cimtool.bundle.arrays_file import features_sha256
from cimtool.bundle.bundle import (
    CALIBRATION,
    GALLERY,
    IN_MEMORY,
    ONNX_FILES,
    QUERIES,
    SHORTLIST,
    TRAINING,
    Bundle,
    BundleContent,
    Gallery,
    check_place,
    features_bytes,
    write_bundle,
)
from cimtool.bundle.ledger import LEDGER, Ledger
from cimtool.bundle.matcher import open_bundle
from cimtool.bundle.simulate import recall
from cimtool.costs.cam_search import CamUse
from cimtool.costs.memory_use import MemoryUse, check_chips, memory_use
from cimtool.costs.totals import Cost
from cimtool.galleries.cam_shortlist import SEARCH
from cimtool.galleries.gallery_job import GalleryJob, Places, Recall, ShortlistTrials
from cimtool.galleries.options import CamOptions, NewGallery, ProgramOptions
from cimtool.galleries.shortlists import (
    ShortlistSearch,
    bits_asked,
    no_shortlist,
    search_svg,
    shortlist_search,
)
from cimtool.galleries.wear import (
    ArrayCells,
    check_endurance,
    first_writes,
    matrix_cells,
    word_cells,
)
from cimtool.hardware.cam import Cam, load_cam
from cimtool.hardware.cell_distance import CellDistance
from cimtool.hardware.placement import item_products
from cimtool.hardware.settings import LEFT_OUT
from cimtool.ir.op import Level
from cimtool.ir.program import Graph, Program, check_program
from cimtool.loading.embeddings import file_of, read_rows
from cimtool.passes.gallery import DEFAULT_SHORTLIST, ShortlistBits, score_layers
from cimtool.passes.pipeline import Stage
from cimtool.reference.metrics import ReferenceScores
from cimtool.report.result import Result
from cimtool.simulation.simulator import Simulator

SEARCH_PICTURE = "shortlists.svg"
"""The file of a bundle with a picture of the search for a recall."""

ONNX_LIMIT = (1 << 31) - 1
"""Bytes of an ONNX file at most: it is one protobuf message."""


@dataclass(frozen=True)
class Accuracy:
    """The score in the memory against the digital score, on a bundle's calibration queries.

    `logit_rmse` and `top1_agreement` are None for a hybrid score, whose shortlist is scored
    exactly. `shortlist_top1` is the share of queries whose best item is shortlisted,
    `shortlist_top10` the shortlisted share of their best ten; both None without a shortlist.
    """

    queries: int
    logit_rmse: float | None = None
    top1_agreement: float | None = None
    shortlist_top1: float | None = None
    shortlist_top10: float | None = None

    @classmethod
    def of_halves(cls, halves: tuple[Places, Places], length: int) -> Accuracy:
        """The recall of a shortlist, from the places of items for the queries of both halves."""
        places = Places.joined(halves)
        held = Recall.of(places, length)
        queries = len(places.best)
        return cls(queries, shortlist_top1=held.best.value, shortlist_top10=held.best_ten)


@dataclass(frozen=True, repr=False)
class ProgrammedBundle(Result, shown_by="cimtool.galleries.render"):
    """A programmed bundle and its figures for a user; `cells_written` counts this call only."""

    bundle: Bundle
    gallery: Gallery
    use: MemoryUse
    accuracy: Accuracy
    ledger: Ledger
    cells_written: int
    search: ShortlistSearch | None = None

    @property
    def left_out(self) -> list[str]:
        """Layers of the score that settings leave out; each item gets their mean instead."""
        settings, head = self.bundle.settings, self.bundle.model.head
        names = score_layers(head, settings.score_mapping)
        return [name for name in names if settings.product_bits(name).item == LEFT_OUT]

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        search = None if self.search is None else self.search.to_json()
        return _plain_values(self, {"left_out": self.left_out}, {"search": search})


@dataclass(frozen=True, repr=False)
class ProgrammedCam(Result, shown_by="cimtool.galleries.render"):
    """A bundle whose gallery a CAM holds: its use, its recall, and the cost of a query's score.

    `cells_written` counts this call only.
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
        return _plain_values(self, {}, {"score": self.score.to_json()})


def _plain_values(
    found: ProgrammedBundle | ProgrammedCam,
    after_gallery: Mapping[str, Any],
    after_accuracy: Mapping[str, Any],
) -> dict[str, Any]:
    return {
        "bundle": found.bundle.folder,
        "target": found.bundle.target.name,
        "gallery": found.gallery.to_json(),
        **after_gallery,
        "memory": found.use.to_json(),
        "cells_written": found.cells_written,
        "ledger": found.ledger.to_json(),
        "accuracy": asdict(found.accuracy),
        **after_accuracy,
        "files": found.bundle.manifest["files"],
    }


@keeping_inputs
@takes(ProgramOptions)
def program(options: ProgramOptions, say: Say = silent) -> ProgrammedBundle:
    """Program a gallery's videos into the arrays of a bundle and write the bundle that holds them.

    Only the video rows of `gallery` are read. The new bundle goes to `output`, by default
    `<bundle>+<gallery's name>`. `shortlist` is the length of a hybrid score's list; the gallery
    must fit on `chips`. With `shortlist_bits`, an item stores this many bits of each value of `mu`,
    and a query is driven with `query_bits`; with `shortlist_dimensions`, the values are this many
    components of `mu`. With `recall`, bits and dimensions that you leave out are chosen, and the
    length: the cheapest, by `minimise` or else by cells, that hold this share of best items on both
    halves of the kept calibration queries. The length is at most `shortlist`. Raises CimError for a
    bundle compiled with a digital score or programmed already, a shortlist longer than the gallery,
    a recall that no setting reaches, and a gallery that does not fit the chips, an accumulator or
    ONNX.
    """
    compiled = open_bundle(options.bundle)
    _check_programmable(compiled)
    new = _NewItems.of(compiled, options)
    length = shortlist_length(compiled, len(new.rows), options.shortlist)
    bits = bits_asked(compiled, options)
    job, search = new.job(compiled, say), None
    beside: dict[str, bytes] = {}
    if options.recall is not None and length is not None:
        search = shortlist_search(job, options, length, say)
        length, bits = search.chosen.length, search.chosen.bits
        source = new.source[0]
        title = f"{source} on {compiled.target.name}: shortlists of few bits"
        beside[SEARCH_PICTURE] = search_svg(search, title).encode()
    stored = stored_in_arrays(job, bits, length, options.chips, say)
    found = new.programmed(job, stored, length, bits, beside, say)
    assert isinstance(found, ProgrammedBundle)
    return replace(found, search=search)


@keeping_inputs
@takes(CamOptions)
def program_cam(options: CamOptions, say: Say = silent) -> ProgrammedCam:
    """Program a gallery's videos into a CAM and write the bundle that takes shortlists from it.

    `cam` is a CAM's name or file; its cells hold `shortlist_bits` of a value, by default as many
    as they can. The other arguments, and the bundle's folder, are as for `program`. Raises CimError
    for a bundle that has no hybrid score or is programmed already, an unknown CAM, more bits than
    its cells have, and a gallery that does not fit ONNX.
    """
    compiled = open_bundle(options.bundle)
    _check_programmable(compiled)
    cam = load_cam(options.cam)
    asked, most = options.shortlist_bits, cam.array.cell_bits
    if compiled.settings.score_mapping != "hybrid":
        raise no_shortlist(compiled, "cam", cam.name)
    if asked is not None and not 1 <= asked <= most:
        raise ArgumentError(
            "{shortlist_bits} is {}; expected 1 to {}, the bits of a cell of {}",
            asked,
            most,
            cam.name,
        )
    bits = ShortlistBits(asked or most, asked or most)
    new = _NewItems.of(compiled, options)
    length = shortlist_length(compiled, len(new.rows), options.shortlist)
    job = new.job(compiled, say)
    stored = stored_in_cam(job, cam, bits.item, length, say)
    found = new.programmed(job, stored, length, bits, {}, say)
    assert isinstance(found, ProgrammedCam)
    return found


@dataclass(frozen=True)
class _NewItems:
    """The videos of a gallery, the file that they come from, and the folder of the new bundle."""

    file: Path | None
    folder: Path
    rows: Array

    @classmethod
    def of(cls, compiled: Bundle, options: NewGallery) -> _NewItems:
        """Read the videos; CimError if the folder cannot be written or the rows do not fit."""
        file = file_of(options.gallery, "video")
        name = f"{compiled.name}+{file.stem if file else 'gallery'}"
        folder = Path(options.output) if options.output else compiled.folder.with_name(name)
        check_place(folder)
        return cls(file, folder, read_rows(options.gallery, "video", compiled.model))

    @property
    def source(self) -> tuple[str, str]:
        """Name and checksum of the file or the arrays."""
        return source_of(self.file, self.rows)

    def job(self, compiled: Bundle, say: Say) -> GalleryJob:
        """The items, encoded."""
        digital = Simulator(compiled.program)
        say(f"encoding {len(self.rows)} items")
        return GalleryJob(compiled, digital.encode("video", self.rows), digital)

    def programmed(
        self,
        job: GalleryJob,
        stored: StoredGallery,
        length: int | None,
        bits: ShortlistBits | None,
        beside: Mapping[str, bytes],
        say: Say,
    ) -> ProgrammedBundle | ProgrammedCam:
        """The bundle with the items, in cells that were not written before."""
        source, count, mapping = self.source, len(self.rows), job.compiled.settings.score_mapping
        ledger = Ledger(count, first_writes(stored.cells))
        features, cam = features_sha256(job.video), stored.cam
        held = Gallery(*source, count, mapping, length, features, bits, cam=cam)
        check_endurance(ledger.matrices, stored.use, stored.memory)
        say(f"writing {self.folder}")
        return write_programmed(self.folder, job, stored, held, ledger, [source], beside)


def source_of(file: Path | None, rows: Array) -> tuple[str, str]:
    """The name and SHA-256 of the items' file; for arrays, the SHA-256 of the rows."""
    if file is None:
        return "arrays", hashlib.sha256(rows.tobytes()).hexdigest()
    return file.name, sha256(file)


@dataclass(frozen=True)
class StoredGallery:
    """A gallery in arrays or in a `cam`: the graph that holds it, its use of cells, its accuracy.

    `score` is the cost of a query with the shortlist of a CAM; None for arrays.
    """

    graph: Graph
    program: Program
    bundle: Bundle
    use: MemoryUse | CamUse
    accuracy: Accuracy
    score: Cost | None = None

    @property
    def cam(self) -> Cam | None:
        """The CAM; None for the target's arrays."""
        return self.use.cam if isinstance(self.use, CamUse) else None

    @property
    def memory(self) -> str:
        """The name of the memory that holds the items: the target's or the CAM's."""
        return self.bundle.target.name if self.cam is None else self.cam.name

    @property
    def cells(self) -> dict[str, ArrayCells]:
        """The cells of the items."""
        return cells_of(self.bundle, self.graph, self.cam)


def cells_of(bundle: Bundle, graph: Graph, cam: Cam | None) -> dict[str, ArrayCells]:
    """The cells of the items of a graph, in a bundle's arrays or in a CAM."""
    if cam is not None:
        return word_cells(graph, cam)
    return matrix_cells(graph, bundle.settings, bundle.target.cell_order)


def stored_in_arrays(
    job: GalleryJob,
    bits: ShortlistBits | None,
    length: int | None,
    chips: int | None,
    say: Say,
) -> StoredGallery:
    """The gallery in the arrays, with a shortlist of `length` if hybrid, on at most `chips`."""
    bundle = job.compiled
    settings, target = bundle.settings, bundle.target
    say("programming the gallery")
    make = job.maker(bits)
    tiled = make(job.video)
    if chips is not None:
        check_chips(memory_use(tiled, settings, target), target, chips)
    _check_graph_size(tiled)
    say("fitting converters")
    fitted = job.fitted(make, tiled)
    _check_graph_size(fitted)
    program = job.program_with(fitted)
    check_program(program, IN_MEMORY, Level.CROSSBAR)
    say("measuring accuracy")
    if bits is not None and length is not None:
        places = ShortlistTrials(job).places(lambda fit: fit.fitted_maker(bits))
        accuracy = Accuracy.of_halves(places, length)
    else:
        accuracy = _accuracy(job, Simulator(program), length)
    use = memory_use(fitted, settings, target)
    return StoredGallery(fitted, program, bundle, use, accuracy)


def stored_in_cam(
    job: GalleryJob, cam: Cam, bits: int, length: int | None, say: Say
) -> StoredGallery:
    """The gallery in a CAM, with `bits` per cell and shortlists of `length` items."""
    assert length is not None
    say(f"programming {cam.name}")
    graph = job.in_cam(cam, bits)(job.video)
    op = graph.operations(CellDistance)[SEARCH]
    items, width = op.stored.shape
    _check_onnx_size(items, width * ((1 << op.bits) - 1))
    program = job.program_with(graph)
    check_program(program, IN_MEMORY, Level.CROSSBAR)
    say("measuring recall")
    places = ShortlistTrials(job, right=False).places(lambda fit: fit.in_cam(cam, bits))
    accuracy = Accuracy.of_halves(places, length)
    score = job.cost(graph, length, cam).score
    return StoredGallery(graph, program, job.compiled, CamUse.of(op, cam), accuracy, score)


def _check_programmable(bundle: Bundle) -> None:
    """Raise CimError for a bundle that cannot take a gallery."""
    if bundle.gallery is not None:
        raise ArgumentError(
            "{}: holds the gallery {} already; program the bundle that it was made from, or change "
            "this one with {add}, {remove} and {replace}",
            bundle.folder,
            bundle.gallery.file,
        )
    if bundle.settings.score_mapping == "digital":
        raise ArgumentError(
            "{}: was compiled with score_mapping = digital, which keeps no gallery in the arrays; "
            "compile with {score_mapping} in-memory or hybrid",
            bundle.folder,
        )


def shortlist_length(bundle: Bundle, items: int, asked: int | None) -> int | None:
    """The length of the shortlist; None if the whole score is in the memory."""
    if bundle.settings.score_mapping != "hybrid":
        if asked is not None:
            raise no_shortlist(bundle, "shortlist", asked)
        return None
    length = bundle.settings.shortlist if asked is None else asked
    if length is None:
        return min(DEFAULT_SHORTLIST, items)
    if not 1 <= length <= items:
        raise ArgumentError(
            "{shortlist} is {}; expected 1 to {}, the number of items in the gallery", length, items
        )
    return length


def write_programmed(
    folder: Path,
    job: GalleryJob,
    stored: StoredGallery,
    gallery: Gallery,
    ledger: Ledger,
    sources: Iterable[tuple[str, str]],
    beside: Mapping[str, bytes],
) -> ProgrammedBundle | ProgrammedCam:
    """Write a job's bundle again, with a gallery in its program; other files are unchanged.

    Files in `beside` are added. `sources` are names and checksums of the files that were read.
    """
    from cimtool.emit.onnx import file_bytes, onnx_model

    bundle, program = job.compiled, stored.program
    *earlier, last = bundle.compiled_stages
    kept = (*ONNX_FILES, CALIBRATION, QUERIES, *([TRAINING] if bundle.training is not None else []))
    files = {name: (bundle.folder / name).read_bytes() for name in kept}
    if program.shortlist is None:
        stages = (*earlier, last, Stage(IN_MEMORY, program))
        files["score.onnx"] = file_bytes(onnx_model(program.score))
    else:
        stages = (*earlier, replace(last, program=program))
        files[SHORTLIST] = file_bytes(onnx_model(program.shortlist))
    files |= {GALLERY: features_bytes(job.video), LEDGER: ledger.text().encode(), **beside}
    inputs = [(one["file"], one["sha256"]) for one in bundle.manifest["inputs"]]
    content = BundleContent(
        bundle.model,
        bundle.target,
        bundle.settings,
        stages,
        [*inputs, *sources],
        bundle.manifest["notes"],
        gallery,
    )
    before = 0 if bundle.gallery is None else bundle.ledger.cells_written
    made, written = write_bundle(folder, content, files), ledger.cells_written - before
    if isinstance(stored.use, CamUse):
        assert stored.score is not None
        use, score = stored.use, stored.score
        return ProgrammedCam(made, gallery, use, stored.accuracy, ledger, written, score)
    return ProgrammedBundle(made, gallery, stored.use, stored.accuracy, ledger, written)


def _check_graph_size(graph: Graph) -> None:
    """Raise CimError if the stored items alone exceed an ONNX file.

    The file keeps a stored value itself if its product is exact, else each digit.
    """
    from cimtool.emit.integers import byte_cuts

    ops, stored = list(item_products(graph).values()), dict[int, int]()
    for op in ops:
        digits = [op.weight] if op.exact else [s.digits for s in op.stored.slices]
        lo, hi = min(int(d.min()) for d in digits), max(int(d.max()) for d in digits)
        stored[id(op.weight)] = op.weight.shape[0] * len(digits) * len(byte_cuts(lo, hi))
    _check_onnx_size(ops[0].weight.shape[1], sum(stored.values()))


def _check_onnx_size(items: int, an_item: int) -> None:
    """Raise CimError if `items` of `an_item` bytes each exceed an ONNX file."""
    if items * an_item > ONNX_LIMIT:
        raise CimError(
            f"gallery: {items:,} items take {items * an_item / 1e9:.1f} GB in ONNX and a file "
            f"holds at most 2 GB; expected at most {ONNX_LIMIT // an_item:,} items"
        )


def _accuracy(job: GalleryJob, programmed: Simulator, shortlist: int | None) -> Accuracy:
    exact = job.digital.score(job.queries, job.video)
    if shortlist is not None:
        best, ten = recall(exact, programmed, job.queries, shortlist)
        return Accuracy(len(exact), shortlist_top1=best, shortlist_top10=ten)
    scores = programmed.score(job.queries)
    rmse = float(np.sqrt(np.mean((scores - exact) ** 2)))
    same_best, _ = ReferenceScores(exact).same_best(scores)
    return Accuracy(len(exact), rmse, float(same_best.mean()))
