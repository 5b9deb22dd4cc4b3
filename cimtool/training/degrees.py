"""Polynomials of several degrees side by side: their errors, their costs, and which is enough."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cimtool.base.arrays import Array, FloatArray, IntArray
from cimtool.base.intervals import Change
from cimtool.base.modality_names import TEXT_VIDEO, Modalities
from cimtool.base.progress import Say, silent
from cimtool.costs.estimate import ScoredQuery, estimate
from cimtool.costs.operations import Operations, digital
from cimtool.costs.totals import Cost, Quantity
from cimtool.hardware.configuration import Configuration
from cimtool.hardware.settings import resolve
from cimtool.hardware.target import Target, load_target
from cimtool.ir.arithmetic import MatMul, Mul, Mvm
from cimtool.ir.heads import Head, TowerBuilder, assemble
from cimtool.ir.heads.csd import Csd
from cimtool.ir.heads.pcme_poly import PcmePoly
from cimtool.ir.program import Graph, Program
from cimtool.ir.surrogate import MAX_DEGREE, Polynomial, exponents
from cimtool.passes.base import Job
from cimtool.passes.converters import FitConvertersPass
from cimtool.passes.gallery import program_gallery
from cimtool.passes.pipeline import passes_for, run_passes
from cimtool.reference.bootstrap import Samples, interval, resamples
from cimtool.reference.measures import WAYS
from cimtool.reference.metrics import RAW, cosines, on_grid
from cimtool.reference.montecarlo import DEFAULT_SAMPLES
from cimtool.reference.queries import Queries, independent
from cimtool.reference.retrieval import retrieved
from cimtool.reference.statistics import Gaussians, centred
from cimtool.reference.truth import Truth
from cimtool.simulation.simulator import Simulator
from cimtool.training.arguments import FormOptions
from cimtool.training.items import Items
from cimtool.training.teacher import Labels
from cimtool.training.teacher_file import Teacher

OF_SCATTER = 0.1
"""The share of the scatter of samples that a cheaper form may add: their mean square is 1% more."""

OF_SPREAD = 0.001
"""The share of the spread of the labels that a cheaper form may add.

If variances are large, samples scatter by more than scores differ, and a tenth of that is no limit.
Rounding to the bits that are chosen costs 0.2% to 1% of the spread; 0.1% more adds a tenth at most.
"""

ED_ALONE = "ed-"
"""The mark before the degree of a polynomial in ed alone, in a grid."""


D, ROWS = 4, 16
"""Dimensions and calibration rows of the stand-in: what is counted does not depend on them."""

GALLERY = 64
"""Items that are programmed; each takes cells of its own, so that energies are those of one."""

LEAST_VARIANCE = 1e-30


@dataclass(frozen=True)
class ScoreCost:
    """The cost of one pair: `products` of all pairs, `features` of the item, `multiplications`.

    A product and a feature take d multiplications each; features are what the products need of an
    item beside its mean and variance.
    """

    products: int
    features: int
    multiplications: int

    def total(self, d: int) -> int:
        """All multiplications of a pair of d dimensions."""
        return self.vectors * d + self.multiplications

    @property
    def vectors(self) -> int:
        """Number of steps that take d multiplications each."""
        return self.products + self.features


@cache
def polynomial_cost(degree: int, ed_alone: bool) -> ScoreCost:
    """The cost of a polynomial of a degree that has all of its terms."""
    coeff = tuple(0.0 if ed_alone and j else 1.0 for _, j in exponents(degree))
    return _counted(PcmePoly(Polynomial(degree, coeff, 0.0, 8.0, 16.0)))


@cache
def distance_cost() -> ScoreCost:
    """The cost of a line in ed: head `csd`, and -ed."""
    return _counted(Csd(0.1, 0.0))


def _counted(head: Head) -> ScoreCost:
    """Compile projectors of one layer with this head, and count what has the item in it."""
    rng = np.random.default_rng(0)
    text, video = (
        _tower(*(Mvm(rng.normal(size=(1, D)), rng.normal(size=D)) for _ in range(2)))
        for _ in range(2)
    )
    rows = rng.normal(size=(2, ROWS, 1)).astype(np.float32)
    job = Job(resolve(load_target("ideal"), None, {}), rows[0], rows[1], silent)
    graph = _compiled(assemble(text, video, head), job).score
    nodes = [node for node in graph.nodes if "m" in graph.types[node.name].shape]
    products = sum(isinstance(node.op, MatMul) for node in nodes)
    products_of_items = [node for node in nodes if isinstance(node.op, Mul)]
    features = sum(graph.types[node.name].shape == ("m", D) for node in products_of_items)
    work = Operations()
    for node in nodes:
        work += digital(graph, node, {"n": 1, "m": 1})
    return ScoreCost(products, features, work.multiplications - (products + features) * D)


def _compiled(program: Program, job: Job) -> Program:
    """The program of integers on arrays; no converter is fitted, as nothing runs."""
    passes = [one for one in passes_for(job.settings) if not isinstance(one, FitConvertersPass)]
    return run_passes(passes, program, job, silent)[-1].program


def _tower(mu: Mvm, logvar: Mvm) -> Graph:
    """A projector that is one layer for mu and one for logvar."""
    builder = TowerBuilder(mu.weight.shape[0])
    return builder.tower(builder.add("mu", mu, "x"), builder.add("logvar", logvar, "x"))


@dataclass(frozen=True)
class QueryCost:
    """The score of one query against `items` items in the memory of a target."""

    target: str
    items: int
    cost: Cost

    @property
    def of_an_item(self) -> Quantity:
        """The energy of one item, in pJ."""
        return self.cost.energy_pj.times(1 / self.items)


def costs_in_memory(items: Items, target: Target) -> tuple[QueryCost, QueryCost]:
    """The cost of a query by a score in ed alone, and by one in ed and vd.

    Projectors that hand means and log-variances on stand for the model's. Raises CimError if the
    target's arrays do not hold the gallery.
    """
    settings = resolve(target, None, {"score_mapping": "in-memory"})
    text, video = _rows(items.text), _rows(items.video)
    job, d = Job(settings, text, video, silent), items.text.d
    one, none = np.eye(d), np.zeros((d, d))
    tower = _tower(*(Mvm(np.concatenate(w), np.zeros(d)) for w in ((one, none), (none, one))))

    def cost(head: Head) -> QueryCost:
        program = _compiled(assemble(tower, tower, head), job)
        stored = Simulator(program).encode("video", video)
        held = replace(program, score=program_gallery(program.score, stored, settings))
        query = ScoredQuery(d, gallery=len(video))
        taken = estimate(held, Configuration(target, settings), query)
        assert taken.score is not None
        return QueryCost(target.name, len(video), taken.score)

    return cost(Csd(0.1, 0.0)), cost(PcmePoly(Polynomial(1, (-0.1, 0.005), 0.0)))


def _rows(items: Gaussians) -> Array:
    """Means and log-variances side by side, [items, 2 d] float32."""
    some = items[:GALLERY]
    logvar = np.log(np.maximum(some.s, LEAST_VARIANCE))
    return np.concatenate([some.mu, logvar], axis=1).astype(np.float32)


@dataclass(frozen=True)
class Form:
    """A polynomial to fit: its total degree, in ed and vd or in `ed_alone`."""

    degree: int
    ed_alone: bool = False

    @property
    def key(self) -> str:
        """Its name in a grid and in files."""
        return f"{ED_ALONE if self.ed_alone else ''}{self.degree}"

    @property
    def name(self) -> str:
        """Its name in tables."""
        return f"degree {self.degree}{', ed alone' if self.ed_alone else ''}"

    @property
    def terms(self) -> int:
        """Its coefficients without the constant."""
        return self.degree if self.ed_alone else len(exponents(self.degree))


FORMS = {
    form.key: form
    for form in (Form(n, alone) for n in range(1, MAX_DEGREE + 1) for alone in (False, True))
}
"""All forms by the keys that a grid has for them: `2`, or `ed-2` in ed alone."""

Scores = Mapping[str, FloatArray]
"""Values of scores by the name of each."""


@dataclass(frozen=True, kw_only=True)
class ComparedForm:
    """A form of the score on held-out pairs, and what one pair takes of it.

    `rmse` and `worst` are distances from the labels in logits, None for a score that is no logit;
    `less_best` is the error beside that of the best polynomial, on the same pairs: the root of
    the difference of mean squares, negative for a smaller one. `recall` is R@1 by
    way, `recall_less_best` what it is less the best polynomial's; both empty if no data were
    given. `in_memory` is what a query takes if the items are in a target's arrays, None if no
    target was given. Raw embeddings have recalls alone: their cosine is of other widths.
    """

    name: str
    form: Form | None
    cost: ScoreCost | None = None
    rmse: Change | None = None
    worst: float | None = None
    less_best: Change | None = None
    recall: Mapping[str, Change] = field(default_factory=dict)
    recall_less_best: Mapping[str, Change] = field(default_factory=dict)
    in_memory: QueryCost | None = None


@dataclass(frozen=True, kw_only=True)
class FormComparison:
    """Forms by what they take: the RMSE of `best` is the lowest, `enough` is not surely worse.

    One is enough whose RMSE is not surely above the best's, or surely adds less than `tolerance` to
    it, in the mean square, and whose R@1 is not surely below. `scatter` is what `samples` a side
    scatter by, None if a is not known; `spread` the standard deviation of the labels. `data` and
    `items` are the name of the file that R@1 is of, and its (texts, videos), which are `called`
    so; `judged` is the name of the file of judgements.
    """

    candidates: tuple[ComparedForm, ...]
    best: Form
    enough: Form
    tolerance: float
    scatter: float | None
    spread: float
    samples: int
    d: int | None
    data: str | None = None
    items: tuple[int, int] | None = None
    called: Modalities = TEXT_VIDEO
    judged: str | None = None

    def of(self, form: Form) -> ComparedForm:
        """The candidate of a form."""
        return next(one for one in self.candidates if one.form == form)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Labels that no fit saw; `raw_ed` [n] as no layout divides it, and the `text` of each pair.

    Pairs of one text are no independent ones: they are drawn together.
    """

    labels: Labels
    raw_ed: FloatArray
    text: IntArray


def forms_of(degrees: Sequence[int], ed_alone: bool) -> list[Form]:
    """The forms of these degrees from the cheapest: those in ed alone take one product of six."""
    rising = sorted(set(degrees))
    both = [] if ed_alone else [Form(degree) for degree in rising]
    return [*(Form(degree, True) for degree in rising), *both]


def sampling_scatter(teacher: Teacher) -> tuple[float | None, int]:
    """The scatter of a sampled logit, root mean square over pairs, and the samples a side.

    That of the teacher's own labels if they have one; else a sqrt(vd / K), to first order in the
    distance and with K = 10: None if a is not known.
    """
    error, samples = teacher.labels.standard_error, teacher.K or DEFAULT_SAMPLES
    if error is not None and error.any():
        return float(np.sqrt(np.mean(np.square(error)))), samples
    if teacher.a is None:
        return None, samples
    return teacher.a * float(np.sqrt(teacher.labels.vd.mean() / samples)), samples


def compare_forms(
    fitted: Mapping[Form, Polynomial],
    teacher: Teacher,
    held: HeldOut,
    options: FormOptions,
    items: Items | None,
    target: Target | None,
    say: Say,
) -> FormComparison:
    """Put fitted polynomials, csd and -ed side by side on pairs that no fit saw.

    Without a tolerance it is OF_SCATTER of the scatter of samples or OF_SPREAD of the spread of the
    labels, whichever is less. It is 0 if the scatter is not known. With
    `items` every score ranks all of their pairs, and so does the cosine of their embeddings if
    widths agree. With a `target` too, the products in its arrays are priced.
    """
    labels = held.labels
    forms: dict[str, Form | None] = {"-ed": None, **{form.name: form for form in fitted}}
    values = {form.name: p.evaluate(labels.ed, labels.vd) for form, p in fitted.items()}
    if teacher.a is not None and teacher.b is not None:
        forms = {"csd": None, **forms}
        values["csd"] = teacher.b - teacher.a * held.raw_ed
    errors = {name: value - labels.logit for name, value in values.items()}
    squares = {name: np.square(error) for name, error in errors.items()}
    best = min(fitted, key=lambda form: float(squares[form.name].mean()))
    draws = resamples(held.text, 1, options.seed)
    rmse = _with_intervals({"text": squares}, draws, best.name)["text"]
    recalls: Mapping[str, Intervals] = {}
    if items is not None and (truth := items.truth).ranks:
        say("ranking all pairs by every score")
        hits, right = _hits(items, truth, fitted, teacher, options), truth.text_to_video
        draws = resamples(right, truth.videos, options.seed)
        of_best = Queries(*({"hit": hits[way][best.name]} for way in WAYS))
        recalls = _with_intervals(hits, draws, best.name, independent(of_best, "hit", right))
        if RAW in hits[WAYS[0]]:
            forms = {RAW: None, **forms}
    in_memory: tuple[QueryCost | None, QueryCost | None] = None, None
    if items is not None and target is not None:
        say(f"the score in the memory of {target.name}")
        in_memory = costs_in_memory(items, target)

    def candidate(name: str, form: Form | None) -> ComparedForm:
        ranked = "-ed" if name == "csd" else name  # csd ranks as -ed does
        cost = distance_cost() if form is None else polynomial_cost(form.degree, form.ed_alone)
        return ComparedForm(
            name=name,
            form=form,
            cost=None if name == RAW else cost,
            rmse=rmse.own.get(name),
            worst=float(np.abs(errors[name]).max()) if name in errors else None,
            less_best=rmse.less_best.get(name),
            recall={way: one.own[ranked] for way, one in recalls.items()},
            recall_less_best={way: one.less_best[ranked] for way, one in recalls.items()},
            in_memory=None if name == RAW else in_memory[form is not None and not form.ed_alone],
        )

    candidates = tuple(candidate(name, form) for name, form in forms.items())
    scatter, samples = sampling_scatter(teacher)
    spread, tolerance = float(labels.logit.std()), options.tolerance
    if tolerance is None:
        tolerance = min(OF_SCATTER * (scatter or 0.0), OF_SPREAD * spread)
    enough = next(one.form for one in candidates if one.form and _suffices(one, tolerance))
    found = FormComparison(
        candidates=candidates,
        best=best,
        enough=enough,
        tolerance=tolerance,
        scatter=scatter,
        spread=spread,
        samples=samples,
        d=teacher.dimension,
    )
    if items is None:
        return found
    sizes = len(items.text), len(items.video)
    judged = None if items.judged is None else Path(items.judged.file).name
    return replace(
        found, d=items.text.d, data=items.file, items=sizes, called=items.called, judged=judged
    )


def _suffices(one: ComparedForm, tolerance: float) -> bool:
    assert one.less_best is not None
    near = one.less_best.low <= 0 or one.less_best.high <= tolerance
    return near and all(change.high >= 0 for change in one.recall_less_best.values())


class Intervals(NamedTuple):
    """A mean of every score with its interval, and its difference from the best's, paired."""

    own: dict[str, Change]
    less_best: dict[str, Change]


def _with_intervals(
    figures: Mapping[str, Scores],
    draws: Iterable[Samples],
    best: str,
    shares: Mapping[str, int] | None = None,
) -> dict[str, Intervals]:
    """Means of figures [queries] of every score, over other draws of the queries of each way.

    Texts are the queries of the first way, videos those of the second, if there is one. If the
    means are `shares`, of so many independent queries by way, they stay; else their root is taken,
    and the difference is that of mean squares, as a root.
    """
    form = np.sqrt if shares is None else np.asarray
    drawn: dict[str, dict[str, list[FloatArray]]] = {
        way: {name: [] for name in scores} for way, scores in figures.items()
    }
    for sample in draws:
        for way, counts in zip(figures, (sample.text, sample.video), strict=False):
            for name, values in figures[way].items():
                drawn[way][name].append(form(counts.mean(values)))
    found = {}
    for way, scores in figures.items():
        parts = {name: np.concatenate(drawn[way][name]) for name in scores}
        own, less_best, best_mean = {}, {}, float(form(np.nanmean(scores[best])))
        less = np.subtract if shares is not None else _added
        queries = None if shares is None else shares[way]
        for name, values in scores.items():
            mean = float(form(np.nanmean(values)))
            ends, apart = interval(parts[name], queries), interval(less(parts[name], parts[best]))
            own[name] = Change(mean, ends.low, ends.high)
            less_best[name] = Change(float(less(mean, best_mean)), apart.low, apart.high)
        found[way] = Intervals(own, less_best)
    return found


def _added(rmse: FloatArray | float, best: FloatArray | float) -> FloatArray:
    """The error that `rmse` has beside that of the best: their mean squares add up."""
    more = np.square(rmse) - np.square(best)
    found: FloatArray = np.sign(more) * np.sqrt(np.abs(more))
    return found


def _hits(
    items: Items,
    truth: Truth,
    fitted: Mapping[Form, Polynomial],
    teacher: Teacher,
    options: FormOptions,
) -> dict[str, dict[str, FloatArray]]:
    """By way and score: 1 for each query whose best item is right, else 0; NaN is no query."""
    ed, vd = pair_statistics(items.text, items.video)
    of_ed = ed / (options.scale_ed or teacher.scale_ed)
    of_vd = vd / (options.scale_vd or teacher.scale_vd)
    scores: dict[str, Callable[[], FloatArray]] = {"-ed": lambda: -ed}
    for form, polynomial in fitted.items():
        scores[form.name] = partial(polynomial.evaluate, of_ed, of_vd)
    if items.rows is not None and items.rows[0].shape[1] == items.rows[1].shape[1]:
        scores[RAW] = partial(cosines, *items.rows)
    hits: dict[str, dict[str, FloatArray]] = {way: {} for way in WAYS}
    for name, score in scores.items():
        found = retrieved(on_grid(score()), truth)
        for way, queries in zip(WAYS, (found.text, found.video), strict=True):
            rank = queries["rank"]
            hits[way][name] = np.where(np.isnan(rank), np.nan, rank == 1)
    return hits


def pair_statistics(text: Gaussians, video: Gaussians) -> tuple[FloatArray, FloatArray]:
    """ed and vd of all pairs, both [n, m], by matrix products."""
    text, video = centred(text, video)
    (mu_t, s_t), (mu_v, s_v) = (text.mu, text.s), (video.mu, video.s)
    own_ed = [(x.mu**2 + x.s).sum(axis=1) for x in (text, video)]
    own_vd = [(2 * x.s**2 + 4 * x.mu**2 * x.s).sum(axis=1) for x in (text, video)]
    ed = own_ed[0][:, None] + own_ed[1] - 2 * mu_t @ mu_v.T
    vd = own_vd[0][:, None] + own_vd[1]
    vd += 4 * ((s_t + mu_t**2) @ s_v.T + s_t @ (mu_v**2).T)
    vd -= 8 * ((mu_t * s_t) @ mu_v.T + mu_t @ (mu_v * s_v).T)
    return ed, vd
