"""Head `maxsim`: late interaction of token vectors, of ColBERT and FILIP.

score = mean over tokens i of the text of the largest cosine <t_i, v_j> of a token j of the video

An item is up to MOST_TOKENS vectors of unit norm, one for each of its tokens. FILIP has this mean
(arXiv 2111.07783). ColBERT has the sum (arXiv 2004.12832), which ranks alike: all texts of a model
have the same number of tokens. All products of tokens are one matrix product; the digital unit
compares and adds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from cimtool.ir.arithmetic import Arrange, MatMul, Store, SumOfMaxima, plus
from cimtool.ir.heads.base import Head, ScoreConstants, unit_norm
from cimtool.ir.program import MODALITIES, Builder, Graph
from cimtool.ir.source import CosineScore
from cimtool.ir.types import Type, rows_of_item

PRODUCTS, SCORE = "products", "maxsim"
"""The values of the score graph: products of all pairs of tokens, and the mean of maxima."""


def tokens_of(score: Graph) -> tuple[int, int]:
    """Tokens of a text and of a video in a score; 1 where an item is one vector."""
    sums = score.operations(SumOfMaxima).values()
    return next(((op.rows, op.columns) for op in sums), (1, 1))


@dataclass(frozen=True)
class MaxSim(Head, name="maxsim"):
    """The mean over a text's tokens of each token's largest cosine with a token of the video."""

    text_tokens: int
    video_tokens: int

    surrogate = "MaxSim"
    takes_tokens = True

    def __post_init__(self) -> None:
        if min(self.tokens) < 1:
            raise ValueError(f"tokens are {self.tokens}; expected at least 1")

    @classmethod
    def trained(cls, known: ScoreConstants) -> Self:
        """The head for the tokens of both projectors."""
        return cls(*known.tokens)

    @property
    def tokens(self) -> tuple[int, int]:
        """Tokens of a text and of a video."""
        return self.text_tokens, self.video_tokens

    @property
    def products(self) -> tuple[str, ...]:
        return (PRODUCTS,)

    @property
    def limited(self) -> Mapping[str, str]:
        """The score itself, at twice what tokens of unit norm can give."""
        return {SCORE: SCORE}

    @property
    def described(self) -> str:
        return f"MaxSim of {self.text_tokens} text tokens and {self.video_tokens} video tokens"

    def features(self, builder: Builder, mu: str, s: str | None) -> dict[str, str]:
        mu = unit_norm(builder, mu)
        rows, _ = rows_of_item(builder.types[mu].shape[0])
        in_one_row = np.arange(rows * builder.extent(mu))[None]
        item = builder.add("mu_of_item", Arrange(rows, in_one_row), mu)
        return {"mu": builder.add("mu_stored", Store("mu"), item)}

    def score(self, inputs: Mapping[str, Type]) -> Graph:
        b = Builder("score", inputs)
        sides = []
        for modality, count in zip(MODALITIES, self.tokens, strict=True):
            stored = f"{modality}.mu"
            places = np.arange(b.extent(stored)).reshape(count, -1)
            sides.append(b.add(f"{modality}.tokens", Arrange(1, places), stored))
        products = b.add(PRODUCTS, MatMul(), *sides)
        total = b.add("maxima", SumOfMaxima(*self.tokens), products)
        mean = b.add(SCORE, plus(1 / self.text_tokens), total)
        return b.graph({"logit": b.add("logit", CosineScore(), mean)})
