"""Layout `two-branch`: one perceptron for the residual of mu, one for logvar; unit rows."""

from __future__ import annotations

from cimtool.ir.arithmetic import Clip, Mvm, plus, scalar
from cimtool.ir.heads import TowerBuilder
from cimtool.ir.op import Op
from cimtool.ir.program import Builder, Graph
from cimtool.ir.source import L2Normalize
from cimtool.loading.layout import RELU, Layout, linear
from cimtool.loading.weights import Weights

LOGVAR_RANGE = (-5.0, 2.0)


def two_branch_tower(
    mu_proj: tuple[Mvm, Mvm], logvar_proj: tuple[Mvm, Mvm], activation: Op | None = RELU
) -> Graph:
    """`mu = normalize(x + mlp(x))`, `logvar = clamp(mlp(x), -5, 2)`; both [n, width]."""
    builder = TowerBuilder(mu_proj[0].weight.shape[0])
    residual = _perceptron(builder, "mu_proj", mu_proj, activation)
    mu = builder.add("mu", L2Normalize(), builder.add("mu_sum", plus(1, 1), "x", residual))
    raw = _perceptron(builder, "logvar_proj", logvar_proj, activation)
    return builder.tower(mu, builder.add("logvar", Clip(*map(scalar, LOGVAR_RANGE)), raw))


def _perceptron(builder: Builder, name: str, layers: tuple[Mvm, Mvm], activation: Op | None) -> str:
    hidden = builder.add(f"{name}.0", layers[0], "x")
    if activation is not None:
        hidden = builder.add(f"{name}.relu", activation, hidden)
    return builder.add(f"{name}.3", layers[1], hidden)


class TwoBranch(Layout, name="two-branch"):
    """Keys `mu_proj.0`, `mu_proj.3`, `logvar_proj.0`, `logvar_proj.3`; in == d, no BatchNorm."""

    description = "layers mu_proj.0, mu_proj.3, logvar_proj.0, logvar_proj.3"
    layers = ("mu_proj.0", "mu_proj.3", "logvar_proj.0", "logvar_proj.3")
    unit_rows = True
    assumed = "relu"

    @classmethod
    def tower(cls, weights: Weights) -> Graph:
        """Read both perceptrons; CimError if a key is missing or a shape does not fit."""
        names = [weights.layer(role) for role in cls.layers]
        width: int | None = None
        branches = []
        for first, second in (names[:2], names[2:]):
            inner = linear(weights, first, width)
            width, hidden = inner.weight.shape
            branches.append((inner, linear(weights, second, hidden, width)))
        weights.refuse_others(names, cls.name)
        return two_branch_tower(branches[0], branches[1], cls.activation(weights))

    @classmethod
    def assumptions(cls, weights: Weights) -> tuple[str, ...]:
        """No remarks: the code that saves this layout has no activation except ReLU."""
        return ()

    @classmethod
    def statistics(cls, width: int) -> tuple[float, float]:
        """Divide ed by d and vd by d^2."""
        return float(width), float(width**2)
