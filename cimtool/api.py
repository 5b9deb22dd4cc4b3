"""The library: compile a model, load a bundle, encode, score and verify, with or without files."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cimtool.arrays import Array
from cimtool.emit.bundle import (
    QUERIES,
    Build,
    Bundle,
    Gallery,
    ModelCard,
    check_place,
    features_bytes,
    read_bundle,
    write_bundle,
)
from cimtool.errors import CimError
from cimtool.features import checked_features, kind_of
from cimtool.files import sha256
from cimtool.hardware.target import Target, load_target
from cimtool.ir.arithmetic import Mvm
from cimtool.ir.program import MODALITIES
from cimtool.loading.embeddings import (
    Embeddings,
    embeddings_of,
    read_embeddings,
    require_width,
    with_unit_rows,
)
from cimtool.loading.modality import modality_file, modality_rows
from cimtool.loading.model import Model, load_model
from cimtool.loading.polynomial import read_polynomial
from cimtool.passes.converters import FIT_ROWS
from cimtool.passes.gallery import SCORE_LAYERS
from cimtool.passes.step import Job
from cimtool.pipeline import Stage, compile_program
from cimtool.progress import Say, silent
from cimtool.reference.surrogate import Polynomial
from cimtool.scores import best_scores, check_scores_file, hybrid_scores, write_scores
from cimtool.settings import Settings, check_patterns, resolve
from cimtool.simulator import Simulator

if TYPE_CHECKING:
    from torch import nn

    from cimtool.costs.estimate import Estimate
    from cimtool.dies import NoiseOptions
    from cimtool.programmed import Programming
    from cimtool.verification.compare import Comparison
    from cimtool.verification.report import Report

File = Path | str
Data = File | tuple[File, File] | Embeddings | Mapping[str, Array]
"""Embeddings as a file, a pair of files (text first), as read, or as arrays by name."""

CALIBRATION_ROWS = 4096
"""At most so many rows a modality are used for calibration: the first ones."""


@dataclass(frozen=True)
class Compilation:
    """A compiled model before it is written: its stages, and what a user must know of them.

    `inputs` are the names of all files read, with the SHA-256 of each; `queries` the features of
    calibration pairs that the bundle keeps for `program`, none where the score is digital.
    """

    model: Model
    target: Target
    settings: Settings
    stages: tuple[Stage, ...]
    notes: tuple[str, ...]
    inputs: tuple[tuple[str, str], ...]
    queries: Mapping[str, Array] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Where the bundle goes if nothing else is said."""
        return Path("exports") / f"{self.model.name}@{self.target.name}"

    def write(self, folder: Path, say: Say = silent) -> Bundle:
        """Emit the ONNX files and write the bundle, all or nothing."""
        from cimtool.emit.onnx import onnx_files

        say("emitting ONNX")
        model = self.model
        card = ModelCard(
            name=model.name,
            layout=model.layout,
            polynomial=model.polynomial,
            a=model.a,
            b=model.b,
            samples=model.samples,
            unit_rows=model.unit_rows,
            text_width=model.text_width,
            video_width=model.video_width,
            dimension=model.dimension,
        )
        stages = {stage.name: stage.program for stage in self.stages}
        onnx = onnx_files(self.stages[-1].program, stages["folded"])
        say(f"writing {folder}")
        files = {QUERIES: features_bytes(self.queries)} if self.queries else {}
        build = Build(
            card, self.target, self.settings, self.stages, self.inputs, onnx, self.notes, files
        )
        return write_bundle(folder, build)


def compile(
    projectors: Path | str | tuple[nn.Module, nn.Module],
    poly: Path | str | Polynomial | None = None,
    *,
    calibration: Data,
    target: str | Target = "ideal",
    output: Path | str | None = None,
    settings: Path | str | None = None,
    a: float | None = None,
    b: float | None = None,
    layer_map: Path | str | None = None,
    say: Say = silent,
    **flags: object,
) -> Bundle:
    """Compile a model for a target and write its bundle; returns the bundle.

    `projectors` is a checkpoint or a pair of torch modules; `flags` are settings by name
    (`weight_bits=6`), which override the `settings` file, which overrides the target. The bundle
    goes to `output`, by default `exports/<model>@<target>`. Raises CimError for any mistake.
    """
    compilation = prepare(
        projectors,
        poly,
        calibration=calibration,
        target=target,
        settings=settings,
        a=a,
        b=b,
        layer_map=layer_map,
        say=say,
        **flags,
    )
    return compilation.write(Path(output or compilation.folder), say)


def prepare(
    projectors: Path | str | tuple[nn.Module, nn.Module],
    poly: Path | str | Polynomial | None = None,
    *,
    calibration: Data,
    target: str | Target = "ideal",
    settings: Path | str | None = None,
    a: float | None = None,
    b: float | None = None,
    layer_map: Path | str | None = None,
    say: Say = silent,
    **flags: object,
) -> Compilation:
    """Compile as `compile` does, in memory: nothing is written."""
    _check_sigmoid(a, b)
    chosen = target if isinstance(target, Target) else load_target(target)
    resolved = resolve(chosen, Path(settings) if settings else None, flags)
    model = _model(projectors, poly, a, b, Path(layer_map) if layer_map else None, say)
    check_patterns(resolved, [*layer_names(model), *SCORE_LAYERS[resolved.score_mapping]])
    data = read_data(calibration, model)
    notes: list[str] = []
    rows = [_calibration_rows(getattr(data, m), m, notes) for m in MODALITIES]
    job = Job(resolved, rows[0], rows[1], notes.append)
    stages = compile_program(model.program, job, say)
    _check_polynomial(model, stages, notes)
    files = *model.files, *((str(file), sha256(file)) for file in _files(calibration))
    inputs = tuple((Path(name).name, digest) for name, digest in files)
    queries = _queries(resolved, stages, data, notes)
    return Compilation(model, chosen, resolved, stages, tuple(notes), inputs, queries)


def _queries(
    settings: Settings, stages: tuple[Stage, ...], data: Embeddings, notes: list[str]
) -> dict[str, Array]:
    """Features of the calibration pairs by which `program` fits converters."""
    if settings.score_mapping == "digital":
        return {}
    notes.append(
        f"score_mapping = {settings.score_mapping}: the score is digital until a gallery is in the "
        "arrays (`cimtool program BUNDLE --gallery NPZ`)"
    )
    rows = {"text": data.text[:FIT_ROWS]}
    if data.text_to_video is not None:
        rows["video"] = data.video[data.text_to_video[:FIT_ROWS]]
    simulator = Simulator(stages[-1].program)
    features = {modality: simulator.encode(modality, x) for modality, x in rows.items()}
    return {f"{m}.{name}": value for m, own in features.items() for name, value in own.items()}


def _model(
    projectors: Path | str | tuple[nn.Module, nn.Module],
    poly: Path | str | Polynomial | None,
    a: float | None,
    b: float | None,
    layer_map: Path | None,
    say: Say,
) -> Model:
    if isinstance(projectors, tuple):
        from cimtool.loading.layer_map import read_layer_map
        from cimtool.loading.modules import model_from_modules

        if poly is None:
            raise CimError("compile: torch modules bring no polynomial; give one as poly=")
        trained = poly if isinstance(poly, Polynomial) else read_polynomial(Path(poly))
        named = None if layer_map is None else read_layer_map(layer_map)
        return model_from_modules(*projectors, trained, a, b, named)
    say(f"loading {projectors}")
    if isinstance(poly, Polynomial):
        raise CimError("compile: a checkpoint file takes its polynomial from a file (poly=PATH)")
    return load_model(Path(projectors), Path(poly) if poly else None, a, b, layer_map)


def _check_sigmoid(a: float | None, b: float | None) -> None:
    for name, value in (("a", a), ("b", b)):
        if value is not None and not math.isfinite(value):
            raise CimError(f"--{name} is {value}; expected a finite number")
    if a is not None and a <= 0:
        raise CimError(f"--a is {a}; expected a number above 0")


def _calibration_rows(rows: Array, modality: str, notes: list[str]) -> Array:
    if len(rows) > CALIBRATION_ROWS:
        notes.append(
            f"calibration: the first {CALIBRATION_ROWS} of {len(rows)} {modality} rows are used"
        )
    return rows[:CALIBRATION_ROWS]


def _check_polynomial(model: Model, stages: tuple[Stage, ...], notes: list[str]) -> None:
    calibrated = next(stage for stage in stages if stage.name == "calibrated")
    ranges = calibrated.program.score.ranges
    ends = [(float(ranges[k].lo.min()), float(ranges[k].hi.max())) for k in ("ed", "vd")]
    if model.polynomial.is_constant(*ends):
        notes.append(
            "warning: the polynomial is constant over the calibration data "
            f"(ed {ends[0][0]:.6g} to {ends[0][1]:.6g}), so every pair gets the same score"
        )
    if model.a is None or model.b is None:
        notes.append(
            "warning: the teacher's a and b are not known (--a, --b), so drift is measured against "
            "the float polynomial"
        )


def layer_names(model: Model) -> list[str]:
    """Names of all layers, as settings address them: `text.fc1`."""
    return [
        graph.layer(node)
        for graph in (model.program.text, model.program.video)
        for node in graph.nodes
        if isinstance(node.op, Mvm)
    ]


def read_data(data: Data, model: Model | ModelCard) -> Embeddings:
    """Embeddings of any form, checked against the model's widths, unit rows where expected."""
    if isinstance(data, Embeddings):
        read = data
    elif isinstance(data, Mapping):
        read = embeddings_of(data)
    else:
        read = read_embeddings(*_files(data))
    require_width(read, model.text_width, model.video_width, model.name)
    return with_unit_rows(read) if model.unit_rows else read


def read_text(data: Data, model: ModelCard) -> Array:
    """Text rows [n, width] of embeddings of any form, checked as `read_data` does."""
    return modality_rows(data, "text", model.text_width, model.name, model.unit_rows)


def _files(data: Data) -> tuple[Path, ...]:
    """The files that embeddings are read from; none where they are given as arrays."""
    if isinstance(data, Embeddings | Mapping):
        return ()
    files = data if isinstance(data, tuple) else (data,)
    if len(files) not in (1, 2) or not all(isinstance(file, Path | str) for file in files):
        raise CimError(
            f"embeddings are given as {kind_of(data)}; expected a file, a pair of files (text "
            "first) or arrays by name (text, video)"
        )
    return tuple(map(Path, files))


@dataclass(frozen=True)
class Matcher:
    """A bundle made ready to run on the bit-accurate simulator.

    `device` is torch's name of the device that computes (`cpu`, `cuda`, `cuda:1`); None is the
    simulator's own kernels on the CPU. The integers are the same everywhere.
    """

    bundle: Bundle
    device: str | None = None

    @cached_property
    def simulator(self) -> Simulator:
        """The compiled program with its constants packed."""
        return Simulator(self.bundle.program, device=self.device)

    def encode_text(self, x: Array) -> dict[str, Array]:
        """Integer features (`mu`, `s`, `ed_self`, `vd_self`) of text embeddings [n, width]."""
        return self._encode("text", x)

    def encode_video(self, x: Array) -> dict[str, Array]:
        """Integer features (`mu`, `s`, `ed_self`, `vd_self`) of video embeddings [m, width]."""
        return self._encode("video", x)

    def _encode(self, modality: str, x: Array) -> dict[str, Array]:
        card = self.bundle.model
        width = card.text_width if modality == "text" else card.video_width
        rows = np.asarray(x)
        if rows.ndim != 2 or rows.shape[1] != width:
            raise CimError(
                f"{modality} embeddings have shape {rows.shape}; {card.name} takes [n, {width}]"
            )
        from cimtool.loading.embeddings import checked_rows

        return self.simulator.encode(modality, checked_rows(rows, modality, card.unit_rows))

    def score(self, text: Mapping[str, Array], video: Mapping[str, Array] | None = None) -> Array:
        """`logit` float32 [n, m] of all pairs of encoded items.

        A bundle with its whole score in the memory takes no `video`: [n, M] against its gallery.
        Raises CimError unless both are such features as `encode_text` and `encode_video` return.
        """
        inputs = self.simulator.program.score.inputs
        if self.simulator.program.gallery_items is not None:
            if video is not None:
                raise CimError(
                    f"{self.bundle.name} holds its gallery in the memory; expected score(text) "
                    "without video features"
                )
            return self.simulator.score(checked_features("text", text, inputs)).astype(np.float32)
        queries = checked_features("text", text, inputs)
        items = checked_features("video", {} if video is None else video, inputs)
        return self.simulator.score(queries, items).astype(np.float32)

    def scores(self, data: Data) -> Array:
        """`logit` float32 [n, m] of embeddings in any form that `compile` takes.

        Of a bundle with its whole score in the memory only texts are read.
        """
        if self.simulator.program.gallery_items is not None:
            text = self.simulator.encode("text", read_text(data, self.bundle.model))
            return self.simulator.score(text).astype(np.float32)
        read = read_data(data, self.bundle.model)
        return self.simulator.scores(read.text, read.video).astype(np.float32)


def load(bundle: Path | str, device: str | None = None) -> Matcher:
    """Open a bundle, check it against its manifest, and make it ready to run.

    With a `device` (`cpu`, `cuda`, `cuda:1`) torch computes there. Raises CimError where the bundle
    is not whole or the device is not there.
    """
    if device is not None:
        from cimtool.hardware.device import device_of

        device_of(device)
    return Matcher(_bundle(bundle), device)


def _bundle(folder: Path | str) -> Bundle:
    if not isinstance(folder, Path | str):
        raise CimError(f"a bundle is given as {kind_of(folder)}; expected the path of its folder")
    return read_bundle(Path(folder))


def simulate(
    bundle: Path | str,
    inputs: Data,
    *,
    output: Path | str | None = None,
    top: int | None = None,
    device: str | None = None,
    noise: NoiseOptions | None = None,
    say: Say = silent,
) -> dict[str, Array]:
    """Score all texts against all videos on the bit-accurate simulator.

    Returns `scores` float32 [n, m], or with `top` `top_index` and `top_score` [n, top] of each
    text's best videos, computed without the n x m scores; writes them as an `.npz` to `output`.
    `device` as in `load`. A bundle that holds a gallery looks at the texts alone; with a hybrid
    score it returns the best of each shortlist, all of it without `top`. With `noise` the scores of
    each die follow: `trial_scores` [T, n, m], `trial_rmse` [T] from the noise-free scores and,
    where the right pairs are known, `trial_r1` [T, 2].
    """
    if output is not None:
        check_scores_file(Path(output))
    matcher = load(bundle, device)
    if noise is not None:
        return _simulate_dies(matcher, inputs, output, top, noise, say)
    if matcher.bundle.gallery is None:
        found = _all_pairs(matcher, inputs, top, say)
    else:
        found = _against_gallery(matcher, matcher.bundle.gallery, inputs, top, say)
    if output is not None:
        write_scores(Path(output), found)
    return found


def _simulate_dies(
    matcher: Matcher,
    inputs: Data,
    output: Path | str | None,
    top: int | None,
    noise: NoiseOptions,
    say: Say,
) -> dict[str, Array]:
    from cimtool.verification.noisy import simulate_trials
    from cimtool.verification.run import check_gallery

    if top is not None:
        raise CimError("--top keeps the best of noise-free scores; expected it without --noise")
    read = read_data(inputs, matcher.bundle.model)
    check_gallery(matcher.bundle, read)
    found = simulate_trials(matcher.bundle, matcher.simulator, read, noise, say)
    if output is not None:
        write_scores(Path(output), found)
    return found


def _against_gallery(
    matcher: Matcher, gallery: Gallery, inputs: Data, top: int | None, say: Say
) -> dict[str, Array]:
    rows = read_text(inputs, matcher.bundle.model)
    say(f"encoding {len(rows)} texts")
    text = matcher.simulator.encode("text", rows)
    say(f"scoring {len(rows)} texts against {gallery.items} items in the memory")
    if gallery.shortlist is not None:
        items = matcher.bundle.gallery_features
        return hybrid_scores(matcher.simulator, text, items, gallery.shortlist, top)
    if top is None:
        return {"scores": matcher.score(text)}
    return best_scores(matcher.simulator, text, None, top)


def _all_pairs(matcher: Matcher, inputs: Data, top: int | None, say: Say) -> dict[str, Array]:
    read = read_data(inputs, matcher.bundle.model)
    say(f"encoding {len(read.text)} texts and {len(read.video)} videos")
    text, video = (matcher.simulator.encode(m, getattr(read, m)) for m in MODALITIES)
    say(f"scoring {len(read.text)} x {len(read.video)} pairs")
    if top is None:
        return {"scores": matcher.score(text, video)}
    return best_scores(matcher.simulator, text, video, top)


def program(
    bundle: Path | str,
    gallery: Data,
    *,
    output: Path | str | None = None,
    shortlist: int | None = None,
    chips: int | None = None,
    say: Say = silent,
) -> Programming:
    """Program a gallery's videos into the arrays of a bundle and write the bundle that holds them.

    Only the video rows of `gallery` are read. The new bundle goes to `output`, by default
    `<bundle>+<gallery's name>`; `shortlist` is a hybrid score's, `chips` how many the gallery must
    fit on. Raises CimError for a bundle compiled with a digital score or programmed already, and a
    gallery that does not fit.
    """
    from cimtool.programmed import Source, check_programmable, program_bundle

    opened = _bundle(bundle)
    check_programmable(opened)
    card, file = opened.model, modality_file(gallery, "video")
    folder = opened.folder.with_name(f"{opened.name}+{file.stem if file else 'gallery'}")
    folder = Path(output or folder)
    check_place(folder)
    rows = modality_rows(gallery, "video", card.video_width, card.name, card.unit_rows)
    if file is None:
        source = Source(rows, "arrays", hashlib.sha256(rows.tobytes()).hexdigest())
    else:
        source = Source(rows, file.name, sha256(file))
    return program_bundle(opened, source, folder, shortlist, chips, say)


def verify(
    bundle: Path | str,
    data: Data,
    *,
    samples: int | None = None,
    seed: int = 0,
    max_drift: Mapping[str, float] | None = None,
    report: Path | str | None = None,
    noise: NoiseOptions | None = None,
    say: Say = silent,
) -> Report:
    """Measure what each stage of a bundle cost on `data`, and check it bit for bit.

    With `noise` the report has rows of the median die and of the worst in twenty. Writes
    `report.html`, `report.json` and `report.md` into `report` (default: the bundle's folder).
    Raises CheckFailed where a bit differs or a metric is over its limit in `max_drift`.
    """
    from cimtool.verification.run import verify_bundle

    opened = _bundle(bundle)
    read = read_data(data, opened.model)
    return verify_bundle(
        opened,
        read,
        samples,
        seed,
        max_drift or {},
        Path(report) if report else opened.folder,
        say,
        noise,
    )


def compare(
    bundles: Sequence[Path | str],
    data: Data,
    *,
    samples: int | None = None,
    seed: int = 0,
    say: Say = silent,
) -> Comparison:
    """Verify several bundles on the same data, to put them side by side; nothing is written.

    Raises CheckFailed where a bit differs.
    """
    from cimtool.verification.compare import compare_bundles

    opened = [_bundle(bundle) for bundle in bundles]
    rows = [read_data(data, one.model) for one in opened]
    return compare_bundles(opened, rows, samples, seed, say)


def cost(
    bundle: Path | str,
    *,
    gallery: int | None = None,
    samples: int | None = None,
    operating_point: str | None = None,
) -> Estimate:
    """Place a bundle on its target, and estimate operations, latency, energy and area.

    With `gallery` also of a query scored against so many items, beside Monte Carlo with `samples` a
    side (default: 10). Figures are the target's at `operating_point` (default: its
    first); CimError for one that it does not have.
    """
    from cimtool.costs.estimate import estimate
    from cimtool.verification.run import DEFAULT_SAMPLES

    for name, value in (("--gallery", gallery), ("--samples", samples)):
        if value is not None and value < 1:
            raise CimError(f"{name} is {value}; expected at least 1")
    opened = _bundle(bundle)
    return estimate(
        opened.program,
        opened.settings,
        opened.target,
        samples=samples or DEFAULT_SAMPLES,
        dimension=opened.model.dimension,
        gallery=gallery,
        shortlist=None if opened.gallery is None else opened.gallery.shortlist,
        operating_point=operating_point,
    )
