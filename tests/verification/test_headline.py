from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cimtool.base.intervals import Change
from cimtool.reference.metrics import RAW
from cimtool.reference.pairs import bin_ends
from cimtool.reference.truth import Truth
from cimtool.verification.drift import DISTANCE, BaselineLoss, DriftTable, StageRow
from cimtool.verification.headline import equal_text, make_headline, reliability_of
from cimtool.verification.notes import baseline_sentences, surrogate_faults, surrogate_remarks
from cimtool.verification.references import Scatter

MONTE_CARLO = "Monte Carlo (K=10)"
SAMPLED = Scatter(10, 0.2, centred_error=0.2)
EXACT = Scatter(10, 0.2, centred_error=0.25, rmse=0.25, top1_agreement=0.8)


def row(stage: str, rmse: float, spread: float = 1.5, **metrics: float) -> StageRow:
    known = {
        "logit_rmse": rmse, "centred_rmse": rmse, "bias": 0.0, "max_abs": rmse, "spread": 2.0,
        "top1_agreement": 0.9, "spearman": 0.99, "own_spread": spread, "relative_rmse": rmse / 2.0,
        "relative_centred_rmse": rmse / 2.0, "own_video_spread": spread,
    }  # fmt: skip
    for name in ("step", "float"):  # all of it within queries, where nothing else is said
        if f"{name}_rmse" in metrics:
            known[f"{name}_centred_rmse"] = metrics[f"{name}_rmse"]
    return StageRow(stage, known | metrics)


def rows(surrogate: float, quantized: float, converters: float) -> list[StageRow]:
    """The rows after the references, the last being 0.4 from the reference."""
    last = {"float_rmse": 0.15, "float_top1": 0.9}
    return [
        row("polynomial", surrogate, step_rmse=surrogate),
        row("quantized", 0.3, float_rmse=quantized, float_top1=0.95, step_rmse=quantized),
        row("converters fitted", 0.4, **last, step_rmse=converters),
        row("ONNX Runtime", 0.4, **last, step_rmse=0.0),
    ]


def against_samples(table: list[StageRow], scatter: Scatter | None = SAMPLED, score: str = "logit"):  # type: ignore[no-untyped-def]
    faults = surrogate_faults(table[0], scatter, score, 0.0)
    return make_headline(
        [StageRow(MONTE_CARLO), *table], MONTE_CARLO, scatter, score, faults, "polynomial"
    )


def against_exact(table: list[StageRow], scatter: Scatter = EXACT):  # type: ignore[no-untyped-def]
    faults = surrogate_faults(table[0], scatter, "logit", 0.0)
    return make_headline(
        [StageRow("exact"), StageRow(MONTE_CARLO), *table],
        "exact",
        scatter,
        "logit",
        faults,
        "polynomial",
    )


def test_against_samples_the_cause_is_the_largest_step_after_the_polynomial() -> None:
    found = against_samples(rows(0.3, 0.05, 0.14))
    assert (found.cause, found.cause_before) == ("converters fitted", "quantized")
    assert found.cause_centred_rmse == 0.14
    assert (found.float_centred_rmse, found.float_relative_centred_rmse) == (0.15, 0.15 / 1.5)
    assert found.surrogate_centred_rmse == 0.3
    assert "within the scatter" in found.sentences[1]


def test_against_samples_both_k_and_the_bias_are_said() -> None:
    table = rows(0.3, 0.05, 0.14)
    table[0] = replace(table[0], metrics={**table[0].metrics, "bias": 0.25})
    known = {**table[-1].metrics, "bias": 1.25, "float_rmse": 1.1}
    table[-1] = replace(table[-1], metrics=known)
    found = against_samples(table, replace(SAMPLED, standard_error=0.4))
    assert found.sentences[1:3] == (
        "That is within the scatter of the Monte Carlo score itself, which is 0.2 at K=10; it has "
        "the same error at about K=18.",
        "Counting each query's mean error too, which changes no rank, the logit RMSE is 1.1 "
        "(bias +1); Monte Carlo's is 0.4, and it has the same error at about K=1.",
    )


LOST = {"r1_loss": Change(0.05, 0.02, 0.08)}
"""A loss of ranks that other queries could not explain."""


def losing(table: list[StageRow]) -> list[StageRow]:
    """The same, whose float score loses R@1."""
    return [replace(table[0], losses=LOST), *table[1:]]


def test_against_samples_a_broken_surrogate_is_not_blamed_on_hardware() -> None:
    found = against_samples(losing(rows(2.17, 3.0, 0.14)))
    assert found.surrogate_broken
    assert (found.cause, found.cause_before) == ("polynomial", MONTE_CARLO)
    assert (
        "The surrogate is BROKEN: the float polynomial is 2.17 from the Monte Carlo (K=10) score, "
        "and all that the compiler did adds 0.15 (centred RMSE)."
    ) in found.sentences
    as_good = against_samples(rows(2.17, 3.0, 0.14))
    assert (as_good.surrogate_broken, as_good.cause) == (False, "quantized")


def test_against_the_exact_score_the_surrogate_is_a_step_too() -> None:
    found = against_exact(losing(rows(5.0, 0.05, 0.14)))
    cause = (found.cause, found.cause_before, found.cause_centred_rmse)
    assert cause == ("polynomial", "exact", 5.0)
    assert found.surrogate_broken
    assert (
        "The surrogate is BROKEN: the float polynomial is 5 from the exact score, and all that the "
        "compiler did adds 0.15 (centred RMSE)."
    ) in found.sentences
    for far in (0.3, 5.0):  # however far: its ranking is as good
        mild = against_exact(rows(far, 0.05, 0.14))
        assert not mild.surrogate_broken
        assert any("The surrogate itself costs most" in sentence for sentence in mild.sentences)


def test_an_offset_is_said_as_bias_and_breaks_nothing() -> None:
    """A score that is 2.5 too high for every pair ranks as well."""
    off = {"logit_rmse": 2.558, "bias": 2.55}
    table = rows(0.01, 0.05, 0.14)
    table[0] = row("polynomial", 0.01, step_rmse=2.558, **off)
    table[0] = replace(table[0], metrics={**table[0].metrics, "step_centred_rmse": 0.01})
    table[-1] = replace(table[-1], metrics={**table[-1].metrics, **off, "centred_rmse": 0.15})
    found = against_exact(table)
    assert not found.surrogate_broken
    assert found.cause == "converters fitted"
    assert (found.centred_rmse, found.logit_rmse, found.bias) == (0.15, 2.558, 2.55)
    assert (
        "The float polynomial is +2.55 off on average (bias): an offset changes no rank."
    ) in found.sentences
    assert not any("BROKEN" in sentence for sentence in found.sentences)


def test_the_error_that_can_change_a_rank_decides_the_verdict() -> None:
    """Further than samples by the RMSE, and closer within each query: closer is said."""
    scatter = Scatter(10, 0.5, centred_error=0.435, rmse=0.5, top1_agreement=0.978)
    table = rows(0.01, 0.05, 0.14)
    table[-1] = replace(
        table[-1],
        metrics={
            **table[-1].metrics,
            **{"centred_rmse": 0.194, "logit_rmse": 1.0, "bias": 0.98, "top1_agreement": 0.995},
            "relative_centred_rmse": 0.0194,
        },
    )
    found = against_exact(table, scatter)
    assert found.equal_samples_centred == pytest.approx(10 * (0.435 / 0.194) ** 2)
    assert found.equal_samples == pytest.approx(10 * (0.5 / 1.0) ** 2)
    assert found.sentences[:3] == (
        "The compiled model is 0.194 (centred logit RMSE) from the exact score, 1.9% of its spread "
        "within a query; top-1 agreement 99.5%.",
        "That is closer than Monte Carlo at K=10 is (0.435, top-1 agreement 97.8%), which has the "
        "same error at about K=50.",
        "Counting each query's mean error too, which changes no rank, the logit RMSE is 1 (bias "
        "+0.98); Monte Carlo's is 0.5, and it has the same error at about K=2.",
    )
    assert against_exact(rows(0.01, 0.05, 0.14)).cause == "converters fitted"


def test_the_k_that_errs_as_much_goes_with_the_square() -> None:
    # 0.4 from the exact score where K = 10 is 0.25 from it: fewer samples would do.
    found = against_exact(rows(0.01, 0.3, 0.1))
    assert found.equal_samples == pytest.approx(10 * (0.25 / 0.4) ** 2)
    assert found.sentences[1] == (
        "That is FURTHER than Monte Carlo at K=10 is (0.25, top-1 agreement 80.0%), which has the "
        "same error at about K=4."
    )
    better = against_exact(rows(0.01, 0.3, 0.1), replace(EXACT, centred_error=1.0))
    assert "closer than Monte Carlo" in better.sentences[1]
    assert better.sentences[1].endswith("at about K=62.")
    # Against samples the standard error stands for their own error, the polynomial for the truth.
    assert against_samples(rows(0.2, 0.1, 0.1)).equal_samples == pytest.approx(
        10 * (0.2 / 0.15) ** 2
    )


@pytest.mark.parametrize(
    ("samples", "text"),
    [
        (0.3, "has a smaller error even with one sample per side"),
        (4.4, "has the same error at about K=4"),
        (52.3, "has the same error at about K=52"),
        (12_345.6, "has the same error at about K=12,000"),
    ],
)
def test_samples_are_told_to_two_digits(samples: float, text: str) -> None:
    assert equal_text(samples) == text


def test_more_than_the_scatter_is_said() -> None:
    found = against_samples(rows(0.2, 0.1, 0.1), Scatter(10, 0.2, centred_error=0.1))
    assert "MORE than the scatter" in found.sentences[1]


def test_the_share_is_of_the_polynomials_own_spread() -> None:
    found = against_samples(rows(0.2, 0.1, 0.1))  # the reference's spread is 2
    assert found.float_relative_centred_rmse == 0.15 / 1.5
    assert "10.0% of its spread within a query" in found.sentences[0]


def test_a_scatter_above_the_spread_is_no_comfort() -> None:
    found = against_samples(rows(0.2, 0.1, 0.1), Scatter(3, 0.2, centred_error=1.6))
    assert not any("within the scatter" in sentence for sentence in found.sentences)
    assert found.sentences[1] == (
        "Monte Carlo at K=3 scatters more (1.6) than the polynomial's scores differ within a query "
        "(1.5): use more samples."
    )


def test_scores_that_do_not_differ_ask_for_no_samples() -> None:
    table = rows(0.2, 0.1, 0.1)
    table[0] = row("polynomial", 0.2, spread=0.0)  # in either direction
    found = against_samples(table)
    assert found.float_relative_centred_rmse is None
    assert "within the scatter" in found.sentences[1]
    assert not any("more samples" in sentence for sentence in found.sentences)


def test_without_monte_carlo_its_scatter_is_not_known() -> None:
    found = against_samples(rows(0.2, 0.1, 0.1), None, "score")
    assert found.equal_samples is None
    assert not any("scatter" in sentence for sentence in found.sentences)
    assert "(centred score RMSE)" in found.sentences[0]


def test_where_nothing_changes_nothing_is_the_cause() -> None:
    found = against_samples(rows(0.2, 0.0, 0.0))
    assert found.cause is None
    assert found.sentences[-1] == "No step changes any score."


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (Change(0.02, 0.01, 0.03), "R@1 LOSES more than other queries could explain: 2.0 points"),
        (
            Change(-0.02, -0.03, -0.01),
            "R@1 GAINS more than other queries could explain: 2.0 points (1.0 to 3.0).",
        ),
        (
            Change(-0.0001, -0.0002, 0.0001),
            "The loss of R@1 is within what other queries would change: 0.0 points (0.0 to 0.0).",
        ),
        (Change(0.02, -0.01, 0.05), "The loss of R@1 is within what other queries would change"),
    ],
)
def test_a_loss_of_recall_is_held_against_its_interval(loss: Change, said: str) -> None:
    table = rows(0.2, 0.1, 0.1)
    table[-1] = replace(table[-1], losses={"r1_loss": loss})
    assert against_exact(table).sentences[-1].startswith(said)


def remarks(surrogate: float, scatter: Scatter | None) -> tuple[str, ...]:
    table = rows(surrogate, 0, 0)
    assert surrogate_faults(table[0], scatter, "logit", 0.0) == (), "a distance breaks nothing"
    return tuple(surrogate_remarks(table[0], scatter, "logit"))


def test_a_surrogate_is_remarked_on_only_beyond_what_sampling_explains() -> None:
    assert remarks(0.24, SAMPLED) == ()
    (sampled,) = remarks(2.0, SAMPLED)
    assert "10.0 times Monte Carlo's own error at K=10" in sampled
    assert "before any hardware" in sampled
    assert remarks(0.49, EXACT) == ()
    (exact,) = remarks(0.75, EXACT)
    assert (
        "0.75 (centred logit RMSE) from the exact score, 3.0 times Monte Carlo's own error"
    ) in exact
    assert remarks(2.0, None) == ()
    # With many more samples the bound is still what ten of them scatter.
    many = replace(EXACT, samples=100 * EXACT.samples, centred_error=EXACT.centred_error / 10)
    assert remarks(0.49, many) == ()
    assert remarks(0.75, many)


@pytest.mark.parametrize(
    ("loss", "broken"),
    [
        (Change(0.05, 0.02, 0.08), True),
        (Change(0.05, -0.01, 0.11), False),  # other queries could explain it
        (Change(0.005, 0.002, 0.008), False),
    ],
)
def test_a_surrogate_that_loses_recall_is_broken(loss: Change, broken: bool) -> None:
    # However far off Monte Carlo is, which excuses its distance.
    surrogate = replace(rows(2.0, 0, 0)[0], losses={"r1_loss": loss})
    found = surrogate_faults(surrogate, replace(EXACT, centred_error=5.0), "logit", 0.0)
    assert bool(found) is broken
    assert not broken or "the polynomial itself loses 5.0 points (2.0 to 8.0) of R@1" in found[0]


def test_a_surrogate_that_amplifies_is_the_cause_of_what_comes_after() -> None:
    (said,) = surrogate_faults(rows(0.1, 0, 0)[0], EXACT, "logit", 40.0)
    assert "if ed or vd is off by 0.1% of its range, its logit changes by 40, more than" in said
    table = rows(0.1, 900.0, 0.0)
    found = make_headline(
        [StageRow("exact"), *table], "exact", EXACT, "logit", (said,), "polynomial"
    )
    assert (found.cause, found.surrogate_broken) == ("polynomial", True)


def test_points_have_no_scatter() -> None:
    still = Scatter(10, 0.0, centred_error=0.0)
    (said,) = remarks(0.2, still)
    assert "from the Monte Carlo score, which has no scatter: lost" in said
    assert remarks(0.0, still) == ()


def lost(baseline: str, value: float, low: float, high: float) -> BaselineLoss:
    change = Change(value, low, high)
    return BaselineLoss(
        baseline, "polynomial", "R@1", change, 0.9, 0.9 - value, 1500, "text to video"
    )


def test_a_surrogate_that_loses_against_the_plain_distance_is_a_fault_without_a_and_b() -> None:
    first = rows(0.0, 0, 0)[0]
    first = replace(first, metrics={"own_spread": 1.5})  # the reference of itself
    (fault,) = surrogate_faults(first, None, "logit", 0.0, [lost(DISTANCE, 0.2, 0.1, 0.3)])
    assert "loses 20.0 points (10.0 to 30.0) of R@1 against -ed" in fault
    for mild in (lost(DISTANCE, 0.2, -0.01, 0.3), lost(DISTANCE, 0.005, 0.001, 0.01)):
        assert surrogate_faults(first, None, "logit", 0.0, [mild]) == ()
    (cancels,) = surrogate_faults(first, None, "logit", 1.6)
    assert "terms are large and cancel" in cancels
    assert surrogate_faults(first, None, "logit", 1.4) == ()
    table = rows(0.0, 0.3, 0.1)
    found = make_headline([first, *table[1:]], "polynomial", None, "logit", [fault], "polynomial")
    assert (found.cause, found.cause_before, found.surrogate_broken) == ("polynomial", None, True)
    assert any("BROKEN, before all that the compiler did" in one for one in found.sentences)


def test_raw_embeddings_that_retrieve_as_well_are_said() -> None:
    said = [*baseline_sentences([lost(RAW, 0.3, 0.2, 0.4), lost(DISTANCE, 0.3, 0.2, 0.4)])]
    assert said == [
        "Raw embeddings retrieve BETTER: R@1 90.0% by their cosine, 60.0% compiled, a loss of "
        "30.0 points (20.0 to 40.0)."
    ]
    (same,) = baseline_sentences([lost(RAW, 0.01, -0.02, 0.04)])
    assert "as well, as far as these queries tell" in same
    assert not [*baseline_sentences([lost(RAW, -0.1, -0.2, -0.01)])]


def test_reliability_is_of_all_texts_in_bins_that_have_pairs() -> None:
    """By a loop over pairs: right pairs of each text weigh half, wrong ones the other half."""
    n = 30
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(n, n)) + 2 * np.eye(n)
    table = DriftTable(Truth(np.arange(n), n), None)
    table.add_baseline("cosine", logits)
    table.add("polynomial", logits, *rng.normal(size=(2, n, 3)))
    (found,) = reliability_of(table, ["exact", "cosine", "polynomial"])
    assert found.stage == "polynomial"
    p = 1 / (1 + np.exp(-logits))
    own = np.eye(n, dtype=bool)
    weight = np.where(own, 0.5, 0.5 / (n - 1)) / n
    at = np.searchsorted(bin_ends(logits, Truth(np.arange(n), n)), logits, "right")
    assert len(found.predicted) == len(found.observed) == 15
    for one, (predicted, observed) in enumerate(zip(found.predicted, found.observed, strict=True)):
        inside = at == one
        mean = (weight * p)[inside].sum() / weight[inside].sum()
        assert predicted == pytest.approx(mean)
        assert observed == pytest.approx(weight[inside & own].sum() / weight[inside].sum())


def test_reliability_of_one_probability_is_one_point() -> None:
    table = DriftTable(Truth(np.arange(4), 4), None)
    table.add("polynomial", np.zeros((4, 4)), *np.zeros((2, 4, 3)))
    (found,) = reliability_of(table, ["polynomial"])
    assert found.predicted == pytest.approx((0.5,))
    assert found.observed == pytest.approx((0.5,))


def test_a_score_that_is_no_logit_has_no_reliability() -> None:
    table = DriftTable(Truth(np.arange(4), 4), None, of_logit=False)
    table.add("polynomial", np.eye(4), *np.zeros((2, 4, 3)))
    assert list(reliability_of(table, ["polynomial"])) == []
