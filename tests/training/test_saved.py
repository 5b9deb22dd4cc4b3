"""Going on in a folder: what is gone on from, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cimtool
from cimtool.base.arrays import Array
from cimtool.base.errors import CimError
from cimtool.base.files import PARTIAL
from cimtool.training.projectors import ProjectorRun

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


def change_state(resume: dict[str, Any]) -> None:
    resume["state"]["towers"] = {}


def change_history(resume: dict[str, Any]) -> None:
    resume["history"][0] = {"number": 0}


@pytest.mark.parametrize("change", [change_state, change_history])
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
            f"with another data, and is asked to go on with {other}",
        ),
        ({}, "with start, and is asked to go on without it"),
    ):
        with pytest.raises(CimError) as error:
            train(folder, **more)
        assert f"last.pth: was trained {said}; expected the same" in str(error.value)
