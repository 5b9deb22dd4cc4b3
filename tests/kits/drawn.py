"""The number of examples that tests of properties draw."""

from __future__ import annotations

from hypothesis import settings

PROFILE = "untimed"
FIRST_TIER = "first tier"
WHOLE = 100
"""Examples of a test that names no number, in the second tier."""
FIRST = 30
"""The same in the first tier."""
FEWEST = 10
"""No tier draws fewer, if a test asks for as many."""


def load_profile(quick: bool) -> None:
    """Let no test fail by its duration, and draw less in the first tier.

    A first call compiles, and machines are busy.
    """
    settings.register_profile(PROFILE, deadline=None, max_examples=WHOLE)
    settings.register_profile(FIRST_TIER, deadline=None, max_examples=FIRST)
    settings.load_profile(FIRST_TIER if quick else PROFILE)


def examples(count: int) -> int:
    """As many of `count` examples as the tier that runs draws."""
    return max(min(count, FEWEST), count * settings().max_examples // WHOLE)
