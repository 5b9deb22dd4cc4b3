"""Computing points in this process, in processes of this machine, or on a Dask cluster.

Each way yields outcomes as they come, by the digest of their point; the caller keeps them.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from cimtool.base.cluster import connected, on_cluster
from cimtool.base.errors import ArgumentError, CimWarning
from cimtool.base.folders import SHARED
from cimtool.base.threads import thread_count
from cimtool.base.warned import taking_warnings
from cimtool.experiments.sweeps.evaluator import Outcome, PointEvaluator
from cimtool.experiments.sweeps.grid import Point

if TYPE_CHECKING:
    from distributed import Client

AGAIN = "run the command again to go on"
"""Advice where workers end: points that are done are kept."""

Outcomes = Iterator[tuple[str, Outcome]]


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
                with closing(parallel(calls)) as outcomes:
                    for digest, outcome, said in outcomes:
                        for sentence in said:
                            warnings.warn(sentence, CimWarning, stacklevel=1)
                        yield digest, outcome
            except TerminatedWorkerError as error:
                raise ArgumentError(
                    "{jobs} {}: a worker process ended on its own, for lack of memory as a rule; "
                    "{}, with fewer jobs",
                    jobs,
                    AGAIN,
                ) from error


def _measured(file: Path, digest: str, point: Point) -> tuple[str, Outcome, list[str]]:
    with _own_warnings() as said:
        return digest, _evaluator(file).outcome(point), said


@contextmanager
def _own_warnings() -> Iterator[list[str]]:
    """Collect the sentences of cimtool's warnings; those of libraries are shown as ever."""
    said: list[str] = []

    def keep(told: str, category: type[Warning]) -> bool:
        own = issubclass(category, CimWarning)
        if own:
            said.append(told)
        return own

    with taking_warnings(keep):
        yield said


@lru_cache(maxsize=1)
def _evaluator(file: Path) -> PointEvaluator:
    """This worker's evaluator, opened once, its arrays mapped."""
    import joblib

    evaluator: PointEvaluator = joblib.load(file, mmap_mode="r")
    return evaluator


def _outcome(evaluator: PointEvaluator, digest: str, point: Point) -> tuple[str, Outcome]:
    return digest, evaluator.outcome(point)


def by_cluster(
    evaluator: PointEvaluator, points: Mapping[str, Point], client: Client, address: str
) -> Outcomes:
    """Points on the workers of a Dask cluster, which get the evaluator over the network once each.

    Raises CimError where the workers cannot run cimtool, or the cluster ends or falls silent.
    """
    work = points.items()
    yield from on_cluster(client, address, _outcome, evaluator, work, "a point", AGAIN)


Compute = Callable[[PointEvaluator, Mapping[str, Point]], Outcomes]


@contextmanager
def workers(jobs: int, address: str | None, place: Path) -> Iterator[Compute]:
    """Yield what computes points: on the cluster at `address`, or in `jobs` processes here.

    `place` is a folder for what processes share, there by the time that they compute.
    """
    if address is not None:
        with connected(address) as client:
            yield partial(by_cluster, client=client, address=address)
    elif jobs > 1:
        yield partial(in_processes, jobs=jobs, place=place)
    else:
        yield here
