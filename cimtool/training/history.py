"""The history of a run: a row an epoch, and which of them is best."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

import numpy as np

from cimtool.base.arrays import FloatArray
from cimtool.reference.measures import RECALLS, WAYS
from cimtool.reference.metrics import on_grid
from cimtool.reference.retrieval import retrieval
from cimtool.reference.truth import Truth, truth_among_others, truth_judged, truth_of
from cimtool.training.pairs import Pairs

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

    `recalls` are shares by `r<K>_<way>` and, where classes are what is trained for, mAP by
    `map_<way>`; `held` the `loss` and the `cosine gap` of the held-out pairs where they have any.
    """

    terms: Mapping[str, float]
    watched: Mapping[str, float]
    recalls: Mapping[str, float]
    held: Mapping[str, float] = field(default_factory=dict)

    @property
    def means(self) -> dict[str, float]:
        """The means of both ways: mAP where classes are what is trained for, then the recalls."""
        return means_of(self.recalls)

    @property
    def merit(self) -> tuple[float, float, float]:
        """Mean mAP where there is one, then R@10, then R@1."""
        means = self.means
        return means.get("mAP", 0.0), means["R@10"], means["R@1"]

    @property
    def measured(self) -> str:
        """The means of both ways, and the watched figures."""
        watched = "".join(f", {name} {value:.1%}" for name, value in self.watched.items())
        held = "".join(f", {name} {value:.4g}" for name, value in self.held.items())
        return f"{self.shares} (mean of both ways){held}{watched}"

    @property
    def shares(self) -> str:
        """The means of both ways in words."""
        return shares_text(self.recalls)


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
    """Return the means of both ways by title: mAP where there is one, then the recalls."""
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
    right. Where both are the same items with labels, all others of its class are what an item is to
    find; with pairs or triplets alone, what these say belongs to it.
    """
    truth = truth_in(pairs, by_class)
    found = retrieval(on_grid(scores), truth)
    shown = [name for name in MEASURES if name != "map" or truth.by_class]
    names = [f"{name}_{way}" for name in shown for way in WAYS]
    return {name: found.get(name, np.nan) for name in names}


def truth_in(pairs: Pairs, by_class: bool) -> Truth:
    """The right items of each of `pairs`; with `by_class` for mAP those of its class."""
    labels = None if pairs.labels is None else pairs.labels.numpy()
    if pairs.judged is not None:
        return truth_judged(pairs.judged, len(pairs), len(pairs), leave_one_out=True)
    if pairs.alone and labels is not None:
        return truth_among_others(len(labels), labels)
    right = pairs.right.numpy()
    return truth_of(right, labels if by_class else None, len(pairs.video))
