"""Tune: bits of each layer at the lowest cost within a budget that holds on both halves of data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.files import check_output, replace_texts
from cimtool.base.progress import Say, silent
from cimtool.base.toml_files import read_toml
from cimtool.hardware.configuration import Configuration
from cimtool.hardware.target import Target
from cimtool.loading.embeddings import Embeddings, EmbeddingsLike, File
from cimtool.loading.model import Model
from cimtool.loading.source import ModelSource, Projectors
from cimtool.reference.queries import check_metrics
from cimtool.reference.surrogate import Polynomial
from cimtool.sweeps.choice import keeps_budget
from cimtool.sweeps.command import toml_text, with_layers
from cimtool.sweeps.evaluator import Outcome, PointEvaluator, read_evaluation
from cimtool.sweeps.references import reference_name, references
from cimtool.tuning.search import Attempt, Evaluate, Search, probe
from cimtool.tuning.widths import ORDER, CostName, LayerCosts, Width, by_layer, check_cost


@dataclass(frozen=True)
class Tuned:
    """The bits of each layer that tuning chose, the attempts, and metrics before and after.

    `start` and `chosen` are metrics on the rows that the bits were chosen on, `held_out` those of
    the chosen bits on the other half, for which the last `taken_back` kept steps were undone.
    """

    model: str
    target: str
    reference: str
    budget: Mapping[str, float]
    cost: CostName
    start: Mapping[str, float]
    start_cost: Mapping[CostName, float]
    steps: Sequence[Attempt]
    taken_back: int
    bits: Mapping[str, Mapping[str, int]]
    chosen: Mapping[str, float]
    chosen_cost: Mapping[CostName, float]
    held_out: Mapping[str, float]
    written: Path

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        return vars(self) | {"steps": [step.to_json() for step in self.steps]}


def tune(
    projectors: Projectors,
    poly: File | Polynomial | None = None,
    *,
    calibration: EmbeddingsLike,
    data: EmbeddingsLike,
    target: str | Target,
    budget: Mapping[str, float],
    cost: CostName = "arrays",
    settings: File | None = None,
    allow_calibration_rows: bool = False,
    output: File | None = None,
    say: Say = silent,
    **options: Any,
) -> Tuned:
    """Choose the bits of each layer at the lowest `cost` within `budget`, as a settings file.

    Bits come off those that target, `settings` and `options` say, which are those of `compile`.
    They are chosen on every second video of `data` with its texts; steps that miss the budget on
    the others are taken back. The file goes to `output` (default
    `exports/<model>@<target>.settings.toml`). Raises CimError where the highest bits miss the
    budget on either half, or rows of `data` calibrated (unless `allow_calibration_rows`).
    """
    source, by_name = ModelSource.of(projectors, poly, options)
    highest = Configuration.of(target, settings, by_name)
    if not budget:
        raise ArgumentError("{budget} is missing; expected METRIC=VALUE, such as logit_rmse=0.2")
    check_metrics("budget", budget)
    given = {name: value for name, value in by_name.items() if value is not None}
    if settings is not None:
        given = read_toml(Path(settings)) | given
    model, rows, evaluated = read_evaluation(source, calibration, data, allow_calibration_rows, say)
    name = f"{model.name}@{highest.target.name}.settings.toml"
    file = Path(output) if output else Path("exports") / name
    check_output(file, ".toml")
    costs, chosen_on, held_out = _on_halves(model, rows, evaluated, highest, say)
    check_cost(costs, cost)
    start = costs.bits
    for part in (chosen_on, held_out):
        _require_start(budget, part(start), evaluated)
    search = Search(costs, ORDER[cost], probe(start, chosen_on, say), start)
    steps = search.run(chosen_on, lambda one: keeps_budget(one, budget), say)
    say("held-out rows")
    kept = [*(step.bits for step in reversed(steps) if step.kept), start]
    back = next(k for k, bits in enumerate(kept) if keeps_budget(held_out(bits), budget))
    bits = kept[back]
    layers = by_layer(bits)
    texts = {file.name: toml_text(with_layers(given, layers))}
    (written,) = replace_texts(file.parent, texts, file.name)
    return Tuned(
        model=model.name,
        target=highest.target.name,
        reference=reference_name(model),
        budget=budget,
        cost=cost,
        start=chosen_on(start).metrics,
        start_cost=costs.cost(start),
        steps=steps,
        taken_back=back,
        bits=layers,
        chosen=chosen_on(bits).metrics,
        chosen_cost=costs.cost(bits),
        held_out=held_out(bits).metrics,
        written=written,
    )


def _on_halves(
    model: Model, rows: Embeddings, data: Embeddings, highest: Configuration, say: Say
) -> tuple[LayerCosts, Evaluate, Evaluate]:
    """Costs of the layers, and the measurements of bits on both halves of the data."""
    half, other = halves(data)
    of_half, of_other = references(model, half, say), references(model, other, say)
    evaluator = PointEvaluator.of(model, rows, half, of_half, None, highest.settings, say)
    say("the highest bits")
    program = evaluator.compiled(highest.settings, lambda line: None)
    costs = LayerCosts.of(program, highest)
    on_other = replace(evaluator, data=other, references=of_other)
    return costs, _measurement(evaluator, costs), _measurement(on_other, costs)


def _measurement(evaluator: PointEvaluator, costs: LayerCosts) -> Evaluate:
    """Measure bits on the rows of an evaluator; each choice is compiled once."""

    @cache
    def outcome(bits: tuple[tuple[Width, int], ...]) -> Outcome:
        return evaluator.evaluate(costs.configured(dict(bits)))

    return lambda bits: outcome(tuple(bits.items()))


def _require_start(budget: Mapping[str, float], first: Outcome, data: Embeddings) -> None:
    if first.error is not None:
        raise CimError(first.error)
    for name, most in budget.items():
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
