"""The engine of experiments: points in a folder that a later run continues, workers, and results.

A new kind of experiment is one module here, and its command in `commands/`. If it has a grid of
points, like `sweep.py` and `training_grid.py`, the module defines:

1. its keys: a `KeyReader` checks each key and value, and a function makes points of them;
2. how a point is run: a runner with `outcome(point)`. An error that ends a point becomes an outcome
   with an `error`, so the others go on;
3. its folder: an `ExperimentKind` has the words for it, and reads a stored outcome;
4. its result: a `GridResult`, as plain values;
5. its columns and remarks: the `document` of its result, in the module that the result names as
   `shown_by`, and the name of its `page`.

The module's function checks everything first, and then opens the folder:

    with workers(options, place) as compute, KIND.opened(place, identity, compute) as folder:
        done = folder.outcomes(points, runner_for, say)
        return write_results(Result(...), place)

A table of subjects (`evaluate.py`) has a point for each subject; a search (`tune.py`) asks for
points as it goes. Both work without a folder too.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, TypeVar

import numpy as np

from cimtool import __version__
from cimtool.base.arrays import Array
from cimtool.base.cluster import connected, on_cluster
from cimtool.base.errors import ArgumentError, CheckFailed, CimWarning, taking_warnings
from cimtool.base.files import replace_files, replace_texts, text_bytes
from cimtool.base.folders import POINTS, SHARED, KindOfWork, read_sealed, sealed_text
from cimtool.base.grids import GridKey, Value, value_text
from cimtool.base.json_files import plain_values
from cimtool.base.options import Record, Topic, optional
from cimtool.base.plugins import needing
from cimtool.base.progress import Countdown, PartDone, Say
from cimtool.base.threads import thread_count
from cimtool.bundle.serial import ConstantTable, program_text
from cimtool.ir.program import Program
from cimtool.report.document import Block, Document, Sentence
from cimtool.report.formats import counted
from cimtool.report.html import html
from cimtool.report.result import Result
from cimtool.report.table import BlockLevel, Column

if TYPE_CHECKING:
    from distributed import Client

FEW_FAILED = 3
"""Failed points whose reason a first screen has."""

DIGEST_LETTERS = 20
MOST_JOBS = 1024
"""Processes on one machine; each holds a model."""

AGAIN = "run the command again to go on"
"""Advice if a worker ends: finished points are kept."""

JSON_FILE = "results.json"
TABLES = ("results.csv", "results.parquet")
TableFormat = Literal["csv", "parquet"]

DASK_RISK = (
    "tcp://: anyone who reaches the cluster can run code in it and here; tls://: needs keys."
)


class WorkerOptions(Record, topic=Topic.WORKERS):
    """The workers that compute points."""

    jobs: int | None = optional("Processes on this machine (1).", "N", at_least=1)
    dask: str | None = optional(
        f"Scheduler of a Dask cluster, instead of {{jobs}}. {DASK_RISK}", "ADDRESS"
    )


class PlainPoint(Protocol):
    """A point that can give the plain values that it is made of."""

    @property
    def done(self) -> str:
        """The end of the line that says that it is done."""

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""


class PointOutcome(Protocol):
    """The figures of a point as plain values, or the `error` that it ended with."""

    @property
    def error(self) -> str | None:
        """The error's sentence; None if the point is done."""

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""


PointT = TypeVar("PointT")
OutcomeT = TypeVar("OutcomeT", bound=PointOutcome)


@dataclass(frozen=True)
class Failed:
    """The outcome of a failed point, for kinds whose figures have no `error`."""

    error: str

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        return {"state": "failed", "error": self.error}


def content_digest(*parts: bytes | Array) -> str:
    """The first letters of the SHA-256 of bytes and arrays, with the arrays' types and shapes."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(f"{part.dtype.str}{part.shape}".encode())
        digest.update(part if isinstance(part, bytes) else np.ascontiguousarray(part).data)
    return digest.hexdigest()[:DIGEST_LETTERS]


def values_name(*values: Any) -> str:
    """The name of a point's file: a digest of the plain values that decide its outcome."""
    return content_digest(json.dumps(values, sort_keys=True).encode())


def program_bytes(program: Program, *more: str) -> bytes:
    """The text of a program with the digests of its constants, and `more`, for a digest."""
    constants = ConstantTable()
    text = program_text(program, constants)
    return "".join([text, *more, *constants.names]).encode()


@dataclass(frozen=True)
class ExperimentKind(Generic[OutcomeT]):
    """A kind of experiment whose points are kept: its `noun`, and the `file` of its identity.

    `names` has words for the parts of the identity, beside the `version` of the format. `read`
    makes an outcome from its plain values; for other values it raises KeyError, TypeError,
    ValueError or AttributeError.
    """

    noun: str
    file: str
    version: int
    names: Mapping[str, str]
    read: Callable[[Mapping[str, Any]], OutcomeT]

    @property
    def versions(self) -> dict[str, Any]:
        """The versions of the format and of cimtool, by name."""
        return {"format_version": self.version, "cimtool_version": __version__}

    @contextmanager
    def opened(
        self, path: Path | None, whose: Mapping[str, str], compute: Compute | None = None
    ) -> Iterator[PointFolder[OutcomeT]]:
        """Open or make the folder, locked for this process until the end.

        Without a path, outcomes are not kept for later runs; without `compute`, this process
        computes. Raises CimError if the folder holds another experiment or other files, or if
        another process is working in it.
        """
        folder = PointFolder(path, self.read, compute or here)
        if path is None:
            yield folder
            return
        words = {"format_version": "format", "cimtool_version": "version of cimtool"}
        work = KindOfWork(self.noun, self.file, words | dict(self.names))
        with work.opened(path, self.versions | dict(whose)):
            yield folder


@dataclass(frozen=True)
class PointFolder(Generic[OutcomeT]):
    """The points of an experiment, with a small file for each one that was computed.

    `compute` computes them. Without a `path`, there are no files.
    """

    path: Path | None
    read: Callable[[Mapping[str, Any]], OutcomeT]
    compute: Compute
    _earlier: dict[str, OutcomeT] = field(default_factory=dict)
    _now: dict[str, Any] = field(default_factory=dict)

    @property
    def resumed(self) -> int:
        """The number of outcomes that an earlier run kept and this run uses."""
        return len(self._earlier.keys() - self._now.keys())

    def known(self, digest: str) -> OutcomeT | None:
        """The outcome that an earlier run kept; None if the point did not finish, or failed."""
        if self.path is not None and digest not in self._earlier:
            with suppress(KeyError, TypeError, ValueError, AttributeError):
                found = self.read(read_sealed(self.path / POINTS / f"{digest}.json"))
                if found.error is None:
                    self._earlier[digest] = found
        return self._earlier.get(digest)

    def keep(self, digest: str, made_of: Mapping[str, Any], outcome: PointOutcome) -> None:
        """Write a point's file, all or nothing, with the plain values that it is made of."""
        if self.path is not None:
            text = sealed_text({**made_of, **outcome.to_json()})
            replace_texts(self.path / POINTS, {f"{digest}.json": text}, "the point")

    def outcomes(
        self,
        points: Mapping[str, PlainPoint],
        runner_for: Callable[[Mapping[str, Any]], PointRunner],
        say: Say,
        noun: str = "point",
        usable: Callable[[str, OutcomeT], bool] = lambda digest, known: True,
    ) -> dict[str, Any]:
        """The outcome of each point by its digest.

        An earlier outcome serves if it is `usable`. The runner of all other points computes them;
        each is kept as soon as it is done.
        """
        found = {digest: self._now[digest] for digest in points if digest in self._now}
        for digest in points.keys() - found.keys():
            known = self.known(digest)
            if known is not None and usable(digest, known):
                found[digest] = known
        left = {digest: point for digest, point in points.items() if digest not in found}
        if not left:
            return found
        say(counted(len(left), noun))
        countdown = Countdown(say)
        results = self.compute(runner_for(left), left.items())
        for count, (digest, outcome) in enumerate(results, 1):
            self.keep(digest, left[digest].to_json(), outcome)
            found[digest] = self._now[digest] = outcome
            ended = outcome.error or left[digest].done
            countdown.tell(PartDone(f"{noun} {count} of {len(left)}: {ended}"), count, len(left))
        return found


class PointRunner(Protocol):
    """The shared data of an experiment's points, with the method that measures one of them."""

    def outcome(self, point: Any) -> Any:
        """The outcome of a point; an error that ends the point is part of its outcome."""


Work = Iterable[tuple[str, Any]]
"""Points by their digests."""

Outcomes = Iterator[tuple[str, Any]]
"""Outcomes by the digests of their points, as they come."""

Compute = Callable[[PointRunner, Work], Outcomes]


@contextmanager
def workers(options: WorkerOptions, place: Path | None) -> Iterator[Compute]:
    """Yield a function that computes points: on a Dask cluster, or in processes here.

    Processes share files in the folder `place`, which must exist before they compute, or in a
    temporary one.
    """
    if options.dask is not None:
        with connected(options.dask) as client:
            yield partial(by_cluster, client=client, address=options.dask)
    elif options.jobs is not None and options.jobs > 1:
        yield partial(in_processes, jobs=options.jobs, place=place)
    else:
        yield here


def here(runner: PointRunner, work: Work) -> Outcomes:
    """One point after the other in this process, each with all cores."""
    for digest, point in work:
        yield digest, runner.outcome(point)


def in_processes(runner: PointRunner, work: Work, jobs: int, place: Path | None) -> Outcomes:
    """Points side by side in `jobs` processes that share this process's cores.

    The runner is a file in `place` (None: a temporary folder) that all processes map. Raises
    CimError if a process dies.
    """
    import joblib
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    with tempfile.TemporaryDirectory(prefix=SHARED, dir=place) as folder:
        file = Path(folder) / "runner"
        joblib.dump(runner, file)
        threads = max(1, thread_count() // jobs)
        with joblib.parallel_config("loky", inner_max_num_threads=threads):
            # With batches of one, an outcome arrives as soon as its point is done.
            parallel = joblib.Parallel(jobs, return_as="generator_unordered", batch_size=1)
            calls = (joblib.delayed(_measured)(file, *item) for item in work)
            try:
                with closing(parallel(calls)) as outcomes:
                    for digest, outcome, said in outcomes:
                        for sentence in said:
                            warnings.warn(sentence, CimWarning, stacklevel=1)
                        yield digest, outcome
            except TerminatedWorkerError as error:
                raise ArgumentError(
                    "{jobs} {}: a worker process was killed, usually for lack of memory; {}, with "
                    "fewer jobs",
                    jobs,
                    AGAIN,
                ) from error


def _measured(file: Path, digest: str, point: Any) -> tuple[str, Any, list[str]]:
    """The outcome of a point in a worker process, and cimtool's warnings during it."""
    said: list[str] = []

    def keep(told: str, category: type[Warning]) -> bool:
        own = issubclass(category, CimWarning)
        if own:
            said.append(told)
        return own

    with taking_warnings(keep):
        return digest, _runner(file).outcome(point), said


@lru_cache(maxsize=1)
def _runner(file: Path) -> PointRunner:
    """This worker's runner, opened once, with its arrays mapped."""
    import joblib

    runner: PointRunner = joblib.load(file, mmap_mode="r")
    return runner


def by_cluster(runner: PointRunner, work: Work, client: Client, address: str) -> Outcomes:
    """Points on the workers of a Dask cluster; each worker gets the runner over the network once.

    Raises CimError if the workers cannot run cimtool, or the cluster ends or falls silent.
    """
    yield from on_cluster(client, address, _answer, runner, work, "a point", AGAIN)


def _answer(runner: PointRunner, digest: str, point: Any) -> tuple[str, Any]:
    return digest, runner.outcome(point)


class PagedResult(Result):
    """A result that is written into a folder; a subclass names the file of its `page`."""

    page: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        """Plain values by name; they do not depend on workers, or on the number of runs."""
        raise NotImplementedError


@dataclass(frozen=True, repr=False, kw_only=True)
class GridResult(PagedResult, Generic[PointT, OutcomeT]):
    """All points of a grid, in its order, with their outcomes.

    `resumed` counts points of an earlier run.
    """

    grid: Sequence[GridKey]
    points: Sequence[PointT]
    outcomes: Sequence[OutcomeT]
    resumed: int
    written: Sequence[Path] = ()

    @property
    def failed(self) -> int:
        """The number of points that failed."""
        return sum(outcome.error is not None for outcome in self.outcomes)

    def numbered(self) -> Iterator[tuple[int, PointT, OutcomeT]]:
        """Each point with its number and its outcome."""
        pairs = zip(self.points, self.outcomes, strict=True)
        return ((index, point, outcome) for index, (point, outcome) in enumerate(pairs))

    def of_this_run(self, *more: Block) -> Document:
        """The document with `more`, the counts of this run and the files that it wrote."""
        points = counted(len(self.points), "point")
        done = len(self.points) - self.failed
        said = f"{points}: {done} done ({self.resumed} by an earlier run), {self.failed} failed"
        counts = {"resumed": self.resumed, "failed": self.failed}
        level: BlockLevel = "shown" if self.failed or self.resumed else "detail"
        return self.document().plus(*more, Sentence(said, level), **counts).wrote(self.written)


GridResultT = TypeVar("GridResultT", bound=GridResult[Any, Any])


class PointsFailed(CheckFailed):
    """Points failed, or none is within a budget; `found` holds the others."""

    def __init__(self, found: Any, sentence: str):
        super().__init__(sentence)
        self.found = found


def write_page(
    found: PagedResult,
    place: Path,
    files: Mapping[str, bytes] | None = None,
    earlier: Iterable[str] = (),
) -> Sequence[Path]:
    """Write `results.json`, the page and `files` into the folder, all or nothing.

    Removes the files that only an `earlier` run had.
    """
    values = json.dumps(plain_values(found.to_json()), indent=1) + "\n"
    page = text_bytes(html(found.document()))
    every = {JSON_FILE: values.encode(), **(files or {}), found.page: page}
    written = replace_files(place, every, "the results")
    for left in set(earlier) - set(every):
        (place / left).unlink(missing_ok=True)  # from an earlier run with another grid or budget
    return written


def write_results(
    found: GridResultT,
    place: Path,
    files: Mapping[str, bytes] | None = None,
    earlier: Iterable[str] = (),
) -> GridResultT:
    """Write a grid as `write_page` does, then raise PointsFailed if points failed."""
    found = replace(found, written=write_page(found, place, files, earlier))
    if found.failed:
        raise PointsFailed(found, f"{place}: {found.failed} of {len(found.points)} points failed")
    return found


def values_text(values: Mapping[str, Value]) -> str:
    """The values of a point for a reader: `weight_bits=6, target=ideal`."""
    return ", ".join(f"{name}={value_text(value)}" for name, value in values.items())


def key_column(key: GridKey) -> Column:
    """The column of a key in the table of points: of texts if any of its values is a text."""
    words = any(isinstance(value, str | bool) for value in key.values)
    return Column(key.name, None if words else str)


def check_workers(options: WorkerOptions) -> None:
    """Raise CimError for both kinds of workers, fewer than one process, or too many."""
    if options.jobs is not None and options.dask is not None:
        raise ArgumentError("{jobs} and {dask} are both given; expected one of them")
    if options.jobs is not None and not 1 <= options.jobs <= MOST_JOBS:
        raise ArgumentError("{jobs} is {}; expected 1 to {:,} processes", options.jobs, MOST_JOBS)


def check_format(table: TableFormat) -> None:
    """Raise CimError for Parquet without the extra that writes it."""
    if table == "parquet":
        with needing("a table as parquet", "one as csv"):
            import pyarrow.parquet  # noqa: F401


def table_file(rows: Sequence[Mapping[str, Any]], table: TableFormat) -> dict[str, bytes]:
    """A CSV or Parquet file of rows that have the same columns, by file name."""
    names = list(rows[0])
    if table == "csv":
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(names)
        for row in rows:
            writer.writerow(str(v).lower() if isinstance(v, bool) else v for v in row.values())
        return {"results.csv": text_bytes(stream.getvalue())}
    import pyarrow
    import pyarrow.parquet

    columns = {name: _of_one_kind([row[name] for row in rows]) for name in names}
    content = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), content)
    return {"results.parquet": content.getvalue()}


def _of_one_kind(values: list[Any]) -> list[Any]:
    """A column as it is, or as texts if it has both numbers and texts (such as `lossless`)."""
    texts = [isinstance(value, str) for value in values if value is not None]
    if any(texts) and not all(texts):
        return [None if value is None else str(value) for value in values]
    return values
