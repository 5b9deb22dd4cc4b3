"""Layout `two-branch`: one perceptron for the residual of mu, one for logvar; unit rows."""

from __future__ import annotations

from dataclasses import dataclass

from cimtool.ir.arithmetic import Clip, Mvm, scalar
from cimtool.ir.heads import plus
from cimtool.ir.program import Builder
from cimtool.ir.source import Exp, L2Normalize
from cimtool.loading.layout import Layout, Projector
from cimtool.loading.linear import linear, relu
from cimtool.loading.weights import Weights

LOGVAR_RANGE = (-5.0, 2.0)


@dataclass(frozen=True)
class TwoBranchTower:
    """`mu = normalize(x + mlp(x))`, `logvar = clamp(mlp(x), -5, 2)`; both [n, width]."""

    mu_proj: tuple[Mvm, Mvm]
    logvar_proj: tuple[Mvm, Mvm]

    @property
    def width(self) -> int:
        """Extent of an input row, and of mu."""
        return int(self.mu_proj[0].weight.shape[0])

    @property
    def dimension(self) -> int:
        """Extent of mu and s."""
        return self.width

    def build(self, builder: Builder, x: str) -> tuple[str, str]:
        """Add the nodes; return the names of `mu` and `s`."""
        residual = _perceptron(builder, x, "mu_proj", self.mu_proj)
        mu = builder.add("mu", L2Normalize(), builder.add("mu_sum", plus(1, 1), x, residual))
        raw = _perceptron(builder, x, "logvar_proj", self.logvar_proj)
        lo, hi = LOGVAR_RANGE
        logvar = builder.add("logvar", Clip(scalar(lo), scalar(hi)), raw)
        return mu, builder.add("s", Exp(), logvar)


def _perceptron(builder: Builder, x: str, name: str, layers: tuple[Mvm, Mvm]) -> str:
    hidden = builder.add(f"{name}.relu", relu(), builder.add(f"{name}.0", layers[0], x))
    return builder.add(f"{name}.3", layers[1], hidden)


class TwoBranch(Layout, name="two-branch"):
    """Keys `mu_proj.0`, `mu_proj.3`, `logvar_proj.0`, `logvar_proj.3`; in == d, no BatchNorm."""

    description = "layers mu_proj.0, mu_proj.3, logvar_proj.0, logvar_proj.3"
    layers = ("mu_proj.0", "mu_proj.3", "logvar_proj.0", "logvar_proj.3")
    unit_rows = True

    @classmethod
    def recognises(cls, weights: Weights) -> bool:
        """By the names of the layers."""
        return any(weights.layer(role) in weights.layers for role in cls.layers)

    @classmethod
    def tower(cls, weights: Weights) -> Projector:
        """Read both perceptrons; CimError where a key is missing or a shape does not fit."""
        names = [weights.layer(role) for role in cls.layers]
        width = weights.get(names[0], "weight", (None, None)).shape[1]
        branches = []
        for first, second in (names[:2], names[2:]):
            inner = linear(weights, first, width)
            branches.append((inner, linear(weights, second, inner.weight.shape[1], width)))
        weights.refuse_others(names, cls.name)
        return TwoBranchTower(*branches)

    @classmethod
    def statistics(cls, width: int) -> tuple[float, float]:
        """Divide ed by d and vd by d^2."""
        return float(width), float(width**2)
