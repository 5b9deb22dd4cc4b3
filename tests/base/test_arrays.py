from __future__ import annotations

import numpy as np
import pytest

from cimtool.base.arrays import narrow


@pytest.mark.parametrize(
    ("numbers", "kind"),
    [
        ([-128, 127], np.int8),
        ([0, 128], np.int16),
        ([-129, 0], np.int16),
        ([0, 1 << 15], np.int32),
        ([-(1 << 31) - 1, 0], np.int64),
        ([], np.int8),
    ],
)
def test_numbers_are_kept_in_the_fewest_bytes(numbers: list[int], kind: type) -> None:
    found = narrow(np.array(numbers, np.int64))
    assert found.dtype == kind
    assert found.tolist() == numbers
