"""Head `pcme-poly`: a polynomial of the mean and the variance of the squared distance.

Both statistics expand into inner products (docs/integer-contract.md), so all pairs cost matrix
products:

    ed = ed_t + ed_v - 2 mu_t.mu_v                       ed_self = sum mu^2 + s
    vd = vd_t + vd_v + 4 s_t.s_v + 4 mu_t^2.s_v + 4 s_t.mu_v^2
         - 8 (mu_t s_t).mu_v - 8 mu_t.(mu_v s_v)         vd_self = sum 2 s^2 + 4 mu^2 s

s is stored twice: as r in feature bits for the products of two items, and as s in 16 bits for the
sums of one item. vd_self adds 4 s (s - r) to make up for r: nearly all of it if both items'
variances are alike.

A polynomial in ed alone needs the first line, one product in place of six, and stores mu and
ed_self.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Self

import numpy as np

from cimtool.base.arrays import FloatArray
from cimtool.base.errors import ArgumentError
from cimtool.base.typed_fields import list_of, made_of, table_of
from cimtool.ir.arithmetic import Axis, MatMul, Mul, Store, Sum, plus
from cimtool.ir.heads.base import Head, ScoreConstants, Span, distance, distance_features
from cimtool.ir.program import MODALITIES, Builder, Graph
from cimtool.ir.source import PolynomialScore
from cimtool.ir.surrogate import BESIDE_LINE, FittedRange, Polynomial
from cimtool.ir.types import Type

_NEEDED = ArgumentError("which needs {a} and {b}")


@dataclass(frozen=True)
class PcmePoly(Head, name="pcme-poly"):
    """The polynomial of (ed, vd) that replaces Monte Carlo sampling."""

    polynomial: Polynomial

    surrogate = "polynomial"
    needs_variance = MODALITIES
    takes_polynomial = True
    is_sampled = True
    is_surrogate = True

    @classmethod
    def trained(cls, known: ScoreConstants) -> Self:
        """The head of the known polynomial; CimError that says how to get one if none is known."""
        if known.polynomial is None:
            known_ab = known.a is not None and known.b is not None
            raise ArgumentError(
                "{}: holds no polynomial; give one with {poly}, or make one with `cimtool teacher` "
                "and then `cimtool fit`, or take a score without one: {head} csd (b - a ed, {}) or "
                "{head} cosine (of the means, which leaves out the variance)",
                known.file,
                "whose a and b are known" if known_ab else _NEEDED,
            )
        return cls(known.polynomial)

    @property
    def products(self) -> tuple[str, ...]:
        ed = super().products
        return (*ed, "s.s_mu2.s", "s.mu2", "mus.mu", "mu.mus") if self.polynomial.reads_vd else ed

    @property
    def described(self) -> str:
        alone = "" if self.polynomial.reads_vd else ", ed alone"
        return f"polynomial of degree {self.polynomial.degree}{alone}"

    @property
    def _beside_ed(self) -> str:
        """The statistic that the polynomial reads beside ed."""
        return "vd" if self.polynomial.line is None else BESIDE_LINE

    @property
    def predicts_logit(self) -> bool:
        """True if the polynomial was fitted on logits; else it predicts p."""
        return self.polynomial.fit_logit

    @property
    def fitted_ranges(self) -> Mapping[str, Span] | None:
        domain = self.polynomial.domain
        if domain is None:
            return None
        return domain.ranges if self.polynomial.reads_vd else {"ed": domain.ed}

    def features(self, builder: Builder, mu: str, s: str | None) -> dict[str, str]:
        assert s is not None
        if not self.polynomial.reads_vd:
            return distance_features(builder, mu, s)
        mu = builder.add("mu_stored", Store("mu"), mu)
        crossed = builder.add("s_stored", Store("s"), s)
        summed = builder.add("s_summed", Store("s_self", 16), s)
        squares = builder.add("mu_squared", Mul(), mu, mu)
        mu_sum_squares = builder.add("mu_sum_squares", Sum(), squares)
        s_total = builder.add("s_total", Sum(), summed)
        s_sum_squares = builder.add(
            "s_sum_squares", Sum(), builder.add("s_squared", Mul(), summed, summed)
        )
        # Zero but for rounding.
        rest = builder.add("s_rest", plus(1, -1), summed, crossed)
        s_lost = builder.add("s_lost", Sum(), builder.add("s_rest_s", Mul(), rest, summed))
        mixed = builder.add("mixed", Sum(), builder.add("mu_squared_s", Mul(), squares, crossed))
        return {
            "mu": mu,
            "s": crossed,
            "ed_self": builder.add("ed_self", plus(1, 1), mu_sum_squares, s_total),
            "vd_self": builder.add("vd_self", plus(2, 4, 4), s_sum_squares, s_lost, mixed),
        }

    def score(self, inputs: Mapping[str, Type]) -> Graph:
        b = Builder("score", inputs)
        p = self.polynomial
        fitted = tuple(chain.from_iterable((self.fitted_ranges or {}).values()))
        op = PolynomialScore(p.degree, p.coeff, p.bias, p.scale_ed, p.scale_vd, p.line, fitted)
        if not p.reads_vd:
            return b.graph({"logit": b.add("logit", op, distance(b))})
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
        if p.line is not None:
            start, slope = p.line
            vd = b.add(BESIDE_LINE, plus(1, -slope, offset=-start), vd, ed)
        return b.graph({"logit": b.add("logit", op, ed, vd)})

    def constant_over(self, spans: Mapping[str, Span]) -> bool:
        ed, vd = spans["ed"], spans.get(self._beside_ed, (0.0, 0.0))
        return self.polynomial.is_constant(ed, vd, self.polynomial.line)

    def jitter(self, statistics: Mapping[str, FloatArray], off: float) -> float:
        ed = statistics["ed"]
        vd = statistics.get(self._beside_ed, np.zeros_like(ed))
        return self.polynomial.jitter(ed, vd, off, self.polynomial.line)

    @classmethod
    def parsed(cls, values: Mapping[str, Any]) -> Self:
        own = table_of(values["polynomial"], "polynomial")
        coeff, domain = list_of(own["coeff"], "polynomial.coeff"), own.get("domain")
        if domain is not None:
            ends = table_of(domain, "polynomial.domain").items()
            pairs = {
                name: list_of(one, f"polynomial.domain.{name}")
                for name, one in ends
                if one is not None
            }
            domain = made_of(FittedRange, pairs)
        return cls(made_of(Polynomial, {**own, "coeff": coeff, "domain": domain}))
