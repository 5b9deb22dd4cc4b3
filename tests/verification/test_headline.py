from __future__ import annotations

from dataclasses import replace

import pytest

from cimtool.reference.bootstrap import Change
from cimtool.reference.metrics import RAW
from cimtool.verification.baselines import DISTANCE, BaselineLoss
from cimtool.verification.drift import StageRow
from cimtool.verification.faults import baseline_sentences, surrogate_faults
from cimtool.verification.headline import equal_text, make_headline
from cimtool.verification.references import Scatter

MONTE_CARLO = "Monte Carlo (K=10)"
SAMPLED = Scatter(10, 0.2)
EXACT = Scatter(10, 0.2, rmse=0.25, top1_agreement=0.8)


def row(stage: str, rmse: float, spread: float = 1.5, **metrics: float) -> StageRow:
    known = {
        "logit_rmse": rmse, "centred_rmse": rmse, "bias": 0.0, "max_abs": rmse, "spread": 2.0,
        "top1_agreement": 0.9, "spearman": 0.99, "own_spread": spread, "relative_rmse": rmse / 2.0,
    }  # fmt: skip
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
    assert found.cause_rmse == 0.14
    assert (found.compiled_rmse, found.relative_rmse) == (0.15, 0.15 / 1.5)
    assert found.surrogate_rmse == 0.3
    assert "within the scatter" in found.sentences[1]


def test_against_samples_a_broken_surrogate_is_not_blamed_on_hardware() -> None:
    found = against_samples(rows(2.17, 3.0, 0.14))
    assert found.surrogate_broken
    assert (found.cause, found.cause_before) == ("polynomial", MONTE_CARLO)
    assert (
        "The surrogate is BROKEN: the float polynomial is 2.17 from the Monte Carlo (K=10) score, "
        "and all that the compiler did adds 0.15."
    ) in found.sentences


def test_against_the_exact_score_the_surrogate_is_a_step_too() -> None:
    found = against_exact(rows(5.0, 0.05, 0.14))
    assert (found.cause, found.cause_before, found.cause_rmse) == ("polynomial", "exact", 5.0)
    assert found.surrogate_broken
    assert (
        "The surrogate is BROKEN: the float polynomial is 5 from the exact score, and all that the "
        "compiler did adds 0.15."
    ) in found.sentences
    mild = against_exact(rows(0.3, 0.05, 0.14))
    assert not mild.surrogate_broken
    assert any("The surrogate itself costs most" in sentence for sentence in mild.sentences)
    assert against_exact(rows(0.01, 0.05, 0.14)).cause == "converters fitted"


def test_the_k_that_errs_as_much_goes_with_the_square() -> None:
    # 0.4 from the exact score where K = 10 is 0.25 from it: fewer samples would do.
    found = against_exact(rows(0.01, 0.3, 0.1))
    assert found.equal_samples == pytest.approx(10 * (0.25 / 0.4) ** 2)
    assert found.sentences[1] == (
        "That is FURTHER than Monte Carlo at K=10 is (0.25, top-1 agreement 80.0%), which would "
        "err as much at about K=4."
    )
    better = against_exact(rows(0.01, 0.3, 0.1), replace(EXACT, rmse=1.0))
    assert "closer than Monte Carlo" in better.sentences[1]
    assert better.sentences[1].endswith("at about K=62.")
    # Against samples the standard error stands for their own error, the polynomial for the truth.
    assert against_samples(rows(0.2, 0.1, 0.1)).equal_samples == pytest.approx(
        10 * (0.2 / 0.15) ** 2
    )


@pytest.mark.parametrize(
    ("samples", "text"),
    [
        (0.3, "would err less with a single sample a side"),
        (4.4, "would err as much at about K=4"),
        (52.3, "would err as much at about K=52"),
        (12_345.6, "would err as much at about K=12,000"),
    ],
)
def test_samples_are_told_to_two_digits(samples: float, text: str) -> None:
    assert equal_text(samples) == text


def test_more_than_the_scatter_is_said() -> None:
    found = against_samples(rows(0.2, 0.1, 0.1), Scatter(10, 0.1))
    assert "MORE than the scatter" in found.sentences[1]


def test_the_share_is_of_the_polynomials_own_spread() -> None:
    found = against_samples(rows(0.2, 0.1, 0.1))  # the reference's spread is 2
    assert found.relative_rmse == 0.15 / 1.5
    assert "10.0% of its spread within a query" in found.sentences[0]


def test_a_scatter_above_the_spread_is_no_comfort() -> None:
    found = against_samples(rows(0.2, 0.1, 0.1), Scatter(3, 1.6))
    assert not any("within the scatter" in sentence for sentence in found.sentences)
    assert found.sentences[1] == (
        "Monte Carlo at K=3 scatters more (standard error 1.6) than the polynomial's scores differ "
        "within a query (1.5): use more samples."
    )


def test_scores_that_do_not_differ_ask_for_no_samples() -> None:
    table = rows(0.2, 0.1, 0.1)
    table[0] = row("polynomial", 0.2, spread=0.0)
    found = against_samples(table)
    assert found.relative_rmse is None
    assert "within the scatter" in found.sentences[1]
    assert not any("more samples" in sentence for sentence in found.sentences)


def test_without_monte_carlo_its_scatter_is_not_known() -> None:
    found = against_samples(rows(0.2, 0.1, 0.1), None, "score")
    assert found.equal_samples is None
    assert not any("scatter" in sentence for sentence in found.sentences)
    assert "(score RMSE)" in found.sentences[0]


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


def faults(surrogate: float, scatter: Scatter | None, jitter: float = 0.0) -> tuple[str, ...]:
    return surrogate_faults(rows(surrogate, 0, 0)[0], scatter, "logit", jitter)


def test_a_surrogate_is_blamed_only_beyond_what_sampling_explains() -> None:
    assert faults(0.24, SAMPLED) == ()
    (sampled,) = faults(2.0, SAMPLED)
    assert "10.0 times Monte Carlo's standard error" in sampled
    assert "before any hardware" in sampled
    assert faults(0.49, EXACT) == ()
    (exact,) = faults(0.75, EXACT)
    assert "0.75 (logit RMSE) from the exact score, 3.0 times Monte Carlo's own error" in exact
    assert faults(2.0, None) == ()
    # With many more samples the bound is still what ten of them scatter.
    assert EXACT.rmse is not None
    many = replace(EXACT, samples=100 * EXACT.samples, rmse=EXACT.rmse / 10)
    assert faults(0.49, many) == ()
    assert faults(0.75, many)


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
    found = surrogate_faults(surrogate, replace(EXACT, rmse=5.0), "logit", 0.0)
    assert bool(found) is broken
    assert not broken or "the polynomial itself loses 5.0 points (2.0 to 8.0) of R@1" in found[0]


def test_a_surrogate_that_amplifies_is_the_cause_of_what_comes_after() -> None:
    (said,) = faults(0.1, EXACT, jitter=40.0)
    assert "where ed or vd is 0.1% of its range off, its logit changes by 40, more than" in said
    table = rows(0.1, 900.0, 0.0)
    found = make_headline(
        [StageRow("exact"), *table], "exact", EXACT, "logit", (said,), "polynomial"
    )
    assert (found.cause, found.surrogate_broken) == ("polynomial", True)


def test_points_have_no_scatter() -> None:
    still = Scatter(10, 0.0)
    (said,) = faults(0.2, still)
    assert "from the Monte Carlo score, which has no scatter: lost" in said
    assert faults(0.0, still) == ()


def lost(baseline: str, value: float, low: float, high: float) -> BaselineLoss:
    change = Change(value, low, high)
    return BaselineLoss(baseline, "polynomial", "R@1", change, 0.9, 0.9 - value)


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
