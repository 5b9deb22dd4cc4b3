"""A cluster that falls silent or ends its workers in the middle of the work: one true sentence."""

from __future__ import annotations

import io
import logging
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from dask_processes import free_port, processes, scheduler, wait_for_two, worker

from cimtool.base import cluster
from cimtool.base.errors import CimError


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 60)
    monkeypatch.setattr(cluster, "SILENT_SECONDS", 3)
    monkeypatch.setattr(cluster, "ASK_SECONDS", 0.2)
    monkeypatch.setattr(cluster, "FROZEN_SECONDS", 3)
    monkeypatch.setattr(cluster, "RESTART_SECONDS", 1)


@pytest.fixture
def log() -> io.StringIO:
    """The lines that Dask logs, from the level on that its client prints by default."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    handler.setLevel(logging.WARNING)
    logging.getLogger("distributed").addHandler(handler)
    return text


Call = Callable[[int, int], int]


def of_workers() -> tuple[Call, Call]:
    """Calls that workers get by value, as they cannot import this file: a square, and an end."""
    import os
    import time

    def square(shared: int, value: int) -> int:
        time.sleep(0.05)
        return shared * value**2

    def end(shared: int, value: int) -> int:
        os._exit(1)

    return square, end


SQUARE, END = of_workers()


def squares(address: str, count: int) -> Iterator[int]:
    calls = [(i,) for i in range(count)]
    with cluster.connected(address) as client:
        yield from cluster.on_cluster(client, address, SQUARE, 2, calls, "a square", "again")


@pytest.mark.thorough("waits for timeouts of real clusters and processes")
def test_a_scheduler_that_is_frozen_before_it_registers_a_client_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    port, asked = free_port(), cluster._workers
    address = f"tcp://127.0.0.1:{port}"
    both = [worker(port, tmp_path / name) for name in "ab"]
    with processes(scheduler(port), *both) as started:
        wait_for_two(address)

        def last_answer(address: str, seconds: float) -> object:
            answer = asked(address, seconds)
            started[0].send_signal(signal.SIGSTOP)
            monkeypatch.setattr(cluster, "CONNECT_SECONDS", 2)
            return answer

        monkeypatch.setattr(cluster, "_workers", last_answer)
        with (
            pytest.raises(CimError, match=r"no scheduler answered within 2 seconds"),
            cluster.connected(address),
        ):
            pass


@pytest.mark.thorough("waits for timeouts of real clusters and processes")
def test_a_scheduler_that_falls_silent_is_told(log: io.StringIO, tmp_path: Path) -> None:
    port, found = free_port(), []
    address = f"tcp://127.0.0.1:{port}"
    both = [worker(port, tmp_path / name) for name in "ab"]
    with processes(scheduler(port), *both) as started:
        wait_for_two(address)

        def compute() -> None:
            for value in squares(address, 200):
                found.append(value)
                if len(found) == 3:
                    started[0].send_signal(signal.SIGSTOP)

        with pytest.raises(CimError, match=r"the scheduler has not answered for 3 seconds; again$"):
            compute()
    assert set(found) <= {2 * i**2 for i in range(200)}
    assert log.getvalue() == ""


@pytest.mark.thorough("waits for timeouts of real clusters and processes")
def test_a_call_that_ends_its_workers_is_told(
    log: io.StringIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES", "0")
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    both = [worker(port, tmp_path / name) for name in "ab"]
    with processes(scheduler(port), *both):
        wait_for_two(address)
        with (
            pytest.raises(CimError, match=r"each worker that computed a shard was killed"),
            cluster.connected(address) as client,
        ):
            list(cluster.on_cluster(client, address, END, 2, [(1,)], "a shard", "again"))
    assert log.getvalue() == ""


@pytest.mark.thorough("waits for timeouts of real clusters and processes")
@pytest.mark.parametrize("frozen", [1, 2])
def test_workers_that_fall_silent_are_given_up(
    frozen: int, log: io.StringIO, tmp_path: Path
) -> None:
    port, found = free_port(), []
    address = f"tcp://127.0.0.1:{port}"
    with processes(scheduler(port), *(worker(port, tmp_path / name) for name in "ab")) as started:
        wait_for_two(address)

        def compute() -> None:
            for value in squares(address, 60):
                found.append(value)
                if len(found) == 6:
                    for one in started[1 : 1 + frozen]:
                        one.send_signal(signal.SIGSTOP)

        if frozen == 1:
            compute()
            assert sorted(found) == [2 * i**2 for i in range(60)]
        else:
            said = r"workers did not answer for 3 seconds \(tcp:.*, tcp:.*\); again$"
            with pytest.raises(CimError, match=said):
                compute()
    assert log.getvalue() == ""
