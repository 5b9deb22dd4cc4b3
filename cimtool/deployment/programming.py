"""Programming of a gallery: into the arrays of a bundle, and what a new bundle then answers."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cimtool.base.arrays import FloatArray
from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.files import sha256
from cimtool.base.progress import Say, silent
from cimtool.bundle.bundle import (
    CALIBRATION,
    GALLERY,
    IN_MEMORY,
    ONNX_FILES,
    SHORTLIST,
    TRAINING,
    Bundle,
    Gallery,
    check_place,
    features_bytes,
    write_bundle,
)
from cimtool.bundle.matcher import features_sha256, open_bundle
from cimtool.bundle.simulate import nearest_items
from cimtool.costs.memory_use import MemoryUse, check_chips, memory_use
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.op import Level
from cimtool.ir.program import Graph, Program, check_program, features_of
from cimtool.loading.embeddings import EmbeddingsLike, File, file_of, read_rows
from cimtool.passes.gallery import distance_graph, fit_gallery, program_gallery
from cimtool.passes.pipeline import Stage
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
    """A programmed bundle and what a user must know of it."""

    bundle: Bundle
    gallery: Gallery
    use: MemoryUse
    accuracy: Accuracy

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        return {
            "bundle": self.bundle.folder,
            "target": self.bundle.target.name,
            "gallery": asdict(self.gallery),
            "memory": self.use.to_json(),
            "accuracy": asdict(self.accuracy),
            "files": self.bundle.manifest["files"],
        }


def program(
    bundle: File,
    gallery: EmbeddingsLike,
    *,
    output: File | None = None,
    shortlist: int | None = None,
    chips: int | None = None,
    say: Say = silent,
) -> ProgrammedBundle:
    """Program a gallery's videos into the arrays of a bundle and write the bundle that holds them.

    Only the video rows of `gallery` are read. The new bundle goes to `output`, by default
    `<bundle>+<gallery's name>`; `shortlist` is a hybrid score's, `chips` how many the gallery must
    fit on. Raises CimError for a bundle compiled with a digital score or programmed already, a
    shortlist that the gallery does not have, and a gallery that does not fit the chips, an
    accumulator or ONNX.
    """
    compiled = open_bundle(bundle)
    check_programmable(compiled)
    file = file_of(gallery, "video")
    name = f"{compiled.name}+{file.stem if file else 'gallery'}"
    folder = Path(output) if output else compiled.folder.with_name(name)
    check_place(folder)
    rows = read_rows(gallery, "video", compiled.model)
    length = _shortlist(compiled, len(rows), shortlist)
    before = Simulator(compiled.program)
    say(f"encoding {len(rows)} videos")
    video = before.encode("video", rows)
    say("programming the gallery")
    graph = compiled.program.score if length is None else distance_graph(compiled.program.score)
    tiled = program_gallery(graph, video, compiled.settings)
    if chips is not None:
        use = memory_use(tiled, compiled.settings, compiled.target)
        check_chips(use, compiled.target, chips)
    _check_onnx_size(tiled)
    say("fitting converters")
    projectors = compiled.program.text, compiled.program.video
    queries, right = (features_of(graph, compiled.queries) for graph in projectors)
    matches = program_gallery(graph, right, compiled.settings) if right else None
    fitted = fit_gallery(tiled, queries, matches, compiled.target.settable)
    _check_onnx_size(fitted)
    use = memory_use(fitted, compiled.settings, compiled.target)
    score = {"score": fitted} if length is None else {"shortlist": fitted}
    programmed = replace(compiled.program, **score)
    check_program(programmed, IN_MEMORY, Level.CROSSBAR)
    say("measuring accuracy")
    accuracy = _accuracy(before, Simulator(programmed), queries, video, length)
    held = Gallery(
        file.name if file else "arrays",
        sha256(file) if file else hashlib.sha256(rows.tobytes()).hexdigest(),
        len(rows),
        compiled.settings.score_mapping,
        length,
        features_sha256(video),
    )
    say(f"writing {folder}")
    made = _write(folder, compiled, programmed, held, video)
    return ProgrammedBundle(made, held, use, accuracy)


def check_programmable(bundle: Bundle) -> None:
    """Raise CimError for a bundle that no gallery can be programmed into."""
    if bundle.gallery is not None:
        raise CimError(
            f"{bundle.folder}: holds the gallery {bundle.gallery.file} already; program the bundle "
            "that it was made from"
        )
    if bundle.settings.score_mapping == "digital":
        raise ArgumentError(
            "{}: was compiled with score_mapping = digital, which keeps no gallery in the arrays; "
            "compile with {score_mapping} in-memory or hybrid",
            bundle.folder,
        )


def _shortlist(bundle: Bundle, items: int, asked: int | None) -> int | None:
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


def _write(
    folder: Path, bundle: Bundle, program: Program, gallery: Gallery, video: Features
) -> Bundle:
    """Write the bundle anew: its program with the gallery, the rest as it was."""
    from cimtool.emit.onnx import file_bytes, onnx_model

    stages = (*bundle.stages[:-1], replace(bundle.stages[-1], program=program))
    kept = (*ONNX_FILES, CALIBRATION, *([TRAINING] if bundle.training is not None else []))
    files = {name: (bundle.folder / name).read_bytes() for name in kept}
    if program.shortlist is None:
        stages = (*bundle.stages, Stage(IN_MEMORY, program))
        files["score.onnx"] = file_bytes(onnx_model(program.score))
    else:
        files[SHORTLIST] = file_bytes(onnx_model(program.shortlist))
        files[GALLERY] = features_bytes(video)
    inputs = [(one["file"], one["sha256"]) for one in bundle.manifest["inputs"]]
    return write_bundle(
        folder,
        bundle.model,
        bundle.target,
        bundle.settings,
        stages,
        [*inputs, (gallery.file, gallery.sha256)],
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
