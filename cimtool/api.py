"""The library: compile a model, load a bundle, encode, score and verify, with or without files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cimtool.arrays import Array
from cimtool.emit.bundle import Build, Bundle, ModelCard, read_bundle, write_bundle
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
from cimtool.loading.model import Model, load_model
from cimtool.loading.polynomial import read_polynomial
from cimtool.passes.step import Job
from cimtool.pipeline import Stage, compile_program
from cimtool.progress import Say, silent
from cimtool.reference.surrogate import Polynomial
from cimtool.scores import best_scores, check_scores_file, write_scores
from cimtool.settings import Settings, check_patterns, resolve
from cimtool.simulator import Simulator

if TYPE_CHECKING:
    from torch import nn

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

    `inputs` are the names of all files read, with the SHA-256 of each.
    """

    model: Model
    target: Target
    settings: Settings
    stages: tuple[Stage, ...]
    notes: tuple[str, ...]
    inputs: tuple[tuple[str, str], ...]

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
        build = Build(card, self.target, self.settings, self.stages, self.inputs, onnx, self.notes)
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
    check_patterns(resolved, layer_names(model))
    data = read_data(calibration, model)
    notes: list[str] = []
    rows = [_calibration_rows(getattr(data, m), m, notes) for m in MODALITIES]
    job = Job(resolved, rows[0], rows[1], notes.append)
    stages = compile_program(model.program, job, say)
    _check_polynomial(model, stages, notes)
    files = *model.files, *((str(file), sha256(file)) for file in _files(calibration))
    inputs = tuple((Path(name).name, digest) for name, digest in files)
    return Compilation(model, chosen, resolved, stages, tuple(notes), inputs)


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
    """A bundle made ready to run on the bit-accurate simulator."""

    bundle: Bundle

    @cached_property
    def simulator(self) -> Simulator:
        """The compiled program with its constants packed."""
        return Simulator(self.bundle.program)

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

    def score(self, text: Mapping[str, Array], video: Mapping[str, Array]) -> Array:
        """`logit` float32 [n, m] of all pairs of encoded items.

        Raises CimError unless both are such features as `encode_text` and `encode_video` return.
        """
        inputs = self.simulator.program.score.inputs
        features = checked_features("text", text, inputs), checked_features("video", video, inputs)
        return self.simulator.score(*features).astype(np.float32)

    def scores(self, data: Data) -> Array:
        """`logit` float32 [n, m] of embeddings in any form that `compile` takes."""
        read = read_data(data, self.bundle.model)
        return self.simulator.scores(read.text, read.video).astype(np.float32)


def load(bundle: Path | str) -> Matcher:
    """Open a bundle, check it against its manifest, and make it ready to run."""
    return Matcher(_bundle(bundle))


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
    say: Say = silent,
) -> dict[str, Array]:
    """Score all texts against all videos on the bit-accurate simulator.

    Returns `scores` float32 [n, m], or with `top` `top_index` and `top_score` [n, top] of each
    text's best videos, computed without the n x m scores; writes them as an `.npz` to `output`.
    """
    if output is not None:
        check_scores_file(Path(output))
    matcher = load(bundle)
    read = read_data(inputs, matcher.bundle.model)
    say(f"encoding {len(read.text)} texts and {len(read.video)} videos")
    text, video = (matcher.simulator.encode(m, getattr(read, m)) for m in MODALITIES)
    say(f"scoring {len(read.text)} x {len(read.video)} pairs")
    if top is None:
        found = {"scores": matcher.score(text, video)}
    else:
        found = best_scores(matcher.simulator, text, video, top)
    if output is not None:
        write_scores(Path(output), found)
    return found


def verify(
    bundle: Path | str,
    data: Data,
    *,
    samples: int | None = None,
    seed: int = 0,
    max_drift: Mapping[str, float] | None = None,
    report: Path | str | None = None,
    say: Say = silent,
) -> Report:
    """Measure what each stage of a bundle cost on `data`, and check it bit for bit.

    Writes `report.html`, `report.json` and `report.md` into `report` (default: the bundle's
    folder). Raises CheckFailed where a bit differs or a metric is over its limit in `max_drift`.
    """
    from cimtool.verification.run import verify_bundle

    opened = _bundle(bundle)
    read = read_data(data, opened.model)
    return verify_bundle(
        opened, read, samples, seed, max_drift or {}, Path(report) if report else opened.folder, say
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
