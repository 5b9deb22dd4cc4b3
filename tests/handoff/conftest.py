"""Fixtures of hand-offs: what their builds share, and those that several files of tests run."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from handoff_runs import PLAIN, SHARED, handoff_of
from shared import made_once, shared_folder

from cimtool.demo.data import DemoFiles


@pytest.fixture(scope="session", autouse=True)
def verilated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Verilator's own sources are compiled once for all hand-offs, in whichever process."""
    folder = shared_folder(tmp_path_factory) / "verilated"
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("VERILATED", str(folder))
        yield


@pytest.fixture(scope="session")
def handoff_of_kind(
    narrow_trunk: DemoFiles, tiny_trunk: DemoFiles, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, Path], Path]:
    """Copies a hand-off of `SHARED`, which is made once in the whole run, into a folder.

    The plain one has all layers of a projector; of each kind there are the two that read signed and
    unsigned inputs.
    """

    def copied(kind: str, folder: Path) -> Path:
        files, layers = (narrow_trunk, "text.*") if kind == PLAIN else (tiny_trunk, "text.*[1u]")
        made = made_once(
            tmp_path_factory,
            f"handoff {kind}",
            lambda unfinished: handoff_of(files, unfinished, SHARED[kind], layers),
        )
        return Path(shutil.copytree(made / "here", folder / "here"))

    return copied


@pytest.fixture(scope="module")
def handoff(
    handoff_of_kind: Callable[[str, Path], Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The plain hand-off, in a folder that the tests of a file share."""
    return handoff_of_kind(PLAIN, tmp_path_factory.mktemp("plain"))
