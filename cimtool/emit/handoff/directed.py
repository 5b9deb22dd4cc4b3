"""Directed inputs of requantisers: sums at both sides of a rounding threshold.

Random sums do not find a multiplier that lacks its lowest bits; the sums here are those that do.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.emit.handoff.layers import DrivenLayer, Requantisation, write_numbers

CANDIDATES = 4096
"""Rounding thresholds of a channel among which the one is chosen that fewer bits move past."""

DROPPED = 6
"""Bits of a multiplier whose absence the inputs are chosen to show."""


def write_directed(layers: list[DrivenLayer], folder: Path) -> None:
    """Write `folder`/LAYER/inputs.hex and outputs.hex: four numbers a channel, line by line.

    They are what the requantiser takes, behind the stages of affine.hex: below and above a
    threshold, of positive inputs and then of negative ones.
    """
    for layer in layers:
        after = layer.requantisation
        if after is not None:
            own = folder / layer.name
            own.mkdir()
            known = layer.graph.types[layer.graph.by_name[after.name].inputs[0]]
            lo, hi = (np.broadcast_to(end, after.shift.shape) for end in (known.lo, known.hi))
            x = directed_inputs(after, lo.astype(np.int64), hi.astype(np.int64))
            write_numbers(own / "inputs.hex", x)
            write_numbers(own / "outputs.hex", after.rounded(x.T).T)


def directed_inputs(after: Requantisation, lo: IntArray, hi: IntArray) -> IntArray:
    """Inputs [N, 4] within `lo` to `hi` [N] at a threshold of each sign and channel."""
    half = np.int64(1) << after.shift - 1
    missing = after.multiplier & (1 << DROPPED) - 1
    found = []
    for low, high in ((np.maximum(lo, 0), hi), (lo, np.minimum(hi, 0))):
        low, high = np.minimum(low, hi), np.maximum(high, lo)
        ends = [np.clip(after.rounded(end), after.lo, after.hi) for end in (low, high)]
        share = np.linspace(0, 1, CANDIDATES)[:, None]
        codes = ends[0] + np.floor(share * (ends[1] - ends[0])).astype(np.int64)
        # The least input that is rounded to a code or above.
        above = -((half - (codes << after.shift)) // after.multiplier)
        above = np.clip(above, low + 1, np.maximum(high, low + 1))
        above = np.minimum(above, hi)
        below = np.maximum(above - 1, lo)
        margins = []
        for x in (above, below):
            rest = x * after.multiplier + half & (half << 1) - 1
            away = np.where(x > 0, rest, (half << 1) - 1 - rest)
            shown = after.rounded(x) != after.with_multiplier(after.multiplier - missing).rounded(x)
            margins.append(np.where(shown, np.abs(x) * missing - away, -1))
        best = np.maximum(*margins).argmax(axis=0)[None]
        found += [np.take_along_axis(x, best, axis=0)[0] for x in (below, above)]
    return np.stack(found, axis=1)
