"""Bits that an integer programme chooses, from the error that each part makes alone.

Errors of parts add in the mean square, as roundings are nearly independent, and with a bit less the
square of a rounding is four times as large. So one compiled model, of which every part is measured
alone in integers, predicts the error of all bits near its own. The programme chooses for each layer
the bits of weights and of inputs, and for features those of mu and of the variance: the least error
at no more cost, or the least cost within an error. HiGHS solves it. The choice is compiled and
measured, which corrects the prediction, until it stays. Half of the calibration rows choose, the
others measure what was chosen.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.random import Generator, Philox

from cimtool.base.arrays import Array, FloatArray
from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.intervals import Change
from cimtool.base.modality_names import item_names
from cimtool.base.progress import PartDone, Say, silent
from cimtool.bundle.bit_choice import ChosenBits, DriftGoal
from cimtool.bundle.compilation import calibration_rows
from cimtool.experiments.widths import COST_NAMES, BitAssignment, LayerCosts, Width
from cimtool.hardware.configuration import Configuration
from cimtool.ir.arithmetic import Mvm, Store
from cimtool.ir.program import Graph, Program
from cimtool.loading.embeddings import Embeddings
from cimtool.loading.model import Model
from cimtool.passes.base import Job, half_rows
from cimtool.passes.lower import LowerPass
from cimtool.passes.pipeline import Stage, compile_program, stage_of
from cimtool.passes.trained_bits import trained_bits
from cimtool.reference.bootstrap import RESAMPLES, interval
from cimtool.reference.exact import exact
from cimtool.reference.metrics import centred_rmse
from cimtool.reference.montecarlo import monte_carlo
from cimtool.reference.statistics import Gaussians
from cimtool.report.formats import four_digits
from cimtool.simulation.simulator import Simulator
from cimtool.verification.references import gaussians, trained_features
from cimtool.verification.sensitivity import errors_alone

ROUNDS = 6
"""Models that are compiled at most."""

REACH = 3
"""Bits by which a round may change a width: predictions further away are poor."""

FEWEST, MOST = 4, 14
"""Bits that are tried, beside those given: with fewer, an error is no small rounding any more."""

ROWS, LEAST_ROWS = 256, 16
"""Rows of each modality in a half: those that are scored at most, and those needed."""

PAIRS_OF_SAMPLES, LEAST_SAMPLED = 12_800, 32
"""Rows times samples whose Monte Carlo scores are computed at most, and the rows at least."""

MARGIN = 0.95
"""Share of the error asked for that the rows which choose must keep, so that others keep it too."""

MU, VARIANCE = Width("features", "feature_bits"), Width("features", "variance_bits")
STORED = "bits of an item"
"""A cost of features: bits that an item stores in each dimension."""

MULTIPLIED = "bit products of a pair"
"""A cost of features: bits times bits that a pair multiplies in each dimension.

mu by mu in ed; in vd the variance of each side by the square of the other's mu.
"""


@dataclass(frozen=True)
class Half:
    """Calibration rows of both modalities.

    Of the first ROWS of each come float scores [n, m], and the reference [n, m]: the exact score,
    or the float score. `items` are their means and variances if the exact score is known.
    """

    text: Array
    video: Array
    scores: FloatArray
    reference: FloatArray
    items: tuple[Gaussians, Gaussians] | None

    @classmethod
    def of(cls, model: Model, data: Embeddings) -> Half:
        """Score the rows of `data`."""
        text, video = data.text, data.video
        few = replace(data, text=text[:ROWS], video=video[:ROWS])
        simulator = Simulator(model.program)
        scores = simulator.scores(few.text, few.video)
        if not _has_exact(model):
            return cls(text, video, scores, scores, None)
        items = gaussians(trained_features(simulator, few))
        return cls(text, video, scores, exact(*items, *_sigmoid(model)).logit, items)

    def scored(self, program: Program) -> FloatArray:
        """Scores [n, m] of the same rows by a compiled program."""
        return Simulator(program).scores(self.text[:ROWS], self.video[:ROWS])


def _sigmoid(model: Model) -> tuple[float, float]:
    """The a and b of a model that has them."""
    assert model.a is not None
    assert model.b is not None
    return model.a, model.b


def _has_exact(model: Model) -> bool:
    head = model.head
    return head.is_sampled and head.predicts_logit and None not in (model.a, model.b)


@dataclass(frozen=True)
class CompiledBits:
    """A choice of bits that was compiled on the rows that choose.

    `squares` are the mean square errors that widths make alone, `square` that of all together; both
    are centred and from the lowered model. `costs` are by name, `missed` is the square of the error
    that is limited, if one is.
    """

    bits: BitAssignment
    squares: Mapping[Width, float]
    square: float
    costs: Mapping[str, float]
    missed: float
    program: Program = field(repr=False)


def solve_bits(
    goal: DriftGoal, model: Model, data: Embeddings, start: Configuration, say: Say
) -> ChosenBits:
    """Choose the bits of a `model` for a `goal`, from those of the `start`.

    Raises CimError for a score in the memory, too few calibration rows, Monte Carlo of a model
    whose a and b are not known, and for an error that no bits reach.
    """
    if start.settings.score_mapping != "digital":
        raise ArgumentError(
            '{drift} {}: bits are chosen for a digital score; expected score_mapping = "digital"',
            goal.text,
        )
    if goal.samples is not None and not _has_exact(model):
        raise ArgumentError(
            "{drift} {}: Monte Carlo needs a head that stands for sampling, and its a and b; "
            "expected {drift} least, or {a} and {b}",
            goal.text,
        )
    first, other = (Half.of(model, rows) for rows in _halves(data, goal))
    limit = _limit_of(goal, model, first)
    search = BitSolver(model, start, first, goal.metric, limit, data.file)
    search.run(say)
    found = search.found()
    if found is None:
        raise ArgumentError("{drift} {}: {}", goal.text, search.why_unreached())
    return ChosenBits(search.configured(found.bits).settings, tuple(search.notes(goal, other)))


def _halves(data: Embeddings, goal: DriftGoal) -> Iterator[Embeddings]:
    """Every second video with its texts, and the others; where pairs are unknown, every row."""
    text, video = calibration_rows(data, [])
    for of_text, of_video in half_rows(len(text), len(video), data.text_to_video):
        part = replace(data, text=text[of_text], video=video[of_video])
        if min(len(part.text), len(part.video)) < LEAST_ROWS:
            texts, videos = item_names(data.called)
            raise ArgumentError(
                "{drift} {}: {} has {:,} {} and {:,} {} that calibrate, and one half of them "
                "chooses the bits; expected at least {} of each",
                goal.text, data.file, len(text), texts, len(video), videos, 2 * LEAST_ROWS,
            )  # fmt: skip
        yield part


def _limit_of(goal: DriftGoal, model: Model, rows: Half) -> float:
    """The error that the goal allows; infinite if it wants the least.

    That of Monte Carlo is measured on fewer pairs if there are many samples.
    """
    if goal.samples is None or rows.items is None:
        return math.inf if goal.metric is None else goal.limit
    count = min(ROWS, max(PAIRS_OF_SAMPLES // goal.samples, LEAST_SAMPLED))
    text, video = (items[:count] for items in rows.items)
    sampled = monte_carlo(text, video, *_sigmoid(model), goal.samples).logit
    return error_of("logit_rmse", sampled, rows.reference[:count, :count])


def error_of(metric: str, scores: Array, reference: Array) -> float:
    """The logit RMSE, or that without the mean difference within a query."""
    if metric == "centred_rmse":
        return centred_rmse(scores, reference)
    return float(np.sqrt(np.square(scores - reference).mean()))


BitPair = tuple[int, int]
"""Bits of the two widths of a layer, or of the features."""


class BitSolver:
    """Rounds of solving, compiling and measuring.

    `rounds` has the given bits first. The square of an error at most `limit` of a `metric` is
    wanted at the least cost, or the least error at no more than the first round's costs.
    """

    def __init__(
        self,
        model: Model,
        start: Configuration,
        rows: Half,
        metric: str | None,
        limit: float,
        file: str,
    ):
        self.model, self.start, self.rows, self.file = model, start, rows, file
        self.metric, self.limit = metric or "logit_rmse", limit
        self.rounds: list[CompiledBits] = []
        self._latest: dict[Width, float] = {}
        stages = self._compiled(start)
        kept = trained_bits(model.program, start.settings).items()
        widths = {Width(layer, key) for layer, bits in kept for key in bits}
        self.layers = LayerCosts.of(stages[-1].program, start, widths)
        lowered = stage_of(stages, LowerPass).program
        stores = [op for graph in lowered.graphs for op in graph.operations(Store).values()]
        self.reads_variance = any(op.role == "s" for op in stores)
        settings = start.settings
        features = {MU: settings.stored_bits("mu"), VARIANCE: settings.stored_bits("s")}
        self.rounds.append(self._measured({**self.layers.bits, **features}, stages))

    @property
    def given(self) -> CompiledBits:
        """The bits of the start."""
        return self.rounds[0]

    def run(self, say: Say) -> None:
        """Solve and compile until the bits stay the same."""
        for number in range(1, ROUNDS):
            bits = self._next()
            if any(bits == one.bits for one in self.rounds):
                return
            try:
                stages = self._compiled(self.configured(bits))
            except CimError:  # integers that no accumulator holds
                return
            self.rounds.append(self._measured(bits, stages))
            say(PartDone(f"choosing bits, {number}. round"))

    def found(self) -> CompiledBits | None:
        """The best round; None if none keeps the limit."""
        if math.isinf(self.limit):
            return min(filter(self._affordable, self.rounds), key=lambda one: one.square)
        kept = [one for one in self.rounds if one.missed <= self.limit**2]
        return min(kept, key=lambda one: self.price(one.costs), default=None)

    def why_unreached(self) -> str:
        """The error of the best round, and what is left of it without any rounding."""
        best = min(self.rounds, key=lambda one: one.missed)
        own = error_of(self.metric, self.rows.scores, self.rows.reference)
        return (
            f"{self.metric} of {four_digits(self.limit)} is asked for, and the best bits that were "
            f"tried (at most {MOST}) reach {four_digits(math.sqrt(best.missed))} on the rows that "
            f"choose, where the float score itself has {four_digits(own)}; expected a larger "
            "error, or a nearer score"
        )

    def configured(self, bits: BitAssignment) -> Configuration:
        """The configuration with these bits."""
        if self.rounds and bits == self.given.bits:
            return self.start
        own = self.layers.configured(_of_layers(bits))
        features = {"feature_bits": bits[MU], "variance_bits": bits[VARIANCE]}
        return replace(own, settings=own.settings.model_copy(update=features))

    def price(self, costs: Mapping[str, float]) -> float:
        """The mean of all known costs, each as a share of that of the given bits."""
        return float(np.mean([costs[name] / self.given.costs[name] for name in self.given.costs]))

    def notes(self, goal: DriftGoal, other: Half) -> Iterator[str]:
        """Sentences on the error on other rows, the costs, the bits, and a step less or more."""
        found = self.found()
        assert found is not None
        limited = not math.isinf(self.limit)
        against = other.reference if limited else other.scores
        metric = self.metric if limited else "centred_rmse"
        of = "the float score" if against is other.scores else "the exact score"
        errors = [
            error_on(metric, other.scored(one.program), against) for one in (found, self.given)
        ]
        told = [
            f"{four_digits(one.value)} [{four_digits(one.low)}, {four_digits(one.high)}]"
            for one in errors
        ]
        asked = f" ({goal.text} is {four_digits(self.limit)})" if limited else ""
        if errors[0].value > self.limit:
            yield (
                f"warning: drift {goal.text} is not kept on rows that did not choose the bits: "
                f"{metric} is {told[0]}, {four_digits(self.limit)} is asked for; calibrate with "
                "more rows, or ask for less"
            )
        if found is self.given:
            yield f"drift {goal.text}: no bits do better than those given, which are kept"
        yield (
            f"bits by drift {goal.text}: {metric} is {told[0]} from {of} on {len(against)} x "
            f"{against.shape[1]} pairs of calibration rows that did not choose{asked}; with the "
            f"bits as given it is {told[1]}"
        )
        costs = "; ".join(
            f"{name}: {self.given.costs[name]:,.0f} -> {cost:,.0f}"
            for name, cost in found.costs.items()
        )
        yield f"costs of a text and a video, as given and as chosen: {costs}"
        pairs = (f"{name} {one} x {two}" for name, (one, two) in self._options(found.bits).items())
        yield f"bits of weights x inputs, of mu x variance: {', '.join(pairs)}"
        for words, factor in (("half", 0.25), ("twice", 4.0)):
            bits = self._solved(found, most=factor * found.square)
            if bits is not None:
                share = self.price(self._costs(bits)) / self.price(found.costs)
                yield (
                    f"{words} the error of the bits is predicted at {share:.2f} times these costs, "
                    "in the mean"
                )

    def _affordable(self, one: CompiledBits) -> bool:
        return all(one.costs[name] <= cost * (1 + 1e-9) for name, cost in self.given.costs.items())

    def _compiled(self, configuration: Configuration) -> Sequence[Stage]:
        job = Job(configuration.settings, self.rows.text, self.rows.video, silent, self.file)
        return compile_program(self.model.program, job, silent)

    def _measured(self, bits: BitAssignment, stages: Sequence[Stage]) -> CompiledBits:
        """The errors of a compiled choice, which predict the next."""
        text, video = self.rows.text[:ROWS], self.rows.video[:ROWS]
        alone, square = errors_alone(stages, text, video)
        squares = _by_width(stage_of(stages, LowerPass).program, alone)
        self._latest |= {width: squares.get(width, 0.0) * 4.0**n for width, n in bits.items()}
        program = stages[-1].program
        missed = error_of(self.metric, self.rows.scored(program), self.rows.reference) ** 2
        return CompiledBits(bits, squares, square, self._costs(bits), missed, program)

    def _costs(self, bits: BitAssignment) -> dict[str, float]:
        """The costs that are known and not 0 with the given bits."""
        known = self.rounds[0].costs if self.rounds else None
        costs = {str(name): cost for name, cost in self.layers.cost(_of_layers(bits)).items()}
        mu, variance = bits[MU], bits[VARIANCE] * self.reads_variance
        costs[STORED] = mu + variance
        costs[MULTIPLIED] = mu * mu + 2 * (2 * mu) * variance
        return {
            name: costs[name]
            for name in (*COST_NAMES, STORED, MULTIPLIED)
            if (name in known if known is not None else costs[name] > 0)
        }

    def _next(self) -> BitAssignment:
        """The bits to compile next."""
        last = self.rounds[-1]
        if math.isinf(self.limit):
            return self._solved(last, None) or last.bits
        # All but the rounding of these widths stays: the score's own error, converters, offsets.
        room = (MARGIN * self.limit) ** 2 - (last.missed - last.square)
        return self._solved(last, room) or self._solved(last, 0.0) or last.bits

    def _solved(self, near: CompiledBits, most: float | None) -> BitAssignment | None:
        """Bits within REACH of those of a round: of the least cost with a square error of `most`.

        None if there are none. With 0 for `most` they are of the least error at any cost, without
        `most` of the least error at the costs of the given bits.
        """
        from scipy.optimize import Bounds, LinearConstraint, milp

        base, first = self._costs(near.bits), self.given.costs
        offered: list[tuple[str, BitPair]] = []
        squares, prices = list[float](), list[list[float]]()
        for name, now in self._options(near.bits).items():
            for option in self._choices(name, *now):
                own = {**near.bits, **dict(zip(_widths(name), option, strict=True))}
                costs = self._costs(own)
                more = [(costs[cost] - base[cost]) / first[cost] for cost in base]
                if not any(map(math.isnan, more)):  # the target prices these bits
                    offered.append((name, option))
                    prices.append(more)
                    squares.append(sum(self._latest[w] * 4.0 ** -own[w] for w in _widths(name)))
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
        # With its presolve HiGHS may print a line of its own.
        found = milp(
            goal, integrality=whole, bounds=Bounds(0, 1), constraints=constraints,
            options={"presolve": False},
        )  # fmt: skip
        if found.x is None:
            return None
        bits = dict(near.bits)
        for (name, option), taken in zip(offered, found.x, strict=True):
            if taken > 0.5:
                bits |= dict(zip(_widths(name), option, strict=True))
        return bits

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
            low, high = min(bits, max(bits - REACH, FEWEST)), max(bits, min(bits + REACH, MOST))
            near = range(bits, bits + 1) if fixed else range(low, high + 1)
            takes = self.layers.start.settings.weight_code.takes
            each.append([n for n in near if width.key != "weight_bits" or takes(n)])
        one, two = each
        return itertools.product(one, two)


def _of_layers(bits: BitAssignment) -> BitAssignment:
    return {width: own for width, own in bits.items() if width not in (MU, VARIANCE)}


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


def error_on(metric: str, scores: FloatArray, reference: FloatArray) -> Change:
    """An error with the middle 95% over resamples of texts and of videos."""
    value, error = error_of(metric, scores, reference), scores - reference
    errors = [error]
    if metric == "centred_rmse":  # the worse of both ways
        errors = [error - error.mean(axis=way, keepdims=True) for way in (0, 1)]
    stream = Generator(Philox(key=0))
    texts, videos = (stream.multinomial(n, np.full(n, 1 / n), RESAMPLES) / n for n in error.shape)
    means = [((texts @ np.square(one)) * videos).sum(axis=1) for one in errors]
    ends = interval(np.sqrt(np.max(means, axis=0)))
    return Change(value, ends.low, ends.high)
