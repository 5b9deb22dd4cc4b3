"""Head `maxsim`: means of maxima over tokens, by hand and against loops."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from cimtool.ir.arithmetic import MatMul, SumOfMaxima
from cimtool.ir.heads import Head, ScoreConstants, TowerBuilder, assemble
from cimtool.ir.heads.maxsim import MaxSim
from cimtool.loading.tokens import per_token
from cimtool.simulation.simulator import Simulator

TOKENS = 3, 2


def raw(width: int, count: int) -> object:
    return per_token(TowerBuilder(width).tower("x"), count)


def test_the_score_is_the_mean_of_the_largest_cosines_by_hand() -> None:
    program = assemble(raw(2, 2), raw(2, 2), MaxSim(2, 2))
    text = np.array([[3.0, 0.0, 0.0, 2.0]])  # tokens (1, 0) and (0, 1) at unit norm
    video = np.array([[0.6, 0.8, -5.0, 0.0], [0.0, -1.0, 0.0, -7.0]])
    # First video: max(0.6, -1) and max(0.8, 0); second: max(0, 0) and max(-1, -1).
    found = Simulator(program).scores(text, video)
    np.testing.assert_allclose(found, [[(0.6 + 0.8) / 2, (0 - 1) / 2]], atol=1e-15)


@pytest.mark.parametrize("kind", ["points", "units", "gaussians"])
def test_each_token_is_projected_and_normalised(towers: SimpleNamespace, kind: str) -> None:
    pair = getattr(towers, kind)
    single = assemble(*pair, Head.family["cosine"]())
    sides = tuple(map(per_token, pair, TOKENS))
    program = assemble(*sides, MaxSim(*TOKENS))
    rng = np.random.default_rng(2)
    text, video = (rng.normal(size=(n, t, 7)) for n, t in zip((6, 4), TOKENS, strict=True))
    found = Simulator(program).scores(text.reshape(6, -1), video.reshape(4, -1))
    cosines = Simulator(single).scores(text.reshape(-1, 7), video.reshape(-1, 7))
    for n in range(6):
        for m in range(4):
            block = cosines[3 * n : 3 * n + 3, 2 * m : 2 * m + 2]
            assert found[n, m] == pytest.approx(max(block[0]) / 3 + sum(map(max, block[1:])) / 3)
    assert [*program.text.outputs] == ["mu"]
    assert program.text.types["mu_stored"].shape == ("n", 3 * 5)


def test_a_score_is_one_product_and_its_maxima(towers: SimpleNamespace) -> None:
    program = assemble(*map(per_token, towers.points, TOKENS), MaxSim(*TOKENS))
    assert len(program.score.operations(MatMul)) == 1
    (maxima,) = program.score.operations(SumOfMaxima).values()
    assert (maxima.rows, maxima.columns) == TOKENS
    assert program.score.numbers_of_pair == 6
    assert program.text.numbers_of_pair == 1


def test_a_repeated_token_of_a_video_changes_nothing() -> None:
    rng = np.random.default_rng(5)
    text, video = rng.normal(size=(5, 4)), rng.normal(size=(6, 4))
    padded = np.concatenate([video, video[:, 2:]], axis=1)
    found = [
        Simulator(assemble(raw(2, 2), raw(2, count), MaxSim(2, count))).scores(text, rows)
        for count, rows in ((2, video), (3, padded))
    ]
    np.testing.assert_allclose(*found, rtol=1e-12)


def test_its_constants_are_the_numbers_of_tokens() -> None:
    head = MaxSim.trained(ScoreConstants("f", tokens=(4, 9)))
    assert (head, head.tokens, head.measure) == (MaxSim(4, 9), (4, 9), "score")
    assert Head.from_json(head.to_json(), "f") == head
    assert head.described == "MaxSim of 4 text tokens and 9 video tokens"
    with pytest.raises(ValueError, match=r"tokens are \(0, 9\)"):
        MaxSim(0, 9)
