"""Model `posthoc`: rows keep their ranks, probabilities are calibrated, mu does not move."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cimtool
from cimtool.base.errors import CimError
from cimtool.training.models.posthoc import FrozenProjector, PosthocModel
from cimtool.training.pairs import Pairs


def near(n: int, seed: int = 0, width: int = 24) -> dict[str, np.ndarray]:
    """Unit rows of both sides, right pairs near each other; half of the texts are noisier."""
    rng = np.random.default_rng(seed)
    video = rng.normal(size=(n, width))
    noise = np.where(np.arange(n) % 2, 1.5, 0.5)[:, None]
    text = video + noise * rng.normal(size=(n, width))
    text[:, 0] = 4 * (np.arange(n) % 2)  # tells the noisy ones
    rows = {"text": text, "video": video}
    return {
        name: (one / np.linalg.norm(one, axis=1, keepdims=True)).astype(np.float32)
        for name, one in rows.items()
    }


def test_solved_it_ranks_as_the_cosine_does_and_is_calibrated(tmp_path: Path) -> None:
    run = cimtool.train(near(400), tmp_path / "run", model="posthoc")
    assert [one.number for one in run.history] == [0]
    assert not run.lacks_sigmoid
    unseen = near(300, seed=1)
    model, raw = cimtool.evaluate(unseen, run.model, resamples=2).scores
    for way in ("text_to_video", "video_to_text"):
        assert model.metrics[f"r1_{way}"] == raw.metrics[f"r1_{way}"]
    assert model.metrics["calibration_error"] < 0.05
    assert model.metrics["nll"] < 0.5  # a coin has 0.693
    assert "nll" not in raw.metrics


def test_the_variance_and_the_sigmoid_by_hand(tmp_path: Path) -> None:
    rows = near(60)
    run = cimtool.train(rows, tmp_path / "run", model="posthoc", validation=near(20, seed=2))
    saved = torch.load(run.model, weights_only=True)
    squares = ((rows["text"].astype(np.float64) - rows["video"]) ** 2).sum(axis=1).mean()
    for name in ("text_proj", "video_proj"):
        assert saved[name].keys() == {"logvar.weight", "logvar.bias"}
        assert not saved[name]["logvar.weight"].any()
        variance = float(saved[name]["logvar.bias"].double().exp())
        assert 2 * 24 * variance == pytest.approx(squares, rel=1e-5)
    cosines = rows["text"].astype(np.float64) @ rows["video"].astype(np.float64).T
    ed = 2 - 2 * cosines + squares
    p = 1 / (1 + np.exp(saved["a"] * ed - saved["b"]))
    right = np.eye(60, dtype=bool)
    # Half of the weight each: as many are expected as are right, but for Platt's targets.
    assert p[right].mean() + p[~right].mean() == pytest.approx(61 / 62 + 1 / 3542, abs=1e-5)
    assert saved["head"] == "csd"


def test_epochs_train_the_variance_alone(tmp_path: Path) -> None:
    rows = near(400)
    settings: Any = {"epochs": 5, "learning_rate": 0.02, "loss": "info-nce"}
    run = cimtool.train(rows, tmp_path / "run", model="posthoc", **settings)
    saved = torch.load(tmp_path / "run" / "last.pth", weights_only=True)
    weight = saved["text_proj"]["logvar.weight"]
    assert saved["text_proj"].keys() == {"logvar.weight", "logvar.bias"}
    assert weight.shape == (1, 24)
    assert weight.any()
    assert saved["a"] > 0
    solved = cimtool.train(rows, tmp_path / "solved", model="posthoc")
    start = torch.load(solved.model, weights_only=True)
    assert saved["config"]["loss.a"] == pytest.approx(start["a"], rel=1e-4)
    given = cimtool.train(
        rows, tmp_path / "given", model="posthoc", options={"loss.a": 2.0}, **settings
    )
    assert torch.load(given.model, weights_only=True)["config"]["loss.a"] == 2.0
    assert run.history[-1].loss is not None


def test_towers_give_the_rows_and_one_variance_for_all_dimensions() -> None:
    projector = FrozenProjector(6)
    rows = torch.randn(4, 6)
    with torch.no_grad():
        projector.logvar.weight.normal_()
    mu, logvar = projector(rows)
    assert torch.equal(mu, rows)
    assert logvar.shape == (4, 6)
    assert torch.equal(logvar, logvar[:, :1].expand(-1, 6))
    towers = PosthocModel().build(6, 6)
    same = Pairs(rows, rows, torch.arange(4))
    PosthocModel().prepare(towers, same)
    assert torch.isfinite(towers.text_tower(rows).gaussian[1]).all()  # right pairs at distance 0
    with pytest.raises(CimError, match='rows of 6 and 5 numbers; model "posthoc" expects equal'):
        PosthocModel().build(6, 5)


def test_rows_of_two_widths_are_refused(tmp_path: Path) -> None:
    rows = near(60)
    np.savez(tmp_path / "rows.npz", text=rows["text"], video=rows["video"][:, :-1])
    expected = r'rows.npz: the two sides have rows of 24 and 23 numbers; model "posthoc" expects'
    with pytest.raises(CimError, match=expected):
        cimtool.train(tmp_path / "rows.npz", tmp_path / "run", model="posthoc")
    items = {"rows": near(40)["text"], "labels": np.arange(40) % 4}
    with pytest.raises(CimError, match='holds items of one modality, and model "posthoc" compares'):
        cimtool.train(items, tmp_path / "run", model="posthoc")
    assert not (tmp_path / "run").exists()


def scores_of(rows: dict[str, np.ndarray], run: Any, bundle: Any) -> Any:
    return cimtool.evaluate(rows, run.model, bundle.folder, resamples=2).scores[:2]


def test_it_compiles_and_keeps_its_ranks(tmp_path: Path) -> None:
    rows = near(200)
    run = cimtool.train(rows, tmp_path / "run", model="posthoc", epochs=2, learning_rate=0.02)
    bundle = cimtool.compile(
        run.model, calibration=rows, target="ideal", output=tmp_path / "b", weight_bits=8
    )
    unseen = near(60, seed=3)
    report = cimtool.verify(bundle.folder, unseen)
    assert sum(one.differing for one in report.checks.bits) == 0
    before, after = (one.metrics["r1_text_to_video"] for one in scores_of(unseen, run, bundle))
    assert abs(before - after) < 0.05
