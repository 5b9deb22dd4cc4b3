"""A sweep whose scheduler ends or falls silent: one line on stderr, the same bytes in the end."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from dask_processes import free_port, processes, scheduler, wait_for_two, worker

from cimtool import cli
from cimtool.training.demo_data import DemoFiles

PATIENT = (
    "from cimtool.base import cluster; from cimtool.cli import main; "
    "cluster.CONNECT_SECONDS, cluster.SILENT_SECONDS = 60, 3; main()"
)


@pytest.fixture(scope="module")
def sweeping(small_trunk: DemoFiles) -> list[str]:
    files = small_trunk
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


@pytest.mark.parametrize(
    ("what", "happened"),
    [
        (signal.SIGKILL, "the connection to the scheduler was lost"),
        (signal.SIGSTOP, "the scheduler has not answered for 3 seconds"),
    ],
)
def test_a_sweep_goes_on_after_its_scheduler(
    what: signal.Signals,
    happened: str,
    sweeping: list[str],
    whole: dict[str, bytes],
    tmp_path: Path,
) -> None:
    port, folder = free_port(), tmp_path / "sweep"
    address = f"tcp://127.0.0.1:{port}"
    command = [*sweeping, "-o", str(folder)]
    with processes(scheduler(port), *(worker(port, tmp_path / one) for one in "ab")) as started:
        wait_for_two(address)
        client = subprocess.Popen(
            [sys.executable, "-c", PATIENT, *command, "--dask", address],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        while client.poll() is None and not any(folder.glob("points/*.json")):
            time.sleep(0.01)
        started[0].send_signal(what)
        out, err = client.communicate(timeout=60)
    advice = "run the command again to go on"
    assert (client.returncode, out) == (2, "")
    assert err == f"cimtool: error: --dask {address}: {happened}; {advice}\n"
    assert 0 < len(list((folder / "points").iterdir())) < 12
    assert cli.run(command) == 0
    assert contents(folder) == whole
