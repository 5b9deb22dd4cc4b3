"""Pairs to train on and pairs that only validate: another file's, or a part held out."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from cimtool.base.arrays import BoolArray, IntArray
from cimtool.base.errors import ArgumentError, CimError
from cimtool.loading.embeddings import Embeddings
from cimtool.training.pairs import Pairs

HELD_OUT = 0.1
"""Share of the videos that is held out where no other file validates."""


@dataclass(frozen=True)
class Split:
    """A part that is held out: its share of the videos, and the seed that they are drawn by."""

    share: float
    seed: int


def with_validation(rows: Embeddings, validation: Embeddings) -> tuple[Pairs, Pairs]:
    """The pairs of one file to train on, and all of another, which are left out of the first.

    A pair is in both where the rows of both its sides are. Raises CimError where widths differ or
    nothing is left to train on.
    """
    for name in ("text", "video"):
        width, other = getattr(rows, name).shape[1], getattr(validation, name).shape[1]
        if width != other:
            raise CimError(
                f"{validation.file}: {name} rows have {other} numbers; expected {width} as in "
                f"{rows.file}"
            )
    validates = set(_digests(validation))
    kept = [i for i, pair in enumerate(_digests(rows)) if pair not in validates]
    if not kept:
        raise CimError(
            f"{rows.file}: all {len(rows.text)} pairs are also in {validation.file}, which "
            "validates; expected others to train on"
        )
    pairs = Pairs.of(rows, np.array(kept))
    held = Pairs.of(validation, np.arange(len(validation.text)))
    _require_wrong_ones(held, validation.file)
    return pairs, held


def _digests(rows: Embeddings) -> list[bytes]:
    pairs = zip(rows.text, rows.video[rows.right], strict=True)
    return [hashlib.sha256(text.tobytes() + video.tobytes()).digest() for text, video in pairs]


def split(rows: Embeddings, share: float, seed: int) -> tuple[Pairs, Pairs]:
    """Hold out a share of the videos with all their texts, drawn by the seed.

    Raises CimError where the right videos are not known or too few are held out to rank.
    """
    if not 0 < share < 1:
        raise ArgumentError("{held_out} is {:g}; expected a share between 0 and 1", share)
    videos = np.unique(rows.right)
    count = round(share * len(videos))
    held = held_texts(rows.right, videos, count, np.random.default_rng(seed))
    if held.all():
        raise ArgumentError("{}: {held_out} {:g} leaves no pair to train on", rows.file, share)
    pairs, validation = (Pairs.of(rows, np.flatnonzero(mask)) for mask in (~held, held))
    where = f"{rows.file}: of {len(videos)} videos the held-out share of {share:g}"
    _require_wrong_ones(validation, where)
    return pairs, validation


def held_texts(
    right: IntArray, videos: IntArray, count: int, rng: np.random.Generator
) -> BoolArray:
    """Draw `count` of the videos; true [n] for texts whose `right` video is one of them."""
    return np.isin(right, rng.permutation(videos)[:count])


def _require_wrong_ones(pairs: Pairs, where: str) -> None:
    if len(pairs) < 2 or len(pairs.video) < 2:
        raise CimError(f"{where}: {len(pairs)} pairs validate; expected at least 2 videos to rank")
    if pairs.alone and pairs.labels is not None and int(pairs.labels.bincount().max()) < 2:
        raise CimError(
            f"{where}: no two of the {len(pairs)} items that validate share a class; expected some "
            "to find each other"
        )
