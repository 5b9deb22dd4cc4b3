"""Head `inclusion`: is the video's Gaussian inside the text's (ProLIP, arXiv 2410.18857)?

score = test(v, t) - test(t, v), with `inclusion_test` of its public code,
https://github.com/naver-ai/prolip, commit 59f6324, `loss.py`. Without its constants this is

    test(p, q) = log of the integral of p^2 q, less (2 l_p + l_q) / 2

as the code takes the log-variances l whole, where the integral has half of them. So the ratio of
integrals is the score plus (l_v - l_t) / 2 in each dimension; the sign at equal means is the same.
The score is above 0 if the video is the narrower of the two and near the text. p^2 is a Gaussian
of half the variance, up to a factor, so in each dimension, with delta = mu_t - mu_v:

    log((2 s_v + s_t) / (s_v + 2 s_t)) / 2 - (log s_v - log s_t)
        - delta^2 (s_v - s_t) / ((s_v + 2 s_t) (2 s_v + s_t))

Neither function of the two variances is a product, but each is nearly a short sum of products. An
item stores its log-variance, and `lower` fits polynomials of it over the calibrated range
(`fit_antisymmetric`), 2 to 8 terms for each function. A term of the first is one matrix product. A
term of the second is three, as delta^2 = mu_t^2 - 2 mu_t mu_v + mu_v^2. A note says how many there
are, and the worst error in the range.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cimtool.ir.arithmetic import Store
from cimtool.ir.heads.base import Head
from cimtool.ir.program import MODALITIES, Builder, Graph
from cimtool.ir.source import DistanceScore, Exp, Inclusion, Log
from cimtool.ir.types import Type


@dataclass(frozen=True)
class InclusionHead(Head, name="inclusion"):
    """ProLIP's test of one Gaussian in another; above 0 if the video is inside the text."""

    surrogate = "inclusion"
    needs_variance = MODALITIES

    @property
    def products(self) -> tuple[str, ...]:
        """None by name: how many there are follows from calibration."""
        return ()

    def features(self, builder: Builder, mu: str, s: str | None) -> dict[str, str]:
        assert s is not None
        made = builder.by_name[s]
        (logvar,) = made.inputs if isinstance(made.op, Exp) else (builder.add("logvar", Log(), s),)
        return {
            "mu": builder.add("mu_stored", Store("mu"), mu),
            "logvar": builder.add("logvar_stored", Store("logvar", 16), logvar),
        }

    def score(self, inputs: Mapping[str, Type]) -> Graph:
        b = Builder("score", inputs)
        sides = (f"{m}.{name}" for m in MODALITIES for name in ("mu", "logvar"))
        return b.graph(
            {"logit": b.add("logit", DistanceScore(1.0), b.add("inclusion", Inclusion(), *sides))}
        )
