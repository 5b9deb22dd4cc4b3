"""Compile: a trained model and calibration data in, every stage of the program and a bundle out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

from safetensors.numpy import save

from cimtool.base.arrays import Array
from cimtool.base.errors import Argument, ArgumentError, CimError
from cimtool.base.files import sha256
from cimtool.base.progress import Say, silent
from cimtool.bundle.bundle import (
    CALIBRATION,
    QUERIES,
    Build,
    Bundle,
    ModelCard,
    features_bytes,
    write_bundle,
)
from cimtool.hardware.levels import level_notes
from cimtool.hardware.settings import Settings, check_patterns, check_score_bits, resolve
from cimtool.hardware.target import Target, load_target
from cimtool.ir.arithmetic import Mvm
from cimtool.ir.program import as_inputs
from cimtool.loading.calibration_rows import calibration_digests
from cimtool.loading.data import Data, files_of, read_data
from cimtool.loading.embeddings import Embeddings
from cimtool.loading.features import kind_of
from cimtool.loading.model import Model, load_model, projector_files
from cimtool.loading.polynomial import read_polynomial
from cimtool.loading.score import statistics_note
from cimtool.passes.converters import FIT_ROWS
from cimtool.passes.gallery import SCORE_LAYERS
from cimtool.passes.pipeline import Stage, compile_program
from cimtool.passes.step import Job
from cimtool.reference.surrogate import Polynomial
from cimtool.simulation.simulator import Simulator

if TYPE_CHECKING:
    from torch import nn

    Projectors = Path | str | tuple[Path | str, Path | str] | tuple[nn.Module, nn.Module]

CALIBRATION_ROWS = 4096
"""At most so many rows a modality are used for calibration: the first ones."""


@dataclass(frozen=True)
class Compilation:
    """A compiled model before it is written: its stages, and what a user must know of them.

    `inputs` are the names of all files read, with the SHA-256 of each; `queries` the features of
    calibration pairs that the bundle keeps for `program`, none where the score is digital;
    `calibration` the digests of the rows that decided the ranges.
    """

    model: Model
    target: Target
    settings: Settings
    stages: tuple[Stage, ...]
    notes: tuple[str, ...]
    inputs: tuple[tuple[str, str], ...]
    calibration: Mapping[str, Array]
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
            head=model.head,
            a=model.a,
            b=model.b,
            samples=model.samples,
            unit_rows=model.unit_rows,
            text_width=model.text_width,
            video_width=model.video_width,
            dimension=model.dimension,
            warnings=model.warnings,
        )
        stages = {stage.name: stage.program for stage in self.stages}
        onnx = onnx_files(self.stages[-1].program, stages["folded"])
        say(f"writing {folder}")
        files = {CALIBRATION: save(dict(self.calibration))}
        if self.queries:
            files[QUERIES] = features_bytes(self.queries)
        build = Build(
            card, self.target, self.settings, self.stages, self.inputs, onnx, self.notes, files
        )
        return write_bundle(folder, build)


def compile(
    projectors: Projectors,
    poly: Path | str | Polynomial | None = None,
    *,
    calibration: Data,
    target: str | Target = "ideal",
    output: Path | str | None = None,
    settings: Path | str | None = None,
    a: float | None = None,
    b: float | None = None,
    layer_map: Path | str | None = None,
    head: str | None = None,
    say: Say = silent,
    **flags: object,
) -> Bundle:
    """Compile a model for a target and write its bundle; returns the bundle.

    `projectors` is a checkpoint, two ONNX files or two torch modules, text first; `flags` are
    settings by name (`weight_bits=6`), which override the `settings` file, which overrides the
    target. The bundle goes to `output`, by default `exports/<model>@<target>`. Raises CimError for
    any mistake.
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
        head=head,
        say=say,
        **flags,
    )
    return compilation.write(Path(output or compilation.folder), say)


def prepare(
    projectors: Projectors,
    poly: Path | str | Polynomial | None = None,
    *,
    calibration: Data,
    target: str | Target = "ideal",
    settings: Path | str | None = None,
    a: float | None = None,
    b: float | None = None,
    layer_map: Path | str | None = None,
    head: str | None = None,
    say: Say = silent,
    **flags: object,
) -> Compilation:
    """Compile as `compile` does, in memory: nothing is written."""
    chosen = target if isinstance(target, Target) else load_target(target)
    resolved = resolve(chosen, Path(settings) if settings else None, flags)
    named = Path(layer_map) if layer_map else None
    model = trained_model(projectors, poly, a, b, named, say, head)
    check_patterns(resolved, [*layer_names(model), *SCORE_LAYERS[resolved.score_mapping]])
    check_score_bits(resolved, layer_names(model))
    data = read_data(calibration, model)
    notes = [f"warning: {text}" for text in model.warnings]
    rows = calibration_rows(data, notes)
    job = Job(resolved, rows[0], rows[1], notes.append)
    stages = compile_program(model.program, job, say)
    notes += level_notes(chosen, resolved, layer_names(model))
    notes += _score_notes(model, stages)
    files = *model.files, *((str(file), sha256(file)) for file in files_of(calibration))
    inputs = tuple((Path(name).name, digest) for name, digest in files)
    queries = _queries(resolved, stages, data, notes)
    digests = calibration_digests(*rows)
    return Compilation(model, chosen, resolved, stages, tuple(notes), inputs, digests, queries)


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
    simulator = Simulator(stages[-1].program)
    queries: dict[str, Array] = {}
    for modality, x in fit_rows(data).items():
        queries |= as_inputs(modality, simulator.encode(modality, x))
    return queries


def fit_rows(data: Embeddings) -> dict[str, Array]:
    """Calibration rows that fit a gallery's converters: texts, and their videos where known."""
    rows = {"text": data.text[:FIT_ROWS]}
    if data.text_to_video is not None:
        rows["video"] = data.video[data.text_to_video[:FIT_ROWS]]
    return rows


def trained_model(
    projectors: Projectors,
    poly: Path | str | Polynomial | None,
    a: float | None,
    b: float | None,
    layer_map: Path | None,
    say: Say,
    head: str | None = None,
) -> Model:
    """The model of projectors in files or of torch modules; CimError for what makes none."""
    _check_sigmoid(a, b)
    if _are_modules(projectors):
        from cimtool.loading.layer_map import read_layer_map
        from cimtool.loading.modules import model_from_modules

        trained = read_polynomial(Path(poly)) if isinstance(poly, Path | str) else poly
        named = None if layer_map is None else read_layer_map(layer_map)
        return model_from_modules(*projectors, trained, a, b, named, head=head)
    files = projector_files(projectors)
    if files is None:
        raise CimError(
            f"compile: projectors are given as {kind_of(projectors)}; expected a checkpoint, two "
            "ONNX files or two torch modules"
        )
    say(f"loading {' and '.join(map(str, files)) if isinstance(files, tuple) else files}")
    if isinstance(poly, Polynomial):
        raise CimError("compile: a checkpoint file takes its polynomial from a file (poly=PATH)")
    return load_model(files, Path(poly) if poly else None, a, b, layer_map, head)


def _are_modules(projectors: object) -> TypeGuard[tuple[nn.Module, nn.Module]]:
    """Whether projectors are given in memory, and not as files."""
    return isinstance(projectors, tuple) and not any(isinstance(p, Path | str) for p in projectors)


def _check_sigmoid(a: float | None, b: float | None) -> None:
    for name, value in (("a", a), ("b", b)):
        if value is not None and not math.isfinite(value):
            raise ArgumentError("{} is {}; expected a finite number", Argument(name), value)
    if a is not None and a <= 0:
        raise ArgumentError("{a} is {}; expected a number above 0", a)


def calibration_rows(data: Embeddings, notes: list[str]) -> tuple[Array, Array]:
    """The rows of both modalities that calibrate; `notes` get a line where some are left out."""
    for modality, rows in (("text", data.text), ("video", data.video)):
        if len(rows) > CALIBRATION_ROWS:
            notes.append(
                f"calibration: the first {CALIBRATION_ROWS} of {len(rows)} {modality} rows are used"
            )
    return data.text[:CALIBRATION_ROWS], data.video[:CALIBRATION_ROWS]


def _score_notes(model: Model, stages: tuple[Stage, ...]) -> list[str]:
    """Warnings of a score that ranks nothing, or has no reference."""
    calibrated = next(stage for stage in stages if stage.name == "calibrated")
    ranges = calibrated.program.score.calibration.ranges
    spans = {
        name: (float(ranges[name].lo.min()), float(ranges[name].hi.max()))
        for name in model.head.statistics
    }
    notes = []
    divided = statistics_note(model.layout, model.dimension)
    if divided and model.head.takes_polynomial:
        notes.append(divided)
    if model.head.constant_over(spans):
        ends = ", ".join(f"{name} {lo:.6g} to {hi:.6g}" for name, (lo, hi) in spans.items())
        notes.append(
            f"warning: the {model.head.surrogate} is constant over the calibration data "
            f"({ends}), so every pair gets the same score"
        )
    if not model.head.is_sampled:
        notes.append(model.head.unsampled_note)
    elif model.a is None or model.b is None:
        notes.append(
            "warning: the teacher's a and b are not known, so drift is measured against the float "
            "polynomial"
        )
    return notes


def layer_names(model: Model) -> list[str]:
    """Names of all layers, as settings address them: `text.fc1`."""
    return [
        graph.layer(node)
        for graph in (model.program.text, model.program.video)
        for node in graph.nodes
        if isinstance(node.op, Mvm)
    ]
