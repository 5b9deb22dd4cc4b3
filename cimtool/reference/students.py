"""Student's interval of the mean of a few independent figures, such as those of several seeds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cimtool.reference.bootstrap import LEVEL, Change


def students(values: Sequence[float]) -> Change:
    """The mean and its interval at LEVEL; the ends are NaN where there are fewer than two."""
    mean, count = float(np.mean(values)), len(values)
    if count < 2:
        return Change(mean, np.nan, np.nan)
    from scipy.special import stdtrit  # slow to load, and every command imports this

    half = float(stdtrit(count - 1, (1 + LEVEL) / 2) * np.std(values, ddof=1) / np.sqrt(count))
    return Change(mean, mean - half, mean + half)
