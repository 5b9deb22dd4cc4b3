"""A real Dask cluster on loopback: a scheduler and workers, each a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@contextmanager
def processes(
    *commands: list[str], first: Path | None = None
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run commands beside the test, each in a process of its own, and end them after it.

    `first` is a folder of Python's path before that of cimtool.
    """
    path = [str(one) for one in (first, Path(__file__).parents[2]) if one is not None]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            started.append(
                subprocess.Popen(
                    [sys.executable, "-m", "distributed.cli." + command[0], *command[1:]],
                    stderr=subprocess.DEVNULL,
                    env=os.environ | {"PYTHONPATH": os.pathsep.join(path)},
                )
            )
        yield started
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait(30)


def scheduler(port: int, *more: str, scheme: str = "tcp") -> list[str]:
    place = ["--host", f"{scheme}://127.0.0.1", "--port", str(port), "--no-dashboard"]
    return ["dask_scheduler", *place, *more]


def worker(port: int, folder: Path, *more: str, scheme: str = "tcp") -> list[str]:
    place = ["--local-directory", str(folder), "--no-dashboard", "--no-nanny", "--nthreads", "1"]
    return ["dask_worker", f"{scheme}://127.0.0.1:{port}", *place, *more]


def wait_for_two(address: str) -> None:
    from distributed import Client

    with Client(address, timeout=60, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=60)
