"""Projectors in training: what a run leaves, how it goes on after a kill, and how it stops."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from playwright.sync_api import Page
from torch import Tensor, nn

import cimtool
from cimtool.base.errors import CheckFailed, CimError
from cimtool.base.progress import silent
from cimtool.demo.data import DemoFiles
from cimtool.loading.source import ModelSource
from cimtool.simulation.simulator import Simulator
from cimtool.training.arguments import TrainingOptions
from cimtool.training.history import Means, recalls_of
from cimtool.training.job import make_job
from cimtool.training.loss import Batch, Objective, Task, Terms
from cimtool.training.losses.info_nce import InfoNce
from cimtool.training.projectors import ProjectorRun, ProjectorTraining
from cimtool.training.towers import Encoded
from cimtool.training.trainer import Diverged, RunPlace, Trainer, seeded

SMALL: Any = {"model.hidden": 32, "model.width": 8, "model.linear": False}  # from random weights
SETTINGS: Any = {"batch": 16, "learning_rate": 3e-3, "epochs": 4, "options": SMALL}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    text = rng.standard_normal((160, 12)).astype(np.float32)
    video = (text @ rng.standard_normal((12, 10))).astype(np.float32)
    path = tmp_path_factory.mktemp("rows") / "rows.npz"
    np.savez(path, text=text, video=video)
    return path


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> ProjectorRun:
    return cimtool.train(data, tmp_path_factory.mktemp("run") / "whole", **SETTINGS)


def test_a_linear_start_ranks_before_any_training(data: Path, tmp_path: Path) -> None:
    options = SETTINGS | {"epochs": 1, "options": SMALL | {"model.linear": "true"}}
    started, random = (
        cimtool.train(data, tmp_path / name, **given).history[0].recalls["r1_text_to_video"]
        for name, given in (("linear", options), ("random", SETTINGS | {"epochs": 1}))
    )
    assert started > 0.5 > random
    flat = {name: np.ones((80, 6), np.float32) for name in ("text", "video")}
    run = cimtool.train(flat, tmp_path / "flat", **options)
    assert run.warnings[-1].startswith("The linear maps of the rows are kept: none of 1 epochs")


def test_a_linear_start_is_of_two_modalities(tmp_path: Path) -> None:
    items = {"rows": np.eye(40, 6, dtype=np.float32), "labels": np.arange(40) % 4}
    options = SETTINGS | {"options": SMALL | {"model.linear": "true"}}
    with pytest.raises(CimError, match=r"model.linear is true, and .* holds items of one modality"):
        cimtool.train(items, tmp_path / "run", **options)
    assert not list((tmp_path / "run").glob("*.pth"))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_best_epoch_is_kept_with_its_history_and_page(whole: ProjectorRun) -> None:
    assert set(contents(whole.folder)) == {"model.pth", "last.pth", "history.json", "training.html"}
    history = json.loads((whole.folder / "history.json").read_text())
    assert [epoch["number"] for epoch in history["epochs"]] == [0, 1, 2, 3, 4]
    assert history["epochs"][0]["loss"] is None
    losses = [epoch["loss"] for epoch in history["epochs"][1:]]
    assert losses == sorted(losses, reverse=True)
    merits = [epoch.merit for epoch in whole.history]
    assert whole.best.merit == max(merits) > merits[0]
    kept = torch.load(whole.folder / "model.pth", weights_only=True)
    assert kept["epoch"] == history["best_epoch"] == merits.index(max(merits))
    assert kept["head"] == "pcme-poly"
    assert not {"a", "b"} & kept.keys()  # of a sigmoid, which InfoNCE has none of
    assert whole.lacks_sigmoid
    page = (whole.folder / "training.html").read_text()
    assert page.count("<svg") == 2
    assert "http://" not in page.replace("http://www.w3.org/", "")


def test_the_loss_and_the_cosine_gap_of_held_out_pairs(
    data: Path, whole: ProjectorRun, tmp_path: Path
) -> None:
    held = [epoch.held for epoch in whole.history]
    assert [list(one) for one in held] == [["loss", "cosine gap"]] * 5
    assert held[4]["loss"] < held[0]["loss"]
    assert held[4]["cosine gap"] > held[0]["cosine gap"]
    page = (whole.folder / "training.html").read_text()
    assert "held-out loss ends at" in page
    assert "<th" in page.partition("held-out cosine gap")[0]
    # A loss that draws noise draws the same in each epoch, and training draws its own.
    runs = [
        cimtool.train(data, tmp_path / f"{n}", **SETTINGS | {"epochs": n}, loss="soft-contrastive")
        for n in (1, 2)
    ]
    assert runs[0].history == runs[1].history[:2]


@pytest.mark.thorough("a browser; the page of a report opens in the first tier")
def test_the_page_opens_in_a_browser_and_asks_for_nothing(
    whole: ProjectorRun, page: Page, events: list[str]
) -> None:
    address = (whole.folder / "training.html").as_uri()
    page.goto(address)
    assert page.locator("tbody tr.result").count() == 1, "the best epoch"
    assert events == [f"request {address}"]


def test_the_same_run_gives_the_same_bytes_and_leaves_the_random_state(
    data: Path, whole: ProjectorRun, tmp_path: Path
) -> None:
    before = torch.get_rng_state()
    again = cimtool.train(data, tmp_path / "again", **SETTINGS)
    assert contents(again.folder) == contents(whole.folder)
    assert torch.equal(before, torch.get_rng_state())
    other = cimtool.train(data, tmp_path / "other", **SETTINGS, seed=1)
    assert contents(other.folder)["model.pth"] != contents(whole.folder)["model.pth"]


KILLED = """
import os, signal, sys, cimtool
def say(line):
    if line.startswith("epoch 3"):
        os.kill(os.getpid(), signal.SIGKILL)
cimtool.train(sys.argv[1], sys.argv[2], batch=16, learning_rate=3e-3, epochs=4, say=say,
              options={"model.hidden": 32, "model.width": 8, "model.linear": False})
"""


@pytest.mark.thorough("kills a real training")
def test_a_run_that_was_killed_goes_on_to_the_same_bytes(
    data: Path, whole: ProjectorRun, tmp_path: Path
) -> None:
    folder = tmp_path / "killed"
    environment = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    done = subprocess.run(
        [sys.executable, "-c", KILLED, data, folder], env=environment, timeout=120, check=False
    )
    assert done.returncode == -signal.SIGKILL
    saved = torch.load(folder / "last.pth", weights_only=True)
    assert saved["epoch"] == 2
    said: list[str] = []
    resumed = cimtool.train(data, folder, **SETTINGS, resume=True, say=said.append)
    assert said[0] == "going on after epoch 2"
    assert len(said) == 3
    assert resumed.history == whole.history
    assert contents(folder) == contents(whole.folder)


def test_more_epochs_go_on_from_the_last_one(
    data: Path, whole: ProjectorRun, tmp_path: Path
) -> None:
    folder = tmp_path / "longer"
    cimtool.train(data, folder, **SETTINGS | {"epochs": 2}, resume=True)
    cimtool.train(data, folder, **SETTINGS, resume=True)
    assert contents(folder)["model.pth"] == contents(whole.folder)["model.pth"]
    assert contents(folder)["history.json"] == contents(whole.folder)["history.json"]


def test_a_folder_of_another_run(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    cimtool.train(data, folder, **SETTINGS | {"epochs": 1})
    before = contents(folder)
    with pytest.raises(CimError, match=r"holds model.pth, last.pth, history.json of an earlier"):
        cimtool.train(data, folder, **SETTINGS)
    changed = SETTINGS | {"options": SMALL | {"loss.tau": 0.5}}
    with pytest.raises(CimError, match=r"last.pth: was trained with loss.tau = 0.7, but is asked"):
        cimtool.train(data, folder, **changed, resume=True)
    assert contents(folder) == before
    (folder / "last.pth").write_bytes(b"broken")
    with pytest.raises(
        CimError, match=r"last.pth: is truncated, corrupt, or not a file that torch"
    ):
        cimtool.train(data, folder, **SETTINGS, resume=True)


def test_a_loss_that_diverges_stops_and_keeps_the_best(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(CheckFailed, match=r"epoch 1: training diverged: the loss is .*model.pth"):
        cimtool.train(data, folder, **SETTINGS | {"learning_rate": 1e6})
    history = json.loads((folder / "history.json").read_text())
    assert "training diverged" in history["stopped"]
    assert "training diverged" in (folder / "training.html").read_text()
    kept = torch.load(folder / "model.pth", weights_only=True)
    assert kept["epoch"] == history["best_epoch"] == 0
    assert all(torch.isfinite(tensor).all() for tensor in kept["text_proj"].values())


def test_epochs_are_ranked_as_the_deployed_polynomial_ranks(data: Path, tmp_path: Path) -> None:
    """Here it turns round beyond its band, so that the farthest video of all is the first."""
    poly = tmp_path / "poly.json"
    domain = {"ed": [0.0, 0.5], "vd_line": [0.0, 0.0], "vd_beside_line": [0.0, 1e6]}
    coeff = [-1.0, 0.0, 1.0, 0.0, 0.0]
    poly.write_text(json.dumps({"degree": 2, "coeff": coeff, "bias": 0.0, "domain": domain}))
    run = cimtool.train(data, tmp_path / "run", **SETTINGS, poly=poly)
    assert run.outgrew_polynomial
    held = make_job(data, None, TrainingOptions(batch=16, poly=poly)).held
    rows = {"text": held.text.numpy(), "video": held.video.numpy()}
    scores = Simulator(ModelSource(run.folder / "model.pth").load().program).scores(**rows)
    found = recalls_of(scores, held)
    assert found == pytest.approx(run.best.recalls)


def test_texts_that_share_a_video_train(data: Path, tmp_path: Path) -> None:
    with np.load(data) as held:
        text, video = held["text"], held["video"]
    rows = {"text": np.vstack([text, text + 0.01]), "video": video}
    right = np.tile(np.arange(160), 2)
    run = cimtool.train(rows | {"text_to_video": right}, tmp_path / "run", **SETTINGS)
    assert run.best.number > 0


def test_trained_on_a_polynomial_it_compiles_alone(
    small_trunk: DemoFiles, data: Path, whole: ProjectorRun, tmp_path: Path
) -> None:
    model = whole.folder / "model.pth"
    teacher = cimtool.teacher(model, data, labels="exact", pairs=3000, matched=0.5, a=0.1, b=0.0)
    fit = cimtool.fit(teacher, output=tmp_path / "poly.json")
    settings = SETTINGS | {"options": {}, "learning_rate": 1e-3, "start": model}
    run = cimtool.train(data, tmp_path / "run", **settings, poly=tmp_path / "poly.json")
    outside = [epoch.watched["outside"] for epoch in run.history[1:]]
    assert all(0 <= share < 0.5 for share in outside)
    assert run.history[-1].loss < run.history[1].loss  # type: ignore[operator]
    kept = torch.load(run.folder / "model.pth", weights_only=True)
    assert kept["poly"]["coeff"].tolist() == list(fit.polynomial.coeff)
    bundle = cimtool.compile(
        run.folder / "model.pth", calibration=data, drift="given", target="isaac-rram-128",
        output=tmp_path / "bundle",
    )  # fmt: skip
    report = cimtool.verify(bundle.folder, data, calibration_rows="allow")
    assert sum(one.differing for one in report.checks.bits) == 0
    on = cimtool.train(data, tmp_path / "on", **settings | {"start": run.folder / "model.pth"},
                       loss="info-nce-poly")  # fmt: skip
    assert on.history[0].recalls == run.best.recalls


def test_two_branch_trains_on_unit_rows(data: Path, tmp_path: Path) -> None:
    with np.load(data) as held:
        text = held["text"]
    settings = SETTINGS | {"options": {"model.hidden": 16, "model.linear": False, "loss.a": 5.0}}
    rows = {"text": text, "video": 3 * text[:, ::-1]}
    run = cimtool.train(rows, tmp_path / "run", model="two-branch", **settings)
    assert run.best.merit > run.history[0].merit
    on = cimtool.train(rows, tmp_path / "on", **settings | {"options": {}, "epochs": 1},
                       start=run.folder / "model.pth")  # fmt: skip
    assert on.history[0].recalls == run.best.recalls


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_run_on_cuda_goes_on_to_the_same_bytes(data: Path, tmp_path: Path) -> None:
    on_cuda = {**SETTINGS, "device": "cuda"}
    whole = cimtool.train(data, tmp_path / "whole", **on_cuda)
    cimtool.train(data, tmp_path / "cut", **{**on_cuda, "epochs": 2})
    cut = cimtool.train(data, tmp_path / "cut", resume=True, **on_cuda)
    assert contents(cut.folder) == contents(whole.folder)
    weights = torch.load(whole.folder / "model.pth", weights_only=True)["text_proj"]
    assert {str(tensor.device) for tensor in weights.values()} == {"cpu"}


def test_the_best_checkpoint_must_be_there_to_go_on(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    cimtool.train(data, folder, **SETTINGS | {"epochs": 2})
    (folder / "model.pth").unlink()
    with pytest.raises(CimError, match=r"model.pth: is missing or of another run, and the best of"):
        cimtool.train(data, folder, **SETTINGS, resume=True)


def test_a_best_checkpoint_ahead_of_the_last_is_come_to_again(
    data: Path, whole: ProjectorRun, tmp_path: Path
) -> None:
    assert whole.best.number == 4
    folder = tmp_path / "killed"
    cimtool.train(data, folder, **SETTINGS | {"epochs": 3})
    (folder / "model.pth").write_bytes((whole.folder / "model.pth").read_bytes())
    with pytest.raises(CimError, match=r"model.pth: is epoch 4, .* expected epochs 4 or more"):
        cimtool.train(data, folder, **SETTINGS | {"epochs": 3}, resume=True)
    cimtool.train(data, folder, **SETTINGS, resume=True)
    assert contents(folder) == contents(whole.folder)


class Classifier(Objective):
    """An objective with a module of its own."""

    def __init__(self, task: Task) -> None:
        super().__init__(InfoNce(), task)
        self.layer = nn.Linear(8, 2)

    def forward(self, text: Encoded, video: Encoded, batch: Batch) -> Terms:
        wrong = nn.functional.cross_entropy(self.layer(text.mu), (batch.text[:, 0] > 0).long())
        return Terms({"class": wrong, "size": 0.01 * video.mu.square().mean()}, {"half": wrong / 2})

    def scores(self, text: Encoded, video: Encoded) -> Tensor:
        return text.mu @ video.mu.T


def test_modules_of_an_objective_are_trained_and_saved(data: Path, tmp_path: Path) -> None:
    job = make_job(data, None, TrainingOptions(**SETTINGS))
    with seeded(0, job.device):
        training = ProjectorTraining(job)
        training.objective = Classifier(training.objective.task)
        before = training.objective.layer.weight.clone()
        run = Trainer(training, job.optimisation, RunPlace(tmp_path), silent).run()
    assert not torch.equal(training.objective.layer.weight, before)
    saved = torch.load(tmp_path / "last.pth", weights_only=True)["resume"]["state"]["objective"]
    assert torch.equal(saved["layer.weight"], training.objective.layer.weight)
    _, first, *_, last = run.history
    assert last.terms["class"] < first.terms["class"]
    assert last.watched["half"] == pytest.approx(last.terms["class"] / 2)


def test_scores_that_are_no_longer_finite(data: Path) -> None:
    job = make_job(data, None, TrainingOptions(**SETTINGS))
    with seeded(0, job.device):
        training = ProjectorTraining(job)
    training.validated(0, Means())
    with torch.no_grad():
        training.towers.text_proj.mu.bias.fill_(float("inf"))  # type: ignore[union-attr, operator]
    with pytest.raises(CimError, match="the model gives scores that are not finite before any"):
        training.validated(0, Means())
    with pytest.raises(Diverged, match="training diverged: a score is not finite; try a smaller"):
        training.validated(1, Means(1.0, {}, {}))


@pytest.fixture
def qrels(tmp_path: Path) -> Path:
    """The right video and the next one, of all but the last ten texts."""
    path = tmp_path / "judged.txt"
    lines = [f"{i} 0 {j} {grade}" for i in range(150) for j, grade in ((i, 2), (i + 1, 1))]
    path.write_text("\n".join(lines))
    return path


@pytest.mark.thorough("each loss; two are in the first tier", quick=("sampled-nce", "clip"))
@pytest.mark.parametrize("loss", ["sampled-nce", "info-nce", "pairwise-bce", "clip", "hnac"])
def test_it_trains_with_several_right_videos(
    data: Path, qrels: Path, tmp_path: Path, loss: str
) -> None:
    rows = np.load(data)["text"]
    options = SETTINGS | {"epochs": 2, "loss": loss}
    found = cimtool.train({"text": rows, "video": rows}, tmp_path / "run", qrels=qrels, **options)
    assert found.remarks[0] == "10 texts without a right video were left out."
    assert found.best.recalls["map_text_to_video"] > 0
    assert found.raw is not None
    assert found.raw["r1_text_to_video"] == 1.0


def test_a_run_with_other_judgements_is_another_run(
    data: Path, qrels: Path, tmp_path: Path
) -> None:
    cimtool.train(data, tmp_path / "run", qrels=qrels, **SETTINGS)
    with pytest.raises(CimError, match="was trained with another data"):
        cimtool.train(data, tmp_path / "run", resume=True, **SETTINGS)


def test_judgements_are_of_the_data_that_are_split(data: Path, qrels: Path, tmp_path: Path) -> None:
    for other in ({"validation": data}, {"test": 0.1}):
        with pytest.raises(CimError, match=f"{next(iter(other))} and qrels"):
            cimtool.train(data, tmp_path / "run", qrels=qrels, **SETTINGS, **other)
    assert not (tmp_path / "run").exists()
