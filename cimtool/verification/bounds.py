"""A bound for each pair: the error that a score keeps with a stated probability.

Errors are of compiled scores from the trained program's, in floating point. The conformal bounds
are order statistics of held-out errors; the worst case follows from the ranges of both programs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from cimtool.base.arrays import FloatArray
from cimtool.base.errors import ArgumentError
from cimtool.base.json_files import DIGITS
from cimtool.base.modality_names import Modalities, item_names
from cimtool.bundle.bounds import SECTION
from cimtool.bundle.bundle import Bundle
from cimtool.ir.program import UNCALIBRATED, Graph
from cimtool.ir.types import real
from cimtool.loading.embeddings import Embeddings
from cimtool.passes.lower import LowerPass
from cimtool.passes.pipeline import stage_of
from cimtool.reference.conformal import (
    RANKS,
    ConformalBound,
    IndependentPairs,
    conformal_bound,
    fewest_units,
    independent_pairs,
    rank_margins,
)
from cimtool.report.document import Block, FactList, Section, Sentence
from cimtool.report.formats import counted, number
from cimtool.simulation.simulator import Simulator
from cimtool.verification.references import trained_features
from cimtool.verification.sections import ComparedFigure, ReportSection, SectionInputs


@dataclass(frozen=True)
class ScoreBounds:
    """Bounds of a bundle's scores [n, m], each with the `confidence`; `bundle` is its SHA-256.

    `random` is of a pair of a new text and a new video, `right` of a text and its right video, None
    if no right pairs are known. `ranks` bounds the margin between neighbouring ranks among the
    `videos`. `worst_case` is proved for all inputs, from the program in multiply-accumulates; None
    if nothing limits its score. `largest` and `score_range` are of all scores measured.
    """

    bundle: str
    score: str
    confidence: float
    videos: int
    right: ConformalBound | None
    random: ConformalBound
    ranks: ConformalBound
    worst_case: float | None
    largest: float
    score_range: float
    modalities: Modalities


def drawn_pairs(data: Embeddings, confidence: float, seed: int) -> IndependentPairs:
    """The pairs of `data` that bounds are measured on.

    Raises CimError for a confidence that is no share, or more than the data can give.
    """
    if not 0 < confidence < 1:
        raise ArgumentError("{bound} is {}; expected a share above 0 and below 1", confidence)
    drawn = independent_pairs(data.truth, seed)
    fewest = fewest_units(confidence)
    if len(drawn.random) < fewest:
        raise ArgumentError(
            "{bound} {} takes {} pairs that share no row; {} has {}: expected {} right pairs or "
            "more, or a lower {bound}",
            f"{confidence:g}",
            f"{fewest:,}",
            data.file,
            f"{len(drawn.random):,}",
            f"{2 * fewest:,}",
        )
    return drawn


def measure_bounds(
    bundle: Bundle, data: Embeddings, compiled: FloatArray, confidence: float, seed: int
) -> ScoreBounds:
    """Measure the bounds of compiled scores [n, m]; CimError as `drawn_pairs`."""
    drawn, truth = drawn_pairs(data, confidence, seed), data.truth
    trained = Simulator(bundle.stages[0].program)
    features = trained_features(trained, data)
    reference = trained.score(features["text"], features["video"])
    errors = np.abs(compiled - reference)
    itself = np.concatenate([truth.itself(slice(t, t + 1)) for t in drawn.texts])
    ranked, ranked_float = (
        np.where(itself, -np.inf, one[drawn.texts]) for one in (compiled, reference)
    )
    pairs = {"right": None if truth.leave_one_out else drawn.right, "random": drawn.random}
    found = {
        name: None if rows is None else conformal_bound(errors[rows[:, 0], rows[:, 1]], confidence)
        for name, rows in pairs.items()
    }
    random = found["random"]
    assert random is not None
    return ScoreBounds(
        bundle=bundle.manifest["sha256"],
        score="logit" if bundle.model.head.predicts_logit else "score",
        confidence=confidence,
        videos=len(data.video),
        right=found["right"],
        random=random,
        ranks=conformal_bound(rank_margins(ranked, ranked_float), confidence),
        worst_case=worst_case(
            stage_of(bundle.stages, LowerPass).program.score, bundle.program.score
        ),
        largest=float(errors.max()),
        score_range=float(np.ptp(compiled)),
        modalities=data.called,
    )


def worst_case(lowered: Graph, compiled: Graph) -> float | None:
    """The most that a compiled score can be from the score graph in multiply-accumulates.

    It holds for inputs of any size: both scores are limited, and the farthest ends of their ranges
    are that far apart. None if interval arithmetic finds no limit.
    """
    inputs = {name: real(known.shape, -np.inf, np.inf) for name, known in lowered.inputs.items()}
    unlimited = replace(lowered, inputs=inputs, calibration=UNCALIBRATED)
    with np.errstate(invalid="ignore"):  # infinity times 0 is no limit either
        real_score = unlimited.types[lowered.outputs["logit"]]
    score = compiled.types[compiled.outputs["logit"]]
    ends = (np.max(score.hi - real_score.lo), np.max(real_score.hi - score.lo))
    # The bounds of real numbers are rounded by less than this share.
    found = float(max(ends)) * (1 + 2.0**-20)
    return found if math.isfinite(found) else None


class BoundsSection(ReportSection, name=SECTION):
    """The bounds of scores, if a confidence was asked for."""

    figures = (
        ComparedFigure("bound of a random pair", "", ("random", "bound")),
        ComparedFigure("bound of a right pair", "", ("right", "bound")),
        ComparedFigure("margin of a certain rank", "", ("ranks", "bound")),
    )

    @classmethod
    def measure(cls, measured: SectionInputs) -> ScoreBounds | None:
        """Measure them; None if no confidence was asked for."""
        if measured.confidence is None:
            return None
        seed = measured.references.seed
        return measure_bounds(
            measured.bundle, measured.data, measured.compiled, measured.confidence, seed
        )

    @classmethod
    def values(cls, found: ScoreBounds) -> Mapping[str, Any]:
        """Return them with bounds rounded up, never down, to the digits of a report."""
        values = asdict(found)
        for name in ("right", "random", "ranks"):
            if values[name] is not None:
                values[name]["bound"] = rounded_up(values[name]["bound"])
        if found.worst_case is not None:
            values["worst_case"] = rounded_up(found.worst_case)
        del values["modalities"]
        return values

    @classmethod
    def blocks(cls, found: ScoreBounds, bundle: str) -> tuple[Block, ...]:
        """Return a card with the sentence to sign, and what it rests on."""
        facts = FactList(tuple(_facts(found)), "detail")
        said = (Sentence(signed_sentence(found), "verdict"), Sentence(rank_sentence(found)))
        return (Section("How far can a score be off?", (*said, facts), SECTION, 2),)


def signed_sentence(found: ScoreBounds) -> str:
    """The bound of a pair, as a user signs it."""
    text, video = found.modalities
    right = ""
    if found.right is not None:
        right = f"; of right pairs at most {_shown(found.right.bound)}"
    return (
        f"{100 * found.confidence:.6g}% of the pairs of a new {text} and a new {video} err at most "
        f"{_shown(found.random.bound)} from the float {found.score}{right}"
    )


def rank_sentence(found: ScoreBounds) -> str:
    """The margin above which ranks are those of the float score."""
    texts, videos = item_names(found.modalities)
    lead, share = _shown(found.ranks.bound), f"{100 * found.confidence:.6g}%"
    return (
        f"If the {found.score} at a rank leads the next by more than {lead}, the float "
        f"{found.score} has the same items ahead: for {share} of new {texts}, without exception "
        f"among the {RANKS} best of these {found.videos:,} {videos}"
    )


def _facts(found: ScoreBounds) -> Iterator[tuple[str, str]]:
    named = {"random pairs": found.random, "right pairs": found.right, "ranks": found.ranks}
    for name, one in named.items():
        if one is not None:
            units = counted(one.units, "text" if one is found.ranks else "pair")
            yield (
                name,
                f"{_shown(one.bound)}: number {one.order:,} of the errors of {units} without a "
                f"common row; coverage given these rows at least {one.least_coverage:.1%} (95% "
                "sure)",
            )
    yield "largest error measured", f"{number(found.largest)} of all pairs"
    limit = "none: nothing limits the score"
    if found.worst_case is not None:
        wide = found.worst_case >= found.score_range
        limit = f"{_shown(found.worst_case)} from the program in multiply-accumulates, any input"
        limit += f"; wider than all scores measured ({number(found.score_range)})" if wide else ""
    yield "worst case, proved", limit


def _shown(bound: float) -> str:
    """A bound in three digits, rounded up."""
    return f"{rounded_up(bound, 3):.3g}"


def rounded_up(value: float, digits: int = DIGITS) -> float:
    """The least number of so many significant digits that is `value` or more."""
    found = float(f"{value:.{digits}g}")
    if found >= value:
        return found
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - digits + 1)
    return float(f"{found + unit:.{digits}g}")
