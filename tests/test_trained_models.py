"""Every model that trains here, on every shipped target: the same bits in all implementations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cimtool import api
from cimtool.base.arrays import Array
from cimtool.emit.onnx import onnx_files
from cimtool.emit.runtime import Session
from cimtool.hardware.target import target_names
from cimtool.ir.program import MODALITIES
from cimtool.simulation.simulator import Simulator
from cimtool.training.models import ProjectorModel
from cimtool.verification.bits import (
    compare_outputs,
    count_against_reference,
    outputs_of,
)

WIDTH, ROWS, CLASSES = 12, 96, 4
ONE_MODALITY = ("autoencoder", "variational-autoencoder")
LOSSES: dict[str, str] = {
    "trunk": "info-nce-poly",
    "two-branch": "info-nce",
    "linear": "pairwise-bce",
    "posthoc": "info-nce",
    "tanh-projectors": "acmr",
    "cross-attention": "hnac",
    "autoencoder": "siamese",
    "variational-autoencoder": "triplet",
}
OPTIONS: dict[str, dict[str, Any]] = {
    "trunk": {"model.hidden": 24, "model.width": 8},
    "two-branch": {"model.hidden": 24},
    "tanh-projectors": {"model.text_hidden": "20", "model.video_hidden": "24", "model.width": 8},
    "autoencoder": {"model.hidden": "24", "model.width": 6, "loss.per_class": 4},
    "variational-autoencoder": {"model.hidden": "24", "model.width": 6, "loss.per_class": 4},
}


SIGMOID: dict[str, Any] = {"a": 0.1, "b": 0.0}
"""The slope and offset that neither InfoNCE nor triplets say."""


def data(model: str, seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    labels = np.arange(ROWS) % CLASSES
    centres = np.random.default_rng(9).normal(size=(CLASSES, WIDTH))
    text = (centres[labels] + rng.normal(size=(ROWS, WIDTH))).astype(np.float32)
    if model in ONE_MODALITY:
        return {"rows": text, "labels": labels}
    video = (text + 0.2 * rng.normal(size=text.shape)).astype(np.float32)
    return {"text": text, "video": video, "labels": labels}


def fitted(projectors: Path, rows: dict[str, Array], folder: Path) -> Path:
    """A polynomial for projectors that have none."""
    teacher = api.teacher(projectors, rows, labels="exact", pairs=2000, matched=0.5, **SIGMOID)
    api.fit(teacher, output=folder / "poly.json")
    return folder / "poly.json"


Trained = Callable[[str], tuple[Path, Path | None]]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A model trained for two epochs, and a polynomial where its head takes one."""
    made: dict[str, tuple[Path, Path | None]] = {}

    def make(model: str) -> tuple[Path, Path | None]:
        if model in made:
            return made[model]
        folder, rows = tmp_path_factory.mktemp(model), data(model, 0)
        common: dict[str, Any] = {"model": model, "epochs": 2, "batch": 16, "held_out": 0.2}
        common["options"] = OPTIONS.get(model, {})
        loss = LOSSES[model]
        if loss == "info-nce-poly":
            first = api.train(rows, folder / "first", loss="info-nce", **common)
            start = first.folder / "model.pth"
            on = fitted(start, rows, folder)
            run = api.train(rows, folder / "run", start=start, poly=on, epochs=2, batch=16)
        else:
            run = api.train(rows, folder / "run", loss=loss, **common)
        projectors = run.folder / "model.pth"
        poly = fitted(projectors, rows, folder) if run.lacks_polynomial else None
        made[model] = projectors, poly
        return made[model]

    return make


def test_every_model_is_here() -> None:
    assert set(ProjectorModel.family) == set(LOSSES)


# Layout `trunk` on every target is in test_every_target.py, with the whole of a verification.
CASES = [
    (model, target)
    for model in LOSSES
    for target in target_names()
    if model != "trunk" or target in ("isaac-rram-128", "hermes-pcm-14nm")
]


@pytest.mark.thorough(
    "each target; one of a kind is in the first tier",
    quick=(
        "trunk-isaac",
        "two-branch-hermes",
        "variational-autoencoder-dcim-28nm-isscc23",
        "cross-attention-isaac",
    ),
)
@pytest.mark.parametrize(("model", "target"), CASES)
def test_no_value_differs(model: str, target: str, trained: Trained) -> None:
    projectors, poly = trained(model)
    sigmoid = SIGMOID if model == "variational-autoencoder" else {}
    compilation = api.prepare(
        projectors, poly, calibration=data(model, 0), drift="given", target=target, **sigmoid
    )
    program = compilation.stages[-1].program
    unseen = api.read_data(data(model, 1), compilation.model)
    rows = {modality: getattr(unseen, modality) for modality in MODALITIES}
    simulator = Simulator(program)
    features = {modality: simulator.encode(modality, rows[modality]) for modality in MODALITIES}
    logits = simulator.score(features["text"], features["video"], np.float32)
    files = onnx_files(program, compilation.stages[1].program)
    text, video = (Session(files[f"{m}.onnx"]).encode(rows[m]) for m in MODALITIES)
    scores = Session(files["score.onnx"]).score(text, video)
    simulated = outputs_of(features, logits)
    found = outputs_of({"text": text, "video": video}, scores)
    counts = compare_outputs("ONNX Runtime", simulated, found)
    counts += count_against_reference(program, rows, simulated)
    assert [text for count in counts for text in count.failures] == []
    assert sum(count.compared for count in counts) > ROWS * ROWS
