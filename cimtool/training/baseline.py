"""Baselines of a run: the raw rows that nothing projects, and a start on rows that train."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from cimtool.base.modality_names import TEXT_VIDEO, Modalities
from cimtool.training.history import (
    RetrievalEpoch,
    best_epoch,
    means_of,
    recalls_of,
    shares_text,
)
from cimtool.training.models import ProjectorModel
from cimtool.training.pairs import Pairs
from cimtool.training.towers import all_cosines

CHANCES = 10
"""A start whose R@1 is below so many times that of guessing has learnt nothing to suspect."""


def raw_recalls(held: Pairs, by_class: bool) -> dict[str, float] | None:
    """Return the figures of held-out rows by their cosine, as `recalls_of`.

    None where rows of texts and videos differ in width.
    """
    if held.text.shape[1] != held.video.shape[1]:
        return None
    return recalls_of(all_cosines(held.text.double(), held.video.double()).numpy(), held, by_class)


def leading(recalls: Mapping[str, float]) -> tuple[str, float]:
    """The title and the mean of both ways of the figure that leads: mAP, or else R@1."""
    means = means_of(recalls)
    name = "mAP" if "mAP" in means else "R@1"
    return name, means[name]


def raw_sentence(raw: Mapping[str, float] | None, called: Modalities = TEXT_VIDEO) -> str:
    """The figures of raw rows, or that they have no cosine."""
    if raw is None:
        text, video = called
        return f"Raw embeddings have no cosine: {text} and {video} rows differ in width."
    return f"Raw embeddings by cosine, on the same pairs: {shares_text(raw)}."


def below_raw(
    history: Sequence[RetrievalEpoch], raw: Mapping[str, float] | None, model: type[ProjectorModel]
) -> str | None:
    """The warning where the best epoch is worse than the raw rows; None where it is not.

    Of models whose losses train it as well it names the one that starts from the rows.
    """
    if raw is None:
        return None
    (name, known), (_, found) = leading(raw), leading(best_epoch(history).recalls)
    if found >= known:
        return None
    alike = model.has_variance and not model.one_modality and not model.starts_from_rows
    names = [name for name, kind in ProjectorModel.family.items() if kind.starts_from_rows]
    other = f"; model {' or '.join(names)} starts from the rows as they are" if alike else ""
    return (
        f"warning: the trained model is worse than raw embeddings by cosine: held-out {name} "
        f"{found:.1%} against {known:.1%}{other}"
    )


def start_is_best(history: Sequence[RetrievalEpoch], start: str | None) -> str | None:
    """The warning where no epoch is better than the start, which is what is kept."""
    if len(history) < 2 or best_epoch(history).number:
        return None
    kept = "random weights" if start is None else start
    return (
        f"warning: nothing was learnt: none of {history[-1].number} epochs is better than the "
        f"start, so that the kept model is {kept}"
    )


def sample(pairs: Pairs, count: int, seed: int) -> Pairs:
    """Draw so many videos of pairs with their texts, as many as there are where they are fewer."""
    # Not the draws of `split`, or a start that held out by the same seed has seen none of them.
    chosen = np.random.default_rng((seed, 1)).permutation(len(pairs.video))[:count]
    return pairs.among(np.isin(pairs.right.numpy(), chosen))


def suspicion(
    start: str, held: Mapping[str, float], trains: Mapping[str, float], videos: int
) -> str | None:
    """The warning for a start of unknown training rows, by its figures before any training.

    `trains` are those of as many pairs that train. A model that saw only these does worse on the
    held-out ones: where it does not, it saw all or none of them, and which of both is not known.
    """
    (name, own), (_, other) = leading(held), leading(trains)
    spread = 2 * math.sqrt(2 * max(own * (1 - own), 0.0) / max(videos, 1))
    if own < CHANCES / max(videos, 1) or own < other - spread:
        return None
    return (
        f"warning: {start} keeps no provenance, and before any training its held-out {name} is "
        f"{own:.1%}, {other:.1%} on as many pairs that train: it was trained on both or on "
        "neither; if on both, no figure here is of unseen pairs (expected validation rows that it "
        "never saw)"
    )


def last_is_best(history: Sequence[RetrievalEpoch]) -> str | None:
    """The remark where the best epoch is the last, so that more may be better."""
    last = history[-1].number
    if not last or best_epoch(history).number != last:
        return None
    return f"The best epoch is the last of {last}: more epochs may gain."
