"""What towers and heads are, and how they make the program of a trained model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

from cimtool.base.arrays import FloatArray
from cimtool.base.errors import CimError
from cimtool.base.named import Named
from cimtool.ir.arithmetic import Add, Axis, MatMul, scalar
from cimtool.ir.program import MODALITIES, Builder, Graph, Program, score_inputs
from cimtool.ir.types import Type, real
from cimtool.reference.surrogate import Polynomial

Span = tuple[float, float]
"""The lowest and the highest value of a statistic."""


class Tower(Protocol):
    """One trained projector: adds its nodes to a graph."""

    @property
    def width(self) -> int:
        """Extent of an input row."""
        ...

    def build(self, builder: Builder, x: str) -> tuple[str, str | None]:
        """Add the nodes from `x` [n, width]; return the names of `mu` and `s` (variance) [n, d].

        A point embedding has no variance: its `s` is None.
        """
        ...


@dataclass(frozen=True)
class ScoreConstants:
    """What files and options say of a score; a head takes of it what it needs.

    `polynomial` takes raw ed and vd; None where there is none. `a` and `b` are the teacher's.
    """

    file: str
    polynomial: Polynomial | None = None
    a: float | None = None
    b: float | None = None


class Head(Named):
    """Base of the score functions; a subclass in `cimtool/ir/heads/` is found by itself.

    A head is a frozen dataclass whose fields, numbers or texts, are its trained constants.
    """

    surrogate: ClassVar[str]
    """What tables call its float score."""
    statistics: ClassVar[tuple[str, ...]] = ()
    """The values of its score graph whose range is calibrated: `ed`, `vd`."""
    needs_variance: ClassVar[bool] = False
    """Whether a tower must give a variance."""
    takes_polynomial: ClassVar[bool] = False
    """Whether its score is a polynomial from a file."""
    is_sampled: ClassVar[bool] = False
    """Whether its score stands for E[sigmoid(b - a D)], so that exact and Monte Carlo are known."""
    remedy: ClassVar[str] = "train another model"
    """What to do where the float score itself is far off."""

    @classmethod
    def trained(cls, known: ScoreConstants) -> Self:
        """The head with its constants; CimError naming what is missing."""
        return cls()

    @property
    def predicts_logit(self) -> bool:
        """Whether the score is the logit of a matching probability."""
        return False

    @property
    def limited(self) -> Mapping[str, str]:
        """The values of its score graph that saturate, by the name that reports give them."""
        return {name: name for name in self.statistics}

    @property
    def measure(self) -> str:
        """What reports call its scores: `logit`, or `score` where it is none."""
        return "logit" if self.predicts_logit else "score"

    @property
    def unsampled_note(self) -> str:
        """What a report says where the score stands for no mean of sigmoids."""
        return (
            f'head "{self.name}" has no sampled score, exact or Monte Carlo, so drift is measured '
            f"against the float {self.surrogate}"
        )

    def features(self, builder: Builder, mu: str, s: str | None) -> dict[str, str]:
        """Add the nodes that turn (mu, s) into what is stored of an item; name the outputs."""
        raise NotImplementedError

    def score(self, inputs: Mapping[str, Type]) -> Graph:
        """The graph from both sides' features to `logit` [n, m]."""
        raise NotImplementedError

    def constant_over(self, spans: Mapping[str, Span]) -> bool:
        """Whether the score hardly varies while its statistics do, over these spans."""
        return False

    def jitter(self, statistics: Mapping[str, FloatArray], off: float) -> float:
        """Root mean square change of the score where a statistic is `off` of its range away.

        0 where terms cannot cancel, so that errors of the statistics come out as small as they are.
        """
        return 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain values by name, for a manifest."""
        return {"name": self.name, **vars(self)}

    @staticmethod
    def from_json(values: Mapping[str, Any], where: str) -> Head:
        """Read what `to_json` returned; CimError for a name that is no head's."""
        kind = Head.named(values["name"], where)
        return kind.parsed({name: value for name, value in values.items() if name != "name"})

    @classmethod
    def parsed(cls, values: Mapping[str, Any]) -> Self:
        """The head of its own fields' plain values."""
        return cls(**values)


def plus(*factors: float) -> Add:
    """The operation `sum factors[i] * x_i` on real numbers."""
    return Add(tuple(scalar(factor) for factor in factors), scalar(0.0))


def distance(b: Builder) -> str:
    """Add `ed = ed_t + ed_v - 2 mu_t.mu_v` [n, m] of items that store `mu` and `ed_self`."""
    ed_t = b.add("text.ed_self.rows", Axis(1), "text.ed_self")
    ed_v = b.add("video.ed_self.rows", Axis(0), "video.ed_self")
    return b.add("ed", plus(1, 1, -2), ed_t, ed_v, b.add("mu.mu", MatMul(), "text.mu", "video.mu"))


def encoder(name: str, tower: Tower) -> Graph:
    """A tower alone, from `x` to `mu` and, where it has a variance, `s`."""
    builder = Builder(name, {"x": real(("n", tower.width))})
    mu, s = tower.build(builder, "x")
    return builder.graph({"mu": mu} if s is None else {"mu": mu, "s": s})


def has_variance(tower: Tower) -> bool:
    """Whether a tower gives a variance beside its mean."""
    return "s" in encoder("trial", tower).outputs


def assemble(text: Tower, video: Tower, head: Head) -> Program:
    """The trained model as a program of real numbers, before any pass.

    Raises CimError where the head needs a variance and a tower gives none.
    """
    graphs = {}
    for name, tower in zip(MODALITIES, (text, video), strict=True):
        builder = Builder(name, {"x": real(("n", tower.width))})
        mu, s = tower.build(builder, "x")
        if head.needs_variance and s is None:
            raise CimError(
                f'head "{head.name}" needs a variance, and the {name} projector gives a point '
                f"without one; expected one of the heads {', '.join(_of_points())}"
            )
        graphs[name] = builder.graph(head.features(builder, mu, s))
    score = head.score(score_inputs(graphs["text"], graphs["video"]))
    return Program(graphs["text"], graphs["video"], score)


def _of_points() -> list[str]:
    return sorted(name for name, head in Head.family.items() if not head.needs_variance)
