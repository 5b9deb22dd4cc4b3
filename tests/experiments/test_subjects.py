"""Subjects that can be evaluated, and the sentences that refuse the rest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cimtool
from cimtool.base.errors import CimError
from cimtool.demo.data import DemoFiles
from cimtool.loading.embeddings import embeddings_in
from cimtool.loading.source import ModelSource
from cimtool.reference.montecarlo import monte_carlo
from cimtool.reference.statistics import Gaussians
from cimtool.simulation.simulator import Simulator
from cimtool.verification.references import trained_features


def rows(n: int = 60, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    text = rng.normal(size=(n, 8))
    return {"text": text, "video": text + rng.normal(size=text.shape)}


def test_a_checkpoint_that_changes_nothing_scores_as_the_embeddings_do(tmp_path: Path) -> None:
    same = {"fc.weight": torch.eye(8), "fc.bias": torch.zeros(8)}
    content = {"text_proj": same, "video_proj": same, "activation": "none", "head": "cosine"}
    torch.save(content, tmp_path / "same.pth")
    found = cimtool.evaluate(rows(), tmp_path / "same.pth", resamples=2)
    score, beside = found.scores
    (raw,) = cimtool.evaluate(rows(), resamples=2).scores
    assert (beside.kind, beside.metrics) == ("embeddings", raw.metrics)
    assert (score.name, score.kind, score.head) == ("same", "float", "cosine")
    assert score.metrics == pytest.approx(raw.metrics)
    assert (beside.name, beside.head, beside.metrics) == ("embeddings", "cosine", raw.metrics)
    assert all(abs(change.value) < 1e-6 for change in beside.differences.values())


def test_embeddings_of_unequal_widths_are_no_baseline(tmp_path: Path) -> None:
    towers = {"text_proj": torch.nn.Linear(8, 3), "video_proj": torch.nn.Linear(5, 3)}
    content = {
        name: {f"0.{k}": v for k, v in one.state_dict().items()} for name, one in towers.items()
    }
    torch.save({**content, "activation": "none", "head": "cosine"}, tmp_path / "narrow.pth")
    narrow = {"text": rows()["text"], "video": rows()["video"][:, :5]}
    (score,) = cimtool.evaluate(narrow, tmp_path / "narrow.pth", resamples=2).scores
    assert score.kind == "float"


@pytest.mark.parametrize(
    ("data", "options", "sentence"),
    [
        ({"text": np.ones((3, 2)), "video": np.ones((3, 4))}, {}, "cannot be compared; expected"),
        ({"text": np.ones((3, 2)), "video": np.ones((2, 2))}, {}, "text_to_video is missing"),
        ({"rows": np.ones((3, 2))}, {}, "labels, the class of each item, is missing"),
        ({"text": np.ones((1, 2)), "video": np.ones((1, 2))}, {}, "one row cannot be ranked"),
        (rows(), {"head": "cosin"}, 'did you mean "cosine"'),
        (rows(), {"head": "csd"}, "expected cosine or euclidean for raw embeddings"),
        (rows(), {"poly": "p.json"}, "poly sets the score of trained projectors, but raw"),
        (rows(), {"resamples": 1}, "resamples is 1; expected at least 2"),
        (rows(), {"seed": -1}, "seed is -1; expected 0 to"),
        (rows(), {"samples": [10, 0]}, "samples is 0; expected at least 1"),
        ({"text": np.zeros((3, 2)), "video": np.ones((3, 2))}, {}, "row 0 of text is all zeros"),
    ],
)
def test_what_cannot_be_evaluated(
    data: Mapping[str, Any], options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(CimError, match=sentence):
        cimtool.evaluate(data, **options)


def test_a_bundle_has_its_score_and_refuses_its_calibration_rows(
    small_bundle: Path, small_trunk: DemoFiles
) -> None:
    with pytest.raises(CimError, match=r"head sets the score .* a bundle has its score"):
        cimtool.evaluate(small_trunk.eval, small_bundle, head="cosine")
    with pytest.raises(CimError, match="expected unseen rows, or calibration_rows allow"):
        cimtool.evaluate(small_trunk.calibration, small_bundle)
    found = cimtool.evaluate(
        small_trunk.calibration, small_bundle, calibration_rows="allow", resamples=2
    )
    assert found.texts == 96


def test_a_folder_that_is_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(CimError, match=str(tmp_path)):
        cimtool.evaluate(rows(), tmp_path)


def test_a_bundle_for_other_rows(small_bundle: Path) -> None:
    with pytest.raises(CimError, match="text rows have 8 numbers; projectors expects 24"):
        cimtool.evaluate(rows(), small_bundle)


def test_monte_carlo_follows_the_model_whose_score_it_estimates(small_trunk: DemoFiles) -> None:
    found = cimtool.evaluate(
        small_trunk.eval, small_trunk.projectors, poly=small_trunk.poly, samples=[2, 40],
        resamples=2,
    )  # fmt: skip
    assert [(one.name, one.kind) for one in found.scores] == [
        ("projectors", "float"), ("projectors, K=2", "Monte Carlo"),
        ("projectors, K=40", "Monte Carlo"), ("embeddings", "embeddings"),
    ]  # fmt: skip
    model = ModelSource(small_trunk.projectors, small_trunk.poly).load()
    rows = embeddings_in(small_trunk.eval)
    trained = Simulator(model.program)
    items = trained_features(trained, rows)
    text, video = (Gaussians(items[m]["mu"], items[m]["s"]) for m in ("text", "video"))
    assert model.a is not None
    assert model.b is not None
    for score, samples in zip(found.scores[1:3], (2, 40), strict=True):
        logit = monte_carlo(text, video, model.a, model.b, samples).logit
        best = logit.argmax(axis=1) == np.arange(len(logit))
        assert score.metrics["r1_text_to_video"] == best.mean()


def test_samples_of_a_score_that_none_estimate(tmp_path: Path) -> None:
    same = {"fc.weight": torch.eye(8), "fc.bias": torch.zeros(8)}
    content = {"text_proj": same, "video_proj": same, "activation": "none", "head": "cosine"}
    torch.save(content, tmp_path / "same.pth")
    for what in (tmp_path / "same.pth", None):
        given = () if what is None else (what,)
        with pytest.raises(
            CimError, match="samples is 4, but no subject has a score that sampling"
        ):
            cimtool.evaluate(rows(), *given, samples=[4])


def test_rows_without_a_cosine_are_no_baseline(tmp_path: Path) -> None:
    same = {"fc.weight": torch.eye(8), "fc.bias": torch.zeros(8)}
    content = {"text_proj": same, "video_proj": same, "activation": "none", "head": "euclidean"}
    torch.save(content, tmp_path / "same.pth")
    data = rows()
    data["video"][3] = 0
    found = cimtool.evaluate(data, tmp_path / "same.pth", resamples=2)
    assert [one.kind for one in found.scores] == ["float"]
    (warning,) = found.scores[0].warnings
    assert warning.startswith("raw embeddings are not compared: embeddings: row 3 of video is all")


def test_rows_of_two_widths_have_no_cosine(tmp_path: Path) -> None:
    sides = {f"{name}_proj": {"fc.weight": torch.eye(2, n), "fc.bias": torch.zeros(2)}
             for name, n in (("text", 3), ("video", 5))}  # fmt: skip
    torch.save({**sides, "activation": "none", "head": "cosine"}, tmp_path / "two.pth")
    data = {"text": np.eye(9, 3) + 1, "video": np.eye(9, 5) + 1}
    found = cimtool.evaluate(data, tmp_path / "two.pth", resamples=2)
    (said,) = found.scores[0].warnings
    assert said == "raw embeddings have no cosine: text rows have 3 numbers, video rows 5"
