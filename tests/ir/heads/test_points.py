"""Heads `cosine` and `euclidean`, in matrix products."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cimtool.base.errors import CimError
from cimtool.ir.heads import ScoreConstants
from cimtool.ir.heads.points import Cosine, Euclidean
from cimtool.ir.source import L2Normalize


@pytest.mark.parametrize("kind", ["points", "units", "gaussians"])
def test_the_score_is_the_cosine_of_the_means(
    made: Callable[..., Any], towers: SimpleNamespace, kind: str
) -> None:
    found = made(Cosine(), getattr(towers, kind))
    text, video = (mu / np.linalg.norm(mu, axis=-1, keepdims=True) for mu in found.mu)
    np.testing.assert_allclose(found.scores, (text * video).sum(axis=-1), rtol=1e-12)
    for graph in (found.program.text, found.program.video):
        norms = [node for node in graph.nodes if isinstance(node.op, L2Normalize)]
        assert len(norms) == 1, "a tower that ends in a norm has no second one"
    scaled = made(Cosine(20.0, -3.0), getattr(towers, kind))
    np.testing.assert_allclose(scaled.scores, 20 * found.scores - 3, rtol=1e-12)


def test_a_scale_and_an_offset_make_a_logit_of_a_cosine() -> None:
    known = ScoreConstants("f", None, 20.0, -3.0)
    assert (Cosine.trained(known), Cosine.trained(ScoreConstants("f"))) == (
        Cosine(20.0, -3.0),
        Cosine(),
    )
    assert (Cosine(20.0, -3.0).measure, Cosine().measure) == ("logit", "score")
    assert Cosine(20.0, -3.0).described == "cosine, 20 c + -3"
    with pytest.raises(CimError, match=r'^f: gives one of a and b for head "cosine"'):
        Cosine.trained(ScoreConstants("f", None, 20.0, None))


@pytest.mark.parametrize("kind", ["points", "gaussians"])
def test_the_score_is_the_negative_squared_distance_of_the_means(
    made: Callable[..., Any], towers: SimpleNamespace, kind: str
) -> None:
    found = made(Euclidean(), getattr(towers, kind))
    wanted = -np.square(found.mu[0] - found.mu[1]).sum(axis=-1)
    np.testing.assert_allclose(found.scores, wanted, rtol=1e-12)
