from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cimtool
from cimtool.base.errors import CimError
from cimtool.training.loss import Batch, Task, Terms
from cimtool.training.losses.constraints import Siamese
from cimtool.training.towers import Encoded

LABELS = torch.tensor([0, 1, 0, 2, 1, 1])


def terms(options: Siamese, points: torch.Tensor) -> Terms:
    code = Encoded(points)
    made = options.objective(Task(points.shape[1], classes=3))
    found: Terms = made(code, code, Batch(points, points, labels=LABELS))
    return found


def points() -> torch.Tensor:
    return torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("squared", [False, True])
def test_it_is_the_written_mean_over_all_pairs(squared: bool) -> None:
    rows, total, near = points(), 0.0, []
    for i in range(6):
        for j in range(i):
            d = float((rows[i] - rows[j]).norm())
            if LABELS[i] == LABELS[j]:
                total += 0.3 * d**2
            else:
                lack = max(0.0, 2.0 - d)
                total += 0.7 * (lack**2 if squared else lack)
                near.append(lack > 0)
    options = Siamese(margin=2.0, balance=0.3, squared_hinge=squared)
    found = terms(options, rows)
    assert found.total.item() == pytest.approx(total / 15, rel=1e-12)
    assert 0 < sum(near) < len(near)
    share = found.watched["wrong within margin"].item()
    assert share == pytest.approx(sum(near) / len(near), rel=1e-6)


def test_the_hinge_of_the_text_pushes_as_hard_however_near() -> None:
    """Its slope is that of the distance; squared, what lacks little pushes little."""
    for squared, slopes in ((False, (1.0, 1.0)), (True, (3.0, 1.0))):
        for near, slope in zip((0.5, 1.5), slopes, strict=True):
            rows = torch.tensor([[0.0], [near]], requires_grad=True)
            code = Encoded(rows)
            made = Siamese(margin=2.0, squared_hinge=squared).objective(Task(1, classes=2))
            made(code, code, Batch(rows, rows, labels=torch.tensor([0, 1]))).total.backward()
            assert rows.grad[1].item() == pytest.approx(-0.5 * slope)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"margin": 0.0}, r"loss\.margin is 0; expected more than 0"),
        ({"balance": 1.0}, r"loss\.balance is 1; expected a share between 0 and 1"),
        ({"kl": -1.0}, r"loss\.kl is -1; expected 0 or more"),
        ({"per_class": 0}, r"loss\.per_class is 0; expected more than 0"),
    ],
)
def test_hyperparameters_out_of_range(options: dict[str, float], message: str) -> None:
    with pytest.raises(CimError, match=message):
        Siamese(**options)


@pytest.fixture(scope="module")
def rows() -> dict[str, np.ndarray]:
    """Items of three classes, which a few of their 12 numbers tell apart."""
    rng = np.random.default_rng(0)
    labels = np.arange(120) % 3
    centres = 4.0 * np.eye(3)
    items = np.hstack([centres[labels], rng.standard_normal((120, 9))])
    items[:, :3] += rng.standard_normal((120, 3))
    return {"rows": items.astype(np.float32), "labels": labels}


SMALL = {"model.hidden": "16", "model.width": 6, "loss.per_class": 4}


def train(rows: dict[str, np.ndarray], folder: Path, **options: object) -> cimtool.Run:
    return cimtool.train(
        rows, folder, loss="siamese", batch=12, held_out=0.3,
        **{"model": "autoencoder", "epochs": 5, "learning_rate": 1e-2, "options": SMALL, **options},
    )  # fmt: skip


@pytest.mark.thorough("one autoencoder stands for the other", quick=("[variational",))
@pytest.mark.parametrize("model", ["autoencoder", "variational-autoencoder"])
def test_it_trains_and_what_it_saves_compiles_alone(
    rows: dict[str, np.ndarray], tmp_path: Path, model: str
) -> None:
    run = train(rows, tmp_path / "run", model=model)
    assert run.best.means["mAP"] > run.history[0].means["mAP"] + 0.1
    assert run.history[5].terms["reconstruction"] < run.history[1].terms["reconstruction"]
    assert ("kl" in run.history[5].terms) == (model == "variational-autoencoder")
    kept = torch.load(run.folder / "model.pth", weights_only=True)
    assert not [key for key in kept if "decoder" in key]
    # Of a Gaussian's score b - a ed, which no constraint says; any a and b rank alike.
    sigmoid: dict[str, Any] = {"a": 0.1, "b": 0.0} if model == "variational-autoencoder" else {}
    bundle = cimtool.compile(
        run.folder / "model.pth", calibration=rows, target="isaac-rram-128",
        output=tmp_path / "b", **sigmoid,
    )  # fmt: skip
    found = cimtool.evaluate(
        rows, run.folder / "model.pth", bundle.folder, resamples=2, calibration_rows="allow",
        **sigmoid,
    )  # fmt: skip
    trained, compiled, _ = (one.metrics["r1_text_to_video"] for one in found.scores)
    assert found.leave_one_out
    assert trained > 0.8
    assert abs(trained - compiled) < 0.05
    matcher = cimtool.load(bundle.folder)
    text, video = matcher.encode_text(rows["rows"]), matcher.encode_video(rows["rows"])
    for name, values in text.items():
        np.testing.assert_array_equal(values, video[name])
    few = {name: values[:30] for name, values in rows.items()}
    report = cimtool.verify(bundle.folder, few, calibration_rows="allow")
    assert sum(one.differing for one in report.checks.bits) == 0
    assert any("an item does not find itself" in note for note in report.notes)


@pytest.mark.parametrize("model", ["autoencoder", "variational-autoencoder"])
def test_cut_off_it_comes_to_the_same_bytes(
    rows: dict[str, np.ndarray], tmp_path: Path, model: str
) -> None:
    whole = train(rows, tmp_path / "whole", model=model, epochs=3)
    train(rows, tmp_path / "cut", model=model, epochs=1)
    resumed = train(rows, tmp_path / "cut", model=model, epochs=3, resume=True)
    first, second = (one.folder.joinpath("last.pth").read_bytes() for one in (whole, resumed))
    assert first == second


def test_data_amiss(rows: dict[str, np.ndarray], tmp_path: Path) -> None:
    both = {"text": rows["rows"], "video": rows["rows"], "labels": rows["labels"]}
    with pytest.raises(CimError, match='holds text and video, and model "autoencoder" has one'):
        train(both, tmp_path / "run")
    with pytest.raises(CimError, match="labels is missing"):
        train({"rows": rows["rows"]}, tmp_path / "run")
    with pytest.raises(CimError, match="no two of the 36 items that validate share a class"):
        train({**rows, "labels": np.arange(120)}, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_it_trains_two_towers_on_pairs_too(rows: dict[str, np.ndarray], tmp_path: Path) -> None:
    both = {"text": rows["rows"], "video": rows["rows"][:, ::-1], "labels": rows["labels"]}
    options = {"model.text_hidden": "16", "model.video_hidden": "16", "model.width": 6}
    run = train(both, tmp_path / "run", model="tanh-projectors",
                options={**options, "loss.per_class": 4})  # fmt: skip
    assert list(run.history[1].terms) == ["siamese"]
    assert run.best.means["mAP"] > run.history[0].means["mAP"] + 0.1


def test_it_goes_on_from_a_checkpoint_with_its_activation(
    rows: dict[str, np.ndarray], tmp_path: Path
) -> None:
    first = train(rows, tmp_path / "first", epochs=1, options={**SMALL, "model.activation": "tanh"})
    on = train(rows, tmp_path / "on", epochs=1, model=None, start=first.folder / "model.pth",
               options={"loss.per_class": 4})  # fmt: skip
    assert on.history[0].recalls == first.best.recalls
    assert torch.load(on.folder / "model.pth", weights_only=True)["activation"] == "tanh"
