"""Workers: the same outcomes in this process, in several, and on a Dask cluster."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import joblib
import pytest
from dask_processes import free_port, processes, scheduler, wait_for_two, worker
from joblib.externals.loky.process_executor import TerminatedWorkerError

from cimtool import __version__
from cimtool.base import cluster
from cimtool.base.errors import CimError, CimWarning
from cimtool.experiments import engine
from cimtool.experiments.compiled import Outcome, PointEvaluator
from cimtool.experiments.points import Point
from cimtool.experiments.sweep import Sweep

RunSweep = Callable[..., Sweep]
GRID = {"weight_bits": [4, 8], "adc_bits": [4, 8]}


@pytest.mark.thorough("waits for timeouts of real clusters and processes")
def test_two_dask_workers_compute_what_this_process_does(
    sweep_small: RunSweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = sweep_small(tmp_path / "here", GRID)
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 60)
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    both = [worker(port, tmp_path / name) for name in ("a", "b")]
    with processes(scheduler(port), *both):
        wait_for_two(address)
        monkeypatch.setattr(PointEvaluator, "evaluate", None)  # only the workers' own can serve
        there = sweep_small(tmp_path / "cluster", GRID, dask=address)
    assert there.outcomes == here.outcomes
    results = [tmp_path / name / "results.json" for name in ("here", "cluster")]
    assert results[0].read_bytes() == results[1].read_bytes()


def test_a_scheduler_without_workers_is_told(
    sweep_small: RunSweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 60)
    port = free_port()
    with processes(scheduler(port)), pytest.raises(CimError, match="the scheduler has no workers"):
        sweep_small(tmp_path / "s", GRID, dask=f"tcp://127.0.0.1:{port}")
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:{port}", "nonsense"])
def test_an_address_that_does_not_answer_is_told(
    address: str, sweep_small: RunSweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 0.5)
    address = address.format(port=free_port())
    with pytest.raises(CimError, match=f"dask {address}: no scheduler answered within"):
        sweep_small(tmp_path / "s", GRID, dask=address)
    assert not (tmp_path / "s").exists()


def test_a_caller_with_a_loop_at_work_is_served(
    sweep_small: RunSweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 0.5)

    async def notebook() -> None:
        sweep_small(tmp_path / "s", GRID, dask=f"tcp://127.0.0.1:{free_port()}")

    with pytest.raises(CimError, match="no scheduler answered within"):
        asyncio.run(notebook())


class Future(SimpleNamespace):
    """The future of a call, as a cluster gives it."""

    __hash__ = object.__hash__


def test_a_worker_with_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    done = Future(status="finished", result=lambda: ("0.0.1", ("digest", Outcome())))
    client = SimpleNamespace(
        scatter=Mock(), submit=Mock(return_value=done), loop=None, status="running"
    )
    monkeypatch.setattr("distributed.as_completed", lambda futures, loop: futures)
    with pytest.raises(CimError, match=r"a worker has cimtool 0\.0\.1; expected "):
        list(engine.by_cluster(None, {"digest": None}, client, "tcp://x:1"))  # type: ignore[arg-type,dict-item]


def test_a_result_that_died_with_its_worker_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = ("digest", Outcome())
    lost = Future(status="lost", result=lambda: (__version__, outcome))
    client = SimpleNamespace(
        scatter=Mock(), submit=Mock(return_value=lost), loop=None, status="running"
    )
    monkeypatch.setattr("distributed.as_completed", lambda futures, loop: futures)
    found = engine.by_cluster(None, {"digest": None}, client, "tcp://x:1")  # type: ignore[arg-type,dict-item]
    assert list(found) == [outcome]


def test_what_answers_but_is_no_scheduler_is_told(
    sweep_small: RunSweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 2)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            one, _ = server.accept()
            with one:
                one.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(CimError, match="no scheduler answered"):
            sweep_small(tmp_path / "s", GRID, dask=address)
        thread.join()


def test_without_the_extra_its_name_is_told(
    sweep_small: RunSweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(CimError, match=r'pip install "cimtool\[dask\]"'):
        sweep_small(tmp_path / "s", GRID, dask="tcp://127.0.0.1:1")


def test_a_worker_process_that_dies_is_told(
    sweep_small: RunSweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Dying:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def __call__(self, calls: object) -> Iterator[object]:
            raise TerminatedWorkerError("killed")
            yield

    monkeypatch.setattr(joblib, "Parallel", Dying)
    with pytest.raises(CimError, match="jobs 2: a worker process was killed"):
        sweep_small(tmp_path / "s", GRID, jobs=2)


def test_what_cimtool_warns_of_in_a_worker_process_is_said_by_this_one(
    sweep_small: RunSweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Here:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def __call__(self, calls: Iterable[tuple[Any, Any, Any]]) -> Iterator[object]:
            return (function(*arguments, **named) for function, arguments, named in calls)

    outcome = PointEvaluator.outcome

    def warning(evaluator: PointEvaluator, point: Point) -> Outcome:
        warnings.warn("a kernel is slow", CimWarning, stacklevel=1)
        warnings.warn("another's", RuntimeWarning, stacklevel=1)
        return outcome(evaluator, point)

    monkeypatch.setattr(joblib, "Parallel", Here)
    monkeypatch.setattr(PointEvaluator, "outcome", warning)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        sweep_small(tmp_path / "s", {"weight_bits": [8]}, jobs=2)
    said = {str(one.message): Path(one.filename).name for one in shown}
    assert said == {"a kernel is slow": "engine.py", "another's": Path(__file__).name}


def test_jobs_are_counted(sweep_small: RunSweep, tmp_path: Path) -> None:
    for jobs in (0, 10**6):
        with pytest.raises(CimError, match=f"jobs is {jobs}; expected 1 to 1,024 processes"):
            sweep_small(tmp_path / "s", GRID, jobs=jobs)
