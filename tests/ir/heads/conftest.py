"""Towers of a few random layers, with a variance and without one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from cimtool.ir.arithmetic import Mvm
from cimtool.ir.heads import Head, assemble
from cimtool.ir.program import Builder, Program
from cimtool.ir.source import Exp, L2Normalize
from cimtool.simulation.simulator import Simulator

WIDTH, D, TEXTS, VIDEOS = 7, 5, 6, 4


@dataclass(frozen=True)
class Point:
    """A mean without a variance, of unit norm where asked for."""

    mu: Mvm
    unit: bool = False
    width: int = WIDTH

    def build(self, builder: Builder, x: str) -> tuple[str, None]:
        mu = builder.add("mu", self.mu, x)
        return (builder.add("unit", L2Normalize(), mu) if self.unit else mu), None


@dataclass(frozen=True)
class Gaussian:
    mu: Mvm
    logvar: Mvm
    width: int = WIDTH

    def build(self, builder: Builder, x: str) -> tuple[str, str]:
        mu = builder.add("mu", self.mu, x)
        return mu, builder.add("s", Exp(), builder.add("logvar", self.logvar, x))


def layer(seed: int) -> Mvm:
    rng = np.random.default_rng(seed)
    return Mvm(rng.normal(size=(WIDTH, D)) / np.sqrt(WIDTH), rng.normal(size=D))


def rows() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(9)
    return {"text": rng.normal(size=(TEXTS, WIDTH)), "video": rng.normal(size=(VIDEOS, WIDTH))}


@dataclass(frozen=True)
class Made:
    """A program, its scores, and what numpy makes of both sides: [n, 1, d] and [1, m, d]."""

    program: Program
    scores: np.ndarray
    mu: tuple[np.ndarray, np.ndarray]
    s: tuple[np.ndarray, np.ndarray]


@pytest.fixture
def towers() -> SimpleNamespace:
    return SimpleNamespace(
        points=(Point(layer(0)), Point(layer(1))),
        units=(Point(layer(0), unit=True), Point(layer(1), unit=True)),
        gaussians=(Gaussian(layer(0), layer(2)), Gaussian(layer(1), layer(3))),
    )


@pytest.fixture
def made() -> Callable[..., Made]:
    def make(head: Head, pair: tuple[Point | Gaussian, Point | Gaussian]) -> Made:
        program = assemble(*pair, head)
        x = rows()

        def of(seed: int, modality: str) -> np.ndarray:
            values = x[modality] @ layer(seed).weight + layer(seed).bias
            return values[:, None] if modality == "text" else values[None]

        scores = Simulator(program).scores(x["text"], x["video"])
        mu = of(0, "text"), of(1, "video")
        s = np.exp(of(2, "text")), np.exp(of(3, "video"))
        return Made(program, scores, mu, s)

    return make
