"""Programming of a gallery: into the arrays of a bundle, and what a new bundle then answers."""

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
from cimtool.costs.memory_use import MemoryUse, check_chips, memory_use
from cimtool.galleries.gallery_job import GalleryJob
from cimtool.galleries.options import ProgramOptions
from cimtool.galleries.shortlist_search import ShortlistTrials, search_svg, shortlist_search
from cimtool.galleries.shortlists import (
    Places,
    Recall,
    ShortlistAsked,
    ShortlistSearch,
)
from cimtool.galleries.wear import check_endurance, matrix_cells
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.placement import item_products
from cimtool.hardware.settings import LEFT_OUT
from cimtool.ir.op import Level
from cimtool.ir.program import Graph, Program, check_program
from cimtool.loading.embeddings import EmbeddingsLike, File, file_of, read_rows
from cimtool.passes.gallery import ShortlistBits, score_layers
from cimtool.passes.pipeline import Stage
from cimtool.reference.metrics import ReferenceScores
from cimtool.report.result import Result
from cimtool.simulation.simulator import Features, Simulator

DEFAULT_SHORTLIST = 100
"""Items of a hybrid score's shortlist where nothing is said, or all of a smaller gallery."""

SEARCH_PICTURE = "shortlists.svg"
"""The file of a bundle that shows what a search for a recall found."""

ONNX_LIMIT = (1 << 31) - 1
"""An ONNX file is one protobuf message, which cannot be larger."""


@dataclass(frozen=True)
class Accuracy:
    """The score in the memory against the digital one, on the calibration queries of a bundle.

    `logit_rmse` and `top1_agreement` are None for a hybrid score, whose shortlist is scored
    exactly; `shortlist_top1` is the share of queries whose best item is shortlisted and
    `shortlist_top10` the share of their best ten, None without a shortlist.
    """

    queries: int
    logit_rmse: float | None = None
    top1_agreement: float | None = None
    shortlist_top1: float | None = None
    shortlist_top10: float | None = None

    @classmethod
    def of_places(cls, places: Places, length: int) -> Accuracy:
        """The recall of a shortlist, by the places of each query's best items."""
        found = Recall.of(places, length)
        return cls(
            len(places.best), shortlist_top1=found.best.value, shortlist_top10=found.best_ten
        )


@dataclass(frozen=True, repr=False)
class ProgrammedBundle(Result, shown_by="cimtool.galleries.render"):
    """A programmed bundle and what a user must know of it; `cells_written` are this call's."""

    bundle: Bundle
    gallery: Gallery
    use: MemoryUse
    accuracy: Accuracy
    ledger: Ledger
    cells_written: int
    search: ShortlistSearch | None = None

    @property
    def left_out(self) -> list[str]:
        """Layers of the score that settings leave out: of each item their mean is added."""
        settings, head = self.bundle.settings, self.bundle.model.head
        names = score_layers(head, settings.score_mapping)
        return [name for name in names if settings.product_bits(name).item == LEFT_OUT]

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        return {
            "bundle": self.bundle.folder,
            "target": self.bundle.target.name,
            "gallery": self.gallery.to_json(),
            "left_out": self.left_out,
            "memory": self.use.to_json(),
            "cells_written": self.cells_written,
            "ledger": self.ledger.to_json(),
            "accuracy": asdict(self.accuracy),
            "search": None if self.search is None else self.search.to_json(),
            "files": self.bundle.manifest["files"],
        }


@keeping_inputs
@takes(ProgramOptions)
def program(options: ProgramOptions, say: Say = silent) -> ProgrammedBundle:
    """Program a gallery's videos into the arrays of a bundle and write the bundle that holds them.

    Only the video rows of `gallery` are read. The new bundle goes to `output`, by default
    `<bundle>+<gallery's name>`; `shortlist` is a hybrid score's, `chips` how many the gallery must
    fit on. With `shortlist_bits` an item stores so many bits of each value of `mu`, and a query is
    driven with `query_bits`; with `shortlist_dimensions` the values are so many components of `mu`.
    With `recall` bits and dimensions that are not given, and a length of at most `shortlist`, are
    the cheapest by `minimise`, else by cells, that hold this share of best items on both halves of
    the kept calibration queries. Raises CimError for a bundle compiled with a digital score or
    programmed already, a shortlist that the gallery does not have, a recall that none holds, and a
    gallery that does not fit the chips, an accumulator or ONNX.
    """
    compiled = open_bundle(options.bundle)
    check_programmable(compiled)
    file, folder, rows = read_gallery_rows(compiled, options.gallery, options.output)
    length = shortlist_length(compiled, len(rows), options.shortlist)
    asked = ShortlistAsked.of(compiled, options)
    before = Simulator(compiled.program)
    say(f"encoding {len(rows)} items")
    job = GalleryJob(compiled, before.encode("video", rows), before)
    search, bits = None, asked.given
    if asked.recall is not None and length is not None:
        search = shortlist_search(job, asked, length, say)
        length, bits = search.chosen.length, search.chosen.bits
    stored = stored_gallery(job, bits, length, options.chips, say)
    cells = matrix_cells(stored.graph, compiled.settings, compiled.target.cell_order)
    ledger = Ledger(len(rows), {name: one.first for name, one in cells.items()})
    check_endurance(ledger.matrices, stored.use, compiled.target.name)
    source = source_of(file, rows)
    mapping = compiled.settings.score_mapping
    features = features_sha256(job.video)
    held = Gallery(*source, len(rows), mapping, length, features, bits)
    say(f"writing {folder}")
    beside = {LEDGER: ledger.text().encode()}
    if search is not None:
        title = f"{held.file} on {compiled.target.name}: shortlists of few bits"
        beside[SEARCH_PICTURE] = search_svg(search, title).encode()
    made = write_programmed(folder, compiled, stored.program, held, job.video, [source], beside)
    return ProgrammedBundle(
        made, held, stored.use, stored.accuracy, ledger, ledger.cells_written, search
    )


def read_gallery_rows(
    compiled: Bundle, gallery: EmbeddingsLike, output: File | None
) -> tuple[Path | None, Path, Array]:
    """The file of a gallery, the folder of the bundle that will hold it, and its videos.

    Raises CimError for a folder that cannot be written, and for rows that do not fit the bundle.
    """
    file = file_of(gallery, "video")
    name = f"{compiled.name}+{file.stem if file else 'gallery'}"
    folder = Path(output) if output else compiled.folder.with_name(name)
    check_place(folder)
    return file, folder, read_rows(gallery, "video", compiled.model)


def source_of(file: Path | None, rows: Array) -> tuple[str, str]:
    """The name of the file that items came from, and its SHA-256; of arrays that of their rows."""
    if file is None:
        return "arrays", hashlib.sha256(rows.tobytes()).hexdigest()
    return file.name, sha256(file)


@dataclass(frozen=True)
class StoredGallery:
    """A gallery in the arrays: the graph that holds it, the program with it, and what it takes."""

    graph: Graph
    program: Program
    use: MemoryUse
    accuracy: Accuracy


def stored_gallery(
    job: GalleryJob,
    bits: ShortlistBits | None,
    length: int | None,
    chips: int | None,
    say: Say,
) -> StoredGallery:
    """The gallery in the arrays, with a hybrid score's `length`, on at most so many chips."""
    settings, target = job.compiled.settings, job.compiled.target
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
        places = Places.joined(ShortlistTrials(job).places(bits))
        accuracy = Accuracy.of_places(places, length)
    else:
        accuracy = _accuracy(job, Simulator(program), length)
    return StoredGallery(fitted, program, memory_use(fitted, settings, target), accuracy)


def check_programmable(bundle: Bundle) -> None:
    """Raise CimError for a bundle that no gallery can be programmed into."""
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
    """The length of the shortlist; None where the whole score is in the memory."""
    if bundle.settings.score_mapping != "hybrid":
        if asked is not None:
            raise ArgumentError(
                "{shortlist} is {}; {} was compiled with score_mapping = in-memory, which draws "
                "up no shortlist (compile with {score_mapping} hybrid)",
                asked,
                bundle.name,
            )
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
    bundle: Bundle,
    program: Program,
    gallery: Gallery,
    video: Features,
    sources: Iterable[tuple[str, str]],
    beside: Mapping[str, bytes],
) -> Bundle:
    """Write the bundle anew: its program with a gallery, files `beside`, the rest as it was.

    `sources` are the names and checksums of the files that were read for it.
    """
    from cimtool.emit.onnx import file_bytes, onnx_model

    *earlier, last = bundle.compiled_stages
    kept = (*ONNX_FILES, CALIBRATION, QUERIES, *([TRAINING] if bundle.training is not None else []))
    files = {name: (bundle.folder / name).read_bytes() for name in kept}
    if program.shortlist is None:
        stages = (*earlier, last, Stage(IN_MEMORY, program))
        files["score.onnx"] = file_bytes(onnx_model(program.score))
    else:
        stages = (*earlier, replace(last, program=program))
        files[SHORTLIST] = file_bytes(onnx_model(program.shortlist))
    files |= {GALLERY: features_bytes(video), **beside}
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
    return write_bundle(folder, content, files)


def _check_graph_size(graph: Graph) -> None:
    """Raise CimError if the stored items alone are more than an ONNX file holds."""
    ops = list(item_products(graph).values())
    stored = {id(op.weight): op.weight.shape[0] * _bytes_a_value(op) for op in ops}
    check_onnx_size(ops[0].weight.shape[1], sum(stored.values()))


def check_onnx_size(items: int, an_item: int) -> None:
    """Raise CimError if items of so many bytes are more than an ONNX file holds."""
    if items * an_item > ONNX_LIMIT:
        raise CimError(
            f"gallery: {items:,} items take {items * an_item / 1e9:.1f} GB in ONNX and a file "
            f"holds at most 2 GB; expected at most {ONNX_LIMIT // an_item:,} items"
        )


def _bytes_a_value(op: CrossbarMvm) -> int:
    """Bytes that the emitted file keeps of one stored value.

    They are those of the value itself where its product is exact, else those of each digit.
    """
    from cimtool.emit.integers import byte_cuts

    crossbar = op.crossbar
    if op.exact:
        return len(byte_cuts(int(op.weight.min()), int(op.weight.max())))
    digits = [s.digits for s in op.stored.slices]
    lo, hi = min(int(d.min()) for d in digits), max(int(d.max()) for d in digits)
    return crossbar.slices * len(byte_cuts(lo, hi))


def _accuracy(job: GalleryJob, programmed: Simulator, shortlist: int | None) -> Accuracy:
    exact = job.digital.score(job.queries, job.video)
    if shortlist is not None:
        best, ten = recall(exact, programmed, job.queries, shortlist)
        return Accuracy(len(exact), shortlist_top1=best, shortlist_top10=ten)
    scores = programmed.score(job.queries)
    rmse = float(np.sqrt(np.mean((scores - exact) ** 2)))
    same_best, _ = ReferenceScores(exact).same_best(scores)
    return Accuracy(len(exact), rmse, float(same_best.mean()))
