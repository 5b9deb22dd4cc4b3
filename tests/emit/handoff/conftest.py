"""Fixtures of hand-offs: the folder of what their builds share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from shared import shared_folder


@pytest.fixture(scope="session", autouse=True)
def verilated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Verilator's own sources are compiled once for all hand-offs, in whichever process."""
    folder = shared_folder(tmp_path_factory) / "verilated"
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("VERILATED", str(folder))
        yield
