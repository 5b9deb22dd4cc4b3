"""Checks: every bit of every implementation, and limits on the compiled model's metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cimtool.reference.queries import limit_metrics, once
from cimtool.verification.bits import BitCount, failures
from cimtool.verification.drift import DriftTable
from cimtool.verification.limits import Limit, check_limits


@dataclass(frozen=True)
class Checks:
    """The values that differ between implementations, and limits on `metrics`."""

    bits: tuple[BitCount, ...]
    metrics: Mapping[str, float]
    limits: tuple[Limit, ...]

    @property
    def failures(self) -> tuple[str, ...]:
        """One sentence for each check that did not hold."""
        return (*failures(self.bits), *(one.sentence() for one in self.limits if not one.kept))


def check(bits: tuple[BitCount, ...], table: DriftTable, limits: Mapping[str, float]) -> Checks:
    """Hold the last row of a table against limits.

    Losses are from the reference's row, the float score's where no other reference is known.
    """
    reference = next(one for one in table.queries if "rank" in one.text)
    metrics = limit_metrics(once(table.queries[-1]), once(reference))
    return Checks(bits, metrics, check_limits(limits, metrics))
