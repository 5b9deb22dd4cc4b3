"""Projectors of tokens: for late interaction a projector is applied to each token of a row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cimtool.base.errors import CimError
from cimtool.ir.arithmetic import Arrange
from cimtool.ir.heads import TowerBuilder
from cimtool.ir.program import Graph, keep
from cimtool.loading.layout import Layout, count_tokens
from cimtool.loading.weights import Weights

MOST_TOKENS = 32
"""The most tokens of an item: a pair has as many products as one's tokens times the other's."""


def of_each_token(layout: type[Layout], weights: Weights) -> Graph:
    """The layout's tower, applied to each token of a row; the data's width gives their number.

    Raises CimError if it is not known or more than MOST_TOKENS, or if the layout takes all tokens
    at once, or rows that are normalised.
    """
    if layout.reads_tokens or layout.unit_rows:
        takes = "the tokens of an item at once" if layout.reads_tokens else "rows of unit norm"
        raise CimError(
            f'{weights.file}: layout "{layout.name}" takes {takes}; expected a projector of single '
            "tokens, or another head"
        )
    tower = layout.tower(replace(weights, row_width=None))
    width = tower.extent("x")
    count = count_tokens(weights, width)
    if count > MOST_TOKENS:
        raise CimError(
            f"{weights.file}: {weights.prefix} takes {width} numbers a token, so that a row has "
            f"{count:,} tokens; expected at most {MOST_TOKENS}"
        )
    return per_token(tower, count)


def per_token(tower: Graph, count: int) -> Graph:
    """The tower on rows of tokens, [n, count width], with a `mu` [count n, d] and no variance."""
    width = tower.extent("x")
    builder = TowerBuilder(count * width)
    places = np.arange(count * width).reshape(count, width)
    mapped = {"x": builder.add("token", Arrange(1, places), "x")}
    for node in tower.nodes:
        inputs = tuple(mapped[name] for name in node.inputs)
        mapped[node.name] = keep(builder, node.op, node, inputs)
    return builder.tower(mapped[tower.outputs["mu"]]).pruned()
