"""Programming of a gallery: into the arrays of a bundle, and what a new bundle then answers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from cimtool.base.arrays import Array, FloatArray, IntArray
from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.files import sha256
from cimtool.base.progress import Say, silent
from cimtool.bundle.bundle import (
    CALIBRATION,
    GALLERY,
    IN_MEMORY,
    ONNX_FILES,
    QUERIES,
    SHORTLIST,
    TRAINING,
    Bundle,
    Gallery,
    check_place,
    features_bytes,
    write_bundle,
)
from cimtool.bundle.ledger import LEDGER, LEDGER_ARRAYS, Ledger
from cimtool.bundle.matcher import features_sha256, open_bundle
from cimtool.bundle.simulate import nearest_items
from cimtool.costs.estimate import estimate
from cimtool.costs.memory_use import MemoryUse, check_chips, memory_use
from cimtool.deployment.shortlists import (
    Minimised,
    ShortlistAsked,
    ShortlistSearch,
    TriedShortlist,
    places_of,
    searched,
)
from cimtool.deployment.wear import check_endurance, first_writes, matrix_cells
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.op import Level
from cimtool.ir.program import Graph, Program, check_program, features_of
from cimtool.loading.embeddings import EmbeddingsLike, File, file_of, read_rows
from cimtool.passes.converters import FIT_ROWS
from cimtool.passes.gallery import (
    SHORTLIST_LAYERS,
    distance_graph,
    fit_gallery,
    program_gallery,
)
from cimtool.passes.pipeline import Stage
from cimtool.passes.shortlist import Examples, FewBitShortlist, ShortlistBits
from cimtool.reference.metrics import ReferenceScores
from cimtool.simulation.simulator import Features, Simulator

DEFAULT_SHORTLIST = 100
"""Items of a hybrid score's shortlist where nothing is said, or all of a smaller gallery."""

ONNX_LIMIT = (1 << 31) - 1
"""An ONNX file is one protobuf message, which cannot be larger."""

RECALL_AT = 10
"""A shortlist is also measured by the share that it holds of this number of best items."""


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


@dataclass(frozen=True)
class ProgrammedBundle:
    """A programmed bundle and what a user must know of it; `cells_written` are this call's."""

    bundle: Bundle
    gallery: Gallery
    use: MemoryUse
    accuracy: Accuracy
    ledger: Ledger
    cells_written: int
    search: ShortlistSearch | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        return {
            "bundle": self.bundle.folder,
            "target": self.bundle.target.name,
            "gallery": asdict(self.gallery),
            "memory": self.use.to_json(),
            "cells_written": self.cells_written,
            "ledger": self.ledger.to_json(),
            "accuracy": asdict(self.accuracy),
            "search": None if self.search is None else self.search.to_json(),
            "files": self.bundle.manifest["files"],
        }


def program(
    bundle: File,
    gallery: EmbeddingsLike,
    *,
    output: File | None = None,
    shortlist: int | None = None,
    shortlist_bits: int | None = None,
    query_bits: int | None = None,
    recall: float | None = None,
    minimise: Minimised = "cells",
    chips: int | None = None,
    say: Say = silent,
) -> ProgrammedBundle:
    """Program a gallery's videos into the arrays of a bundle and write the bundle that holds them.

    Only the video rows of `gallery` are read. The new bundle goes to `output`, by default
    `<bundle>+<gallery's name>`; `shortlist` is a hybrid score's, `chips` how many the gallery must
    fit on. With `shortlist_bits` an item stores so many bits of each value of `mu`, and a query is
    driven with `query_bits`. With `recall` bits that are not given, and a length of at most
    `shortlist`, are those that hold this share of best items at least cost by `minimise`. Raises
    CimError for a bundle compiled with a digital score or programmed already, a
    shortlist that the gallery does not have, a recall that none reaches, and a gallery that does
    not fit the chips, an accumulator or ONNX.
    """
    compiled = open_bundle(bundle)
    check_programmable(compiled)
    file = file_of(gallery, "video")
    name = f"{compiled.name}+{file.stem if file else 'gallery'}"
    folder = Path(output) if output else compiled.folder.with_name(name)
    check_place(folder)
    rows = read_rows(gallery, "video", compiled.model)
    length = shortlist_length(compiled, len(rows), shortlist)
    asked = ShortlistAsked.of(compiled, shortlist_bits, query_bits, recall, minimise)
    before = Simulator(compiled.program)
    say(f"encoding {len(rows)} videos")
    job = GalleryJob(compiled, before.encode("video", rows), before)
    search, bits = None, asked.given
    if asked.recall is not None and length is not None:
        search = job.search(asked, length, say)
        length, bits = search.chosen.length, search.chosen.bits
    stored = job.stored(bits, length, chips, say)
    cells = matrix_cells(stored.graph, compiled.settings, compiled.target.cell_order)
    ledger = Ledger(len(rows), first_writes(cells))
    check_endurance(ledger.matrices, stored.use, compiled.target.name)
    source = source_of(file, rows)
    mapping = compiled.settings.score_mapping
    features = features_sha256(job.video)
    held = Gallery(*source, len(rows), mapping, length, features, bits)
    say(f"writing {folder}")
    made = write_programmed(folder, compiled, stored.program, held, job.video, [source], ledger)
    return ProgrammedBundle(
        made, held, stored.use, stored.accuracy, ledger, ledger.cells_written, search
    )


def source_of(file: Path | None, rows: Array) -> tuple[str, str]:
    """The name of the file that items came from, and its SHA-256; of arrays that of their rows."""
    if file is None:
        return "arrays", hashlib.sha256(rows.tobytes()).hexdigest()
    return file.name, sha256(file)


Maker = Callable[[Mapping[str, Array]], Graph]
"""Makes the graph that holds items, of their features."""


@dataclass(frozen=True)
class StoredGallery:
    """A gallery in the arrays: the graph that holds it, the program with it, and what it takes."""

    graph: Graph
    program: Program
    use: MemoryUse
    accuracy: Accuracy


class GalleryJob:
    """A gallery on its way into a bundle: `video` are its features, `queries` the kept ones.

    `digital` runs the compiled program, whose score is digital.
    """

    def __init__(self, compiled: Bundle, video: Features, digital: Simulator):
        self.compiled, self.video, self.digital = compiled, video, digital
        program, kept = digital.program, compiled.queries
        self.queries = features_of(program.text, kept)
        self.right = features_of(program.video, kept)

    def stored(
        self, bits: ShortlistBits | None, length: int | None, chips: int | None, say: Say
    ) -> StoredGallery:
        """The gallery in the arrays, with a hybrid score's `length`, on at most so many chips."""
        settings, target = self.compiled.settings, self.compiled.target
        say("programming the gallery")
        make = self.maker(bits)
        tiled = make(self.video)
        if chips is not None:
            check_chips(memory_use(tiled, settings, target), target, chips)
        _check_onnx_size(tiled)
        say("fitting converters")
        fitted = self.fitted(make, tiled)
        _check_onnx_size(fitted)
        program = self.program_with(fitted)
        check_program(program, IN_MEMORY, Level.CROSSBAR)
        say("measuring accuracy")
        accuracy = _accuracy(self.digital, Simulator(program), self.queries, self.video, length)
        return StoredGallery(fitted, program, memory_use(fitted, settings, target), accuracy)

    def maker(self, bits: ShortlistBits | None) -> Maker:
        """The way to store items: all of the score, `mu` for a shortlist, or few bits of it."""
        score, settings = self.digital.program.score, self.compiled.settings
        if settings.score_mapping == "hybrid":
            score = distance_graph(score)
        if bits is None:
            return lambda items: program_gallery(score, items, settings)
        return partial(self.few_bits.graph, bits)

    @cached_property
    def few_bits(self) -> FewBitShortlist:
        """Items in few bits, whose ranges are chosen on the kept queries."""
        score = distance_graph(self.digital.program.score)
        examples = Examples(self.queries["mu"], (self.right or self.video)["mu"])
        (layer,) = SHORTLIST_LAYERS
        return FewBitShortlist(score, examples, self.compiled.settings.of_layer(layer))

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

    def search(self, asked: ShortlistAsked, most: int, say: Say) -> ShortlistSearch:
        """The bits and the length, at most `most`, that reach a recall at least cost."""
        assert asked.recall is not None
        exact = self.digital.score(self.queries, self.video)
        best = np.argsort(-exact, axis=1, kind="stable")[:, :RECALL_AT]
        trials = []
        for bits in asked.candidates:
            say(f"trying items of {bits.item} bits with queries of {bits.query}")
            make = self.maker(bits)
            graph = self.fitted(make, make(self.video))
            trials.append(self._trial(bits, graph, best))
        return searched(trials, asked.recall, most, asked.minimise)

    def _trial(self, bits: ShortlistBits, graph: Graph, best: IntArray) -> TriedShortlist:
        program, settings = self.program_with(graph), self.compiled.settings
        parts = Simulator(program).iter_distances(self.queries)
        places = np.concatenate([places_of(ed, best[rows]) for rows, ed in parts])
        use = memory_use(graph, settings, self.compiled.target)
        cost = estimate(
            program,
            settings,
            self.compiled.target,
            samples=1,
            dimension=self.compiled.model.dimension,
        )
        return TriedShortlist(bits, places, use, lambda length: replace(cost, shortlist=length))


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
    ledger: Ledger,
    ledger_arrays: Mapping[str, Array] | None = None,
) -> Bundle:
    """Write the bundle anew: its program with a gallery, the rest as it was.

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
    files[GALLERY] = features_bytes(video)
    files[LEDGER] = ledger.text().encode()
    if ledger_arrays is not None:
        files[LEDGER_ARRAYS] = features_bytes(ledger_arrays)
    inputs = [(one["file"], one["sha256"]) for one in bundle.manifest["inputs"]]
    return write_bundle(
        folder,
        bundle.model,
        bundle.target,
        bundle.settings,
        stages,
        [*inputs, *sources],
        bundle.manifest["notes"],
        files,
        gallery,
    )


def _check_onnx_size(graph: Graph) -> None:
    """Raise CimError where the stored items alone are more than an ONNX file holds."""
    ops = list(graph.operations(CrossbarMvm).values())
    stored = {id(op.weight): op.weight.shape[0] * _bytes_a_value(op) for op in ops}
    items = ops[0].weight.shape[1]
    an_item = sum(stored.values())
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


def _accuracy(
    digital: Simulator,
    programmed: Simulator,
    queries: Features,
    video: Features,
    shortlist: int | None,
) -> Accuracy:
    exact = digital.score(queries, video)
    if shortlist is not None:
        best, ten = recall(exact, programmed, queries, shortlist)
        return Accuracy(len(exact), shortlist_top1=best, shortlist_top10=ten)
    scores = programmed.score(queries)
    rmse = float(np.sqrt(np.mean((scores - exact) ** 2)))
    same_best, _ = ReferenceScores(exact).same_best(scores)
    return Accuracy(len(exact), rmse, float(same_best.mean()))


def recall(
    exact: FloatArray, programmed: Simulator, queries: Features, shortlist: int
) -> tuple[float, float]:
    """Shares of the best items of the digital scores `exact` [n, M] that shortlists hold.

    Returns the share of queries whose best item is there, and the share of their best ten.
    """
    best = np.argsort(-exact, axis=1, kind="stable")[:, :RECALL_AT]
    held = np.empty(best.shape, bool)
    for rows, ed in programmed.iter_distances(queries):
        near = nearest_items(ed, shortlist)
        held[rows] = (best[rows][:, :, None] == near[:, None, :]).any(axis=2)
    return float(held[:, 0].mean()), float(held.mean())
