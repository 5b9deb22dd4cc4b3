"""Snapshots of what users see of every command: `tests/golden/snapshots`.

After a change that is meant to change it,

    python tests/kits/snapshots.py

writes the texts anew; read their diff.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from same_text import difference
from snapshots import BUNDLES, SNAPSHOTS, STEPS, inputs, snapshot


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which commands run, with the files that they read."""
    folder = tmp_path_factory.mktemp("snapshots").resolve()
    inputs(folder)
    return folder


@pytest.fixture(scope="module")
def bundles(folder: Path) -> dict[str, str]:
    """Texts of the steps whose files others read, by name."""
    return {name: snapshot(step, folder) for name, step in BUNDLES.items()}


SECONDS = (
    *("compare", "cost-json", "sweep-json", "tune-verbose"),
    *("verify-branch", "verify-csd", "verify-limits", "verify-noise", "verify-shortlist"),
)
"""Snapshots that take seconds more; others show the same renderers.

That of `compare` is read by `verification/test_compare.py`.
"""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.thorough("seconds more")] * (name in SECONDS))
        for name in STEPS
    ],
)
def test_a_user_sees_the_same(name: str, folder: Path, bundles: dict[str, str]) -> None:
    made = bundles[name] if name in BUNDLES else snapshot(STEPS[name], folder)
    stored = (SNAPSHOTS / f"{name}.txt").read_text("utf-8")
    if changes := difference(stored, made):
        pytest.fail(f"{STEPS[name].command}\n{changes}", pytrace=False)


@pytest.mark.parametrize(
    ("stored", "made", "same"),
    [
        ("RMSE 3.017", "RMSE 3.018", True),
        ("RMSE 3.017", "RMSE 3.019", False),
        ("1.23456e-07 J", "1.23459e-07 J", True),
        ("1.234e-07 J", "1.334e-07 J", False),
        ("1,024.5 cells", "1,024.6 cells", True),
        ("1,024 cells", "1,025 cells", False),
        ("[0.5, 24]", "[0.5, 25]", False),
        ("a  9.99 |\nb 20.00 |", "a 10.00 |\nb 20.00 |", True),
        ("a  9.99 |\nb 20.00 |", "a 9.99 |\nb 20.00 |", False),
        ("a 0.5\nb 0.25", "a 0.5\nnew\nb 0.25", False),
        ("cells 3f2a", "cells 3f2b", False),
    ],
)
def test_texts_agree_but_for_rounding(stored: str, made: str, same: bool) -> None:
    assert (difference(stored, made) == "") is same


def test_no_text_is_left_over() -> None:
    assert {file.stem for file in SNAPSHOTS.iterdir()} == set(STEPS)
