"""The loop: what is stepped, what is kept, and how it stops, on the smallest model there is."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import cimtool
from cimtool.base.arrays import Array
from cimtool.base.errors import CimError
from cimtool.base.partial import PARTIAL
from cimtool.base.progress import silent
from cimtool.training.history import Epoch, Means, RetrievalEpoch
from cimtool.training.loss import Terms
from cimtool.training.options import MOST_EPOCHS, OPTIMIZERS, Optimisation
from cimtool.training.projectors import ProjectorRun
from cimtool.training.trainer import (
    Diverged,
    Run,
    RunPlace,
    SavedRun,
    Trainable,
    Trainer,
    read_saved,
)

X = torch.linspace(-1, 1, 12)[:, None]


@dataclass(frozen=True)
class Error(Epoch):
    """The mean square error."""

    error: float

    @property
    def merit(self) -> tuple[float]:
        return (-self.error,)

    @property
    def measured(self) -> str:
        return f"error {self.error:.2g}"


class Line(Trainable[Tensor, Error]):
    """y = 3x + 1, learnt; `limit` is the largest weight of which it can be measured."""

    settings: Mapping[str, Any] = {"seed": 0}

    def __init__(self, limit: float = 1e9) -> None:
        self.line = nn.Linear(1, 1)
        nn.init.zeros_(self.line.weight)
        nn.init.zeros_(self.line.bias)
        self.limit = limit

    def parameters(self) -> Iterator[Tensor]:
        return self.line.parameters()

    def batches(self) -> Iterator[Tensor]:
        return iter(X.split(4))

    def terms(self, batch: Tensor) -> Terms:
        error = (self.line(batch) - 3 * batch - 1).square().mean()
        return Terms({"error": error, "size": 0 * self.line.weight.sum()}, {"half": error / 2})

    def validated(self, number: int, means: Means) -> Error:
        if self.line.weight.item() > self.limit:
            raise Diverged("the line is too steep")
        with torch.no_grad():
            return Error(number, means.loss, self.terms(X).total.item())

    def checkpoint(self, epoch: Error) -> dict[str, Any]:
        return {"weight": self.line.weight.item(), "epoch": epoch.number}

    def page(self, history: Sequence[Error], stopped: str | None) -> str:
        return f"{len(history)} epochs, {stopped}"


class Kept(Line):
    """The same, which can be gone on with."""

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        return {"line": self.line}


class Halved(Line):
    """The same, whose learning rate is halved with each step."""

    def schedule(
        self, optimizer: torch.optim.Optimizer
    ) -> torch.optim.lr_scheduler.LRScheduler | None:
        return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)


def trainer(line: Line, folder: Path, rate: float = 0.1, epochs: int = 3) -> Trainer[Tensor, Error]:
    return Trainer(line, Optimisation(epochs, 4, rate), RunPlace(folder), silent)


def names(run: Run[Error]) -> list[str]:
    return [file.name for file in run.files]


def test_the_best_epoch_is_kept_with_the_history_and_the_page(tmp_path: Path) -> None:
    run = trainer(Line(), tmp_path).run()
    errors = [epoch.error for epoch in run.history]
    assert errors == sorted(errors, reverse=True)
    assert run.best.number == 3
    assert torch.load(tmp_path / "model.pth", weights_only=True)["epoch"] == 3
    assert names(run) == ["model.pth", "history.json", "training.html"]
    assert json.loads((tmp_path / "history.json").read_text()) == {
        "settings": {"seed": 0},
        "best_epoch": 3,
        "stopped": None,
        "epochs": [{"number": e.number, "loss": e.loss, "error": e.error} for e in run.history],
    }
    assert (tmp_path / "training.html").read_text() == "4 epochs, None"


def test_an_epoch_that_is_worse_is_not_kept(tmp_path: Path) -> None:
    run = trainer(Line(), tmp_path, rate=100.0, epochs=1).run()
    assert run.best.number == 0
    assert torch.load(tmp_path / "model.pth", weights_only=True) == {"weight": 0.0, "epoch": 0}


def test_means_are_those_of_the_batches(tmp_path: Path) -> None:
    line = Line()
    with torch.no_grad():
        found = [line.terms(batch).total.item() for batch in line.batches()]
    means = trainer(line, tmp_path, rate=1e-12).epoch()
    assert means.loss == pytest.approx(sum(found) / 3)
    assert means.terms == {"error": means.loss, "size": 0.0}
    assert means.watched == {"half": pytest.approx(means.loss / 2)}


def test_a_schedule_is_stepped_with_the_optimizer(tmp_path: Path) -> None:
    one = trainer(Halved(), tmp_path)
    one.epoch()
    assert one.optimizer.param_groups[0]["lr"] == pytest.approx(0.1 / 2**3)


def test_plain_descent_and_what_rests(tmp_path: Path) -> None:
    class BiasRests(Line):
        def resting(self) -> Iterator[Tensor]:
            yield self.line.bias

    line = BiasRests()
    batch = X[:4]
    line.batches = lambda: iter([batch])  # type: ignore[method-assign]
    slope = (2 * (-3 * batch - 1) * batch).mean().item()
    one = Trainer(line, Optimisation(1, 4, 0.1, 0.0, "sgd"), RunPlace(tmp_path), silent)
    one.epoch()
    assert line.line.bias.item() == 0.0
    assert line.line.weight.item() == pytest.approx(-0.1 * slope)


def test_a_run_goes_on_from_its_state(tmp_path: Path) -> None:
    torch.manual_seed(0)
    state = torch.get_rng_state()
    whole = trainer(Kept(), tmp_path / "whole").run()
    assert names(whole) == ["model.pth", "last.pth", "history.json", "training.html"]
    torch.set_rng_state(state)
    cut = trainer(Kept(), tmp_path / "cut", epochs=2).run()
    last = torch.load(tmp_path / "cut" / "last.pth", weights_only=True)
    saved = SavedRun(tmp_path / "cut" / "last.pth", last["resume"]["state"], cut.history)
    again = trainer(Kept(), tmp_path / "cut").run(saved)
    assert again.history == whole.history
    for one, other in zip(whole.files, again.files, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_what_cannot_be_measured_any_more_stops_and_keeps_the_best(tmp_path: Path) -> None:
    with pytest.raises(
        Diverged, match=r"epoch 2: the line is too steep; .*model.pth keeps epoch 1"
    ):
        trainer(Line(limit=0.4), tmp_path).run()
    history = json.loads((tmp_path / "history.json").read_text())
    assert (history["best_epoch"], len(history["epochs"])) == (1, 2)
    assert "keeps epoch 1, the best before" in history["stopped"]
    assert "keeps epoch 1, the best before" in (tmp_path / "training.html").read_text()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_before_the_first_step_the_learning_rate_is_not_to_blame(
    tmp_path: Path, optimizer: str
) -> None:
    line = Line()
    one = Trainer(line, Optimisation(3, 4, 0.1, optimizer=optimizer), RunPlace(tmp_path), silent)
    nn.init.constant_(line.line.bias, float("inf"))
    with pytest.raises(Diverged, match=r"^the loss is inf before the first step; expected other"):
        one.epoch()
    nn.init.zeros_(line.line.bias)
    one.epoch()
    nn.init.constant_(line.line.bias, float("inf"))
    with pytest.raises(Diverged, match="training diverged: the loss is inf; try a smaller"):
        one.epoch()


TEXT = np.random.default_rng(0).normal(size=(80, 6)).astype(np.float32)
ROWS: dict[str, Array] = {"text": TEXT, "video": TEXT[:, :5]}
OPTIONS = {"model.hidden": 8, "model.width": 4}


def train(folder: Path, data: Any = ROWS, **more: Any) -> ProjectorRun:
    given = {"batch": 16, "epochs": 1, "options": OPTIONS, "resume": True, **more}
    return cimtool.train(data, folder, **given)


def test_a_run_that_was_killed_as_it_wrote_its_start(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole").folder
    cut = tmp_path / "cut"
    (cut / f"{PARTIAL}abc").mkdir(parents=True)
    (cut / f"{PARTIAL}abc" / "last.pth").write_bytes(b"half")
    start = torch.load(whole / "model.pth", weights_only=True)
    torch.save(start | {"epoch": 0}, cut / "model.pth")
    found = train(cut).folder
    assert {path.name: path.read_bytes() for path in found.iterdir()} == {
        path.name: path.read_bytes() for path in whole.iterdir()
    }


@pytest.mark.parametrize("change", [{"epoch": 3}, {"config": {"seed": 0}}])
def test_another_model_is_not_overwritten(tmp_path: Path, change: dict[str, Any]) -> None:
    whole, folder = train(tmp_path / "whole").folder, tmp_path / "foreign"
    folder.mkdir()
    start = torch.load(whole / "model.pth", weights_only=True)
    torch.save(start | {"epoch": 0} | change, folder / "model.pth")
    before = (folder / "model.pth").read_bytes()
    with pytest.raises(CimError, match=r"foreign: holds model.pth without last.pth, so there is"):
        train(folder)
    assert (folder / "model.pth").read_bytes() == before
    (folder / "model.pth").write_bytes(b"no checkpoint")
    with pytest.raises(CimError, match=r"foreign: holds model.pth without last.pth, so there is"):
        train(folder)


@pytest.mark.parametrize(
    "content",
    [
        torch.zeros(3),
        {},
        {"resume": 3},
        {"resume": {}},
        {"resume": {"settings": {}, "state": {}, "history": []}},
    ],
)
@pytest.mark.filterwarnings("error")
def test_a_file_that_no_run_wrote(tmp_path: Path, content: Any) -> None:
    torch.save(content, tmp_path / "last.pth")
    with pytest.raises(CimError, match=r"last.pth: is not what a run wrote; expected another"):
        train(tmp_path)


def test_a_run_is_read_as_checkpoints_of_others_are(tmp_path: Path) -> None:
    last = tmp_path / "last.pth"
    torch.save({"resume": {"state": torch.zeros(1).expand(1 << 40)}}, last)
    with pytest.raises(CimError, match=r"resume.state needs 8,796,093,022,208 bytes of memory"):
        train(tmp_path)
    last.unlink()
    os.mkfifo(last)
    with pytest.raises(CimError, match=r"last.pth: is a device, a pipe or a socket; expected"):
        train(tmp_path)


@pytest.mark.thorough("a run of very many epochs")
def test_a_run_of_as_many_epochs_as_there_may_be_goes_on(tmp_path: Path) -> None:
    last = train(tmp_path).folder / "last.pth"
    content = torch.load(last, weights_only=True)
    start, first = json.loads(content["resume"]["history"])
    watched = {f"figure {i}": 0.5 for i in range(8)}  # with the rest, 24 values an epoch
    after = [first | {"number": i, "watched": watched} for i in range(1, MOST_EPOCHS)]
    content["resume"]["history"] = json.dumps([start, *after])
    torch.save(content, last)
    saved = read_saved(RunPlace(tmp_path), content["resume"]["settings"], {}, RetrievalEpoch)
    assert saved is not None
    assert len(saved.history) == MOST_EPOCHS


def change_state(resume: dict[str, Any]) -> None:
    resume["state"]["towers"] = {}


def change_history(resume: dict[str, Any]) -> None:
    resume["history"] = json.dumps([{"number": 0}])


def change_recalls(resume: dict[str, Any]) -> None:
    history = json.loads(resume["history"])
    history[0]["recalls"] = {}
    resume["history"] = json.dumps(history)


def change_recall(resume: dict[str, Any]) -> None:
    history = json.loads(resume["history"])
    recalls = history[0]["recalls"]
    recalls[next(iter(recalls))] = [0.5]
    resume["history"] = json.dumps(history)


def change_settings(resume: dict[str, Any]) -> None:
    resume["settings"]["batch"] = torch.zeros(2)


@pytest.mark.parametrize(
    "change", [change_state, change_history, change_recalls, change_recall, change_settings]
)
def test_a_run_whose_file_was_changed(
    tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    last = train(tmp_path).folder / "last.pth"
    content = torch.load(last, weights_only=True)
    change(content["resume"])
    torch.save(content, last)
    with pytest.raises(CimError, match=r"last.pth: is not what a run wrote; expected another"):
        train(tmp_path)


def test_other_files_are_named(tmp_path: Path) -> None:
    folder, other = tmp_path / "run", tmp_path / "other.npz"
    np.savez(other, **ROWS | {"text": TEXT + 1})
    start = train(tmp_path / "start").folder / "model.pth"
    train(folder, start=start)
    for more, said in (
        (
            {"data": other, "start": start},
            f"with another data, but is asked to continue with {other}",
        ),
        ({}, "with start, but is asked to continue without it"),
    ):
        with pytest.raises(CimError) as error:
            train(folder, **more)
        assert f"last.pth: was trained {said}; expected the same" in str(error.value)
