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
        Row("polynomial", off(surrogate), step_rmse=surrogate),
        Row("quantized", off(0.3), quantized, 0.95, quantized),
        Row("converters fitted", off(0.4), 0.15, 0.9, converters),
        Row("ONNX Runtime", off(0.4), 0.15, 0.9, 0.0),
    ]


def test_the_cause_is_the_largest_step_after_the_polynomial() -> None:
    found = headline(rows(5.0, 0.05, 0.14), MONTE_CARLO, "logit")
    assert (found.cause, found.cause_before) == ("converters fitted", "quantized")
    assert found.cause_rmse == 0.14
    assert (found.compiled_rmse, found.relative_rmse) == (0.15, 0.075)
    assert (found.within_scatter, found.surrogate_rmse) == (True, 5.0)
    assert "within the scatter" in found.sentences[1]


def test_more_than_the_scatter_is_said() -> None:
    found = headline(rows(0.2, 0.1, 0.1), Reference("x", 10, 0.1), "logit")
    assert found.within_scatter is False
    assert "MORE than the scatter" in found.sentences[1]


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
