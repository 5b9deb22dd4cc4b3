"""A sweep whose scheduler or worker ends or falls silent: the same bytes in the end."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from dask_processes import free_port, processes, scheduler, wait_for_two, worker

from cimtool import cli
from cimtool.demo.data import DemoFiles

POINTS = r"( *[0-9.]+ s  point [0-9]+ of 12: done[^\n]*\n)+"
"""The progress of a sweep in a log."""

PATIENT = "from cimtool.base import cluster; from cimtool.cli import main; {}; main()"
"""A command line that waits for other times; one of a minute at the start, on a busy machine."""


@pytest.fixture(scope="module")
def sweeping(small_trunk: DemoFiles, without_torch: Callable[[DemoFiles], DemoFiles]) -> list[str]:
    files = without_torch(small_trunk)
    command = [
        "sweep", "--projectors", files.projectors, "--poly", files.poly, "--target", "ideal",
        "--calibration", files.calibration, "--data", files.eval,
        "--grid", "weight_bits=3,4,5,6,7,8", "--grid", "activation_bits=7,8",
    ]  # fmt: skip
    return list(map(str, command))


@pytest.fixture(scope="module")
def whole(sweeping: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a sweep that nothing stops."""
    folder = tmp_path_factory.mktemp("whole") / "sweep"
    assert cli.run([*sweeping, "-o", str(folder)]) == 0
    return contents(folder)


def contents(folder: Path) -> dict[str, bytes]:
    files = (file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


@pytest.mark.thorough("waits for timeouts of real clusters and processes")
@pytest.mark.parametrize(
    ("what", "happened"),
    [
        (signal.SIGKILL, "the connection to the scheduler was lost"),
        (signal.SIGSTOP, "the scheduler has not answered for 6 seconds"),
    ],
)
def test_a_sweep_goes_on_after_its_scheduler(
    what: signal.Signals,
    happened: str,
    sweeping: list[str],
    whole: dict[str, bytes],
    tmp_path: Path,
) -> None:
    folder = tmp_path / "sweep"
    status, out, err = swept_while([*sweeping, "-o", str(folder)], "SILENT_SECONDS = 6", 0, what)
    advice = "run the command again to go on"
    assert (status, out) == (2, "")
    told = rf"--dask tcp://127\.0\.0\.1:\d+: {happened}; {advice}"
    assert re.fullmatch(rf"{POINTS}cimtool: error: {told}\n", err)
    assert 0 < len(list((folder / "points").iterdir())) < 12
    assert cli.run([*sweeping, "-o", str(folder)]) == 0
    assert contents(folder) == whole


@pytest.mark.thorough("waits for timeouts of real clusters and processes")
@pytest.mark.parametrize("what", [signal.SIGKILL, signal.SIGSTOP])
def test_a_sweep_ends_without_one_of_its_workers(
    what: signal.Signals, sweeping: list[str], whole: dict[str, bytes], tmp_path: Path
) -> None:
    folder = tmp_path / "sweep"
    command = [*sweeping, "-o", str(folder)]
    status, _, err = swept_while(command, "FROZEN_SECONDS = 5", 1, what)
    assert status == 0, err
    assert re.fullmatch(POINTS, err)
    assert contents(folder) == whole


def swept_while(
    command: list[str], patience: str, place: int, what: signal.Signals
) -> tuple[int, str, str]:
    """Status and streams of a sweep on two workers, one process of which gets a signal.

    `place` is 0 for the scheduler, 1 and 2 for workers; that is after the first point.
    """
    folder, port = Path(command[-1]), free_port()
    address = f"tcp://127.0.0.1:{port}"
    with processes(
        scheduler(port), *(worker(port, folder.parent / one) for one in "ab")
    ) as started:
        wait_for_two(address)
        times = f"cluster.CONNECT_SECONDS = 60; cluster.{patience}"
        client = subprocess.Popen(
            [sys.executable, "-c", PATIENT.format(times), *command, "--dask", address],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        while client.poll() is None and not any(folder.glob("points/*.json")):
            time.sleep(0.01)
        started[place].send_signal(what)
        out, err = client.communicate(timeout=60)
    return client.returncode, out, err
