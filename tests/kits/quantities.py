"""Values of quantities that a test knows to be known."""

from __future__ import annotations

from cimtool.costs.totals import Quantity


def known(one: Quantity) -> float:
    """The value of a quantity, which is not None."""
    assert one.value is not None
    return one.value
