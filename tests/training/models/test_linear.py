"""Model `linear`: what is solved, what is saved, and when the training of others keeps it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cimtool
from cimtool.base.errors import CimError
from cimtool.cli import run as command
from cimtool.loading.embeddings import Embeddings, embeddings_of
from cimtool.training.linear_fit import fit_linear
from cimtool.training.models.linear import LEAST_RESIDUAL, LinearModel
from cimtool.training.models.trunk import TrunkModel
from cimtool.training.pairs import Pairs, split

QUICK: Any = {"batch": 32, "learning_rate": 3e-3, "epochs": 8}


def linear_rows(n: int, noise: float = 1.0, seed: int = 0) -> dict[str, np.ndarray]:
    """Rows of 12 and 10 numbers that are linear in 6 common ones, and noise."""
    rng = np.random.default_rng(seed)
    common, maps = rng.normal(size=(n, 6)), rng.normal(size=(6, 22))
    rows = (common @ maps + noise * rng.normal(size=(n, 22))).astype(np.float32)
    return {"text": rows[:, :12], "video": rows[:, 12:]}


def even_rows(n: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Videos that are absolute values of texts: no linear map correlates with them."""
    text = np.random.default_rng(seed).normal(size=(n, 4)).astype(np.float32)
    return {"text": text, "video": np.abs(text)}


def training_part(rows: Embeddings) -> Pairs:
    return split(rows, 0.1, 0)[0]


def test_the_checkpoint_holds_the_maps_and_their_sigmoid(tmp_path: Path) -> None:
    rows = linear_rows(150)
    run = cimtool.train(rows, tmp_path / "run", model="linear")
    assert [one.number for one in run.history] == [0]
    assert not run.lacks_polynomial
    assert not run.lacks_sigmoid
    pairs = training_part(embeddings_of(rows))
    fit = fit_linear(pairs, 128)
    saved = torch.load(run.model, weights_only=True)
    for name, own in (("text", fit.start.text), ("video", fit.start.video)):
        tower = saved[f"{name}_proj"]
        assert tower["mu.weight"].shape == (10, rows[name].shape[1])
        found = rows[name] @ tower["mu.weight"].numpy().T + tower["mu.bias"].numpy()
        np.testing.assert_allclose(found, own.of(rows[name]), atol=1e-5)
        assert not tower["logvar.weight"].any()
        half = np.maximum(fit.residual / 2, LEAST_RESIDUAL * fit.residual.mean() / 2)
        np.testing.assert_allclose(tower["logvar.bias"].exp(), half, rtol=1e-5)
    assert (saved["head"], saved["activation"]) == ("csd", "none")
    assert saved["a"] == fit.a
    assert saved["b"] == pytest.approx(fit.b + fit.a * 2 * half.sum(), rel=1e-6)
    again = cimtool.train(rows, tmp_path / "again", model="linear", seed=0)
    assert again.model.read_bytes() == run.model.read_bytes()


def test_no_row_that_validates_decides_anything(tmp_path: Path) -> None:
    """With other validation rows the weights are the same to the last bit."""
    rows = linear_rows(120)
    towers = []
    for seed in (1, 2):
        folder = tmp_path / str(seed)
        cimtool.train(rows, folder, model="linear", validation=linear_rows(30, seed=seed))
        saved = torch.load(folder / "model.pth", weights_only=True)
        towers.append({**saved["text_proj"], "a": saved["a"], "b": saved["b"]})
    assert towers[0].keys() == towers[1].keys()
    for key, value in towers[0].items():
        assert np.array_equal(np.asarray(value), np.asarray(towers[1][key])), key


def test_it_compiles_without_a_polynomial_and_is_calibrated(tmp_path: Path) -> None:
    rows, unseen = (
        {name: one[part] for name, one in linear_rows(500).items()}
        for part in (slice(0, 300), slice(300, 500))
    )
    run = cimtool.train(rows, tmp_path / "run", model="linear")
    bundle = cimtool.compile(
        run.model, calibration=rows, target="ideal", output=tmp_path / "b", weight_bits=8
    )
    scores = cimtool.evaluate(unseen, run.model, bundle.folder, resamples=2).scores
    for score in scores:
        assert score.metrics["calibration_error"] < 0.05
        assert score.metrics["nll"] < 0.3  # a coin has 0.693
        assert score.metrics["r1_text_to_video"] > 0.5


def test_epochs_go_on_from_the_maps(tmp_path: Path) -> None:
    rows = linear_rows(150)
    start = cimtool.train(rows, tmp_path / "start", model="linear")
    run = cimtool.train(rows, tmp_path / "run", model="linear", epochs=2, batch=32)
    assert [one.number for one in run.history] == [0, 1, 2]
    assert run.history[0].recalls == start.history[0].recalls
    saved = torch.load(tmp_path / "run" / "last.pth", weights_only=True)
    assert saved["text_proj"]["logvar.weight"].any()
    assert "a" not in saved  # of the maps as they were solved
    after = cimtool.train(rows, tmp_path / "after", start=start.model, epochs=1, batch=32)
    assert after.history[0].recalls == start.history[0].recalls


def test_a_trunk_that_overfits_is_not_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "rows.npz", **linear_rows(150))
    options = ["--learning-rate", "0.1", "--batch", "32", "--epochs", "3"]
    where = ["--data", str(tmp_path / "rows.npz"), "-o", str(tmp_path / "run")]
    assert command(["train", *where, *options]) == 0
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first == (
        "The linear maps of the rows are kept: none of 3 epochs ranks held-out pairs better than "
        "they do."
    )
    assert second.startswith("Best of 3 epochs is the start")
    linear = cimtool.train(tmp_path / "rows.npz", tmp_path / "linear", model="linear")
    kept, own = (
        torch.load(folder / "model.pth", weights_only=True)
        for folder in (tmp_path / "run", linear.folder)
    )
    assert (kept["epoch"], kept["config"]["model"]) == (0, "trunk")
    assert kept["a"] == own["a"]


@pytest.mark.thorough("a training more")
def test_a_trunk_that_learns_more_is_kept(tmp_path: Path) -> None:
    rows = even_rows(600)
    linear = cimtool.train(rows, tmp_path / "linear", model="linear")
    run = cimtool.train(rows, tmp_path / "run", **QUICK)
    assert run.best.number > 0
    assert not any("linear" in one for one in run.warnings)
    assert run.best.means["R@10"] > linear.best.means["R@10"] + 0.2


def test_many_pairs_start_at_random_and_options_are_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def started(rows: dict[str, np.ndarray], **options: object) -> bool:
        folder = tmp_path / f"run-{len(list(tmp_path.iterdir()))}"
        run = cimtool.train(rows, folder, epochs=0, held_out=0.4, options=options)
        saved = torch.load(run.model, weights_only=True)
        return bool(saved["config"]["model.linear"])

    rows = linear_rows(60)
    assert started(rows)
    assert not started(linear_rows(6))
    assert not started(rows, **{"model.linear": False})
    assert not started(rows, **{"model.activation": "tanh"})
    monkeypatch.setattr("cimtool.training.job.FEW_PAIRS", 35)
    assert not started(rows)
    assert TrunkModel(hidden=1).for_few_pairs({}, 5, 5) == TrunkModel(hidden=1)


def test_few_pairs_get_layers_that_hold_all_dimensions_of_the_maps(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = {
        m: rng.normal(size=(30, n)).astype(np.float32) for m, n in (("text", 70), ("video", 90))
    }

    def sizes(folder: str, **options: int) -> tuple[int, int]:
        run = cimtool.train(rows, tmp_path / folder, epochs=0, held_out=0.4, options=options)
        settings = torch.load(run.model, weights_only=True)["config"]
        return settings["model.hidden"], settings["model.width"]

    assert sizes("free") == (256, 70)
    assert sizes("hidden", **{"model.hidden": 64}) == (64, 32)
    assert sizes("width", **{"model.width": 8}) == (256, 8)


def test_another_model_is_told_that_linear_maps_are_better(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    text = rng.normal(size=(100, 12)).astype(np.float32)
    rows = {"text": text, "video": text @ np.linalg.qr(rng.normal(size=(12, 12)))[0]}
    options = {"model.linear": False}
    run = cimtool.train(
        rows, tmp_path / "run", model="two-branch", epochs=1, batch=32, options=options
    )
    (said,) = (one for one in run.warnings if "linear" in one)
    assert said.startswith("warning: the trained model is worse than linear maps of the rows: ")
    assert said.endswith(
        "against 100.0%; model linear is these maps, and model.linear=true starts from them"
    )


def test_what_it_cannot_take(tmp_path: Path) -> None:
    items = {"rows": np.eye(40, 6, dtype=np.float32), "labels": np.arange(40) % 4}
    with pytest.raises(
        CimError, match=r'model "linear" maps two modalities, and .* holds items of'
    ):
        cimtool.train(items, tmp_path / "run", model="linear")
    assert not list((tmp_path / "run").glob("*.pth"))
    np.savez(tmp_path / "rows.npz", **linear_rows(5))
    with pytest.raises(CimError, match=r"rows.npz: 3 videos train; expected at least 5 for linear"):
        cimtool.train(tmp_path / "rows.npz", tmp_path / "few", model="linear", held_out=0.4)
    with pytest.raises(CimError, match=r"model.width is 0; expected more than 0"):
        LinearModel(width=0)
    towers = LinearModel(width=3).build(6, 5)
    state = {key: value.numpy() for key, value in towers.text_proj.state_dict().items()}
    assert LinearModel.options_of(state, state) == {"width": 3}
    assert LinearModel.options_of({}, {}) == {}
