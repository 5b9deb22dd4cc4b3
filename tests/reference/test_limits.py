from __future__ import annotations

import math

import pytest

from cimtool.base.errors import CimError
from cimtool.reference.queries import DriftLimit, check_metrics


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"r1_los": 0.1}, 'budget metric "r1_los" is not known: .*did you mean "r1_loss"'),
        ({"r1_loss": math.nan}, "budget r1_loss: nan is no finite number"),
        ({"r1_loss": "0.1"}, r"budget r1_loss: '0\.1' is no finite number"),
    ],
)
def test_a_limit_is_a_number_of_a_known_metric(limits: dict[str, float], message: str) -> None:
    with pytest.raises(CimError, match=message) as found:
        check_metrics("budget", limits)
    assert found.value.exit_status == 2


def test_a_limit_is_kept_up_to_its_value() -> None:
    values = {"r1_loss": 0.01, "r5_loss": 0.011, "logit_rmse": math.nan}
    limits = {"r1_loss": 0.01, "r5_loss": 0.01, "logit_rmse": 1}
    at, over, broken = (DriftLimit(name, limit, values[name]) for name, limit in limits.items())
    assert (at.kept, over.kept, broken.kept) == (True, False, False)
    assert over.sentence() == "r5_loss is 0.011; the limit is 0.01"
    assert at == DriftLimit("r1_loss", 0.01, 0.01)
