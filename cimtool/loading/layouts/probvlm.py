"""Layout `probvlm`: ProbVLM's adapters, which give each embedding a generalised Gaussian.

    img_BayesCap, txt_BayesCap: mod.{0,2,5}, block_mu.{0,2}, block_alpha.{0,2}, block_beta.{0,2}

All are Linears with ReLU between them (arXiv 2307.00398). With h = mod(x) + x,

    mu = block_mu(h)
    alpha = 1 / (relu(block_alpha(h)) + 1e-5)
    beta = relu(block_beta(h)) + 0.1

The density of a dimension is proportional to exp(-(|x - mu| / alpha)^beta), and its variance is

    s = alpha^2 Gamma(3 / beta) / Gamma(1 / beta)               (equation 9 of the paper)

so log s = 2 log alpha + lgamma(3 / beta) - lgamma(1 / beta), a sum of two functions of one number.
alpha is limited to 1e-4 ... 5 and beta to 0.5 ... 5: where the last ReLU of a block gives 0 for
all rows, as it does in some dimensions of a trained adapter, alpha is 5 and beta is 0.5.
alpha may differ by a factor of 50,000, too much for a polynomial of its logarithm; a fourth root,
by Newton's iteration, comes first.

Keys, offsets and limits follow https://github.com/ExplainableML/ProbVLM, commit 214df02:
`networks.py` (BayesCap_MLP) and `utils.py` (get_GGuncer), but for two things. That function has
Gamma(2.8 / beta) for Gamma(1 / beta), which is no variance (its authors refer to equation 9 in
issue 4 there), and 0.1 for the least beta, for which s would be 2.4e25 alpha^2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cimtool.base.errors import CimError
from cimtool.ir.arithmetic import Clip, plus, scalar
from cimtool.ir.heads import TowerBuilder
from cimtool.ir.program import Graph
from cimtool.ir.source import InverseRoot, Log, LogGamma, Reciprocal
from cimtool.loading.layout import RELU, Layout, linear
from cimtool.loading.weights import Weights

TRUNK = ("mod.0", "mod.2", "mod.5")
BLOCKS = ("block_mu", "block_alpha", "block_beta")

ALPHA_OFFSET, BETA_OFFSET = 1e-5, 0.1
"""Numbers that are added to the output of `block_alpha`, 1 / alpha, and of `block_beta`."""

LEAST_ALPHA, MOST_BETA = 1e-4, 5.0
"""The limits that are the same for all adapters."""

ALPHA_MAX, BETA_MIN = "alpha_max", "beta_min"
"""Plain values, in a checkpoint or a layer map, for the limits where a ReLU gives 0."""

LIMITS = {ALPHA_MAX: (5.0, LEAST_ALPHA, 100.0), BETA_MIN: (0.5, BETA_OFFSET, MOST_BETA)}
"""The default of a limit, its least value, and the end of its range."""


class ProbVlm(Layout, name="probvlm"):
    """A residual trunk and three perceptrons: mu, 1 / alpha and beta, of as many dimensions."""

    description = "ProbVLM's adapters, layers block_mu, block_alpha and block_beta"
    layers = (*TRUNK, *(f"{block}.{place}" for block in BLOCKS for place in (0, 2)))
    encoders = ("clip_model",)

    @classmethod
    def tower(cls, weights: Weights) -> Graph:
        """Read all layers; CimError if a key is missing, or a shape or a limit does not fit."""
        names = {role: weights.layer(role) for role in cls.layers}
        first, second, last = (names[role] for role in TRUNK)
        inner = linear(weights, first)
        width, hidden = inner.weight.shape
        builder = TowerBuilder(width)
        value = builder.add("mod.0.relu", RELU, builder.add("mod.0", inner, "x"))
        middle = builder.add("mod.2", linear(weights, second, hidden, hidden), value)
        value = builder.add("mod.2.relu", RELU, middle)
        residual = builder.add("mod.5", linear(weights, last, hidden, width), value)
        value = builder.add("mod", plus(1, 1), residual, "x")

        def block(name: str) -> str:
            inside = linear(weights, names[f"{name}.0"], width)
            hidden = builder.add(f"{name}.0", inside, value)
            hidden = builder.add(f"{name}.0.relu", RELU, hidden)
            outside = linear(weights, names[f"{name}.2"], inside.weight.shape[1], width)
            return builder.add(f"{name}.2", outside, hidden)

        mu, inverse_alpha, beta = map(block, BLOCKS)
        weights.refuse_others(list(names.values()), cls.name)
        largest, least = (_limit(weights, key) for key in LIMITS)
        # These limits are above what the last ReLU of a block lets through.
        moved = builder.add("inverse_alpha_moved", plus(1, offset=ALPHA_OFFSET), inverse_alpha)
        limits = Clip(scalar(1 / largest), scalar(1 / LEAST_ALPHA))
        root = builder.add("inverse_alpha", limits, moved)
        for name in ("alpha_root", "inverse_alpha_root4"):
            root = builder.add(name, InverseRoot(), root)
        log_root = builder.add("log_root4", Log(), root)
        moved = builder.add("beta_moved", plus(1, offset=BETA_OFFSET), beta)
        beta = builder.add("beta", Clip(scalar(least), scalar(MOST_BETA)), moved)
        inverse_beta = builder.add("inverse_beta", Reciprocal(), beta)
        thrice = builder.add("thrice_inverse_beta", plus(3), inverse_beta)
        gammas = [
            builder.add(f"log_gamma{n}", LogGamma(), one)
            for n, one in ((3, thrice), (1, inverse_beta))
        ]
        ratio = builder.add("log_gamma_ratio", plus(1, -1), *gammas)
        return builder.tower(mu, builder.add("logvar", plus(-8, 1), log_root, ratio))

    @classmethod
    def score(cls, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """Head `probcosine`, for which norms of texts and of images may differ."""
        return {"head": "probcosine"}

    @classmethod
    def assumptions(cls, weights: Weights) -> tuple[str, ...]:
        """Remarks on the norms of rows, which no weight shows, and on both limits."""
        largest, least = (_limit(weights, key) for key in LIMITS)
        return (
            f"{weights.file}: a row is what the adapter read in training; in ProbVLM's public code "
            "that is a text's embedding at unit norm, and an image's times exp(logit_scale)",
            f"{weights.file}: alpha is at most {largest:g} and beta at least {least:g}, which they "
            f"are where an adapter's ReLU gives 0; {ALPHA_MAX} and {BETA_MIN} in a layer map set "
            "other limits",
        )


def _limit(weights: Weights, key: str) -> float:
    """The limit that a plain value gives, or the default; CimError for one that is none."""
    default, lo, hi = LIMITS[key]
    value = weights.values.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not lo <= value < hi:
        raise CimError(
            f"{weights.place(key)}: {key} is {value}; expected a number of at least {lo:g} and "
            f"below {hi:g}"
        )
    return float(value)
