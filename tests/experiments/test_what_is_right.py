"""Truth and modalities in sweep, tune and compare: judgements, classes, a model of text and audio.

Figures are those that `evaluate` has of the same data.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from cimtool import api
from cimtool.demo.data import DemoFiles
from cimtool.experiments.sweep import Sweep
from cimtool.experiments.tuned import Tuned
from cimtool.reference.measures import WAYS
from cimtool.report.terminal import terminal

N = 60
LOW = {"weight_bits": 2, "activation_bits": 2, "target": "ideal"}
"""The fewest bits, so that tuning has no steps."""


def three_modalities(seed: int) -> dict[str, np.ndarray]:
    """Rows of three modalities, 6 wide, of which row i is one item, in 5 classes."""
    rng = np.random.default_rng(seed)
    classes = np.random.default_rng(9).normal(size=(5, 6))
    common = classes[np.arange(N) % 5] + rng.normal(size=(N, 6))
    names = ("text", "video", "audio")
    rows = {name: (common + 0.5 * rng.normal(size=(N, 6))).astype(np.float32) for name in names}
    return rows | {"labels": np.arange(N) % 5}


@pytest.fixture(scope="module")
def audio(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of text and audio."""
    folder = tmp_path_factory.mktemp("run") / "ta"
    api.train(
        three_modalities(0), folder, modalities=("text", "audio"), model="two-branch", epochs=1,
        batch=16, options={"model.hidden": 8},
    )  # fmt: skip
    return folder / "model.pth"


@pytest.fixture(scope="module")
def unseen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("data") / "three.npz"
    np.savez(file, **three_modalities(1))
    return file


def same(found: Mapping[str, float], known: Mapping[str, float], *names: str) -> None:
    """Hold that metrics of both ways are equal."""
    for name in names:
        for way in WAYS:
            key = f"{name}_{way}"
            assert found[key] == pytest.approx(known[key], abs=1e-12), key


@pytest.mark.thorough("a whole tuning")
def test_tune_ranks_by_the_judgements(small_trunk: DemoFiles, tmp_path: Path) -> None:
    qrels, files = tmp_path / "q.txt", small_trunk
    qrels.write_text("".join(f"{i} 0 {j} {1 + (i == j)}\n" for i in range(30) for j in (i, 39 - i)))
    tuned = api.tune(
        files.projectors, files.poly, calibration=files.calibration, data=files.eval, qrels=qrels,
        budget={"map_loss": 1.0}, output=tmp_path / "b.toml", **LOW,
    )  # fmt: skip
    given = {"poly": files.poly, "qrels": qrels, "resamples": 2}
    score, *_ = api.evaluate(files.eval, files.projectors, **given).scores
    same(tuned.baselines["polynomial"], score.metrics, "r1", "map", "ndcg10")
    bundle = api.compile(
        files.projectors, files.poly, calibration=files.calibration, target="ideal",
        settings=tuned.written, output=tmp_path / "b",
    )  # fmt: skip
    compiled, *_ = api.evaluate(files.eval, bundle.folder, qrels=qrels, resamples=2).scores
    same(tuned.on_all, compiled.metrics, "r1", "map", "ndcg10")
    said = " ".join(terminal(tuned.document(), verbose=True).split())
    assert tuned.by_class
    assert "right pairs are those" in said
    assert "q.txt grades above 0, 60 pairs of 30 texts" in said


@pytest.mark.thorough("the same by another command or kind of data")
def test_a_model_of_text_and_audio_in_sweep_tune_and_compare(
    audio: Path, unseen: Path, tmp_path: Path
) -> None:
    given = {"calibration": three_modalities(2), "data": unseen, "head": "cosine"}
    swept = api.sweep(
        audio, grid={"weight_bits": [4, 8]}, target="ideal", output=tmp_path / "s", **given
    )
    tuned = api.tune(audio, budget={"map_loss": 1.0}, output=tmp_path / "b.toml", **LOW, **given)
    plain, raw = api.evaluate(unseen, audio, head="cosine", resamples=2).scores
    for found in (swept, tuned):
        same(found.baselines["cosine"], plain.metrics, "r1", "map")
        int8 = found.baselines["raw rows, int8"]
        assert int8["map_text_to_video"] == pytest.approx(
            raw.metrics["map_text_to_video"], abs=0.02
        )
    assert f"{unseen}: video is not read" in swept.to_json()["notes"]
    assert "mAP" in terminal(swept.document(), verbose=True)
    assert "mAP" in terminal(tuned.document(), verbose=True)
    bundles = [
        api.compile(
            audio, head="cosine", calibration=given["calibration"], target="ideal",
            output=tmp_path / f"bits-{bits}", weight_bits=bits,
        ).folder
        for bits in (4, 8)
    ]  # fmt: skip
    compared = api.compare(bundles, unseen).reports
    known = api.evaluate(unseen, *bundles, resamples=2).scores
    for outcome, report, score in zip(swept.outcomes, compared, known, strict=False):
        same(outcome.metrics, score.metrics, "r1", "map")
        same(report.drift.final.metrics, score.metrics, "r1", "map")
        assert score.modalities == ("text", "audio")


def test_sweep_and_tune_say_first_that_rows_were_trained_on(audio: Path, tmp_path: Path) -> None:
    data, calibration = three_modalities(0), three_modalities(2)
    given = {"calibration": calibration, "data": data, "head": "cosine"}
    swept = api.sweep(
        audio, grid={"weight_bits": [8]}, target="ideal", output=tmp_path / "s", **given
    )
    tuned = api.tune(audio, budget={"map_loss": 1.0}, output=tmp_path / "b.toml", **LOW, **given)
    results: tuple[Sweep | Tuned, ...] = (swept, tuned)
    for found in results:
        (said,) = (one for one in found.first if "was trained on" in one)
        assert "of the 60 text rows" in said
        assert said in found.to_json()["warnings"]
        text = terminal(found.document())
        assert "was trained on" in text, "on the first screen"
