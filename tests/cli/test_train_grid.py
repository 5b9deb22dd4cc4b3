"""`cimtool train --grid`: what it writes and says, how it goes on, and how it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cimtool.cli import run
from cimtool.experiments import training_grid
from cimtool.experiments.engine import PointFolder
from cimtool.training.trainer import Trainer

Printed = pytest.CaptureFixture[str]
SIZES = ["--set", "model.hidden=16", "--set", "model.linear=false"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    text = rng.standard_normal((80, 8)).astype(np.float32)
    video = text + 0.5 * rng.standard_normal((80, 8)).astype(np.float32)
    path = tmp_path_factory.mktemp("rows") / "rows.npz"
    np.savez(path, text=text, video=video)
    return path


def train(data: Path, output: Path, *more: str, epochs: int = 1) -> int:
    batch = [] if any("batch=" in one for one in more) else ["--batch", "16"]
    files = ["train", "--data", str(data), "-o", str(output)]
    return run([*files, "--epochs", str(epochs), "--test", "0.3", *batch, *SIZES, *more])


def contents(folder: Path) -> dict[str, bytes]:
    files = (one for one in folder.rglob("*") if one.is_file() and one.name != "seconds.json")
    return {str(one.relative_to(folder)): one.read_bytes() for one in files}


def test_a_grid_needs_a_folder(data: Path, tmp_path: Path, capsys: Printed) -> None:
    assert train(data, tmp_path / "best.pth", "--grid", "batch=8,16") == 2
    expected = "best.pth: is the name of one checkpoint; expected a folder with --grid"
    assert expected in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_grid_end_to_end(data: Path, tmp_path: Path, capsys: Printed) -> None:
    grid = ["--grid", "loss=info-nce,pairwise-bce", "--grid", "loss.b=1,2"]
    one, other = tmp_path / "one", tmp_path / "other"
    assert train(data, one, *grid, "-v") == 0
    printed = capsys.readouterr().out
    assert "trained by the best row: " in printed
    assert "raw embeddings by cosine, which no training made" in printed.splitlines()[1].lower()
    assert "Best of 3 rows: row " in printed
    assert "Figures are of 24 texts and 24 videos that were set aside" in printed
    assert "3 points: 3 done (0 by an earlier run), 0 failed" in printed
    kept = json.loads((one / "results.json").read_text())
    values = [point["values"] for point in kept["points"]]
    assert values == [
        {"loss": "info-nce"},
        {"loss": "pairwise-bce", "loss.b": 1},
        {"loss": "pairwise-bce", "loss.b": 2},
    ]
    assert kept["common"] == {
        "batch": 16,
        "epochs": 1,
        "model.hidden": "16",
        "model.linear": "false",
        "test": 0.3,
    } | {name: kept["common"][name] for name in kept["common"] if name in ("seed", "device")}
    limits = [point["question"]["limit"] for point in kept["points"]]
    assert limits[0] is not None
    assert limits[1:] == [None, None]
    for point in kept["points"]:
        assert {"model.pth", "test.npz"} <= {f.name for f in (one / point["folder"]).iterdir()}
    page = (one / "grid.html").read_text()
    assert page.count("<svg") == 1
    assert "http://" not in page.replace("http://www.w3.org/", "")
    # The same command goes on, and comes to the same bytes; so does another folder.
    before = contents(one)
    assert train(data, one, *grid, "--json") == 0
    again = json.loads(capsys.readouterr().out)
    assert (again["resumed"], again["failed"]) == (3, 0)
    assert contents(one) == before
    assert train(data, other, *grid) == 0
    assert contents(other) == before


@pytest.mark.thorough("more of the same kind", quick=("before a point",))
@pytest.mark.parametrize(
    ("where", "name", "at"),
    [(training_grid, "train_point", 2), (Trainer, "epoch", 4), (PointFolder, "keep", 2)],
    ids=["before a point", "in its second epoch", "before it is kept"],
)
def test_a_point_that_was_stopped_goes_on(
    data: Path, tmp_path: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch,
    where: Any, name: str, at: int,
) -> None:  # fmt: skip
    grid, whole, cut = ["--grid", "model.width=4,8"], tmp_path / "whole", tmp_path / "cut"
    assert train(data, whole, *grid, epochs=2) == 0
    first, calls = getattr(where, name), []

    def interrupted(*given: object) -> object:
        calls.append(given)
        if len(calls) == at:
            raise KeyboardInterrupt
        return first(*given)

    monkeypatch.setattr(where, name, interrupted)
    assert train(data, cut, *grid, epochs=2) == 130
    assert not (cut / "results.json").exists()
    assert train(data, cut, *grid, epochs=2) == 0
    assert "(1 by an earlier run)" in capsys.readouterr().out
    assert contents(cut) == contents(whole)


def test_a_point_that_contradicts_the_data_fails_and_others_go_on(
    data: Path, tmp_path: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, make, made = tmp_path / "grid", training_grid.make_job, []
    monkeypatch.setattr(training_grid, "make_job", lambda *job: made.append(job) or make(*job))
    assert train(data, folder, "--grid", "batch=16,400") == 1
    assert len(made) == 2, "each job is made once"
    printed = capsys.readouterr()
    assert "points failed" in printed.err
    assert "point 1 (batch=400) failed: " in printed.out
    assert "batch is 400, but " in printed.out
    kept = json.loads((folder / "results.json").read_text())
    assert [point["state"] for point in kept["points"]] == ["done", "failed"]
    assert kept["best"] == 0


def test_seeds_make_means(data: Path, tmp_path: Path, capsys: Printed) -> None:
    folder = tmp_path / "grid"
    assert (
        train(data, folder, "--grid", "seed=0,1,2", "--grid", "learning-rate=1e-3,1e-2", "-v") == 0
    )
    assert "Student's 95% interval of the mean of 3 seeds" in capsys.readouterr().out
    kept = json.loads((folder / "results.json").read_text())
    assert [row["points"] for row in kept["rows"]] == [[0, 2, 4], [1, 3, 5]]
    assert [row["values"] for row in kept["rows"]] == [
        {"learning_rate": 1e-3},
        {"learning_rate": 1e-2},
    ]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--grid", "losses=clip"], '--grid key "losses" is not known'),
        (["--grid", "loss=info-nse"], 'did you mean "info-nce"?'),
        (["--grid", "batch=1,16"], "--grid: --batch is 1; expected an integer of at least 2"),
        (["--grid", "epochs=1.5"], "--grid: --epochs is 1.5; expected an integer"),
        (["--grid", "learning-rate=fast"], "--grid: --learning-rate is fast; expected a number"),
        (["--grid", "seed=-1"], "--grid: --seed is -1; expected 0 to 2^63 - 1"),
        (["--grid", "loss.tua=1"], "--grid loss.tua: is not an option of loss info-nce: "),
        (["--grid", "loss.tau=1,-1"], "--grid: loss.tau is -1; expected more than 0"),
        (["--grid", "batch=16,16"], "--grid batch: 16 is given twice; expected each value once"),
        (["--grid", "batch="], "--grid batch=: expected KEY=VALUE,VALUE, such as batch=16,64"),
        (["--grid", "epochs=1,2"], "--grid epochs and --epochs are both given"),
        (["--grid", "model.hidden=8"], "--grid model.hidden and --set model.hidden are both"),
        (["--grid", "seed=1,2", "--seed", "3"], "--grid seed and --seed are both given"),
        (["--grid", "batch=300,400"], "--batch is 300, but "),
        (["--grid", "seed=1,2", "--resume"], "--resume does not apply to --grid"),
        (["--grid", "seed=1,2", "--qrels", "judged.txt"], "--qrels does not apply to --grid"),
        (
            ["--grid", "seed=1,2", "--set", "loss.c=1"],
            "--set loss.c: is not an option of loss info-",
        ),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_is_written(
    data: Path, tmp_path: Path, capsys: Printed, more: list[str], message: str
) -> None:
    folder = tmp_path / "grid"
    assert train(data, folder, *more) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not folder.exists()


def test_a_folder_with_another_grid_is_refused(data: Path, tmp_path: Path, capsys: Printed) -> None:
    folder = tmp_path / "grid"
    folder.mkdir()
    (folder / "grid.json").write_text("{}")
    assert train(data, folder, "--grid", "batch=16") == 2
    assert "holds a grid of trainings with another format" in capsys.readouterr().err
    assert [one.name for one in folder.iterdir()] == ["grid.json"]
