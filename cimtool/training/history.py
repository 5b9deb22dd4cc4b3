"""The history of a run: a row per epoch, which of them is best, and what it is measured by.

That is retrieval, beside the baselines: the raw rows that nothing projects, and a start on rows
that train. The question of a loss is what finding the right video costs by it.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from cimtool.base.arrays import FloatArray
from cimtool.base.intervals import Interval
from cimtool.base.modality_names import TEXT_VIDEO, Modalities
from cimtool.reference.bootstrap import interval, resamples
from cimtool.reference.measures import RECALLS, WAYS
from cimtool.reference.metrics import on_grid
from cimtool.reference.queries import metrics
from cimtool.reference.retrieval import retrieval, retrieved
from cimtool.reference.truth import Truth, truth_among_others, truth_judged, truth_of
from cimtool.training.loss import Loss
from cimtool.training.models import ProjectorModel
from cimtool.training.pairs import Pairs, full_batches
from cimtool.training.towers import all_cosines

MEASURES = {"map": "mAP", **{f"r{k}": f"R@{k}" for k in RECALLS}}
"""Titles of the figures of retrieval, each measured both ways."""


@dataclass(frozen=True)
class Means:
    """An epoch's means over its batches: the loss, its terms, and what was only watched.

    Before any training there are none: the loss is None.
    """

    loss: float | None = None
    terms: Mapping[str, float] = field(default_factory=dict)
    watched: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Epoch(ABC):
    """A row of a history: the mean loss over the batches, and what was measured after it.

    Epoch 0 is the start, before any training: its loss is None.
    """

    number: int
    loss: float | None

    @property
    @abstractmethod
    def merit(self) -> tuple[float, ...]:
        """The numbers that epochs are compared by; the greater is the better."""

    @property
    @abstractmethod
    def measured(self) -> str:
        """The figures of held-out rows, for a reader."""

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        return asdict(self)

    def line(self, epochs: int) -> str:
        """The epoch in one line of progress."""
        head = f"epoch {self.number} of {epochs}: loss {self.loss:.4g}" if self.number else "start"
        return f"{head}; held out {self.measured}"


EpochT = TypeVar("EpochT", bound=Epoch)


def best_epoch(history: Sequence[EpochT]) -> EpochT:
    """Return the first epoch of the highest merit."""
    return max(history, key=lambda epoch: epoch.merit)


def history_text(
    settings: Mapping[str, Any],
    history: Sequence[Epoch],
    stopped: str | None,
    facts: Mapping[str, Any],
) -> str:
    """The JSON of a run: settings, epochs, the best one, and why it stopped early if it did.

    `facts` are further values by name.
    """
    values = {
        "settings": dict(settings),
        **facts,
        "best_epoch": best_epoch(history).number,
        "stopped": stopped,
        "epochs": [epoch.to_json() for epoch in history],
    }
    return json.dumps(values, indent=2) + "\n"


@dataclass(frozen=True)
class RetrievalEpoch(Epoch):
    """An epoch's terms and watched figures, and recalls of the held-out pairs after it.

    `recalls` are shares by `r<K>_<way>` and, if classes are what is trained for, mAP by
    `map_<way>`; `held` the `loss` and the `cosine gap` of the held-out pairs if they have any.
    """

    terms: Mapping[str, float]
    watched: Mapping[str, float]
    recalls: Mapping[str, float]
    held: Mapping[str, float] = field(default_factory=dict)

    @property
    def means(self) -> dict[str, float]:
        """The means of both ways: mAP if classes are what is trained for, then the recalls."""
        return means_of(self.recalls)

    @property
    def merit(self) -> tuple[float, float, float]:
        """Mean mAP if there is one, then R@10, then R@1."""
        means = self.means
        return means.get("mAP", 0.0), means["R@10"], means["R@1"]

    @property
    def measured(self) -> str:
        """The means of both ways, and the watched figures."""
        watched = "".join(f", {name} {value:.1%}" for name, value in self.watched.items())
        held = "".join(f", {name} {value:.4g}" for name, value in self.held.items())
        return f"{shares_text(self.recalls)} (mean of both ways){held}{watched}"


@dataclass(frozen=True)
class CompiledEpoch(Epoch):
    """An epoch, and the compiled model's error of the logit on held-out rows after it.

    `centred_rmse` is without the mean difference of each query, which changes no rank.
    """

    centred_rmse: float
    rmse: float

    @property
    def merit(self) -> tuple[float]:
        """Smaller errors that can change a rank are better."""
        return (-self.centred_rmse,)

    @property
    def measured(self) -> str:
        """The errors."""
        return f"compiled logit error, centred RMSE {self.centred_rmse:.4g} (RMSE {self.rmse:.4g})"


def means_of(recalls: Mapping[str, float]) -> dict[str, float]:
    """Return the means of both ways by title: mAP if there is one, then the recalls."""
    return {
        title: sum(recalls[f"{name}_{way}"] for way in WAYS) / len(WAYS)
        for name, title in MEASURES.items()
        if f"{name}_{WAYS[0]}" in recalls
    }


def shares_text(recalls: Mapping[str, float]) -> str:
    """The means of both ways in words."""
    return ", ".join(f"{title} {mean:.1%}" for title, mean in means_of(recalls).items())


def recalls_of(scores: FloatArray, pairs: Pairs, by_class: bool = False) -> dict[str, float]:
    """Return R@1/5/10 both ways of scores [n, m] of all texts and videos of `pairs`.

    Ties count as in `evaluate`. With `by_class` mAP as well: all items of the query's class are
    right. If both are the same items with labels, all others of its class are what an item is to
    find; with pairs or triplets alone, what these say belongs to it.
    """
    truth = truth_in(pairs, by_class)
    found = retrieval(on_grid(scores), truth)
    shown = [name for name in MEASURES if name != "map" or truth.by_class]
    names = [f"{name}_{way}" for name in shown for way in WAYS]
    return {name: found.get(name, np.nan) for name in names}


def recall_interval(scores: FloatArray, pairs: Pairs, seed: int) -> Interval:
    """The interval of the mean R@1 of both ways of scores [n, m], over resampled queries.

    NaN if a way has no query.
    """
    queries = retrieved(on_grid(scores), truth_in(pairs, by_class=False))
    means = [
        sum(found.get(f"r1_{way}", np.full(1, np.nan)) for way in WAYS) / len(WAYS)
        for samples in resamples(pairs.right.numpy(), len(pairs.video), seed)
        for found in (metrics(queries, samples),)
    ]
    return interval(np.concatenate(means))


def truth_in(pairs: Pairs, by_class: bool) -> Truth:
    """The right items of each of `pairs`; with `by_class` for mAP those of its class."""
    labels = None if pairs.labels is None else pairs.labels.numpy()
    if pairs.judged is not None:
        return truth_judged(pairs.judged, len(pairs), len(pairs.video), leave_one_out=pairs.alone)
    if pairs.alone and labels is not None:
        return truth_among_others(len(labels), labels)
    right = pairs.right.numpy()
    return truth_of(right, labels if by_class else None, len(pairs.video))


CHANCES = 10
"""A start with an R@1 below this many times that of guessing has learnt nothing to suspect."""


def raw_recalls(held: Pairs, by_class: bool) -> dict[str, float] | None:
    """Return the figures of held-out rows by their cosine, as `recalls_of`.

    None if rows of texts and videos differ in width.
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
    history: Sequence[RetrievalEpoch], raw: Mapping[str, float] | None, model: ProjectorModel
) -> str | None:
    """The warning if the best epoch is worse than the raw rows; None if it is not.

    It names what starts from the rows: another model that the loss trains as well, or an option.
    """
    if raw is None:
        return None
    (name, known), (_, found) = leading(raw), leading(best_epoch(history).recalls)
    if found >= known:
        return None
    alike = model.has_variance and not model.one_modality and not model.starts_from_rows
    names = [name for name, kind in ProjectorModel.family.items() if kind.starts_from_rows]
    other = f"; model {' or '.join(names)} starts from the rows as they are" if alike else ""
    linear = "linear" in type(model).model_fields and not model.start_dimensions
    if linear and not model.starts_from_rows:
        other += ", model.linear=true from linear maps of them"
    return (
        f"warning: the trained model is worse than raw embeddings by cosine: held-out {name} "
        f"{found:.1%} against {known:.1%}{other}"
    )


def below_linear(
    history: Sequence[RetrievalEpoch], known: Mapping[str, float] | None, model: ProjectorModel
) -> str | None:
    """The warning if the best epoch is worse than linear maps of the same rows; None if it is not.

    `known` are the figures of the maps on held-out pairs, None if they were not made.
    """
    if known is None:
        return None
    (name, linear), (_, found) = leading(known), leading(best_epoch(history).recalls)
    if found >= linear:
        return None
    other = (
        ", and model.linear=true starts from them" if "linear" in type(model).model_fields else ""
    )
    return (
        f"warning: the trained model is worse than linear maps of the rows: held-out {name} "
        f"{found:.1%} against {linear:.1%}; model linear is these maps{other}"
    )


def linear_is_best(history: Sequence[RetrievalEpoch], model: ProjectorModel) -> str | None:
    """The sentence if no epoch is better than the linear maps that training started from."""
    if len(history) < 2 or best_epoch(history).number:
        return None
    start = "linear maps of the rows"
    if model.starts_from_rows:
        start = "rows, with what linear maps of them add,"
    return (
        f"The {start} are kept: none of {history[-1].number} epochs ranks held-out pairs better "
        "than they do."
    )


def start_is_best(history: Sequence[RetrievalEpoch], start: str) -> str | None:
    """The warning if no epoch is better than the `start`, a name, which is what is kept."""
    if len(history) < 2 or best_epoch(history).number:
        return None
    return (
        f"warning: nothing was learnt: none of {history[-1].number} epochs is better than the "
        f"start, so the kept model is {start}"
    )


def sample(pairs: Pairs, count: int, seed: int) -> Pairs:
    """Draw at most `count` videos of pairs, with their texts."""
    # Not the draws of `split`, or a start that held out by the same seed has seen none of them.
    chosen = np.random.default_rng((seed, 1)).permutation(len(pairs.video))[:count]
    return pairs.among(np.isin(pairs.right.numpy(), chosen))


def suspicion(
    start: str, held: Mapping[str, float], trains: Mapping[str, float], videos: int
) -> str | None:
    """The warning for a start of unknown training rows, by its figures before any training.

    `trains` are those of as many pairs that train. A model that saw only these does worse on the
    held-out ones. If it does not, it saw both or neither, and nothing tells which.
    """
    (name, own), (_, other) = leading(held), leading(trains)
    spread = 2 * math.sqrt(2 * max(own * (1 - own), 0.0) / max(videos, 1))
    if own < CHANCES / max(videos, 1) or own < other - spread:
        return None
    return (
        f"warning: {start} keeps no provenance, and before any training its held-out {name} is "
        f"{own:.1%}, {other:.1%} on as many training pairs: it was trained on both or on neither; "
        "if on both, no figure here is for unseen pairs (expected validation rows that it never "
        "saw)"
    )


def last_is_best(history: Sequence[RetrievalEpoch]) -> str | None:
    """The remark if the best epoch is the last, so that more may be better."""
    last = history[-1].number
    if not last or best_epoch(history).number != last:
        return None
    return f"The best epoch is the last of {last}: more epochs may gain."


@dataclass(frozen=True)
class Question:
    """The cost to a text of finding its video in batches of `size`, by the loss that trained.

    `even` is the same with every wrong score replaced by their mean and every right one by theirs;
    `limit` is that for many wrong videos, log(size - 1) + (wrong - right) / tau for
    InfoNCE, and `limit_without_log` is that without the log term, as in the source's derivation.
    None for a loss without such a limit.
    """

    size: int
    loss: float
    even: float
    limit: float | None
    limit_without_log: float | None


def asked(loss: Loss, scores: Tensor, right: Tensor, size: int) -> Question | None:
    """Ask the question of all texts in batches of at most `size`, by scores [n, m].

    `right` [n] is the video of each text. None for a loss that asks none, and if no pair of a
    batch is wrong.
    """
    if not len(scores):
        return None
    size = min(size, len(scores))
    order = torch.randperm(len(scores), generator=torch.Generator().manual_seed(0))
    found = []
    for texts in full_batches(order, size):
        videos = right[texts]
        batch = scores[texts][:, videos]
        wrong = videos[:, None] != videos[None, :]
        cost = loss.question(batch, videos)
        if cost is None or not wrong.any():
            return None
        own, other = batch.diagonal().mean(), batch[wrong].mean()
        even = loss.question(torch.where(wrong, other, own), videos)
        assert even is not None
        gap, rivals = (other - own).item(), wrong.sum().item() / size
        limits = loss.limit(rivals, gap), loss.limit(1.0, gap)
        found.append((cost.item(), even.item(), *(math.nan if x is None else x for x in limits)))
    mean, even_mean, limit, bare = map(float, np.mean(found, axis=0))
    known = not math.isnan(limit)
    return Question(size, mean, even_mean, limit if known else None, bare if known else None)
