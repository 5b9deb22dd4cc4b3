"""Head of a model, and the source of its constants."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cimtool.base.errors import CimError
from cimtool.ir.arithmetic import Mvm
from cimtool.ir.heads import ScoreConstants, TowerBuilder
from cimtool.ir.heads.csd import Csd
from cimtool.ir.heads.pcme_poly import PcmePoly
from cimtool.ir.heads.points import Cosine, Euclidean
from cimtool.ir.heads.probcosine import ProbCosine
from cimtool.ir.program import Graph
from cimtool.ir.surrogate import Polynomial
from cimtool.loading.onnx.modules import model_from_modules
from cimtool.loading.score import ScoreOptions, read_score, statistics_note
from cimtool.loading.source import ModelSource
from cimtool.training.towers import TwoTower

POLYNOMIAL = Polynomial(1, (-0.5, 0.25), 1.0, a=0.1, b=0.2, K=9)
INNER = {"degree": 1, "coeff": [-0.5, 0.25], "bias": 1.0, "a": 0.3, "b": 0.4}
LAYER = Mvm(np.eye(3), np.zeros(3))


def tower(variance: bool) -> Graph:
    builder = TowerBuilder(3)
    mu = builder.add("mu", LAYER, "x")
    return builder.tower(mu, mu if variance else None)


GAUSSIANS, POINTS = (tower(True),) * 2, (tower(False),) * 2


def test_the_polynomial_given_goes_before_the_one_in_the_file() -> None:
    head, known = read_score(
        "f", {"poly": INNER}, ScoreOptions(polynomial=POLYNOMIAL), GAUSSIANS, (2.0, 4.0)
    )
    scaled = replace(POLYNOMIAL, scale_ed=2.0, scale_vd=4.0)
    assert head == PcmePoly(scaled)
    assert known == ScoreConstants("f", scaled, 0.1, 0.2)
    assert scaled.K == 9
    _, known = read_score("f", {"poly": INNER}, ScoreOptions(a=0.7), GAUSSIANS, (1.0, 1.0))
    assert (known.a, known.b) == (0.7, 0.4)


def test_a_and_b_of_the_files_polynomial_stand_where_the_one_given_has_none() -> None:
    given = ScoreOptions(polynomial=replace(POLYNOMIAL, a=None, b=None))
    for content in ({"poly": INNER}, {"poly": INNER, "a": 0.9, "b": 0.9}):
        _, known = read_score("f", content, given, GAUSSIANS, (1.0, 1.0))
        assert (known.a, known.b) == (0.3, 0.4)


@pytest.mark.parametrize(
    ("content", "wanted", "head"),
    [
        ({"head": "csd", "a": 0.5, "b": np.array([-1.0])}, ScoreOptions(), Csd(0.5, -1.0)),
        ({"head": "csd", "a": 0.5, "b": 1}, ScoreOptions(b=3.0), Csd(0.5, 3.0)),
        ({"poly": INNER}, ScoreOptions("csd"), Csd(0.3, 0.4)),
        ({"head": "csd"}, ScoreOptions("euclidean"), Euclidean()),
        ({"head": "cosine", "poly": INNER}, ScoreOptions(), Cosine()),
        ({"head": "cosine", "a": 9.0, "b": 1}, ScoreOptions(), Cosine(9.0, 1.0)),
        ({"head": "csd", "a": 0.5, "b": 1}, ScoreOptions("cosine"), Cosine()),
        ({"head": "csd", "a": 0.5, "b": 1}, ScoreOptions("probcosine"), ProbCosine()),
        ({"poly": INNER}, ScoreOptions("probcosine", a=9.0), ProbCosine(9.0)),
        ({"head": "probcosine", "a": 9.0}, ScoreOptions(b=1.0), ProbCosine(9.0, 1.0)),
        ({"head": {"weight": np.eye(2)}, "poly": INNER}, ScoreOptions("cosine"), Cosine()),
    ],
)
def test_a_head_is_named_by_the_caller_or_the_file(
    content: dict[str, Any], wanted: ScoreOptions, head: object
) -> None:
    found, _ = read_score("f", content, wanted, GAUSSIANS, (1.0, 1.0))
    assert found == head


def test_only_a_sampled_score_has_a_teacher() -> None:
    content = {"poly": INNER, "head": "cosine"}
    _, known = read_score("f", content, ScoreOptions(), GAUSSIANS, (1.0, 1.0))
    assert known == ScoreConstants("f")


@pytest.mark.parametrize(
    ("content", "wanted", "towers", "said"),
    [
        ({}, ScoreOptions("cosin"), GAUSSIANS, r'head "cosin" is not known: .*mean "cosine"'),
        ({"head": "dot"}, ScoreOptions(), GAUSSIANS, r'f\.pth: head "dot" is not known: cosine'),
        ({}, ScoreOptions(), POINTS, r"f\.pth: its projectors give points without a variance, and "
         r"no head is named; expected head cosine or euclidean"),
        ({}, ScoreOptions(), GAUSSIANS, r"f\.pth: holds no polynomial"),
        ({}, ScoreOptions("csd", a=0.1), GAUSSIANS, r"f\.pth: does not give a and b"),
        ({}, ScoreOptions("cosine", POLYNOMIAL), GAUSSIANS, r'poly is given, but head "cosine"'),
        ({}, ScoreOptions("csd", POLYNOMIAL), GAUSSIANS, r'poly is given, but head "csd" has no'),
        ({}, ScoreOptions("euclidean", b=0.0), POINTS, r"b is given, but the score of head"),
        ({"a": -1.0}, ScoreOptions("csd", b=0.0), GAUSSIANS, r"f\.pth: a is -1\.0; expected a num"),
        ({"b": np.nan}, ScoreOptions("csd", a=1.0), GAUSSIANS, r"f\.pth: b is nan; expected a fin"),
    ],
)  # fmt: skip
def test_one_sentence_says_what_does_not_fit(
    content: dict[str, Any], wanted: ScoreOptions, towers: tuple[Graph, Graph], said: str
) -> None:
    with pytest.raises(CimError, match=said) as raised:
        read_score("f.pth", content, wanted, towers, (1.0, 1.0))
    assert "\n" not in str(raised.value)


def test_a_checkpoint_names_its_head(tmp_path: Path, trunks: TwoTower) -> None:
    torch.save({**trunks.state_dict(), "head": "cosine"}, tmp_path / "net.pth")
    model = ModelSource(tmp_path / "net.pth").load()
    assert (model.head, model.layout, list(model.program.text.outputs)) == (
        Cosine(),
        "trunk",
        ["mu"],
    )
    assert ModelSource(tmp_path / "net.pth", head="euclidean").load().head == Euclidean()


def test_modules_of_a_head_without_a_polynomial(trunks: TwoTower) -> None:
    model = model_from_modules(trunks.text_proj, trunks.video_proj, ScoreOptions(head="euclidean"))
    assert model.head == Euclidean()
    model = model_from_modules(
        trunks.text_proj, trunks.video_proj, ScoreOptions(a=0.5, b=0.25, head="csd")
    )
    assert (model.head, model.a, model.b) == (Csd(0.5, 0.25), 0.5, 0.25)
    with pytest.raises(CimError, match="model: holds no polynomial; give one with poly"):
        model_from_modules(trunks.text_proj, trunks.video_proj, ScoreOptions())


def test_a_layout_says_what_its_polynomials_are_of() -> None:
    said = statistics_note("two-branch", 512) or ""
    assert said.startswith("layout two-branch: the polynomial takes ed/512 and vd/262144, ")
    assert [statistics_note(layout, 512) for layout in ("trunk", "onnx")] == [None, None]
