"""Heads: what is stored of an item and how two items are scored, as graphs of real numbers.

Both statistics expand into inner products (DESIGN of the score: docs/integer-contract.md), so all
pairs cost matrix products:

    ed = ed_t + ed_v - 2 mu_t.mu_v                       ed_self = sum mu^2 + s
    vd = vd_t + vd_v + 4 s_t.s_v + 4 mu_t^2.s_v + 4 s_t.mu_v^2
         - 8 (mu_t s_t).mu_v - 8 mu_t.(mu_v s_v)         vd_self = sum 2 s^2 + 4 mu^2 s

Sums of s take it in more bits than the products of two items do. What s loses there, s - r, is
given back in vd_self as 4 s (s - r): nearly all of it where both items' variances are alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from cimtool.ir.arithmetic import Add, Axis, MatMul, Mul, Store, Sum, scalar
from cimtool.ir.program import MODALITIES, Builder, Graph, Program, score_inputs
from cimtool.ir.source import PolynomialScore
from cimtool.ir.types import Type, real
from cimtool.named import Named
from cimtool.reference.surrogate import Polynomial


class Tower(Protocol):
    """One trained projector: adds its nodes to a graph."""

    @property
    def width(self) -> int:
        """Extent of an input row."""
        ...

    def build(self, builder: Builder, x: str) -> tuple[str, str]:
        """Add the nodes from `x` [n, width]; return the names of `mu` and `s` (variance) [n, d]."""
        ...


class Head(Named):
    """Base of the score functions."""

    def features(self, builder: Builder, mu: str, s: str) -> dict[str, str]:
        """Add the nodes that turn (mu, s) into what is stored of an item; name the outputs."""
        raise NotImplementedError

    def score(self, inputs: Mapping[str, Type]) -> Graph:
        """The graph from both sides' features to `logit` [n, m]."""
        raise NotImplementedError


@dataclass(frozen=True)
class PcmePoly(Head, name="pcme-poly"):
    """The polynomial of (ed, vd) that replaces Monte Carlo sampling."""

    polynomial: Polynomial

    def features(self, builder: Builder, mu: str, s: str) -> dict[str, str]:
        mu = builder.add("mu_stored", Store("mu"), mu)
        crossed = builder.add("s_stored", Store("s"), s)
        summed = builder.add("s_summed", Store("s_self", 16), s)
        squares = builder.add("mu_squared", Mul(), mu, mu)
        mu_energy = builder.add("mu_energy", Sum(), squares)
        s_total = builder.add("s_total", Sum(), summed)
        s_energy = builder.add("s_energy", Sum(), builder.add("s_squared", Mul(), summed, summed))
        # Zero but for rounding.
        rest = builder.add("s_rest", plus(1, -1), summed, crossed)
        s_lost = builder.add("s_lost", Sum(), builder.add("s_rest_s", Mul(), rest, summed))
        mixed = builder.add("mixed", Sum(), builder.add("mu_squared_s", Mul(), squares, crossed))
        return {
            "mu": mu,
            "s": crossed,
            "ed_self": builder.add("ed_self", plus(1, 1), mu_energy, s_total),
            "vd_self": builder.add("vd_self", plus(2, 4, 4), s_energy, s_lost, mixed),
        }

    def score(self, inputs: Mapping[str, Type]) -> Graph:
        b = Builder("score", inputs)
        ed_t, vd_t = (b.add(f"text.{k}.rows", Axis(1), f"text.{k}") for k in ("ed_self", "vd_self"))
        ed_v, vd_v = (
            b.add(f"video.{k}.rows", Axis(0), f"video.{k}") for k in ("ed_self", "vd_self")
        )
        mu_t, s_t, mu_v, s_v = (f"{m}.{k}" for m in MODALITIES for k in ("mu", "s"))
        squares_t, squares_v = (
            b.add(f"{m}.mu_squared", Mul(), f"{m}.mu", f"{m}.mu") for m in MODALITIES
        )
        mixed_t, mixed_v = (b.add(f"{m}.mu_s", Mul(), f"{m}.mu", f"{m}.s") for m in MODALITIES)
        ed = b.add("ed", plus(1, 1, -2), ed_t, ed_v, b.add("mu.mu", MatMul(), mu_t, mu_v))
        vd = b.add(
            "vd",
            plus(1, 1, 4, 4, 4, -8, -8),
            vd_t,
            vd_v,
            b.add("s.s", MatMul(), s_t, s_v),
            b.add("mu2.s", MatMul(), squares_t, s_v),
            b.add("s.mu2", MatMul(), s_t, squares_v),
            b.add("mus.mu", MatMul(), mixed_t, mu_v),
            b.add("mu.mus", MatMul(), mu_t, mixed_v),
        )
        p = self.polynomial
        op = PolynomialScore(p.degree, p.coeff, p.bias, p.scale_ed, p.scale_vd)
        return b.graph({"logit": b.add("logit", op, ed, vd)})


def plus(*factors: float) -> Add:
    """The operation `sum factors[i] * x_i` on real numbers."""
    return Add(tuple(scalar(factor) for factor in factors), scalar(0.0))


def assemble(text: Tower, video: Tower, head: Head) -> Program:
    """The trained model as a program of real numbers, before any pass."""
    graphs = {}
    for name, tower in zip(MODALITIES, (text, video), strict=True):
        builder = Builder(name, {"x": real(("n", tower.width))})
        mu, s = tower.build(builder, "x")
        graphs[name] = builder.graph(head.features(builder, mu, s))
    score = head.score(score_inputs(graphs["text"], graphs["video"]))
    return Program(graphs["text"], graphs["video"], score)
