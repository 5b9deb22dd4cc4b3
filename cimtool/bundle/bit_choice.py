"""The choice of bits before a model is compiled; a leaf brings the way to choose."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

from cimtool.base.errors import ArgumentError
from cimtool.base.named import Named
from cimtool.base.progress import Say
from cimtool.hardware.configuration import Configuration
from cimtool.hardware.settings import Settings
from cimtool.loading.embeddings import Embeddings
from cimtool.loading.model import Model

LEAST, GIVEN, SAMPLES = "least", "given", "mc"

MOST_SAMPLES = 1000
"""Samples whose error is measured: the time grows with their square."""

RANK_LOSS = "r1_loss"
"""The loss of R@1, as a share of the queries."""

ERRORS = ("logit_rmse", "centred_rmse", RANK_LOSS)
_LIMITS = ", ".join(f"{name}=X" for name in ERRORS[:-1])
EXPECTED = f"{LEAST}, {GIVEN}, {SAMPLES}=K, {_LIMITS} or {RANK_LOSS}=X, X above 0 (a loss below 1)"


@dataclass(frozen=True)
class DriftGoal:
    """The error that bits must keep at the least cost, as `text` says it.

    It is a `limit` of a metric of ERRORS, or the logit RMSE of Monte Carlo with `samples`. With
    neither, the least error is wanted at the cost of the settings.
    """

    text: str
    metric: str | None = None
    limit: float = math.nan
    samples: int | None = None

    @classmethod
    def of(cls, text: str) -> DriftGoal:
        """Read `least`, `mc=K` or `METRIC=X`; ArgumentError for anything else."""
        name, equals, value = text.partition("=")
        if text == LEAST:
            return cls(text)
        try:
            number = float(value) if equals else math.nan
        except ValueError:
            number = math.nan
        if name == SAMPLES and number.is_integer():
            if not 1 <= number <= MOST_SAMPLES:
                raise ArgumentError(
                    "{drift} is {}; expected 1 to {:,} samples, or {}=X",
                    text, MOST_SAMPLES, ERRORS[0],
                )  # fmt: skip
            return cls(text, "logit_rmse", samples=int(number))
        most = 1.0 if name == RANK_LOSS else math.inf
        if name in ERRORS and 0 < number < most:
            return cls(text, name, number)
        raise ArgumentError("{drift} is {}; expected {}", text, EXPECTED)


@dataclass(frozen=True)
class ChosenBits:
    """Settings with the bits that were chosen, and sentences on the choice."""

    settings: Settings
    notes: tuple[str, ...]


class BitChooser(Named):
    """Base of a way to choose bits."""

    @classmethod
    @abstractmethod
    def choose(
        cls, goal: DriftGoal, model: Model, data: Embeddings, start: Configuration, say: Say
    ) -> ChosenBits:
        """Choose the bits of a model by its calibration rows, from those that it would have."""
