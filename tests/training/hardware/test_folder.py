from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from playwright.sync_api import Page

from cimtool.base.errors import CimError
from cimtool.training.hardware.fine_tune import FineTuned
from cimtool.training.hardware.folder import check_folder, headline, write_folder
from cimtool.training.hardware.loop import Epoch
from cimtool.training.trainer import Diverged

START, BETTER, WORSE = Epoch(0, None, 2.0), Epoch(1, 0.75, 0.5), Epoch(2, 0.5, 3.0)
SETTINGS = {"start": "a <b>.pth", "hardware": "ideal", "seed": 0}


def tuned(*history: Epoch, stopped: str | None = None) -> FineTuned:
    return FineTuned({"weight": torch.arange(3.0)}, history, stopped)


def test_the_folder_holds_weights_history_and_page(tmp_path: Path) -> None:
    written = write_folder(tuned(START, BETTER, WORSE), SETTINGS, tmp_path / "run")
    assert [file.name for file in written.files] == ["model.pth", "history.json", "training.html"]
    saved = torch.load(written.files[0], weights_only=True)
    assert np.array_equal(saved["weight"], [0.0, 1.0, 2.0])
    values = json.loads(written.files[1].read_text())
    assert (values["best_epoch"], values["stopped"], values["settings"]) == (1, None, SETTINGS)
    assert values["epochs"][2] == {"number": 2, "loss": 0.5, "rmse": 3.0}
    page = written.files[2].read_text()
    assert "a &lt;b&gt;.pth fine-tuned for ideal" in page
    assert "epoch 1: compiled logit RMSE 0.5 on held-out rows, 2 before" in page


def test_the_page_opens_in_a_browser_and_asks_for_nothing(
    page: Page, events: list[str], tmp_path: Path
) -> None:
    address = write_folder(tuned(START, BETTER, WORSE), SETTINGS, tmp_path).files[2].as_uri()
    page.goto(address)
    assert page.title() == "a <b>.pth fine-tuned for ideal"
    assert events == [f"request {address}"]


def test_what_stopped_early_is_written_before_it_is_raised(tmp_path: Path) -> None:
    with pytest.raises(Diverged, match=r"the loss is nan; .*model\.pth keeps the start"):
        write_folder(tuned(START, stopped="the loss is nan"), SETTINGS, tmp_path)
    assert (tmp_path / "model.pth").exists()
    assert "keeps the start" in json.loads((tmp_path / "history.json").read_text())["stopped"]
    assert "keeps the start" in (tmp_path / "training.html").read_text()


def test_a_start_that_no_epoch_betters_is_said() -> None:
    assert headline((START, WORSE)).startswith("None of 2 epochs is better than the start, whose")


def test_a_file_or_an_earlier_run_is_refused(tmp_path: Path) -> None:
    check_folder(tmp_path)
    check_folder(tmp_path / "none")
    (tmp_path / "history.json").touch()
    with pytest.raises(CimError, match=r"holds history\.json of an earlier run"):
        check_folder(tmp_path)
    with pytest.raises(CimError, match="is a file; expected a folder, or none"):
        check_folder(tmp_path / "history.json")
