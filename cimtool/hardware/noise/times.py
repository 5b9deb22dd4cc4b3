"""Times as a user writes them: `30s`, `10m`, `1h`, `1d`, `1y`."""

from __future__ import annotations

import re

from cimtool.base.errors import Argument, ArgumentError

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "y": 365.25 * 86400.0}
LONGEST = 100 * UNITS["y"]


def parse_time(text: str, where: str = Argument("time")) -> float:
    """Seconds of a time such as `1h`; CimError naming `where` for anything else."""
    found = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)([smhdy])", text)
    seconds = float(found[1]) * UNITS[found[2]] if found else -1.0
    if not 0 <= seconds <= LONGEST:
        raise ArgumentError(
            "{} is {}; expected a time of at most 100y, as a number and one of s, m, h, d, y: 30s, "
            "10m, 1h, 1d, 1y",
            where,
            text or "empty",
        )
    return seconds


def time_text(seconds: float) -> str:
    """Write seconds in the largest unit that keeps the number at 1 or more: `1 h`."""
    unit = max((u for u in UNITS if seconds >= UNITS[u]), key=UNITS.__getitem__, default="s")
    return f"{seconds / UNITS[unit]:g} {unit}"


def read_at(time: str, corner: str | None) -> str:
    """Write a time of reading and a corner, if any: `1 h, ss`."""
    return time if corner is None else f"{time}, {corner}"


def read_after(time: str, corner: str | None) -> str:
    """The same in a sentence: `1 h after programming at corner ss`."""
    return f"{time} after programming" + ("" if corner is None else f" at corner {corner}")
