"""Scores of matched against unmatched pairs: they show swapped sides or a wrong sign."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cimtool.base.arrays import FloatArray, IntArray
from cimtool.base.errors import rows_of
from cimtool.base.modality_names import item_names
from cimtool.ir.program import Program
from cimtool.loading.embeddings import Embeddings
from cimtool.simulation.simulator import Simulator

MOST_PAIRS = 256
"""Texts whose pairs are scored: the first ones."""

FEWEST = 20
"""Different matched videos at least; with fewer, the standard error of a mean is unreliable."""

SURE = 5.0
"""Standard errors by which a mean must differ; by chance this happens once in a million."""

SORTED = 0.75
"""A model matches if a matched pair scores above this share of unmatched pairs."""


def matched_warnings(program: Program, data: Embeddings) -> list[str]:
    """A sentence if matched pairs score below unmatched pairs, or better with swapped sides.

    `program` is the trained program; it scores the first MOST_PAIRS texts of `data` with all their
    videos. There is no sentence if pairs are not known, or are few.
    """
    right = data.text_to_video
    if right is None or data.alone or data.judged is not None:
        return []
    videos, own = np.unique(right[:MOST_PAIRS], return_inverse=True)
    if len(videos) < FEWEST:
        return []
    pairs = replace(data, text=data.text[:MOST_PAIRS], video=data.video[videos])
    with rows_of(data.file), np.errstate(all="ignore"):  # other checks report these
        found = _shares_below(program, pairs, own)
        swapped = None
        if program.text.extent("x") == program.video.extent("x"):
            swapped = _shares_below(program, pairs, own, swap=True)
    texts, items = item_names(data.called)
    of = f"{data.file}: a matched pair scores above {found.mean():.1%} of the unmatched ones"
    chance = f"the first {len(pairs.text)} {texts} and their {items}; 50% is chance"
    if swapped is not None and swapped.mean() >= SORTED and _surely_above(swapped - found, 0.0):
        return [
            f"{of} ({chance}), and above {swapped.mean():.1%} with each side's rows through the "
            "other's projector; the two projectors, or the two arrays of the data, are probably "
            "swapped"
        ]
    if _surely_above(-found, -0.5):
        return [
            f"{of}, below chance ({chance}); the sign of the score, the order of the pairs or a "
            "projector probably differs from the trained model"
        ]
    return []


def _surely_above(values: FloatArray, least: float) -> bool:
    error = values.std(ddof=1) / np.sqrt(len(values))
    return bool(values.mean() - least > SURE * error)


def _shares_below(
    program: Program, pairs: Embeddings, own: IntArray, swap: bool = False
) -> FloatArray:
    """For each video [m], the share of unmatched videos that score below it; ties count half.

    The share is averaged over the video's texts, which are not independent. With `swap`, the rows
    of each side go through the other side's projector.
    """
    simulator = Simulator(program)
    first, second = ("video", "text") if swap else ("text", "video")
    text, video = simulator.encode(first, pairs.text), simulator.encode(second, pairs.video)
    scores = simulator.score(text, video)
    matched = scores[np.arange(len(scores)), own][:, None]
    lead = np.sign(matched - scores).sum(axis=1) / (scores.shape[1] - 1)
    shares: FloatArray = np.bincount(own, (1 + lead) / 2) / np.bincount(own)
    return shares
