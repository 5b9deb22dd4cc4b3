"""Progress of long work, told to a function that takes one line."""

from __future__ import annotations

import time
from collections.abc import Callable

Say = Callable[[str], None]


class PartDone(str):
    """A line that tells of an epoch, a choice, a point or a shard that is done: a log has each."""


def silent(text: str) -> None:
    """Tell nothing: the progress of a call that nobody watches."""


SHORTEST = 1.0
"""Seconds below which no time left is told."""


class Countdown:
    """Tells parts of a long work, and the time that the rest takes at the pace so far.

    It is made before the first of them begins.
    """

    def __init__(self, say: Say, clock: Callable[[], float] = time.monotonic):
        self.say, self.clock, self.started = say, clock, clock()

    def tell(self, text: str, done: int, total: int) -> None:
        """Tell a line after `done` parts of `total`, counted from where this work began."""
        left = (self.clock() - self.started) / done * (total - done)
        rest = "" if left < SHORTEST else f"; about {duration(left)} left"
        self.say(type(text)(f"{text}{rest}"))


class Sparse:
    """Tells each PartDone, and at most one other line in `seconds`, the first after as long."""

    def __init__(self, say: Say, seconds: float, clock: Callable[[], float] = time.monotonic):
        self.say, self.seconds, self.clock, self.last = say, seconds, clock, clock()

    def __call__(self, text: str) -> None:
        """Tell a line, or leave it out."""
        now = self.clock()
        if isinstance(text, PartDone) or now - self.last >= self.seconds:
            self.last = now
            self.say(text)


def prefixed(say: Say, prefix: str) -> Say:
    """Tell lines behind `prefix: `."""
    return lambda text: say(type(text)(f"{prefix}: {text}"))


def duration(seconds: float) -> str:
    """A time in its unit: `40 s`, `3 min`, `2.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
