"""Tune: bits a layer at the lowest cost within a budget, which holds on both halves of the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.files import check_output, replace_texts
from cimtool.base.progress import Say, silent
from cimtool.base.toml_files import read_toml
from cimtool.hardware.configuration import Configuration
from cimtool.hardware.settings import Settings
from cimtool.hardware.target import Target
from cimtool.loading.data import EmbeddingsLike
from cimtool.loading.embeddings import Embeddings
from cimtool.loading.source import ModelSource
from cimtool.sweeps.bench import Bench, Outcome, make_bench, measure, read_evaluation
from cimtool.sweeps.choice import keeps_budget
from cimtool.sweeps.command import toml_text
from cimtool.sweeps.references import reference_name, references
from cimtool.tuning.knobs import ORDER, Bits, CostName, Hardware, Knob, check_cost
from cimtool.tuning.search import Step, Walk, probe, walk
from cimtool.verification.limits import check_metrics


@dataclass(frozen=True)
class TuningJob:
    """What is asked for: the hardware, the settings to start from, the budget, what to save.

    `given` are the settings as a file would say them; those of layers are added to it.
    """

    target: Target
    settings: Settings
    given: Mapping[str, Any]
    budget: Mapping[str, float]
    cost: CostName

    def __post_init__(self) -> None:
        if not self.budget:
            example = "METRIC=VALUE, such as logit_rmse=0.2"
            raise ArgumentError("{budget} is missing; expected {}", example)
        check_metrics("budget", self.budget)

    @classmethod
    def of(
        cls,
        target: str | Target,
        file: Path | str | None,
        options: Mapping[str, object],
        budget: Mapping[str, float],
        cost: CostName,
    ) -> TuningJob:
        """The job of a target and of settings in a file and by name; CimError for any mistake."""
        chosen = Configuration.of(target, file, options)
        given = {name: value for name, value in options.items() if value is not None}
        start = given if file is None else read_toml(Path(file)) | given
        return cls(chosen.target, chosen.settings, start, budget, cost)


@dataclass(frozen=True)
class Tuned:
    """What tuning found: the bits a layer, the way there, and metrics before and after.

    `start` and `chosen` are metrics on the rows that the bits were chosen on, `held_out` those of
    the chosen bits on the other half, for which so many of the last kept steps were `taken_back`.
    """

    model: str
    target: str
    reference: str
    budget: Mapping[str, float]
    cost: CostName
    start: Mapping[str, float]
    start_cost: Mapping[CostName, float]
    steps: Sequence[Step]
    taken_back: int
    bits: Mapping[str, Mapping[str, int]]
    chosen: Mapping[str, float]
    chosen_cost: Mapping[CostName, float]
    held_out: Mapping[str, float]
    written: Path

    def to_json(self) -> dict[str, Any]:
        """Plain values by name; moves as `layer setting: was -> now`."""
        steps = [
            {
                "moves": [f"{one.knob.name}: {one.was} -> {one.now}" for one in step.moves],
                "cost": dict(step.cost),
                "metrics": dict(step.metrics),
                "error": step.error,
                "kept": step.kept,
            }
            for step in self.steps
        ]
        return {**vars(self), "steps": steps}


def run_tune(
    source: ModelSource,
    calibration: EmbeddingsLike,
    data: EmbeddingsLike,
    job: TuningJob,
    seen_rows: bool = False,
    output: Path | str | None = None,
    say: Say = silent,
) -> Tuned:
    """Choose the bits and write the settings file, by default `exports/<model>@<target>...`.

    Bits are chosen on one half of the data; steps at the end of the way that miss the budget on the
    other half are taken back. Raises CimError where the highest bits miss it on either, or rows of
    `data` calibrated (unless `seen_rows`).
    """
    model, rows, evaluated = read_evaluation(source, calibration, data, seen_rows, say)
    name = f"{model.name}@{job.target.name}.settings.toml"
    file = Path(output) if output else Path("exports") / name
    check_output(file, ".toml")
    half, other = halves(evaluated)
    found = references(model, half, say), references(model, other, say)
    bench = make_bench(model, rows, half, found[0], None, job.settings, say)
    say("the highest bits")
    program = bench.compiled(job.settings, lambda line: None)
    hardware = Hardware.of(program, job.settings, job.target)
    check_cost(hardware, job.cost)
    chosen_on = _Rows(bench, hardware)
    held_out = _Rows(replace(bench, data=other, references=found[1]), hardware)
    start = hardware.start
    for part in (chosen_on, held_out):
        _require_start(job, part(start), evaluated)
    walking = Walk(hardware, ORDER[job.cost], probe(start, chosen_on, say), dict(start))
    steps = walk(walking, chosen_on, lambda one: keeps_budget(one, job.budget), say)
    say("held-out rows")
    places = _places(start, steps)
    back = next(k for k, bits in enumerate(places) if keeps_budget(held_out(bits), job.budget))
    bits = places[back]
    layers: dict[str, dict[str, int]] = {}
    for knob, value in bits.items():
        layers.setdefault(knob.layer, {})[knob.key] = value
    (written,) = replace_texts(
        file.parent, {file.name: settings_text(job.given, layers)}, file.name
    )
    return Tuned(
        model=model.name,
        target=job.target.name,
        reference=reference_name(model),
        budget=job.budget,
        cost=job.cost,
        start=chosen_on(start).metrics,
        start_cost=hardware.cost(start),
        steps=steps,
        taken_back=back,
        bits=layers,
        chosen=chosen_on(bits).metrics,
        chosen_cost=hardware.cost(bits),
        held_out=held_out(bits).metrics,
        written=written,
    )


@dataclass(frozen=True, eq=False)
class _Rows:
    """What bits come to on some rows; each choice is compiled once."""

    bench: Bench
    hardware: Hardware
    known: dict[frozenset[tuple[Knob, int]], Outcome] = field(default_factory=dict)

    def __call__(self, bits: Bits) -> Outcome:
        key = frozenset(bits.items())
        if key not in self.known:
            settings = self.hardware.with_bits(bits)
            self.known[key] = measure(self.bench, Configuration(self.hardware.target, settings))
        return self.known[key]


def _places(start: Bits, steps: Sequence[Step]) -> list[Bits]:
    """The bits that the walk has come to, the last first; the start is the last."""
    places = [start]
    for step in steps:
        if step.kept:
            places.append({**places[-1], **{move.knob: move.now for move in step.moves}})
    return places[::-1]


def _require_start(job: TuningJob, first: Outcome, data: Embeddings) -> None:
    if first.error is not None:
        raise CimError(first.error)
    for name, most in job.budget.items():
        if not first.metrics[name] <= most:
            raise ArgumentError(
                "{budget} {}={:g}: the highest bits give {:.4g} on a half of {}; expected a "
                "larger budget, or more bits to start from ({settings})",
                name,
                most,
                first.metrics[name],
                data.file,
            )


def halves(data: Embeddings) -> tuple[Embeddings, Embeddings]:
    """Every second video with its texts, and the others; CimError where either ranks nothing."""
    parts = []
    for first in (0, 1):
        video = np.arange(first, len(data.video), 2)
        text = np.flatnonzero(data.right % 2 == first)
        if len(text) < 2 or len(video) < 2:
            raise CimError(
                f"{data.file}: {len(data.text)} texts and {len(data.video)} videos leave a half, "
                "every second video and its texts, that ranks nothing; expected 2 of each in both"
            )
        parts.append(
            replace(
                data,
                text=data.text[text],
                video=data.video[video],
                text_to_video=data.right[text] // 2,
                labels=None if data.labels is None else data.labels[text],
            )
        )
    return parts[0], parts[1]


def settings_text(given: Mapping[str, Any], layers: Mapping[str, Mapping[str, int]]) -> str:
    """The settings file: what was given, and then each layer's bits, as the last match wins."""
    own = dict(given.get("layers", {}))
    for layer, bits in layers.items():
        own[layer] = {**own.pop(layer, {}), **bits}
    return toml_text({**given, "layers": own})
