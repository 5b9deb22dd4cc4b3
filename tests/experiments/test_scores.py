"""Scores side by side: heads, polynomials of several degrees, and Monte Carlo."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cimtool import api, cli
from cimtool.base.errors import CimError
from cimtool.bundle.bundle import read_bundle
from cimtool.demo.data import DemoFiles
from cimtool.experiments import compiled
from cimtool.experiments.references import trained_gaussians
from cimtool.experiments.sweep import Sweep
from cimtool.loading.polynomial import read_polynomial
from cimtool.loading.source import ModelSource
from cimtool.reference.montecarlo import monte_carlo
from cimtool.report.html import html
from cimtool.report.terminal import terminal

RunSweep = Callable[..., Sweep]
HEADS = ["pcme-poly", "csd", "cosine"]


@pytest.fixture(scope="module")
def labels(small_trunk: DemoFiles, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("labels") / "teacher.npz"
    api.teacher(small_trunk.projectors, small_trunk.train, pairs=400, a=0.1, b=0.5, output=file)
    return file


@pytest.fixture(scope="module")
def scored(sweep_small: RunSweep, labels: Path, tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    grid = {"head": HEADS, "degree": [1, 2], "samples": [2, 20]}
    return sweep_small(
        tmp_path_factory.mktemp("scored") / "s", grid, poly=None, teacher=labels,
        budget={"logit_rmse": 1.0},
    )  # fmt: skip


def test_every_score_is_measured_against_the_same_exact_one(scored: Sweep) -> None:
    assert scored.reference == "exact"
    assert list(scored.baselines) == [
        "polynomial, degree 1", "polynomial, degree 2", "csd", "cosine", "Monte Carlo (K=10)",
        "raw rows, int8",
    ]  # fmt: skip
    one, two, csd, cosine, few, many = (outcome.metrics for outcome in scored.outcomes)
    assert "logit_rmse" not in cosine, "a cosine is no logit"
    assert {"r1_loss", "top1_agreement_loss", "float_rmse"} <= cosine.keys()
    assert len({metrics["logit_rmse"] for metrics in (one, two, csd, few, many)}) == 5
    assert many["logit_rmse"] < few["logit_rmse"]
    own = [scored.baselines[f"polynomial, degree {n}"]["logit_rmse"] for n in (1, 2)]
    assert own[0] != own[1]


def test_samples_are_monte_carlo_of_the_trained_model(
    scored: Sweep, small_trunk: DemoFiles
) -> None:
    model = ModelSource(small_trunk.projectors, head="csd", a=0.1, b=0.5).load()
    data = api.read_data(small_trunk.eval, model)
    sampled = monte_carlo(*trained_gaussians(model, data), 0.1, 0.5, 20)
    best = sampled.logit.argmax(axis=1) == np.arange(len(data.text))
    found = scored.outcomes[-1].metrics["r1_text_to_video"]
    assert found == pytest.approx(best.mean())


def test_costs_of_samples_stand_beside_those_of_compiled_scores(scored: Sweep) -> None:
    d, items = 16, 40
    one, _, csd, cosine, few, _ = (outcome.cost for outcome in scored.outcomes)
    assert few["score_multiplications"] == 2 * d + items * 4 * d
    assert (few["sigmoids"], few["random_normals"]) == (items * 4, 2 * d)
    assert (one["sigmoids"], few["arrays"], few["conversions"]) == (0, None, None)
    assert one["score_multiplications"] > 5 * csd["score_multiplications"]
    assert one["gallery_bytes"] > csd["gallery_bytes"] > cosine["gallery_bytes"]
    assert scored.fronts["score_multiplications"][0] == 2, "csd multiplies least"
    assert not set(scored.fronts["arrays"]) & {4, 5}
    assert scored.chosen is not None
    assert (scored.chosen.within, scored.chosen.index) == (3, 2), "no samples, and no cosine"
    text = terminal(scored.document(), verbose=True)
    assert "points with samples are Monte Carlo of the trained model" in text
    assert "multiplications of a score" in html(scored.document())


@pytest.mark.thorough("a sweep by its command")
def test_the_folder_keeps_the_polynomials_and_the_command_takes_them(
    scored: Sweep, sweep_small: RunSweep, labels: Path, tmp_path: Path
) -> None:
    folder = scored.written[0].parent
    alone = api.fit(labels, degree=2).polynomial
    assert read_polynomial(folder / "degree-2.json") == alone
    grid = {"degree": [2, "ed-1"]}
    found = sweep_small(tmp_path / "s", grid, poly=None, teacher=labels, budget={"r1_loss": 1.0})
    assert "polynomial, degree 1, ed alone" in terminal(found.document())
    in_ed = api.fit(labels, degree=1, ed_alone=True).polynomial
    assert read_polynomial(tmp_path / "s" / "degree-ed-1.json") == in_ed
    assert found.chosen is not None
    words = shlex.split(found.chosen.command)
    assert str(tmp_path / "s" / "degree-ed-1.json") in words, "of equal cost, the fewest products"
    assert cli.run([*words[1:], "-o", str(tmp_path / "bundle")]) == 0
    model = read_bundle(tmp_path / "bundle").model
    assert model.head.described == "polynomial of degree 1, ed alone"
    assert (model.a, model.b) == (0.1, 0.5)


@pytest.mark.thorough("a sweep that goes on")
def test_a_head_that_is_added_goes_on_in_the_same_folder(
    scored: Sweep, sweep_small: RunSweep, labels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "monte_carlo", None)  # points that are done are not done again
    grid = {"head": ["euclidean", *reversed(HEADS)], "degree": [2, 1], "samples": [20, 2]}
    wider = sweep_small(scored.written[0].parent, grid, poly=None, teacher=labels)
    assert (wider.resumed, len(wider.points)) == (6, 7)
    assert wider.outcomes[1] == scored.outcomes[3]


@pytest.mark.parametrize(
    ("grid", "options", "message"),
    [
        ({"degree": [2]}, {"poly": None}, "teacher has the labels .* grid degree are fitted to"),
        ({"weight_bits": [8]}, {"teacher": "t.npz"}, "expected both or neither"),
        ({"degree": [2]}, {"teacher": "t.npz"}, "poly is given, and grid degree fits other"),
        ({"head": ["csd"]}, {"head": "csd"}, "head is given twice"),
        (
            {"head": ["csd"], "degree": [2]},
            {"teacher": "t.npz", "poly": None},
            "grid degree: head csd has no polynomial; expected pcme-poly",
        ),
        ({"head": ["csd"]}, {"poly": None}, 'a and b, which head "csd" needs'),
        (
            {"head": ["cosine", "euclidean"]},
            {"poly": None},
            "model's exact score, which needs the teacher's a and b; expected a and b",
        ),
        ({"samples": [5]}, {"poly": None, "head": "cosine"}, "several scores, or samples"),
    ],
)
def test_scores_that_contradict_each_other_are_one_sentence(
    grid: dict[str, list[Any]],
    options: dict[str, Any],
    message: str,
    sweep_small: RunSweep,
    tmp_path: Path,
) -> None:
    with pytest.raises(CimError, match=message):
        sweep_small(tmp_path / "s", grid, **options)
    assert not (tmp_path / "s").exists()


def test_a_closed_form_alone_is_measured_from_itself(sweep_small: RunSweep, tmp_path: Path) -> None:
    grid = {"weight_bits": [8, 4]}
    found = sweep_small(tmp_path / "s", grid, poly=None, head="csd", a=0.1, b=0.5)
    assert found.reference == "csd"
    assert found.remarks.faults == ()
    fine, coarse = (outcome.metrics for outcome in found.outcomes)
    for metrics in (fine, coarse):
        assert metrics["logit_rmse"] == metrics["float_rmse"]
        assert metrics["centred_rmse"] == metrics["float_centred_rmse"]
    assert fine["centred_rmse"] < coarse["centred_rmse"]
    assert found.baselines["csd"]["logit_rmse"] == 0
