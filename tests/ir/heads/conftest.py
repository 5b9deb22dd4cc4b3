"""Towers of a few random layers, with a variance and without one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from cimtool.ir.arithmetic import Mvm
from cimtool.ir.heads import Head, TowerBuilder, assemble
from cimtool.ir.program import Graph, Program
from cimtool.ir.source import L2Normalize
from cimtool.simulation.simulator import Simulator

WIDTH, D, TEXTS, VIDEOS = 7, 5, 6, 4


def point(mu: Mvm, unit: bool = False) -> Graph:
    """A mean without a variance, of unit norm where asked for."""
    builder = TowerBuilder(WIDTH)
    value = builder.add("mu", mu, "x")
    return builder.tower(builder.add("unit", L2Normalize(), value) if unit else value)


def gaussian(mu: Mvm, logvar: Mvm) -> Graph:
    builder = TowerBuilder(WIDTH)
    return builder.tower(builder.add("mu", mu, "x"), builder.add("logvar", logvar, "x"))


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
        points=(point(layer(0)), point(layer(1))),
        units=(point(layer(0), unit=True), point(layer(1), unit=True)),
        gaussians=(gaussian(layer(0), layer(2)), gaussian(layer(1), layer(3))),
    )


@pytest.fixture
def made() -> Callable[..., Made]:
    def make(head: Head, pair: tuple[Graph, Graph]) -> Made:
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
