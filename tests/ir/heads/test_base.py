"""Heads and towers together: what is refused, what is left out, what a manifest keeps."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

from cimtool.base.errors import CimError
from cimtool.ir.heads import Head, ScoreConstants, assemble
from cimtool.ir.heads.csd import Csd, CsdRanking
from cimtool.ir.heads.inclusion import InclusionHead
from cimtool.ir.heads.pcme_poly import PcmePoly
from cimtool.ir.heads.points import Cosine, Euclidean
from cimtool.ir.heads.probcosine import ProbCosine
from cimtool.ir.surrogate import Polynomial

POLYNOMIAL = Polynomial(2, (-0.1, 0.25, 0.5, 0.75, 1.0), 0.5, 2.0, 3.0, a=0.1, b=0.2, K=7)
HEADS = [
    PcmePoly(POLYNOMIAL),
    Csd(0.125, -0.5),
    CsdRanking(),
    Cosine(),
    Euclidean(),
    ProbCosine(10.0, -3.0),
    InclusionHead(),
]

each_head = pytest.mark.parametrize("head", HEADS, ids=lambda head: head.name)


def test_every_file_of_the_folder_is_found() -> None:
    assert sorted(Head.family) == [
        "cosine",
        "csd",
        "csd-ranking",
        "euclidean",
        "inclusion",
        "maxsim",
        "pcme-poly",
        "probcosine",
    ]


@each_head
def test_a_manifest_keeps_a_head_whole(head: Head) -> None:
    kept = json.loads(json.dumps(head.to_json()))
    assert kept["name"] == head.name
    assert Head.from_json(kept, "head") == head


@each_head
def test_only_what_a_head_needs_is_stored(head: Head, towers: SimpleNamespace) -> None:
    stored = {
        "pcme-poly": ["mu", "s", "ed_self", "vd_self"],
        "csd": ["mu", "ed_self"],
        "csd-ranking": ["mu", "ed_self"],
        "euclidean": ["mu", "ed_self"],
        "cosine": ["mu"],
        "probcosine": ["mu", "s"],
        "inclusion": ["mu", "logvar"],
    }
    program = assemble(*towers.gaussians, head)
    for graph in (program.text, program.video):
        assert list(graph.outputs) == stored[head.name]
        # The branch of a variance that no output needs goes.
        assert ("logvar" in graph.by_name) == (graph.name in head.needs_variance)


@each_head
def test_a_point_is_refused_where_a_variance_is_needed(head: Head, towers: SimpleNamespace) -> None:
    pair = (towers.gaussians[0], towers.points[1])
    if not head.needs_variance:
        assert list(assemble(*pair, head).score.outputs) == ["logit"]
        return
    with pytest.raises(CimError) as raised:
        assemble(*pair, head)
    assert str(raised.value) == (
        f'head "{head.name}" needs a variance, and the video projector gives a point without one; '
        "expected one of the heads cosine, euclidean"
    )


def test_heads_take_what_is_known_and_say_what_is_not() -> None:
    assert PcmePoly.trained(ScoreConstants("f.pth", POLYNOMIAL)).polynomial == POLYNOMIAL
    assert Csd.trained(ScoreConstants("f.pth", None, 0.5, -1.0)) == Csd(0.5, -1.0)
    assert Cosine.trained(ScoreConstants("f.pth", POLYNOMIAL)) == Cosine()
    with pytest.raises(CimError, match=r"f\.pth: holds no polynomial; .*poly.*`cimtool fit`"):
        PcmePoly.trained(ScoreConstants("f.pth", None, 0.5, 1.0))
    with pytest.raises(CimError, match=r'f\.pth: does not give a and b, which head "csd" needs'):
        Csd.trained(ScoreConstants("f.pth", POLYNOMIAL, 0.5, None))


def test_which_scores_are_logits() -> None:
    measures = {head.name: head.measure for head in HEADS}
    assert measures == {
        "pcme-poly": "logit", "csd": "logit", "csd-ranking": "score", "cosine": "score",
        "euclidean": "score",
        "probcosine": "logit", "inclusion": "score",
    }  # fmt: skip
    of_p = Polynomial(1, (-0.1, 0.0), 0.5, fit_logit=False)
    assert PcmePoly(of_p).measure == "score"


def test_only_a_polynomial_can_be_constant_or_amplify() -> None:
    spans = {"ed": (1.0, 2.0), "vd": (3.0, 4.0)}
    flat = PcmePoly(Polynomial(1, (0.0, 0.0), 0.5))
    assert [head.constant_over(spans) for head in (flat, *HEADS)] == [True] + [False] * len(HEADS)
    values = {name: np.linspace(*span, 5) for name, span in spans.items()}
    assert HEADS[0].jitter(values, 0.1) > 0
    assert [head.jitter(values, 0.1) for head in HEADS[1:]] == [0] * len(HEADS[1:])
