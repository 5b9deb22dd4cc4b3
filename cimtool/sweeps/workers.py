"""Computing points in this process, in processes of this machine, or on a Dask cluster.

Each way yields outcomes as they come, by the digest of their point; the caller keeps them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cimtool import __version__
from cimtool.base.compiled import thread_count
from cimtool.base.errors import ArgumentError
from cimtool.base.folders import SHARED
from cimtool.sweeps.evaluator import Outcome, PointEvaluator
from cimtool.sweeps.grid import Point

if TYPE_CHECKING:
    from distributed import Client

Outcomes = Iterator[tuple[str, Outcome]]

CONNECT_SECONDS = 5
"""Seconds that a Dask scheduler may take to answer."""


def here(evaluator: PointEvaluator, points: Mapping[str, Point]) -> Outcomes:
    """One point after the other in this process, each with all cores."""
    for digest, point in points.items():
        yield digest, evaluator.outcome(point)


def in_processes(
    evaluator: PointEvaluator, points: Mapping[str, Point], jobs: int, place: Path
) -> Outcomes:
    """Points side by side in `jobs` processes that share this one's cores.

    The evaluator goes through a file in `place` that all of them map. Raises CimError where a
    process dies.
    """
    import joblib
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    with tempfile.TemporaryDirectory(prefix=SHARED, dir=place) as folder:
        file = Path(folder) / "evaluator"
        joblib.dump(evaluator, file)
        threads = max(1, thread_count() // jobs)
        with joblib.parallel_config("loky", inner_max_num_threads=threads):
            # Batches of one, so that a point is known as soon as it is done.
            parallel = joblib.Parallel(jobs, return_as="generator_unordered", batch_size=1)
            calls = (joblib.delayed(_measured)(file, *item) for item in points.items())
            try:
                yield from parallel(calls)
            except TerminatedWorkerError as error:
                raise ArgumentError(
                    "{jobs} {}: a worker process ended on its own, for lack of memory as a rule; "
                    "run the command again to go on, with fewer jobs",
                    jobs,
                ) from error


def _measured(file: Path, digest: str, point: Point) -> tuple[str, Outcome]:
    return digest, _evaluator(file).outcome(point)


@lru_cache(maxsize=1)
def _evaluator(file: Path) -> PointEvaluator:
    """This worker's evaluator, opened once, its arrays mapped."""
    import joblib

    evaluator: PointEvaluator = joblib.load(file, mmap_mode="r")
    return evaluator


def connected(address: str) -> Client:
    """A client of the Dask scheduler at `address`, which has a worker.

    Raises CimError without the extra `dask`, and where no scheduler or worker answers.
    """
    import asyncio

    try:
        from distributed import Client
        from distributed.core import rpc
    except ImportError:
        raise ArgumentError(
            "{dask} needs the package distributed; expected `pip install 'cimtool[dask]'`"
        ) from None

    async def identity() -> Mapping[str, Any]:
        async with rpc(address, timeout=CONNECT_SECONDS) as scheduler:
            found: Mapping[str, Any] = await asyncio.wait_for(scheduler.identity(), CONNECT_SECONDS)
            return found

    # Before there is a client: one that cannot connect tells of it for long, in many lines. In a
    # thread, for a caller (a notebook) whose own thread has a loop at work.
    try:
        with ThreadPoolExecutor(1) as thread:
            scheduler = thread.submit(asyncio.run, identity()).result()
    except (OSError, ValueError, TypeError, MemoryError):  # the last two: what answers is no Dask
        raise ArgumentError(
            "{dask} {}: no scheduler answered within {} seconds; expected the address of a "
            "running one, such as tcp://host:8786",
            address,
            CONNECT_SECONDS,
        ) from None
    if not scheduler["workers"]:
        raise ArgumentError(
            "{dask} {}: the scheduler has no workers; expected at least one (`dask worker {}`)",
            address,
            address,
        )
    return Client(address, timeout=CONNECT_SECONDS, set_as_default=False)


def on_cluster(
    evaluator: PointEvaluator, points: Mapping[str, Point], client: Client, address: str
) -> Outcomes:
    """Points on the workers of a Dask cluster, which get the evaluator over the network once each.

    Raises CimError where the workers cannot run cimtool.
    """
    from distributed import as_completed

    shared = client.scatter(evaluator, broadcast=True)
    futures = [client.submit(_answered, shared, *item, pure=False) for item in points.items()]
    for future in as_completed(futures, loop=client.loop):
        if future.status != "finished":
            error = future.exception()
            raise ArgumentError(
                "{dask} {}: a worker could not compute a point ({}: {}); expected workers with "
                "this cimtool and memory for the model",
                address,
                type(error).__name__,
                error,
            )
        version, digest, outcome = future.result()
        if version != __version__:
            raise ArgumentError(
                "{dask} {}: a worker has cimtool {}; expected {}, as here",
                address,
                version,
                __version__,
            )
        yield digest, outcome


def _answered(evaluator: PointEvaluator, digest: str, point: Point) -> tuple[str, str, Outcome]:
    return __version__, digest, evaluator.outcome(point)


Compute = Callable[[PointEvaluator, Mapping[str, Point]], Outcomes]


@contextmanager
def workers(jobs: int, address: str | None, place: Path) -> Iterator[Compute]:
    """Yield what computes points: on the cluster at `address`, or in `jobs` processes here.

    `place` is a folder for what processes share, there by the time that they compute.
    """
    if address is not None:
        with connected(address) as client:
            yield partial(on_cluster, client=client, address=address)
    elif jobs > 1:
        yield partial(in_processes, jobs=jobs, place=place)
    else:
        yield here
