"""A figure with its interval: what a bootstrap finds and a document shows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """The two ends of the interval of a figure, at 95%."""

    low: float
    high: float


@dataclass(frozen=True)
class Change:
    """A figure, such as a difference of two metrics, and its interval."""

    value: float
    low: float
    high: float

    @property
    def interval(self) -> Interval:
        """The interval alone."""
        return Interval(self.low, self.high)

    @property
    def reversed(self) -> Change:
        """The change the other way, a gain for a loss."""
        return Change(0.0 - self.value, 0.0 - self.high, 0.0 - self.low)

    @property
    def is_real(self) -> bool:
        """True if the interval leaves out 0."""
        return self.low > 0 or self.high < 0
