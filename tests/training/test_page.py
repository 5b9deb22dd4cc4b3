from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page

from cimtool.training.history import CompiledEpoch, best_epoch
from cimtool.training.page import compiled_headline, fine_tuning_page

HISTORY = (
    CompiledEpoch(0, None, 2.0, 2.5),
    CompiledEpoch(1, 0.75, 0.5, 4.0),  # the largest offset, and the least that can change a rank
    CompiledEpoch(2, 0.5, 3.0, 3.0),
)
SETTINGS = {"start": "a <b>.pth", "hardware": "ideal", "seed": 0}


def test_the_best_errs_least() -> None:
    assert best_epoch(HISTORY).number == 1
    assert HISTORY[0].line(2) == ("start; held out compiled logit error, centred RMSE 2 (RMSE 2.5)")
    assert HISTORY[1].to_json() == {
        "number": 1, "loss": 0.75, "centred_rmse": 0.5, "rmse": 4.0,
    }  # fmt: skip


def test_the_page_says_what_was_gained() -> None:
    page = fine_tuning_page(SETTINGS, HISTORY, None)
    assert "a &lt;b&gt;.pth fine-tuned for ideal" in page
    assert "epoch 1: compiled centred logit RMSE 0.5 on held-out rows, 2 before" in page
    assert page.count("<svg") == 2
    stopped = fine_tuning_page(SETTINGS, HISTORY[:1], "epoch 1: the loss is nan")
    assert "epoch 1: the loss is nan" in stopped
    assert stopped.count("<svg") == 1


@pytest.mark.thorough("the report in the browser stands for it")
def test_the_page_opens_in_a_browser_and_asks_for_nothing(
    page: Page, events: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "training.html"
    file.write_text(fine_tuning_page(SETTINGS, HISTORY, None))
    page.goto(file.as_uri())
    assert page.title() == "a <b>.pth fine-tuned for ideal"
    assert events == [f"request {file.as_uri()}"]


def test_a_start_that_no_epoch_betters_is_said() -> None:
    found = compiled_headline((HISTORY[0], HISTORY[2]))
    assert found.startswith("None of 2 epochs is better than the start, whose")
