"""Heads `csd` and `csd-ranking`, in matrix products."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from cimtool.ir.heads import assemble
from cimtool.ir.heads.csd import Csd, CsdRanking


def test_the_logit_is_a_line_in_the_mean_distance(
    made: Callable[..., Any], towers: SimpleNamespace
) -> None:
    found = made(Csd(0.3, 1.5), towers.gaussians)
    (mu_t, mu_v), (s_t, s_v) = found.mu, found.s
    ed = (np.square(mu_t - mu_v) + s_t + s_v).sum(axis=-1)
    np.testing.assert_allclose(found.scores, 1.5 - 0.3 * ed, rtol=1e-12)


def test_without_the_texts_variance_the_videos_of_a_text_keep_their_order(
    made: Callable[..., Any], towers: SimpleNamespace
) -> None:
    found, whole = (made(head, towers.gaussians) for head in (CsdRanking(), Csd(0.3, 1.5)))
    (mu_t, mu_v), (_, s_v) = found.mu, found.s
    wanted = -(np.square(mu_t - mu_v) + s_v).sum(axis=-1)
    np.testing.assert_allclose(found.scores, wanted, rtol=1e-12)
    np.testing.assert_array_equal(found.scores.argsort(axis=1), whole.scores.argsort(axis=1))


def test_a_text_may_be_a_point_where_its_variance_does_not_count(towers: SimpleNamespace) -> None:
    program = assemble(towers.points[0], towers.gaussians[1], CsdRanking())
    assert list(program.score.outputs) == ["logit"]
