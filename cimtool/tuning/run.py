"""Tune: bits a layer at the lowest cost within a budget, chosen on half of the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cimtool.errors import CheckFailed, CimError
from cimtool.files import replace_texts
from cimtool.hardware.target import Target
from cimtool.loading.embeddings import Embeddings
from cimtool.loading.model import Model
from cimtool.progress import Say
from cimtool.settings import Settings
from cimtool.sweeps.bench import Bench, Outcome, make_bench, measure
from cimtool.sweeps.command import toml_text
from cimtool.sweeps.grid import Build
from cimtool.sweeps.references import reference_name, references
from cimtool.tuning.knobs import ORDER, Bits, CostName, Hardware, check_cost
from cimtool.tuning.search import Step, Walk, probe, walk


@dataclass(frozen=True)
class Job:
    """What is asked for: the hardware, the settings to start from, the budget, what to save.

    `given` are the settings as a file would say them; those of layers are added to it.
    """

    target: Target
    settings: Settings
    given: Mapping[str, Any]
    budget: Mapping[str, float]
    cost: CostName


@dataclass(frozen=True)
class Tuned:
    """What tuning found: the bits a layer, the way there, and metrics before and after.

    `start` and `chosen` are metrics on the rows that the bits were chosen on, `held_out` those of
    the chosen bits on the other half, which had no part in it.
    """

    model: str
    target: str
    reference: str
    budget: Mapping[str, float]
    cost: CostName
    start: Mapping[str, float]
    start_cost: Mapping[CostName, float]
    steps: Sequence[Step]
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
        return {**vars(self), "steps": steps, "missed": self.missed}

    @property
    def missed(self) -> list[str]:
        """The metrics that are over the budget on held-out rows."""
        return [name for name, most in self.budget.items() if not self.held_out[name] <= most]


class BudgetMissed(CheckFailed):
    """The chosen bits hold the budget where they were chosen, and not on held-out rows."""

    def __init__(self, tuned: Tuned):
        over = ", ".join(f"{name} is {tuned.held_out[name]:.4g}" for name in tuned.missed)
        super().__init__(
            f"{tuned.written}: on held-out rows {over}, over the budget; "
            "tune for a smaller one, or with more rows"
        )
        self.tuned = tuned


def run_tune(
    model: Model, calibration: Embeddings, data: Embeddings, job: Job, file: Path, say: Say
) -> Tuned:
    """Choose the bits and write the settings file.

    Raises CimError where the highest bits miss the budget, BudgetMissed after writing where the
    chosen ones miss it on held-out rows.
    """
    choosing, held_out = halves(data)
    bench = _bench(model, calibration, choosing, job.settings, say)

    def outcome(bits: Bits) -> Outcome:
        return measure(bench, Build(job.target, hardware.with_bits(bits)))

    say("the highest bits")
    program = bench.compiled(job.settings, lambda line: None)
    hardware = Hardware.of(program, job.settings, job.target)
    check_cost(hardware, job.cost)
    start = hardware.start
    first = outcome(start)
    if first.error is not None:
        raise CimError(first.error)
    _require_start(job, first, data)
    walking = Walk(hardware, ORDER[job.cost], probe(start, outcome, say), dict(start))
    steps = walk(walking, outcome, lambda one: _holds(one, job.budget), say)
    last = next((step.metrics for step in reversed(steps) if step.kept), first.metrics)
    say("held-out rows")
    others = replace(bench, data=held_out, references=references(model, held_out, say))
    truth = measure(others, Build(job.target, hardware.with_bits(walking.bits)))
    layers: dict[str, dict[str, int]] = {}
    for knob, value in walking.bits.items():
        layers.setdefault(knob.layer, {})[knob.key] = value
    (written,) = replace_texts(
        file.parent, {file.name: settings_text(job.given, layers)}, file.name
    )
    tuned = Tuned(
        model=model.name,
        target=job.target.name,
        reference=reference_name(model),
        budget=job.budget,
        cost=job.cost,
        start=first.metrics,
        start_cost=hardware.cost(start),
        steps=steps,
        bits=layers,
        chosen=last,
        chosen_cost=hardware.cost(walking.bits),
        held_out=truth.metrics,
        written=written,
    )
    if tuned.missed:
        raise BudgetMissed(tuned)
    return tuned


def _bench(
    model: Model, calibration: Embeddings, data: Embeddings, settings: Settings, say: Say
) -> Bench:
    return make_bench(model, calibration, data, references(model, data, say), None, settings, say)


def _holds(outcome: Outcome, budget: Mapping[str, float]) -> bool:
    return all(outcome.metrics[name] <= most for name, most in budget.items())


def _require_start(job: Job, first: Outcome, data: Embeddings) -> None:
    for name, most in job.budget.items():
        if not first.metrics[name] <= most:
            raise CimError(
                f"--budget {name}={most:g}: the highest bits give {first.metrics[name]:.4g} on "
                f"{data.file}; expected a larger budget, or more bits to start from (--settings)"
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
