"""Compilation of a trained model: from model and calibration data to stages and a bundle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from cimtool.base.arrays import Array
from cimtool.base.data_notes import note_data
from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.files import keeping_inputs, sha256
from cimtool.base.modality_names import Modalities, clean_names
from cimtool.base.options import DIR, FILE, OnOrOff, Topic, Word, option, optional, takes
from cimtool.base.progress import Say, silent
from cimtool.base.threads import one_blas_thread
from cimtool.bundle.bit_choice import (
    ERRORS,
    GIVEN,
    LEAST,
    RANK_LOSS,
    SAMPLES,
    BitChooser,
    ChosenBits,
    DriftGoal,
)
from cimtool.bundle.bundle import (
    CALIBRATION,
    QUERIES,
    TRAINING,
    Bundle,
    BundleContent,
    check_inputs_apart,
    features_bytes,
    write_bundle,
)
from cimtool.bundle.matched_pairs import matched_warnings
from cimtool.bundle.options import BuildOptions
from cimtool.bundle.outputs_check import check_outputs
from cimtool.bundle.placement_picture import placement_svg
from cimtool.bundle.placement_view import fit_sentence, floorplan_sentences, tiling_table
from cimtool.hardware.configuration import (
    Configuration,
    code_notes,
    level_notes,
    reference_notes,
)
from cimtool.hardware.placement import floorplan, placements
from cimtool.hardware.settings import (
    SettingOptions,
    Settings,
    check_layer_bits,
    check_patterns,
)
from cimtool.hardware.target import Target, load_target
from cimtool.ir.arithmetic import Mvm
from cimtool.ir.heads import Span
from cimtool.ir.program import Program, as_inputs
from cimtool.loading.calibration_rows import row_list
from cimtool.loading.digests import digests_of, row_digests
from cimtool.loading.embeddings import Embeddings, File, files_of, read_data
from cimtool.loading.model import Model
from cimtool.loading.row_norms import median_norm
from cimtool.loading.score import statistics_note
from cimtool.loading.source import ModelSource
from cimtool.passes.base import Job
from cimtool.passes.calibrate import CalibratePass
from cimtool.passes.converters import FIT_ROWS
from cimtool.passes.curves import DOMAIN_MARGIN
from cimtool.passes.gallery import check_mapped, score_layers
from cimtool.passes.pipeline import Stage, compile_program, stage_of
from cimtool.passes.trained_bits import trained_bits_notes, with_trained_bits
from cimtool.reference.truth import all_equal
from cimtool.report.document import Document, Picture, Sentence, noted
from cimtool.report.result import Result
from cimtool.simulation.simulator import Simulator

CALIBRATION_ROWS = 4096
"""Rows of a modality that calibrate at most: the first ones."""

FEW_ROWS = 32
"""With fewer rows of a modality, a warning says how uncertain the ranges are.

A new value lies outside the range of n others in 2 of n + 1 cases, for any distribution.
"""

FEW_NOTES = 3
"""Notes that are shown at once, after the warnings."""

SCORED_ROWS = 256
"""Calibration rows of a modality whose compiled scores are checked."""

MOST_QUERIES = 512
"""Calibration pairs that a bundle for a hybrid score keeps, to choose a shortlist's length."""


@dataclass(frozen=True, repr=False)
class Compilation(Result):
    """A compiled model before it is written: its stages, and notes for the user.

    `inputs` are the names of all files read, each with its SHA-256. `queries` are the features of
    calibration pairs that the bundle keeps for a gallery; none if the score is digital.
    `calibration` has the digests of the rows that decided the ranges.
    """

    model: Model
    target: Target
    settings: Settings
    stages: tuple[Stage, ...]
    notes: tuple[str, ...]
    inputs: tuple[tuple[str, str], ...]
    calibration: Mapping[str, Array]
    queries: Mapping[str, Array] = field(default_factory=dict)

    def document(self) -> Document:
        """The layers, their placement and the notes: warnings first, then FEW_NOTES others."""
        layers = placements(self.stages[-1].program, self.settings)
        plan, model, settings = floorplan(layers, self.target), self.model, self.settings
        size = "without limit"
        if settings.rows is not None:
            size = f"of {settings.rows}x{settings.columns}"
        arrays, chips = floorplan_sentences(plan)
        warnings = [note for note in self.notes if note.startswith("warning: ")]
        others = [note for note in self.notes if note not in warnings]
        name = f"{model.name} on {self.target.name}"
        values = {
            "model": model.name,
            "layout": model.layout,
            "head": model.head.name,
            "target": self.target.name,
            "settings": settings.to_json(),
            "layers": [one.to_json() for one in layers],
            "placement": plan.to_json(),
            "notes": list(self.notes),
        }
        picture = placement_svg(layers, plan, name)
        return Document(
            f"{model.name} (layout {model.layout}, head {model.head.name}) on {self.target.name}",
            (
                tiling_table(layers).named("layers"),
                Sentence(f"arrays {size}: {arrays}"),
                Sentence(chips),
                *noted([*warnings, *others], len(warnings) + FEW_NOTES),
                Picture("placement", picture, f"Placement of {name}: {fit_sentence(plan)}"),
            ),
            lambda: values,
        )

    @property
    def folder(self) -> Path:
        """The default place of the bundle."""
        return Path("exports") / bundle_name(self.model.name, self.target)

    def write(
        self, output: Path | str | None = None, say: Say = silent, stages: bool = True
    ) -> Bundle:
        """Emit the ONNX files and write the bundle to `output` or `folder`, or write nothing.

        Without `stages`, the bundle lacks the files that only measuring reads. Programming a
        gallery reads them too, so this raises CimError unless the score is digital.
        """
        from cimtool.emit.onnx import onnx_files

        if not stages and (mapping := self.settings.score_mapping) != "digital":
            raise ArgumentError(
                "{stages} is off, but programming the gallery of score_mapping {} reads them; keep "
                "the stages, or take a digital score",
                mapping,
            )
        folder = Path(output or self.folder)
        check_inputs_apart(folder, (file for file, _ in self.inputs))
        say("emitting ONNX")
        calibrated = stage_of(self.stages, CalibratePass).program
        files = onnx_files(self.stages[-1].program, calibrated)
        say(f"writing {folder}")
        files[CALIBRATION] = save(dict(self.calibration))
        if self.model.provenance is not None:
            files[TRAINING] = save(dict(self.model.provenance.rows))
        if self.queries:
            files[QUERIES] = features_bytes(self.queries)
        content = BundleContent(
            self.model.card, self.target, self.settings, self.stages, self.inputs, self.notes
        )
        return write_bundle(folder, content, files, stages)


class PrepareOptions(BuildOptions, SettingOptions):
    """The options of `prepare`."""

    check: File | Mapping[str, Array] | None = optional(
        "Rows, with the mu and logvar that the model should give for them (.npz).",
        FILE,
        topic=Topic.MODEL,
    )
    drift: str | None = optional(
        f"Choose bits: {LEAST} (the least error at the cost of the settings; the default where "
        f"none are given), or for the least cost {SAMPLES}=K (as near as K samples), {ERRORS[0]}=X "
        f"or {RANK_LOSS}=X (R@1); {GIVEN} keeps those of the settings.",
        Word("GOAL"),
    )


def bundle_name(model: str, target: str | Target) -> str:
    """The name of a bundle's folder. Raises CimError if there is no such target."""
    hardware = target if isinstance(target, Target) else load_target(target)
    return f"{model}@{hardware.name}"


class CompileOptions(PrepareOptions):
    """The options of `compile`."""

    output: File | None = optional("Folder of the bundle.", DIR, short="o", place="bundle")
    stages: bool = option(
        "Keep the files that only verify, compare and evaluate read: more than half of the bundle.",
        OnOrOff(),
        default=True,
        topic=Topic.WRITTEN,
    )


@keeping_inputs
@takes(CompileOptions)
def compile(options: CompileOptions, say: Say = silent) -> Bundle:
    """Compile a model for a target and write its bundle; returns the bundle.

    `projectors` is a checkpoint, two ONNX files or two torch modules, text first. Settings by name
    (`weight_bits=6`) override the `settings` file, which overrides the target. The bundle goes to
    `output`, by default `exports/<model>@<target>`. Without `stages` the bundle is less than half
    as large, and `verify`, `compare` and `evaluate` refuse it. Raises CimError for any mistake.
    """
    compiled = prepare(**options.part(PrepareOptions), say=say)
    return compiled.write(options.output, say, options.stages)


@takes(PrepareOptions)
@one_blas_thread
def prepare(options: PrepareOptions, say: Say = silent) -> Compilation:
    """Compile as `compile` does, in memory: nothing is written."""
    goal = None if options.drift in (None, GIVEN) else DriftGoal.of(options.drift)
    source, calibration = ModelSource.of(options), options.calibration
    flags = options.part(SettingOptions)
    configuration = Configuration.of(options.target, options.settings, flags)
    decided = configuration.settings
    model = source.for_rows(calibration).load(say)
    agreed = [] if options.check is None else check_outputs(model, options.check)
    layers = layer_names(model.program)
    of_score = score_layers(model.head, decided.score_mapping)
    check_patterns(decided, [*layers, *of_score], model.modalities)
    check_layer_bits(decided, layers, of_score)
    decided = with_trained_bits(configuration, model.program)
    data = read_data(calibration, model)
    notes = [f"warning: {text}" for text in model.warnings]
    notes += agreed
    start = replace(configuration, settings=decided)
    if goal is not None:
        bits = BitChooser.named("solved", "drift").choose(goal, model, data, start, say)
    elif options.drift == GIVEN or configuration.bits_given:
        bits = ChosenBits(decided, ())
    else:
        bits = _chosen_by_default(model, data, start, say)
    decided = bits.settings
    notes += bits.notes
    notes += trained_bits_notes(model.program, decided)
    notes += data.notes
    rows = calibration_rows(data, notes)
    job = Job(decided, *rows, notes.append, data.file, data.text_to_video)
    stages = compile_program(model.program, job, say)
    for sentence in matched_warnings(model.program, data):
        _warn(notes, sentence)
    if decided.score_mapping != "digital":
        check_mapped(model.head, stages[-1].program, decided.score_mapping)
    notes += level_notes(configuration.target, decided, layers)
    notes += reference_notes(configuration.target, decided) + code_notes(decided)
    notes += _score_notes(model, stages)
    notes += _equal_notes(stages[-1].program, rows, data.called)
    queries = _queries(decided, stages, data, notes)
    modalities = None if model.modalities is None else clean_names(model.modalities)
    files = *model.files, *((str(file), sha256(file)) for file in files_of(calibration))
    return Compilation(
        replace(
            model,
            called=clean_names(data.called),
            modalities=modalities,
            row_norms=(median_norm(rows[0]), median_norm(rows[1])),
        ),
        configuration.target,
        decided,
        stages,
        tuple(notes),
        inputs=tuple((Path(name).name, digest) for name, digest in files),
        calibration=digests_of(*rows),
        queries=queries,
    )


def _chosen_by_default(
    model: Model, data: Embeddings, start: Configuration, say: Say
) -> ChosenBits:
    """The bits of least error at the cost of the settings; those of the settings if none can be."""
    if start.settings.score_mapping != "digital":
        return ChosenBits(start.settings, ())
    try:
        chooser = BitChooser.named("solved", "drift")
        return chooser.choose(DriftGoal.of(LEAST), model, data, start, say)
    except CimError as error:
        return ChosenBits(start.settings, (f"bits are those of the target: {error}",))


def _queries(
    settings: Settings, stages: tuple[Stage, ...], data: Embeddings, notes: list[str]
) -> dict[str, Array]:
    """Features of calibration pairs, to fit a gallery's converters; none for a digital score."""
    if settings.score_mapping == "digital":
        return {}
    notes.append(
        f"score_mapping = {settings.score_mapping}: the score is digital until a gallery is in the "
        "arrays (`cimtool program BUNDLE --gallery NPZ`)"
    )
    simulator = Simulator(stages[-1].program)
    queries: dict[str, Array] = {}
    rows = FIT_ROWS if settings.score_mapping == "in-memory" else MOST_QUERIES
    for modality, x in fit_rows(data, rows).items():
        queries |= as_inputs(modality, simulator.encode(modality, x))
    return queries


def fit_rows(data: Embeddings, count: int = FIT_ROWS) -> dict[str, Array]:
    """Calibration rows that fit a gallery's converters: texts, and their videos if known."""
    rows = {"text": data.text[:count]}
    if data.text_to_video is not None:
        rows["video"] = data.video[data.text_to_video[:count]]
    return rows


def calibration_rows(data: Embeddings, notes: list[str]) -> tuple[Array, Array]:
    """The rows of both modalities that calibrate; `notes` get a line if some are left out.

    Raises CimError if a modality has only one row, or if its rows are all zeros or all equal. Warns
    of rows of zeros, and of few different rows.
    """
    for modality, rows in zip(data.called, (data.text, data.video), strict=True):
        if len(rows) > CALIBRATION_ROWS:
            notes.append(
                f"calibration: the first {CALIBRATION_ROWS} of {len(rows)} {modality} rows are used"
            )
        used = rows[:CALIBRATION_ROWS]
        if len(used) < 2:
            raise CimError(
                f"{data.file}: {modality} has 1 row, which gives no range; expected at least "
                f"{FEW_ROWS} calibration rows"
            )
        zeros, of = int((~used.any(axis=1)).sum()), f"{len(used):,} {modality} rows"
        if zeros == len(used):
            raise CimError(
                f"{data.file}: the {of} for calibration are all zeros, so they give no range; "
                "expected embeddings"
            )
        if zeros:
            _warn(
                notes,
                f"{data.file}: {zeros:,} of the {of} for calibration are all zeros, so the ranges "
                f"come from {len(used) - zeros:,}",
            )
        _require_different(data.file, modality, used, notes)
    return data.text[:CALIBRATION_ROWS], data.video[:CALIBRATION_ROWS]


def _require_different(file: str, modality: str, rows: Array, notes: list[str]) -> None:
    """Warn of few different rows; CimError if all are equal."""
    found = row_digests(rows)
    repeated = np.ones(len(rows), bool)
    repeated[np.unique(found, return_index=True)[1]] = False
    count = len(rows) - int(repeated.sum())
    if count < 2:
        raise CimError(
            f"{file}: all {len(rows):,} {modality} calibration rows are equal, so they give no "
            f"range; expected at least {FEW_ROWS} different rows"
        )
    if count < FEW_ROWS:
        which = "" if count == len(rows) else f" ({row_list(repeated)} repeat earlier ones)"
        different = "different " if which else ""
        _warn(
            notes,
            f"{file}: only {count} {different}{modality} calibration rows{which}, so about 2 in "
            f"{count + 1} new rows lie outside the range of a value; expected at least {FEW_ROWS} "
            f"{different}rows",
        )


def _warn(notes: list[str], sentence: str) -> None:
    warning = f"warning: {sentence}"
    notes.append(warning)
    note_data(warning)  # for commands that don't show a compilation's notes


def _score_notes(model: Model, stages: tuple[Stage, ...]) -> list[str]:
    """Notes on the score: its statistics, a constant score, a missing reference."""
    ranges = stage_of(stages, CalibratePass).program.score.calibration.ranges
    spans = {n: (float(seen.lo.min()), float(seen.hi.max())) for n, seen in ranges.items()}
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
    notes += _beyond_fit(model, spans)
    if not model.head.is_surrogate:
        notes.append(model.head.closed_form_note)
    elif model.a is None or model.b is None:
        notes.append(
            "warning: the teacher's a and b are not known, so drift is measured against the float "
            "polynomial"
        )
    return notes


def _beyond_fit(model: Model, spans: Mapping[str, Span]) -> list[str]:
    """Warnings if statistics of the calibration pairs lie far outside the range of the fit.

    A polynomial means nothing there: its powers grow. By DOMAIN_MARGIN of its width it may be left.
    """
    notes = []
    for name, (least, most) in (model.head.fitted_ranges or {}).items():
        if name not in spans:
            continue
        (lo, hi), margin = spans[name], DOMAIN_MARGIN * (most - least)
        if lo < least - margin or hi > most + margin:
            notes.append(
                f"warning: {name} of the calibration pairs is {lo:.6g} to {hi:.6g}, and the "
                f"{model.head.surrogate} was fitted on {least:.6g} to {most:.6g}: pairs beyond it "
                "are extrapolated and may be wrong by any amount; expected one that was fitted on "
                "this model (`cimtool teacher`, `cimtool fit`)"
            )
    return notes


def _equal_notes(program: Program, rows: tuple[Array, Array], called: Modalities) -> list[str]:
    """Warnings if the compiled scores of calibration rows don't differ within queries.

    This happens if biases dominate a model, so that all items are nearly the same.
    """
    text, video = (one[:SCORED_ROWS] for one in rows)
    scores = Simulator(program).scores(text, video)
    said = all_equal(scores, called, "compiled scores of the calibration rows")
    return [f"warning: {sentence}" for sentence in said]


def layer_names(program: Program) -> list[str]:
    """Names of all layers of a trained model, as settings name them: `text.fc1`."""
    projectors = (program.text, program.video)
    return [f"{graph.name}.{name}" for graph in projectors for name in graph.operations(Mvm)]
