"""Model `posthoc`: rows keep their ranks, probabilities are calibrated, mu does not move."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cimtool
from cimtool import cli
from cimtool.base.errors import CimError
from cimtool.training.models.posthoc import FrozenProjector, PosteriorProjector, PosthocModel
from cimtool.training.pairs import Pairs
from cimtool.training.posterior import left_out

POSTERIOR = {"model.variance": "posterior"}


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


@pytest.mark.thorough("the command line's own test is in the first tier")
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


def rare(n: int = 200) -> dict[str, np.ndarray]:
    """Rows of which a tenth have directions of their own; texts are equally noisy."""
    rng = np.random.default_rng(0)
    own = np.arange(n)[:, None] % 10 == 0
    video = rng.normal(size=(n, 12)) * np.where(own, 1.0, np.repeat([1.0, 0.02], 6))
    rows = {"text": video + 0.4 * rng.normal(size=(n, 12)), "video": video}
    return {name: one.astype(np.float32) for name, one in rows.items()}


def test_a_posterior_has_the_variance_of_its_factors_and_a_sigmoid_for_rows_left_out(
    tmp_path: Path,
) -> None:
    rows, options = near(60), {**POSTERIOR, "model.prior": "1"}
    validation = near(20, seed=2)
    run = cimtool.train(
        rows, tmp_path / "run", model="posthoc", validation=validation, options=options
    )
    saved = torch.load(run.model, weights_only=True)
    text, video = (rows[name].astype(np.float64) for name in ("text", "video"))
    distances = 2 - 2 * text @ video.T
    ed = distances.copy()
    for axis, (side, x) in enumerate((("text_proj", text), ("video_proj", video))):
        assert saved[side].keys() == {"factor.weight", "spread.weight"}
        factor, spread = (saved[side][f"{one}.weight"].double() for one in ("factor", "spread"))
        gram = x.T @ x
        by_hand = np.linalg.inv(gram + np.trace(gram) / 24 * np.eye(24))
        np.testing.assert_allclose(factor.T @ factor, by_hand, atol=1e-5 * by_hand.max())
        unseen = left_out(np.einsum("ni,ij,nj->n", x, by_hand, x)) * float(spread.sum())
        assert unseen.mean() == pytest.approx(np.diag(distances).mean() / 2, rel=1e-4)
        ed += np.expand_dims(unseen, 1 - axis)
    p = 1 / (1 + np.exp(saved["a"] * ed - saved["b"]))
    right = np.eye(60, dtype=bool)
    assert p[right].mean() + p[~right].mean() == pytest.approx(61 / 62 + 1 / 3542, abs=1e-5)
    assert run.remarks == ()


@pytest.mark.thorough("a training more")
def test_rows_keep_their_ranks_under_a_head_of_points(tmp_path: Path) -> None:
    rows, unseen = near(400), near(300, seed=1)
    run = cimtool.train(rows, tmp_path / "run", model="posthoc", options=POSTERIOR)
    assert "factor.weight" in torch.load(run.model, weights_only=True)["text_proj"]
    bundle = cimtool.compile(
        run.model,
        calibration=rows,
        drift="given",
        target="isaac-rram-128",
        output=tmp_path / "b",
        head="cosine",
    )
    assert (
        sum(one.differing for one in cimtool.verify(bundle.folder, near(40, seed=3)).checks.bits)
        == 0
    )
    source = cimtool.ModelSource(run.model, head="cosine")
    deployed, raw = cimtool.evaluate(unseen, source, resamples=2).scores
    for name in ("r1_text_to_video", "r1_video_to_text", "aurc_text_to_video"):
        assert deployed.metrics[name] == raw.metrics[name]


def test_one_variance_is_kept_if_the_posterior_predicts_nothing(tmp_path: Path) -> None:
    run = cimtool.train(rare(), tmp_path / "run", model="posthoc", options=POSTERIOR)
    (remark,) = run.remarks
    assert remark.startswith("One variance for all rows is kept: with the posterior's, ")
    kept = torch.load(run.model, weights_only=True)
    solved = cimtool.train(rare(), tmp_path / "solved", model="posthoc")
    assert solved.remarks == ()
    other = torch.load(solved.model, weights_only=True)
    for side in ("text_proj", "video_proj"):
        assert kept[side].keys() == other[side].keys() == {"logvar.weight", "logvar.bias"}
        assert all(torch.equal(kept[side][key], other[side][key]) for key in kept[side])
    assert (kept["a"], kept["b"]) == (other["a"], other["b"])


def test_a_posterior_that_is_resumed_is_the_same(tmp_path: Path) -> None:
    for name in ("one", "other"):
        cimtool.train(near(100), tmp_path / name, model="posthoc", options=POSTERIOR)
    cimtool.train(near(100), tmp_path / "one", model="posthoc", options=POSTERIOR, resume=True)
    one, other = (tmp_path / name / "model.pth" for name in ("one", "other"))
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"options": {"model.variance": "posterier"}}, r'"posterier".* did you mean "posterior"'),
        (
            {"options": {"model.prior": 2}},
            "model.prior is 2, and model.variance is trained; expected posterior, or 0",
        ),
        (
            {"options": {**POSTERIOR, "model.prior": 2000}},
            "model.prior is 2000; expected 0, or from 0.001 to 1000",
        ),
        (
            {"options": POSTERIOR, "epochs": 3},
            "model.variance = posterior is solved from the rows that train, and epochs is 3; "
            "expected none, or 0",
        ),
        (
            {"options": POSTERIOR, "start": True},
            "model.variance = posterior is solved from the rows that train, and start is given; "
            "expected none",
        ),
    ],
)
def test_options_that_contradict_a_posterior_are_refused(
    more: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    if "start" in more:
        more = {**more, "start": cimtool.train(near(60), tmp_path / "s", model="posthoc").model}
    with pytest.raises(CimError, match=expected):
        cimtool.train(near(120), tmp_path / "run", model="posthoc", **more)
    assert not (tmp_path / "run").exists()


def test_towers_of_a_posterior_are_not_trained(tmp_path: Path) -> None:
    rows = {name: torch.from_numpy(one) for name, one in near(60).items()}
    towers = PosthocModel().build(24, 24)
    PosthocModel(variance="posterior", prior=1.0).prepare(
        towers, Pairs(rows["text"], rows["video"], torch.arange(60))
    )
    assert isinstance(towers.text_proj, PosteriorProjector)
    assert not any(one.requires_grad for one in towers.parameters())
    mu, logvar = towers.text_proj(rows["text"])
    assert torch.equal(mu, rows["text"])
    assert torch.isfinite(logvar).all()


HEADS: dict[str, dict[str, Any]] = {
    "csd": {},
    "probcosine": {"a": 5.0, "b": -2.0},
    "pcme-poly": {},
    "inclusion": {},
    "csd-ranking": {},
}


@pytest.mark.thorough("every head that takes a variance", quick=("probcosine-isaac",))
@pytest.mark.parametrize("target", ["isaac-rram-128", "hermes-pcm-14nm", "ideal"])
@pytest.mark.parametrize("head", HEADS)
def test_a_posterior_is_the_same_in_all_implementations(
    head: str, target: str, tmp_path: Path
) -> None:
    rows = near(100)
    options = {**POSTERIOR, "model.prior": 1}
    model = cimtool.train(rows, tmp_path / "run", model="posthoc", options=options).model
    poly = None
    if head == "pcme-poly":
        poly = tmp_path / "poly.json"
        labels = cimtool.teacher(model, rows, labels="exact", pairs=2000, matched=0.5)
        cimtool.fit(labels, output=poly)
    bundle = cimtool.compile(
        model, poly, calibration=rows, target=target, output=tmp_path / "b", head=head,
        drift="given", **HEADS[head],
    )  # fmt: skip
    report = cimtool.verify(bundle.folder, near(40, seed=3))
    assert sum(one.compared for one in report.checks.bits) > 40 * 40
    assert sum(one.differing for one in report.checks.bits) == 0


def test_from_the_command_line_to_a_verified_bundle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "rows.npz", **near(120))
    np.savez(tmp_path / "unseen.npz", **near(40, seed=3))
    rows, run, bundle = (str(tmp_path / name) for name in ("rows.npz", "run", "bundle"))
    train = ["train", "--data", rows, "--model", "posthoc", "--set=model.variance=posterior"]
    assert cli.run([*train, "--epochs", "2", "-o", run]) == 2
    refused = capsys.readouterr().err
    assert "posterior is solved from the rows that train, and --epochs is 2; expected" in refused
    assert cli.run([*train, "-o", run]) == 0
    compiling = ["--calibration", rows, "--target", "isaac-rram-128", "-o", bundle]
    assert cli.run(["compile", "--projectors", f"{run}/model.pth", *compiling]) == 0
    assert cli.run(["verify", bundle, "--data", str(tmp_path / "unseen.npz"), "-v"]) == 0
    assert "0 of " in capsys.readouterr().out
