from __future__ import annotations

import math

import pytest

from cimtool.base.errors import CimError
from cimtool.verification.limits import Limit, check_limits, parse_limits


def test_limits_are_read() -> None:
    assert parse_limits(["logit_rmse=0.2", "r1_loss = -0.01"]) == {
        "logit_rmse": 0.2,
        "r1_loss": -0.01,
    }


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["logit_rms=0.2"], 'did you mean "logit_rmse"'),
        (["logit_rmse"], "--max-drift logit_rmse: expected METRIC=VALUE"),
        (["logit_rmse=low"], '"low" is no finite number'),
        (["logit_rmse=nan"], '"nan" is no finite number'),
        (["r1_loss=1", "r1_loss=2"], "given twice"),
    ],
)
def test_what_is_no_limit_is_refused(texts: list[str], message: str) -> None:
    with pytest.raises(CimError, match=message) as found:
        parse_limits(texts)
    assert found.value.exit_status == 2


def test_a_limit_is_kept_up_to_its_value() -> None:
    at, over, broken = check_limits(
        {"r1_loss": 0.01, "r5_loss": 0.01, "logit_rmse": 1},
        {"r1_loss": 0.01, "r5_loss": 0.011, "logit_rmse": math.nan, "r10_loss": 9},
    )
    assert (at.kept, over.kept, broken.kept) == (True, False, False)
    assert over.sentence() == "r5_loss is 0.011; the limit is 0.01"
    assert at == Limit("r1_loss", 0.01, 0.01)
