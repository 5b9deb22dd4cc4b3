"""One epoch after another: towers, an objective and an optimizer, and what an epoch came to."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cimtool.base.arrays import FloatArray
from cimtool.base.errors import CheckFailed
from cimtool.training.loss import Objective
from cimtool.training.optimisation import Optimisation
from cimtool.training.pairs import Pairs, draw_batches
from cimtool.training.towers import Encoded, TwoTower

ENCODED_ROWS = 1024
"""Rows that are encoded at a time where nothing is trained."""

CPU = torch.device("cpu")


class Diverged(CheckFailed):
    """The loss, or what the towers give, is no longer finite."""


@dataclass(frozen=True)
class Means:
    """An epoch's means over its batches: the loss, its terms, and what was only watched."""

    loss: float
    terms: Mapping[str, float]
    watched: Mapping[str, float]


@dataclass(eq=False)
class Trainer:
    """What changes while training, on one device; all randomness is torch's global generators."""

    towers: TwoTower
    objective: Objective
    optimizer: torch.optim.Optimizer
    device: torch.device

    @classmethod
    def start(
        cls,
        towers: TwoTower,
        objective: Objective,
        optimisation: Optimisation,
        device: torch.device = CPU,
    ) -> Trainer:
        """Optimise the towers and what the objective has of its own with AdamW."""
        towers.to(device)
        objective.to(device)
        parameters = [*towers.parameters(), *objective.parameters()]
        optimizer = torch.optim.AdamW(
            parameters, lr=optimisation.learning_rate, weight_decay=optimisation.weight_decay
        )
        return cls(towers, objective, optimizer, device)

    def epoch(self, pairs: Pairs, size: int, per_class: int = 0) -> Means:
        """Go once over the pairs in batches of `size`; raises Diverged at the first loss that is
        not finite."""
        self.towers.train()
        self.objective.train()
        count = 0
        total = 0.0
        sums: tuple[dict[str, float], dict[str, float]] = {}, {}
        for rows in draw_batches(pairs, size, per_class):
            batch = pairs.batch(rows).to(self.device)
            terms = self.objective(*self.towers(batch.text, batch.video), batch)
            loss = terms.total
            if not math.isfinite(loss.item()):
                raise self._diverged(f"the loss is {loss.item()}")
            self.optimizer.zero_grad()
            torch.autograd.backward(loss)
            self.optimizer.step()
            count += 1
            total += loss.item()
            for into, values in zip(sums, (terms.loss, terms.watched), strict=True):
                for name, value in values.items():
                    into[name] = into.get(name, 0.0) + value.item()
        means = [{name: value / count for name, value in one.items()} for one in sums]
        return Means(total / count, *means)

    def validate(self, pairs: Pairs) -> tuple[FloatArray, dict[str, float]]:
        """Return the objective's scores of all texts and videos, float64 [n, m], in eval mode.

        Beside them are its watched figures of these pairs. Raises Diverged where a score is not
        finite.
        """
        self.objective.eval()
        with torch.no_grad():
            sides = [_double(one) for one in encoded(self.towers, pairs.text, pairs.video)]
            found = self.objective.scores(*sides).cpu().numpy()
            watched = self.objective.watched(*sides)
        if not np.isfinite(found).all():
            raise self._diverged("a score is not finite")
        return found, {name: value.item() for name, value in watched.items()}

    def _diverged(self, what: str) -> Diverged:
        if not self.optimizer.state:  # nothing is known of a parameter before the first step
            return Diverged(f"{what} before the first step; expected other data, start or options")
        return Diverged(f"training diverged: {what}; try a smaller learning rate")

    def state(self) -> dict[str, Any]:
        """All that goes on from here: weights, the optimizer's moments, the generators."""
        found = {
            "towers": self.towers.state_dict(),
            "objective": self.objective.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generator": torch.get_rng_state(),
        }
        if self.device.type == "cuda":
            found["device_generator"] = torch.cuda.get_rng_state(self.device)
        return found

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up what `state` returned."""
        self.towers.load_state_dict(state["towers"])
        self.objective.load_state_dict(state["objective"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["generator"])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(state["device_generator"], self.device)


def encoded(towers: TwoTower, text: Tensor, video: Tensor) -> tuple[Encoded, Encoded]:
    """Return what the towers give for all rows, where they are, in eval mode, without gradients."""
    towers.eval()
    device = next(towers.parameters()).device
    with torch.no_grad():
        return (
            _joined(_blocks(towers.text_tower, text, device)),
            _joined(_blocks(towers.video_tower, video, device)),
        )


def _blocks(tower: Any, rows: Tensor, device: torch.device) -> Iterator[Encoded]:
    starts = range(0, len(rows), ENCODED_ROWS)
    return (tower(rows[start : start + ENCODED_ROWS].to(device)) for start in starts)


def _joined(blocks: Iterator[Encoded]) -> Encoded:
    mu, logvar = zip(*blocks, strict=True)
    known = [one for one in logvar if one is not None]
    return Encoded(torch.cat(mu), torch.cat(known) if known else None)


def _double(given: Encoded) -> Encoded:
    return Encoded(given.mu.double(), None if given.logvar is None else given.logvar.double())
