"""A start of a tuning: its bits come off as long as a budget holds, on both halves of the data.

All pairs are scored once per choice. Each half of the queries is ranked in the whole gallery, as
`verify` ranks them. The mean of a measurement over all queries is the weighted average of its means
over the halves, so it is never larger than the larger mean. This holds for a mean square error, its
root, the loss of a recall in each way, and the worse of both ways: if they keep the budget on both
halves, they keep it on all queries. Medians and intervals have no such law, so the chosen bits must
keep the budget on all queries too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.grids import Value
from cimtool.base.modality_names import item_names
from cimtool.base.progress import Say, silent
from cimtool.experiments.budgets import DriftBudget
from cimtool.experiments.choice_costs import ChoiceCosts
from cimtool.experiments.compiled import Outcome, PointEvaluator
from cimtool.experiments.engine import ExperimentKind, PointFolder, here, values_name
from cimtool.experiments.objectives import CostName, CostObjective
from cimtool.experiments.rows import IDENTITY
from cimtool.experiments.tuned import TunedStart
from cimtool.experiments.widths import (
    Attempt,
    BitAssignment,
    LayerCosts,
    Search,
    Width,
    probe,
    probes,
)
from cimtool.hardware.configuration import Configuration
from cimtool.loading.embeddings import Embeddings
from cimtool.passes.trained_bits import trained_bits
from cimtool.reference.limits import within
from cimtool.reference.queries import Selection


class HalvesMeasured(NamedTuple):
    """The outcomes of one choice of bits: on the half that chooses, on the other, and on all."""

    chosen_on: Outcome
    held_out: Outcome
    on_all: Outcome

    @property
    def error(self) -> str | None:
        """The sentence of the error that ended it; None if it was measured."""
        return self.chosen_on.error

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        return {name: one.to_json() for name, one in self._asdict().items()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> HalvesMeasured:
        """Read what `to_json` returned; errors as in `Outcome.from_json`."""
        found = cls(*(Outcome.from_json(values[name]) for name in cls._fields))
        if not all("centred_rmse" in one.metrics for one in found):
            raise ValueError("a half has no error")
        return found


TUNING = ExperimentKind("tuning", "tuning.json", 3, IDENTITY, HalvesMeasured.from_json)


@dataclass(frozen=True)
class BitsPoint:
    """The point of a choice of bits; `done` names it."""

    build: Configuration
    done: str

    def to_json(self) -> dict[str, Any]:
        """The target and the settings as plain values."""
        return {"target": self.build.target.name, "settings": self.build.settings.to_json()}


@dataclass(frozen=True, eq=False)
class HalvesEvaluator:
    """Compiles choices of bits, and measures each on both halves of the queries and on all."""

    evaluator: PointEvaluator
    selections: tuple[Selection, Selection, None]

    def outcome(self, point: BitsPoint) -> HalvesMeasured:
        """The outcomes of a choice."""
        return HalvesMeasured(*self.evaluator.evaluate_on(point.build, self.selections))


@dataclass(frozen=True, eq=False)
class Choices(HalvesEvaluator):
    """Choices of bits that are measured once, and kept in the folder of a tuning.

    An earlier outcome serves if it has all metrics of the `budget`.
    """

    folder: PointFolder[HalvesMeasured]
    whose: Mapping[str, str]
    budget: Mapping[str, float]

    def measured(
        self, builds: Mapping[str, Configuration], say: Say = silent, noun: str = "choice"
    ) -> list[HalvesMeasured]:
        """The outcomes of named builds; workers measure several side by side."""
        identity = {**TUNING.versions, **self.whose}
        digests = {
            name: values_name(identity, one.target.to_json(), one.settings.to_json())
            for name, one in builds.items()
        }
        points = {digest: BitsPoint(builds[name], name) for name, digest in digests.items()}
        folder = self.folder if len(points) > 1 else replace(self.folder, compute=here)
        runner = HalvesEvaluator(self.evaluator, self.selections)
        done = folder.outcomes(points, lambda left: runner, say, noun, self._usable)
        return [done[digest] for digest in digests.values()]

    def _usable(self, digest: str, known: HalvesMeasured) -> bool:
        return all(self.budget.keys() <= one.metrics.keys() for one in known)


@dataclass(eq=False)
class TuningStart:
    """Values of a grid, and the tuning that starts from them.

    `steps` were tried. The last `taken_back` of the kept steps were undone, which leaves `bits`.
    """

    values: Mapping[str, Value]
    choices: Choices
    costs: ChoiceCosts
    bits: BitAssignment
    steps: Sequence[Attempt] = ()
    taken_back: int = 0

    @classmethod
    def of(
        cls,
        values: Mapping[str, Value],
        highest: Configuration,
        choices: Choices,
        objective: CostObjective,
    ) -> TuningStart:
        """Compile the highest bits; their costs are what an objective without `first` refers to."""
        evaluator = choices.evaluator
        highest = evaluator.with_trained_bits(highest)
        first = evaluator.estimated(highest)
        trained = trained_bits(evaluator.trained, highest.settings).items()
        kept = {Width(layer, key) for layer, bits in trained for key in bits}
        layers = LayerCosts.of(first.program, highest, kept, first.gallery)
        costs = ChoiceCosts(layers, objective, evaluator.estimated)
        if not objective.first:
            costs = replace(costs, objective=replace(objective, first=costs.cost(costs.bits)))
        return cls(values, choices, costs, costs.bits)

    def summary(self, tuned: bool, chosen: bool, dearer: bool) -> TunedStart:
        """The start in the result of the tuning."""
        metrics = self.measured(self.costs.bits).chosen_on.metrics
        first = self.costs.cost(self.costs.bits)
        return TunedStart(self.values, metrics, first, self.cost if tuned else {}, chosen, dearer)

    @property
    def cost(self) -> dict[CostName, float]:
        """The cost of the remaining bits."""
        return self.costs.cost(self.bits)

    def measured(self, bits: BitAssignment) -> HalvesMeasured:
        """The outcomes of bits on the halves and on all."""
        (found,) = self.choices.measured({"bits": self.costs.configured(bits)})
        return found

    def refusal(self, budget: Mapping[str, float], file: str) -> CimError | None:
        """The error if the highest bits miss the budget on a half of a file's rows or on all."""
        places = ("a half of", "a half of", "all of")
        for name, most in budget.items():
            for found, place in zip(self.measured(self.costs.bits), places, strict=True):
                if found.error is not None:
                    return CimError(found.error)
                if not within(found.metrics[name], most):
                    return ArgumentError(
                        "{budget} {}={:g}: the highest bits give {:.4g} on {} {}; expected a "
                        "larger budget, or more bits to start from ({settings})",
                        name, most, found.metrics[name], place, file,
                    )  # fmt: skip
        return None

    def tune(self, budget: DriftBudget, say: Say) -> None:
        """Lower bits as long as the budget holds."""
        costs, start = self.costs, self.costs.bits

        def chosen_on(bits: BitAssignment) -> Outcome:
            return self.measured(bits).chosen_on

        tuned = {width: bits for width, bits in start.items() if costs.worthwhile(width)}
        search = Search(costs, self._probed(tuned, say), start)
        self.steps = search.run(chosen_on, budget.kept_by, say)
        kept = [*(step.bits for step in reversed(self.steps) if step.kept), start]
        back = (k for k, bits in enumerate(kept) if all(map(budget.kept_by, self.measured(bits))))
        self.taken_back = next(back)
        self.bits = kept[self.taken_back]

    def _probed(self, tuned: BitAssignment, say: Say) -> dict[Width, float]:
        """The squared error that each of the tuned widths adds."""
        lower = {width: {**self.costs.bits, **bits} for width, bits in probes(tuned).items()}
        builds = {
            f"{width} = {bits[width]}": self.costs.configured(bits) for width, bits in lower.items()
        }
        found = [one.chosen_on for one in self.choices.measured(builds, say, "probe")]
        first = self.measured(self.costs.bits).chosen_on
        return probe(tuned, first, dict(zip(lower, found, strict=True)))


def halves(data: Embeddings) -> tuple[Selection, Selection]:
    """Every second video with its texts, and the others, as queries; CimError for fewer than 2."""
    parts = []
    for first in (0, 1):
        videos = np.arange(first, len(data.video), 2)
        texts = np.flatnonzero(data.truth.text_to_video % 2 == first)
        if len(texts) < 2 or len(videos) < 2:
            raise CimError(
                f"{data.file}: {data.counted} are too few: one half (every second {data.called[1]} "
                f"with its {item_names(data.called)[0]}) has fewer than 2 queries; expected 2 of "
                "each in both"
            )
        parts.append(Selection(texts, videos))
    return parts[0], parts[1]
