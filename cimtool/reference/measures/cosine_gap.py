"""The cosine gap: how much nearer the means of right pairs are than those of wrong ones."""

from __future__ import annotations

import numpy as np

from cimtool.base.arrays import Array, FloatArray, IntArray, blocks
from cimtool.base.errors import CimError
from cimtool.reference.judgements import Classes, alike_counts, alike_sums
from cimtool.reference.measures.metric import RankingMetric
from cimtool.reference.metrics import RANKED, unit_rows
from cimtool.reference.truth import Truth

GAP_DECIMALS = 12
"""Cosine gaps are rounded to these: less is rounding in float64, and no gap must read 0."""


def gaps_of(truth: Truth, text: Array, video: Array) -> FloatArray | None:
    """The cosine gap of each text from means [n, d] and [m, d]; None where nothing is wrong."""
    if truth.judged is not None:
        pairs = truth.judged.text, truth.judged.video
        return judged_cosine_gaps(text, video, pairs, truth.leave_one_out)
    if truth.leave_one_out:
        return None if truth.labels is None else class_cosine_gaps(text, video, truth.labels[0])
    return cosine_gaps(text, video, truth.text_to_video) if truth.videos > 1 else None


COSINE_GAP = RankingMetric(
    "cosine_gap", "cosine gap", "cosine_gap", "of right pairs less that of wrong ones",
    heading="cosine\ngap", essential=False, of_means=gaps_of, decimals=GAP_DECIMALS, signed=True,
)  # fmt: skip


def cosine_gaps(text: Array, video: Array, text_to_video: IntArray) -> FloatArray:
    """Return of each text [n] the cosine with its right video less the mean of those with others.

    `text` is [n, d], `video` [m, d], and `text_to_video` [n] names each text's video. A row of
    zeros has cosine 0 with all. Raises CimError where no pair is wrong.
    """
    if len(video) < 2:
        raise CimError(f"the cosine gap needs wrong pairs; there is {len(video)} video, not 2")
    t, v = unit_rows(text), unit_rows(video)
    right = (t * v[text_to_video]).sum(axis=1)
    gaps: FloatArray = right - (t @ v.sum(axis=0) - right) / (len(v) - 1)
    return gaps


def class_cosine_gaps(text: Array, video: Array, labels: Classes) -> FloatArray:
    """Return of each item [n] its mean cosine with others of its class less that with the rest.

    `text` and `video` [n, d] are the same items as queries and as found; none meets itself. NaN for
    an item that is alone in its class, or whose class is all there is.
    """
    t, v = unit_rows(text), unit_rows(video)
    near = np.einsum("nd,nd->n", t, alike_sums(labels, v))
    others = alike_counts(labels)
    rest = len(labels) - 1 - others
    right = (near - (t * v).sum(axis=1)) / np.where(others > 0, others, np.nan)
    gaps: FloatArray = right - (t @ v.sum(axis=0) - near) / np.where(rest > 0, rest, np.nan)
    return gaps


def judged_cosine_gaps(
    text: Array, video: Array, pairs: tuple[IntArray, IntArray], alone: bool
) -> FloatArray:
    """Return of each text [n] its mean cosine with its right videos less that with all others.

    `pairs` are the rows of text and video of each right pair. With `alone` row i of both is one
    item, which does not meet itself. NaN for a text that has nothing right, or nothing wrong.
    """
    t, v = unit_rows(text), unit_rows(video)
    near = np.zeros(len(t))
    for part in blocks(len(pairs[0]), RANKED // t.shape[1]):
        texts, videos = (one[part] for one in pairs)
        np.add.at(near, texts, np.einsum("pd,pd->p", t[texts], v[videos]))
    right = np.bincount(pairs[0], minlength=len(t))
    itself = np.einsum("nd,nd->n", t, v) if alone else 0.0
    wrong = len(v) - alone - right
    rest = t @ v.sum(axis=0) - itself - near
    of_right = near / np.where(right > 0, right, np.nan)
    gaps: FloatArray = of_right - rest / np.where(wrong > 0, wrong, np.nan)
    return gaps
