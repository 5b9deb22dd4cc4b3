"""Progress of long work, given to a function as lines of text."""

from __future__ import annotations

import time
from collections.abc import Callable

Say = Callable[[str], None]


class PartDone(str):
    """A line on a finished epoch, choice, point or shard; a log keeps all of them."""


def silent(text: str) -> None:
    """Ignore progress."""


SHORTEST = 1.0
"""With fewer seconds left, the remaining time is not given."""


class Countdown:
    """Reports parts of long work, with the remaining time at the pace so far.

    Create it before the first part begins.
    """

    def __init__(self, say: Say, clock: Callable[[], float] = time.monotonic):
        self.say, self.clock, self.started = say, clock, clock()

    def tell(self, text: str, done: int, total: int) -> None:
        """Report a line after `done` of `total` parts, counted since this object was created."""
        left = (self.clock() - self.started) / done * (total - done)
        rest = "" if left < SHORTEST else f"; about {duration(left)} left"
        self.say(type(text)(f"{text}{rest}"))


class Sparse:
    """Passes on each PartDone, and at most one other line per `seconds`; none in the first."""

    def __init__(self, say: Say, seconds: float, clock: Callable[[], float] = time.monotonic):
        self.say, self.seconds, self.clock, self.last = say, seconds, clock, clock()

    def __call__(self, text: str) -> None:
        """Pass a line on, or drop it."""
        now = self.clock()
        if isinstance(text, PartDone) or now - self.last >= self.seconds:
            self.last = now
            self.say(text)


def prefixed(say: Say, prefix: str) -> Say:
    """Put `prefix: ` before each line."""
    return lambda text: say(type(text)(f"{prefix}: {text}"))


def duration(seconds: float) -> str:
    """A time in its unit: `40 s`, `3 min`, `2.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
