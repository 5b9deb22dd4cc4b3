"""Towers and heads, and the program of a trained model that they make."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

from cimtool.base.arrays import FloatArray
from cimtool.base.errors import CimError
from cimtool.base.named import Named
from cimtool.base.typed_fields import made_of
from cimtool.ir.arithmetic import Axis, MatMul, Mul, Store, Sum, plus
from cimtool.ir.program import MODALITIES, Builder, Graph, Program, keep, score_inputs
from cimtool.ir.source import Exp, L2Normalize
from cimtool.ir.surrogate import Polynomial
from cimtool.ir.types import Type, real

Span = tuple[float, float]
"""The lowest and the highest value of a statistic."""


VARIANCE = "s"
"""The name of a tower's variance, `exp` of its logvar, which no other value of a tower has."""


class TowerBuilder(Builder):
    """Builds a tower: the graph of one trained projector, from rows `x` [n, width].

    Its outputs are `mu` and the variance `s`, [n, d] each; a point embedding has no `s`.
    """

    def __init__(self, width: int):
        super().__init__("tower", {"x": real(("n", width))})

    def tower(self, mu: str, logvar: str | None = None) -> Graph:
        """The finished graph."""
        if logvar is None:
            return self.graph({"mu": mu})
        return self.graph({"mu": mu, "s": self.add(VARIANCE, Exp(), logvar)})


def dimension(tower: Graph) -> int:
    """Extent d of a tower's mu and s."""
    return tower.extent(tower.outputs["mu"])


@dataclass(frozen=True)
class ScoreConstants:
    """Constants of a score, from files and options; a head takes the ones that it needs.

    `polynomial` takes raw ed and vd; None if there is none. `a` and `b` are the teacher's, of a
    distance, or scale and offset of a cosine. `tokens` are those of a text and of a video.
    """

    file: str
    polynomial: Polynomial | None = None
    a: float | None = None
    b: float | None = None
    tokens: tuple[int, int] = (1, 1)


@dataclass(frozen=True)
class Head(Named):
    """Base of the score functions; a subclass in `cimtool/ir/heads/` is found by itself.

    A head is a frozen dataclass whose fields, numbers or texts, are its trained constants.
    """

    surrogate: ClassVar[str]
    """Name of its float score in tables."""
    needs_variance: ClassVar[tuple[str, ...]] = ()
    """The modalities whose tower must give a variance."""
    scores_raw: ClassVar[bool] = False
    """True if it can compare embeddings that nothing projects."""
    takes_polynomial: ClassVar[bool] = False
    """True if its score is a polynomial from a file."""
    is_sampled: ClassVar[bool] = False
    """True if a and b say a matching probability E[sigmoid(b - a D)] of its items."""
    scales_cosine: ClassVar[bool] = False
    """True if a and b, where they are given, scale its cosine: a c + b."""
    takes_tokens: ClassVar[bool] = False
    """True if an item is several vectors: its projectors are applied to each token of a row."""
    is_surrogate: ClassVar[bool] = False
    """True if its score was fitted to that probability, from which its drift is measured."""

    @classmethod
    def trained(cls, known: ScoreConstants) -> Self:
        """The head with its constants; CimError names a constant that is missing."""
        return cls()

    @property
    def products(self) -> tuple[str, ...]:
        """Names of its products of a query and an item, if a gallery is in the arrays."""
        return ("mu.mu",)

    @property
    def tokens(self) -> tuple[int, int]:
        """Vectors of a text and of a video: 1, unless the head takes tokens."""
        return 1, 1

    @property
    def predicts_logit(self) -> bool:
        """True if the score is the logit of a matching probability."""
        return self.is_sampled

    @property
    def limited(self) -> Mapping[str, str]:
        """Values of its score graph that saturate beside its statistics, by their report names."""
        return {}

    @property
    def fitted_ranges(self) -> Mapping[str, Span] | None:
        """Ranges of its statistics that its score was fitted on; None if these are not known."""
        return {}

    @property
    def measure(self) -> str:
        """Name of its scores in reports: `logit`, or `score` if it is none."""
        return "logit" if self.predicts_logit else "score"

    @property
    def described(self) -> str:
        """Its score in words, with the constants that are few."""
        return self.surrogate

    @property
    def closed_form_note(self) -> str:
        """A remark for reports on a score that approximates no other."""
        return (
            f'head "{self.name}" is a score of its own, so drift is measured against the float '
            f"{self.surrogate}"
        )

    @abstractmethod
    def features(self, builder: Builder, mu: str, s: str | None) -> dict[str, str]:
        """Add the nodes that turn (mu, s) into an item's stored features; name the outputs."""

    @abstractmethod
    def score(self, inputs: Mapping[str, Type]) -> Graph:
        """The graph from both sides' features to `logit` [n, m]."""

    def constant_over(self, spans: Mapping[str, Span]) -> bool:
        """True if the score hardly varies while its statistics do, over these spans."""
        return False

    def jitter(self, statistics: Mapping[str, FloatArray], off: float) -> float:
        """Root mean square change of the score if a statistic is `off` of its range away.

        0 if terms cannot cancel, so that errors of the statistics come out as small as they are.
        """
        return 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain values by name, for a manifest."""
        return {"name": self.name, **asdict(self)}

    @staticmethod
    def from_json(values: Mapping[str, Any], where: str) -> Head:
        """Read what `to_json` returned; CimError for a name that is no head's."""
        kind = Head.named(values["name"], where)
        return kind.parsed({name: value for name, value in values.items() if name != "name"})

    @classmethod
    def parsed(cls, values: Mapping[str, Any]) -> Self:
        """The head of plain values of its fields; TypeError for values of other types."""
        return made_of(cls, values)


@dataclass(frozen=True)
class CosineHead(Head):
    """Base of heads whose score is a cosine c, or with a scale `a` and an offset `b` a c + b."""

    a: float | None = None
    b: float | None = None

    scales_cosine = True

    @property
    def predicts_logit(self) -> bool:
        """True with b, as of SigLIP; a scale alone, as of CLIP, is that of a softmax."""
        return self.b is not None

    @property
    def limited(self) -> Mapping[str, str]:
        """The cosine itself, at twice what unit rows can give."""
        return {"cosine": "mu.mu"}


def unit_norm(builder: Builder, mu: str) -> str:
    """Add a norm of the rows of mu, unless the projector ends in one."""
    last = builder.by_name.get(mu)
    if last is not None and isinstance(last.op, L2Normalize) and not last.op.least:
        return mu
    return builder.add("mu_unit", L2Normalize(), mu)


def distance_features(builder: Builder, mu: str, s: str) -> dict[str, str]:
    """Add what `distance` reads of an item: `mu`, and `ed_self = sum mu^2 + s`."""
    mu = builder.add("mu_stored", Store("mu"), mu)
    summed = builder.add("s_summed", Store("s_self", 16), s)
    squares = builder.add("mu_squared", Mul(), mu, mu)
    mu_sum_squares = builder.add("mu_sum_squares", Sum(), squares)
    s_total = builder.add("s_total", Sum(), summed)
    return {"mu": mu, "ed_self": builder.add("ed_self", plus(1, 1), mu_sum_squares, s_total)}


def point_features(builder: Builder, mu: str) -> dict[str, str]:
    """Add what `distance` reads of an item whose variance does not count: `ed_self = sum mu^2`."""
    mu = builder.add("mu_stored", Store("mu"), mu)
    squares = builder.add("mu_squared", Mul(), mu, mu)
    return {"mu": mu, "ed_self": builder.add("ed_self", Sum(), squares)}


def distance(b: Builder) -> str:
    """Add `ed = ed_t + ed_v - 2 mu_t.mu_v` [n, m] of items that store `mu` and `ed_self`."""
    ed_t = b.add("text.ed_self.rows", Axis(1), "text.ed_self")
    ed_v = b.add("video.ed_self.rows", Axis(0), "video.ed_self")
    return b.add("ed", plus(1, 1, -2), ed_t, ed_v, b.add("mu.mu", MatMul(), "text.mu", "video.mu"))


def assemble(text: Graph, video: Graph, head: Head) -> Program:
    """The program of two towers and a head, in real numbers, before any pass.

    Raises CimError if the head needs a variance and a tower gives none.
    """
    graphs = {}
    for name, tower in zip(MODALITIES, (text, video), strict=True):
        if name in head.needs_variance and "s" not in tower.outputs:
            raise CimError(
                f'head "{head.name}" needs a variance, and the {name} projector gives a point '
                f"without one; expected one of the heads {', '.join(point_heads())}"
            )
        builder = Builder(name, tower.inputs)
        for node in tower.nodes:
            keep(builder, node.op, node, node.inputs)
        outputs = head.features(builder, tower.outputs["mu"], tower.outputs.get("s"))
        graphs[name] = builder.graph(outputs)
    score = head.score(score_inputs(graphs["text"], graphs["video"]))
    return Program(graphs["text"], graphs["video"], score)


def raw_heads() -> list[str]:
    """The names of the heads that can compare embeddings that nothing projects."""
    return [name for name, head in Head.family.items() if head.scores_raw]


def point_heads() -> list[str]:
    """The names of the heads that need no variance, for items of one vector."""
    found = (name for name, head in Head.family.items() if not head.needs_variance)
    return sorted(name for name in found if not Head.family[name].takes_tokens)
