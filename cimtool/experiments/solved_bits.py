"""Bits that an integer programme chooses, from the error that each part makes alone.

Errors of parts add in the mean square, as roundings are nearly independent, and with a bit less the
square of a rounding is four times as large. So one compiled model, of which every part is measured
alone in integers, predicts the error of all bits near its own. The programme chooses for each layer
the bits of weights and of inputs, and for features those of mu and of the variance: the least error
at no more cost, or the least cost within an error. HiGHS solves it. The choice is compiled and
measured, which corrects the prediction, until it stays. Half of the calibration rows choose; the
others measure what was chosen, and must keep a goal too. Weights that are rounded for calibration
rows (GPTQ) err less on these than on others: then a half rounds, and quarters choose and measure.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile

import numpy as np

from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.progress import PartDone, Say, silent
from cimtool.base.quiet import quiet_libraries
from cimtool.bundle.bit_choice import ChosenBits, DriftGoal
from cimtool.bundle.compilation import calibration_rows
from cimtool.experiments.drift_goals import (
    Criterion,
    GoalError,
    Half,
    Limit,
    check_pairs,
    criterion_of,
    has_exact,
    kept,
    parts_of,
    worst,
)
from cimtool.experiments.widths import (
    COST_NAMES,
    MU,
    VARIANCE,
    BitAssignment,
    LayerCosts,
    Width,
    of_layers,
)
from cimtool.hardware.configuration import Configuration
from cimtool.hardware.settings import Settings
from cimtool.ir.arithmetic import Mvm, Store
from cimtool.ir.program import MODALITIES, Graph, Program
from cimtool.loading.embeddings import Embeddings
from cimtool.loading.model import Model
from cimtool.passes.base import HALF_ROWS, Job, Pass
from cimtool.passes.gradients import LayerGradients, logit_gradients
from cimtool.passes.lower import LowerPass
from cimtool.passes.pipeline import Stage, passes_for, run_passes, stage_of
from cimtool.passes.quantize import QuantizePass
from cimtool.passes.trained_bits import trained_bits
from cimtool.report.formats import four_digits
from cimtool.verification.sensitivity import errors_alone

ROUNDS = 6
"""Models that are compiled at most."""

REACH = 3
"""Bits by which a round may change a width: predictions further away are poor."""

FEWEST, MOST = 4, 14
"""Bits that are tried, beside those given: with fewer, an error is no small rounding any more."""

TIGHTER = (1.0, 0.9, 0.8)
"""Shares of an error's square that are tried, until they give bits that no round had yet."""

STORED = "bits of an item"
"""A cost of features: bits that an item stores in each dimension."""

MULTIPLIED = "bit products of a pair"
"""A cost of features: bits times bits that a pair multiplies in each dimension.

mu by mu in ed; in vd the variance of each side by the square of the other's mu.
"""


@dataclass(frozen=True)
class CompiledBits:
    """A choice of bits that was compiled on the rows that choose.

    `squares` are the mean square errors that widths make alone, `square` that of all together; both
    are centred and from the lowered model. `costs` are by name. `errors` are on the rows that
    choose and on the others, if the goal limits them.
    """

    bits: BitAssignment
    squares: Mapping[Width, float]
    square: float
    costs: Mapping[str, float]
    program: Program = field(repr=False)
    errors: tuple[GoalError, ...] = ()


def solve_bits(
    goal: DriftGoal, model: Model, data: Embeddings, start: Configuration, say: Say
) -> ChosenBits:
    """Choose the bits of a `model` for a `goal`, from those of the `start`.

    Raises CimError for a score in the memory, too few calibration rows, Monte Carlo of a model
    whose a and b are not known, ranks if pairs are not known or too few, and for an error that no
    bits reach.
    """
    if start.settings.score_mapping != "digital":
        raise ArgumentError(
            '{drift} {}: bits are chosen for a digital score; expected score_mapping = "digital"',
            goal.text,
        )
    if goal.samples is not None and not has_exact(model):
        raise ArgumentError(
            "{drift} {}: Monte Carlo needs a head that stands for sampling, and its a and b; "
            "expected {drift} least, or {a} and {b}",
            goal.text,
        )
    check_pairs(data, goal)
    rows = calibration_rows(data, [])
    rounded_for_rows = start.settings.weight_rounding == "gptq"
    parts = parts_of(data, rows, goal, held_out=rounded_for_rows)
    limited = goal.metric is not None
    halves = [
        Half.of(model, part, goal.samples, exactly=limited)
        for part in (parts.choosing, parts.others)
    ]
    criterion = criterion_of(goal, data, halves, held_out=rounded_for_rows)
    job = Job(start.settings, *rows, silent, data.file, data.text_to_video)
    trial = replace(job, text=parts.compiling.text, video=parts.compiling.video, text_to_video=None)
    search = BitSolver(model, start, halves, criterion, (trial, job), alike=data.alone)
    search.run(say)
    found = search.found()
    if found is None:
        raise ArgumentError("{drift} {}: {}", goal.text, search.why_unreached())
    return ChosenBits(search.configured(found.bits).settings, tuple(search.notes(goal)))


BitPair = tuple[int, int]
"""Bits of the two widths of a layer, or of the features."""


class EachRound:
    """A model as each round compiles it, from the rows of a `job`.

    Bits change neither the model in real numbers nor the gradients of its logits, which GPTQ reads.
    """

    def __init__(self, program: Program, job: Job):
        self.program, self.job = program, job

    def compiled(self, settings: Settings) -> Sequence[Stage]:
        """The stages from the lowered one on, with the bits of some settings."""
        passes = [
            replace(step, gradients=self._gradients) if isinstance(step, QuantizePass) else step
            for step in passes_for(settings)
        ]
        job = replace(self.job, settings=settings, source=self.program)
        return run_passes(passes[len(self._first) :], self._calibrated, job, silent)

    @property
    def _first(self) -> Sequence[Pass]:
        """The passes that no bits change."""
        passes = passes_for(self.job.settings)
        return [*takewhile(lambda step: not isinstance(step, LowerPass), passes)]

    @cached_property
    def _calibrated(self) -> Program:
        return run_passes(self._first, self.program, self.job, silent)[-1].program

    @cached_property
    def _gradients(self) -> Mapping[str, LayerGradients] | None:
        if self.job.settings.weight_rounding != "gptq":
            return None
        passes = passes_for(self.job.settings)[len(self._first) :]
        before = takewhile(lambda step: not isinstance(step, QuantizePass), passes)
        stages = run_passes([*before], self._calibrated, self.job, silent)
        return logit_gradients(stages[-1].program, self.job)


class BitSolver:
    """Rounds of solving, compiling and measuring.

    `rounds` has the given bits first. A criterion is to be kept at the least cost, or the least
    error is wanted at no more than the first round's costs. `halves` are the rows that choose, and
    the others. The first of `jobs` compiles the model that is measured, from rows that choose or
    others still; the second has all rows. A limit is to be kept by both models: what clips, and
    what is rounded how, differs. If items are `alike`, of one modality, layers of both projectors
    have the same bits: an item has one feature, whichever side it is on.
    """

    def __init__(
        self,
        model: Model,
        start: Configuration,
        halves: Sequence[Half],
        criterion: Criterion,
        jobs: tuple[Job, Job],
        alike: bool = False,
    ):
        self.model, self.start, self.halves = model, start, halves
        self.trial, self.whole = (EachRound(model.program, job) for job in jobs)
        self.rows, self.criterion = halves[0], criterion
        self.limit = criterion if isinstance(criterion, Limit) else None
        self.alike = alike
        self.rounds: list[CompiledBits] = []
        self._latest: dict[Width, float] = {}
        self._known_costs: dict[tuple[tuple[Width, int], ...], Mapping[str, float]] = {}
        stages = self.trial.compiled(start.settings)
        kept = trained_bits(model.program, start.settings).items()
        widths = {Width(layer, key) for layer, bits in kept for key in bits}
        self.layers = LayerCosts.of(stages[-1].program, start, widths)
        lowered = stage_of(stages, LowerPass).program
        stores = [op for graph in lowered.graphs for op in graph.operations(Store).values()]
        self.reads_variance = any(op.role == "s" for op in stores)
        settings = start.settings
        features = {MU: settings.stored_bits("mu"), VARIANCE: settings.stored_bits("s")}
        self.rounds.append(self._measured({**self.layers.bits, **features}, start, stages))

    @property
    def given(self) -> CompiledBits:
        """The bits of the start."""
        return self.rounds[0]

    def run(self, say: Say) -> None:
        """Solve and compile until the bits stay the same."""
        for number in range(1, ROUNDS):
            bits = self._next()
            if bits is None:
                return
            own = self.configured(bits)
            try:
                stages = self.trial.compiled(own.settings)
                self.rounds.append(self._measured(bits, own, stages))
            except CimError:  # integers that no accumulator holds
                return
            say(PartDone(f"choosing bits, {number}. round"))

    def found(self) -> CompiledBits | None:
        """The best round; None if none keeps the limit."""
        if self.limit is None:
            return min(filter(self._affordable, self.rounds), key=lambda one: one.square)
        within = [one for one in self.rounds if kept(one.errors)]
        return min(within, key=lambda one: self.price(one.costs), default=None)

    def why_unreached(self) -> str:
        """The error of the best round, and what is left of it without any rounding."""
        assert self.limit is not None
        best = min(self.rounds, key=lambda one: max(x.share.value for x in one.errors))
        choosing, others = (_in_words(one) for one in best.errors)
        own = (self.limit.measured(rows, rows.scores) for rows in self.halves)
        exactly, elsewhere = (_in_words(one) for one in own)
        limits = {four_digits(self.limit.allowed(rows)): None for rows in self.halves}
        return (
            f"{self.limit.metric} of {' and '.join(limits)} is asked for, and the best bits "
            f"that were tried (at most {MOST}) reach {choosing} on the rows that choose, of which "
            f"the upper end must keep it, and {others} on the others, where the float score itself "
            f"has {exactly} and {elsewhere}; expected a larger error, more calibration rows, or a "
            "nearer score"
        )

    def configured(self, bits: BitAssignment) -> Configuration:
        """The configuration with these bits."""
        if self.rounds and bits == self.given.bits:
            return self.start
        own = self.layers.configured(of_layers(bits))
        features = {"feature_bits": bits[MU], "variance_bits": bits[VARIANCE]}
        return replace(own, settings=own.settings.model_copy(update=features))

    def price(self, costs: Mapping[str, float]) -> float:
        """The mean of all known costs, each as a share of that of the given bits."""
        return float(np.mean([costs[name] / self.given.costs[name] for name in self.given.costs]))

    def notes(self, goal: DriftGoal) -> Iterator[str]:
        """Sentences on the error on other rows, the costs, the bits, and a step less or more."""
        found, rows, criterion = self.found(), self.halves[1], self.criterion
        assert found is not None
        against = rows.scores if self.limit is None else rows.reference
        of = "the float score" if against is rows.scores else "the exact score"
        told, given = (
            _in_words(criterion.measured(rows, rows.scored(one.program)))
            for one in (found, self.given)
        )
        asked = ""
        if self.limit is not None:
            allowed = four_digits(self.limit.allowed(rows))
            asked = f" ({goal.text} is {allowed}; on those that chose {_in_words(found.errors[0])})"
        price, missed = self.price(found.costs), self._missed_elsewhere(found)
        if missed is not None:
            yield (
                f"drift {goal.text}: bits at {self.price(missed.costs) / price:.2f} times these "
                "costs, in the mean, keep it on the rows that chose, but have "
                f"{_in_words(missed.errors[1])} on the others, so dearer ones were taken"
            )
        error = (
            f"{criterion.metric} is {told} from {of} on {len(against)} x {against.shape[1]} pairs "
            f"of calibration rows that did not choose{asked}"
        )
        if found is self.given:
            yield f"drift {goal.text}: no bits do better than those given, which are kept; {error}"
        else:
            yield f"bits by drift {goal.text}: {error}; with the bits as given it is {given}"
            yield f"costs of a text and a video: {self._changes(found)}"
        pairs = (f"{name} {one} x {two}" for name, (one, two) in self._options(found.bits).items())
        yield f"bits of weights x inputs, of mu x variance: {', '.join(pairs)}"
        for words, factor in (("half", 0.25), ("twice", 4.0)):
            bits = self._solved(found, most=factor * found.square)
            if bits is not None:
                share = self.price(self._costs(bits)) / price
                yield (
                    f"{words} the error of the bits is predicted at {share:.2f} times these costs, "
                    "in the mean"
                )

    def _changes(self, found: CompiledBits) -> str:
        """The costs that differ from those of the given bits, and the names of all others."""
        same, changed = list[str](), list[str]()
        for name, cost in found.costs.items():
            before, unit = self.given.costs[name], " pJ" if name == "energy" else ""
            if round(before) == round(cost):
                same.append(name)
            else:
                changed.append(f"{name} {cost:,.0f}{unit} in place of {before:,.0f}{unit}")
        if same:
            changed.append(
                f"the same {' and '.join(filter(None, (', '.join(same[:-1]), same[-1])))}"
            )
        return ", ".join(changed)

    def _missed_elsewhere(self, found: CompiledBits) -> CompiledBits | None:
        """The dearest round below `found` that keeps the goal only on the rows that choose."""
        price = self.price(found.costs)
        cheaper = [
            one
            for one in self.rounds
            if one.errors and one.errors[0].share.high <= 1 and self.price(one.costs) < price
        ]
        return max(cheaper, key=lambda one: self.price(one.costs), default=None)

    def _affordable(self, one: CompiledBits) -> bool:
        return all(one.costs[name] <= cost * (1 + 1e-9) for name, cost in self.given.costs.items())

    def _measured(
        self, bits: BitAssignment, own: Configuration, stages: Sequence[Stage]
    ) -> CompiledBits:
        """The errors of a compiled choice, which predict the next."""
        text, video = self.rows.text[:HALF_ROWS], self.rows.video[:HALF_ROWS]
        alone, square = errors_alone(stages, text, video)
        squares = _by_width(stage_of(stages, LowerPass).program, alone)
        self._latest |= {width: squares.get(width, 0.0) * 4.0**n for width, n in bits.items()}
        program = stages[-1].program
        errors: tuple[GoalError, ...] = ()
        if self.limit is not None:
            programs = [program, self.whole.compiled(own.settings)[-1].program]
            errors = tuple(self._worst(rows, programs) for rows in self.halves)
        return CompiledBits(bits, squares, square, self._costs(bits), program, errors)

    def _worst(self, rows: Half, programs: Sequence[Program]) -> GoalError:
        return worst(self.criterion.measured(rows, rows.scored(one)) for one in programs)

    def _costs(self, bits: BitAssignment) -> Mapping[str, float]:
        """The costs that are known and not 0 with the given bits."""
        key = tuple(bits.items())
        if key not in self._known_costs:
            self._known_costs[key] = self._computed_costs(bits)
        return self._known_costs[key]

    def _computed_costs(self, bits: BitAssignment) -> dict[str, float]:
        known = self.rounds[0].costs if self.rounds else None
        costs = {str(name): cost for name, cost in self.layers.cost(of_layers(bits)).items()}
        mu, variance = bits[MU], bits[VARIANCE] * self.reads_variance
        costs[STORED] = mu + variance
        costs[MULTIPLIED] = mu * mu + 2 * (2 * mu) * variance
        return {
            name: costs[name]
            for name in (*COST_NAMES, STORED, MULTIPLIED)
            if (name in known if known is not None else costs[name] > 0)
        }

    def _next(self) -> BitAssignment | None:
        """The bits to compile next; None if they were compiled, and are to be kept."""
        last = self.rounds[-1]
        known = [one.bits for one in self.rounds]
        if self.limit is None:
            bits = self._solved(last, None) or last.bits
            return None if bits in known else bits
        room = self.limit.room(last.square, self.halves, last.errors)
        for tighter in TIGHTER:
            bits = self._solved(last, tighter * room) or self._solved(last, 0.0) or last.bits
            if bits not in known:
                return bits
            if kept(self.rounds[known.index(bits)].errors):
                return None
        return None

    def _solved(self, near: CompiledBits, most: float | None) -> BitAssignment | None:
        """Bits within REACH of those of a round: of the least cost with a square error of `most`.

        None if there are none. With 0 for `most` they are of the least error at any cost, without
        `most` of the least error at the costs of the given bits.
        """
        from scipy.optimize import Bounds, LinearConstraint, milp

        base, first = self._costs(near.bits), self.given.costs
        offered: list[tuple[str, BitPair]] = []
        squares, prices = list[float](), list[list[float]]()
        same = self._twins(near.bits)
        for name, now in self._options(near.bits).items():
            if name in same.values():
                continue
            widths = [*_widths(name), *(_widths(same[name]) if name in same else ())]
            for option in self._choices(name, *now):
                own = {**near.bits, **_with_bits(widths, option)}
                costs = self._costs(own)
                more = [(costs[cost] - base[cost]) / first[cost] for cost in base]
                if not any(map(math.isnan, more)):  # the target prices these bits
                    offered.append((name, option))
                    prices.append(more)
                    squares.append(sum(self._latest[w] * 4.0 ** -own[w] for w in widths))
        alone, errors, shares = sum(near.squares.values()), np.array(squares), np.array(prices)
        if alone > near.square:  # roundings cancel in part
            errors *= near.square / alone
        elif most:  # converters err too
            most = max(most - (near.square - alone), 0.0)
        unit = float(errors.max()) or 1.0
        names = [name for name, _ in offered]
        each = np.array([[one == name for one in names] for name in dict.fromkeys(names)], float)
        goal, constraints = errors / unit, [LinearConstraint(each, 1, 1)]
        if most is None:
            room = [(first[cost] - base[cost]) / first[cost] + 1e-9 for cost in base]
            constraints.append(LinearConstraint(shares.T, -np.inf, room))
        elif most > 0:
            constraints.append(LinearConstraint(goal[None], -np.inf, most / unit))
            goal = shares.mean(axis=1)
        whole = np.ones(len(names))
        with quiet_libraries():  # HiGHS may print a line of its own, more often with its presolve
            found = milp(
                goal, integrality=whole, bounds=Bounds(0, 1), constraints=constraints,
                options={"presolve": False},
            )  # fmt: skip
        if found.x is None:
            return None
        bits = dict(near.bits)
        for (name, option), taken in zip(offered, found.x, strict=True):
            if taken > 0.5:
                for one in (name, *([same[name]] if name in same else [])):
                    bits |= _with_bits(_widths(one), option)
        return bits

    def _twins(self, bits: BitAssignment) -> dict[str, str]:
        """Layers of texts by those of videos that have the same bits now, and are to keep them."""
        if not self.alike:
            return {}
        found, layers = self._options(bits), self.layers.layers.items()
        sides = ([name for name, (side, *_) in layers if side == m] for m in MODALITIES)
        return {one: other for one, other in zip(*sides, strict=True) if found[one] == found[other]}

    def _options(self, bits: BitAssignment) -> dict[str, BitPair]:
        """The bits of both widths, by layer and for the features."""
        names = [*self.layers.layers, MU.layer]
        found = {}
        for name in names:
            one, two = _widths(name)
            found[name] = bits[one], bits[two]
        return found

    def _choices(self, name: str, *now: int) -> Iterator[BitPair]:
        """Pairs of bits near those of now."""
        each = []
        for width, bits in zip(_widths(name), now, strict=True):
            fixed = width in self.layers.kept or (width == VARIANCE and not self.reads_variance)
            most = min(MOST, self.layers.start.settings.most_bits.get(width.key, MOST))
            low, high = min(bits, max(bits - REACH, FEWEST)), max(bits, min(bits + REACH, most))
            near = range(bits, bits + 1) if fixed else range(low, high + 1)
            takes = self.layers.start.settings.weight_code.takes
            each.append([n for n in near if width.key != "weight_bits" or takes(n)])
        one, two = each
        return itertools.product(one, two)


def _with_bits(widths: Sequence[Width], option: BitPair) -> dict[Width, int]:
    """Each width of a layer, or of two alike, with its bits."""
    return dict(zip(widths, itertools.cycle(option), strict=False))


def _in_words(found: GoalError) -> str:
    """An error and its interval."""
    return "{} [{}, {}]".format(
        *map(four_digits, (found.error.value, found.error.low, found.error.high))
    )


def _widths(name: str) -> tuple[Width, Width]:
    if name == MU.layer:
        return MU, VARIANCE
    return Width(name, "weight_bits"), Width(name, "activation_bits")


def _by_width(lowered: Program, alone: Mapping[str, float]) -> dict[Width, float]:
    """The errors of parts by the width that decides them; those of converters are left out.

    Layers that share a stored input have equal shares of its error.
    """
    found: dict[Width, float] = {}

    def add(width: Width, part: str, share: float = 1.0) -> None:
        found[width] = found.get(width, 0.0) + alone.get(part, 0.0) * share

    for graph in (lowered.text, lowered.video):
        for node in graph.nodes:
            name = graph.layer(node)
            if isinstance(node.op, Mvm):
                weights, inputs = _widths(name)
                add(weights, f"{name}.{weights.key}")
                add(inputs, f"{name}.{inputs.key}")
                (read,) = node.inputs
                add(inputs, f"{graph.name}.{read}", 1 / _readers(graph, read))
            elif isinstance(node.op, Store) and node.op.role in ("mu", "s"):
                add(MU if node.op.role == "mu" else VARIANCE, name)
    return found


def _readers(graph: Graph, value: str) -> int:
    return sum(value in node.inputs for node in graph.nodes if isinstance(node.op, Mvm))
