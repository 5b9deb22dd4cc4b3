"""Goals of a choice of bits, as a user writes them."""

from __future__ import annotations

import pytest

from cimtool.base.errors import CimError
from cimtool.bundle.bit_choice import DriftGoal


def test_a_goal_is_the_least_error_or_that_of_samples_or_of_a_metric() -> None:
    assert DriftGoal.of("least") == DriftGoal("least", None)
    assert DriftGoal.of("mc=200").samples == 200
    assert DriftGoal.of("mc=200").metric == "logit_rmse"
    found = DriftGoal.of("centred_rmse=0.02")
    assert (found.metric, found.limit, found.samples) == ("centred_rmse", 0.02, None)
    assert DriftGoal.of("r1_loss=0.01").metric == "r1_loss"


@pytest.mark.parametrize(
    "text",
    ["", "most", "least=1", "mc", "mc=", "mc=1.5", "mc=x", "logit_rmse", "logit_rmse=-1",
     "logit_rmse=0", "logit_rmse=nan", "logit_rmse=inf", "r1_loss=0", "r1_loss=1", "r5_loss=0.1"],
)  # fmt: skip
def test_other_goals_are_refused_with_what_is_expected(text: str) -> None:
    with pytest.raises(CimError) as caught:
        DriftGoal.of(text)
    goals = (
        "least, given, mc=K, logit_rmse=X, centred_rmse=X or r1_loss=X, X above 0 (a loss below 1)"
    )
    assert str(caught.value) == f"drift is {text}; expected {goals}"


@pytest.mark.parametrize("text", ["mc=0", "mc=-1", "mc=1001"])
def test_samples_are_few_enough_to_be_computed(text: str) -> None:
    with pytest.raises(CimError, match=f"drift is {text}; expected 1 to 1,000 samples, or logit_"):
        DriftGoal.of(text)
