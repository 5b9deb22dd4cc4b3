from __future__ import annotations

from cimtool.reference.metrics import Drift
from cimtool.verification.drift import Row
from cimtool.verification.evaluate import Reference
from cimtool.verification.headline import headline, surrogate_warning

MONTE_CARLO = Reference("Monte Carlo (K=10)", 10, 0.2)


def off(rmse: float) -> Drift:
    return Drift(rmse, rmse, 0.0, rmse, 2.0, 0.9, 0.99)


def rows(surrogate: float, quantized: float, converters: float) -> list[Row]:
    return [
        Row("Monte Carlo (K=10)"),
        Row("polynomial", off(surrogate), spread=1.5, step_rmse=surrogate),
        Row("quantized", off(0.3), 1.5, quantized, 0.95, quantized),
        Row("converters fitted", off(0.4), 1.5, 0.15, 0.9, converters),
        Row("ONNX Runtime", off(0.4), 1.5, 0.15, 0.9, 0.0),
    ]


def test_the_cause_is_the_largest_step_after_the_polynomial() -> None:
    found = headline(rows(5.0, 0.05, 0.14), MONTE_CARLO, "logit")
    assert (found.cause, found.cause_before) == ("converters fitted", "quantized")
    assert found.cause_rmse == 0.14
    assert (found.compiled_rmse, found.relative_rmse) == (0.15, 0.15 / 1.5)
    assert (found.within_scatter, found.surrogate_rmse) == (True, 5.0)
    assert "within the scatter" in found.sentences[1]


def test_more_than_the_scatter_is_said() -> None:
    found = headline(rows(0.2, 0.1, 0.1), Reference("x", 10, 0.1), "logit")
    assert found.within_scatter is False
    assert "MORE than the scatter" in found.sentences[1]


def test_the_share_is_of_the_polynomials_own_spread() -> None:
    found = headline(rows(0.2, 0.1, 0.1), MONTE_CARLO, "logit")  # the reference's spread is 2
    assert found.relative_rmse == 0.15 / 1.5
    assert "10.0% of its spread within a query" in found.sentences[0]


def test_a_scatter_above_the_spread_is_no_comfort() -> None:
    found = headline(rows(0.2, 0.1, 0.1), Reference("x", 3, 1.6), "logit")
    assert not any("within the scatter" in sentence for sentence in found.sentences)
    assert found.sentences[1] == (
        "Monte Carlo at K=3 scatters more (standard error 1.6) than the polynomial's scores differ "
        "within a query (1.5): use more samples."
    )


def test_scores_that_do_not_differ_ask_for_no_samples() -> None:
    table = rows(0.2, 0.1, 0.1)
    table[1] = Row("polynomial", off(0.2), spread=0.0)
    found = headline(table, MONTE_CARLO, "logit")
    assert found.relative_rmse is None
    assert "within the scatter" in found.sentences[1]
    assert not any("more samples" in sentence for sentence in found.sentences)


def test_a_reference_without_scatter_has_no_ratio() -> None:
    exact = Reference("x", 10, 0.0)
    assert headline(rows(0.2, 0.1, 0.1), exact, "logit").within_scatter is False
    warning = surrogate_warning(rows(0.2, 0, 0), exact)
    assert warning is not None
    assert "0.2 from the Monte Carlo score, which has no scatter: a loss" in warning
    assert surrogate_warning(rows(0.0, 0, 0), exact) is None


def test_without_monte_carlo_its_scatter_is_not_known() -> None:
    found = headline(rows(0.2, 0.1, 0.1), Reference("polynomial", 10, None), "score")
    assert found.within_scatter is None
    assert not any("scatter" in sentence for sentence in found.sentences)
    assert "(score RMSE)" in found.sentences[0]


def test_where_nothing_changes_nothing_is_the_cause() -> None:
    found = headline(rows(0.2, 0.0, 0.0), MONTE_CARLO, "logit")
    assert found.cause is None
    assert found.sentences[-1] == "No step changes any score."


def test_a_surrogate_is_blamed_only_beyond_what_sampling_explains() -> None:
    assert surrogate_warning(rows(0.24, 0, 0), MONTE_CARLO) is None
    warning = surrogate_warning(rows(2.0, 0, 0), MONTE_CARLO)
    assert warning is not None
    assert "10.0 times" in warning
    assert "before any hardware" in warning
