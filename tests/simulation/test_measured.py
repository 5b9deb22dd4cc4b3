"""Ratios of rates are measured once for a CPU, and kept."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from numba import config

from cimtool.simulation.kernels import measured


@pytest.fixture
def file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The file of this test alone."""
    kept = tmp_path / measured.KEPT
    monkeypatch.setattr(measured, "_cache_file", lambda: kept)
    measured._known.cache_clear()
    yield kept
    measured._known.cache_clear()


@pytest.mark.parametrize(("times", "is_faster"), [(1.05, False), (1.2, True)])
def test_what_was_measured_is_kept_for_the_next_process(
    file: Path, times: float, is_faster: bool
) -> None:
    asked: list[float] = []

    def measure() -> float:
        asked.append(times)
        return times

    for _ in range(2):
        measured._known.cache_clear()
        assert measured.faster("a kernel, 256 rows", measure) == is_faster
        assert measured.faster("a kernel, 256 rows", measure) == is_faster
    assert asked == [times]
    (kept,) = json.loads(file.read_text()).items()
    assert kept[0].endswith(", a kernel, 256 rows")
    assert kept[1] == times


def test_kernels_whose_code_changed_are_measured_anew(
    monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    assert measured.faster("a kernel", lambda: 2.0)
    assert measured.faster("a kernel", lambda: 0.0)
    monkeypatch.setattr(measured, "stamp", lambda file: "of other code")
    assert not measured.faster("a kernel", lambda: 0.0)


def test_other_instruction_sets_are_measured_anew(
    monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    assert measured.faster("a kernel", lambda: 2.0)
    monkeypatch.setattr(config, "CPU_FEATURES", "-avx512vnni,-neon,-sse3")
    assert not measured.faster("a kernel", lambda: 0.0)
    assert len(json.loads(file.read_text())) == 2


@pytest.mark.parametrize("text", ["{", "[]", '{"other": "own"}'])
def test_a_spoiled_file_is_measured_anew(file: Path, text: str) -> None:
    file.write_text(text)
    assert measured.faster("a kernel", lambda: 2.0)


@pytest.mark.parametrize("rate", ["NaN", "-Infinity", "-1.5", "true", "[2.0]"])
def test_a_number_that_is_no_rate_is_measured_anew(file: Path, rate: str) -> None:
    assert measured.faster("a kernel", lambda: 2.0)
    (key,) = json.loads(file.read_text())
    file.write_text(f'{{"{key}": {rate}, "other": 1.5, "no other": Infinity}}')
    measured._known.cache_clear()
    assert measured.faster("a kernel", lambda: 3.0)
    assert json.loads(file.read_text()) == {key: 3.0, "other": 1.5, "no other": float("inf")}


def keep_some(folder: Path, name: str) -> None:
    measured._cache_file = lambda: folder / measured.KEPT  # type: ignore[assignment]
    for i in range(100):
        measured._keep(f"{name} {i}", 1.0)


def test_writers_at_the_same_time_keep_each_others_rates(tmp_path: Path, file: Path) -> None:
    start = multiprocessing.get_context("fork").Process
    writers = [start(target=keep_some, args=(tmp_path, name)) for name in "ab"]
    for one in writers:
        one.start()
    for one in writers:
        one.join(60)
        assert one.exitcode == 0
    assert len(json.loads(file.read_text())) == 200


def test_a_rate_that_cannot_take_its_place_leaves_no_file(tmp_path: Path, file: Path) -> None:
    file.mkdir()
    assert measured.faster("a kernel", lambda: 2.0)
    assert list(tmp_path.iterdir()) == [file]


def test_a_folder_that_cannot_be_written_costs_a_measurement(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: Path
) -> None:
    monkeypatch.setattr(measured, "_cache_file", lambda: tmp_path / "none" / measured.KEPT)
    assert measured.faster("a kernel", lambda: 2.0)
    assert measured.faster("a kernel", lambda: 0.0)  # this process knows


def test_a_ratio_is_that_of_the_work() -> None:
    def work(steps: int) -> None:
        stop = time.thread_time() + steps * 1e-3
        while time.thread_time() < stop:
            pass

    assert measured.ratio(lambda: work(1), lambda: work(4)) > 2
