"""A Dask cluster that computes beside this process: its connection, and answers as they come."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any

from cimtool import __version__
from cimtool.base.errors import Argument, ArgumentError, CimError
from cimtool.base.extras import needing

if TYPE_CHECKING:
    from distributed import Client

CONNECT_SECONDS = 5
"""Seconds that a Dask scheduler may take to answer at first."""

SILENT_SECONDS = 15
"""Seconds without an answer after which a scheduler is given up."""

ASK_SECONDS = 1
"""Seconds without a result after which the scheduler is asked."""

CLOSE_SECONDS = 2
"""Seconds that a client may take to leave a scheduler, which may not answer."""

Answers = SimpleQueue[tuple[str, Any]]
"""Outcomes of calls: `finished`, `failed`, `dropped` or `fault`, and the value or the error."""


@contextmanager
def connected(address: str) -> Iterator[Client]:
    """A client of the Dask scheduler at `address`, which has a worker; its log says nothing.

    Raises CimError without the extra `dask`, and where no scheduler or worker answers.
    """
    with needing(Argument("dask")):
        from distributed import Client
    # Before there is a client: one that cannot connect tells of it for long, in many lines.
    workers = _workers(address, CONNECT_SECONDS)
    if workers is None:
        raise ArgumentError(
            "{dask} {}: no scheduler answered within {} seconds; expected the address of a "
            "running one, such as tcp://host:8786",
            address,
            CONNECT_SECONDS,
        )
    if not workers:
        raise ArgumentError(
            "{dask} {}: the scheduler has no workers; expected at least one (`dask worker {}`)",
            address,
            address,
        )
    with _without_log():
        client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
        try:
            yield client
        finally:
            with suppress(TimeoutError):
                client.close(CLOSE_SECONDS)


def _workers(address: str, seconds: float) -> int | None:
    """The number of workers of the scheduler at `address`; None where it does not answer in time.

    It is asked in a thread, for a caller (a notebook) whose own thread has a loop at work.
    """
    from distributed.core import rpc

    async def identity() -> Mapping[str, Any]:
        async with rpc(address, timeout=seconds) as scheduler:
            found: Mapping[str, Any] = await asyncio.wait_for(scheduler.identity(), seconds)
            return found

    try:
        with ThreadPoolExecutor(1) as thread:
            return len(thread.submit(asyncio.run, identity()).result()["workers"])
    except (OSError, ValueError, TypeError, MemoryError):  # the last two: what answers is no Dask
        return None


@contextmanager
def _without_log() -> Iterator[None]:
    """Keep what Dask prints of a lost connection, a traceback a line of its log, from stderr."""
    handlers = logging.getLogger("distributed").handlers

    def nothing(record: logging.LogRecord) -> bool:
        return False

    for handler in handlers:
        handler.addFilter(nothing)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(nothing)


def on_cluster(
    client: Client,
    address: str,
    function: Callable[..., Any],
    shared: object,
    calls: Iterable[tuple[Any, ...]],
    what: str,
    again: str,
) -> Iterator[Any]:
    """Yield `function(shared, *call)` of each call, in the order in which workers end.

    Every worker gets `shared` over the network once; the calls of one that dies go to the others,
    as do its answers that were not fetched yet. Raises the CimError of a call, one that names
    `what` where the workers cannot run cimtool, and one that ends in the advice `again` where the
    scheduler or all workers end, or the scheduler falls silent.
    """
    work = list(calls)
    answers: Answers = SimpleQueue()
    # In a thread of its own: a call to a scheduler that has fallen silent never returns.
    arguments = (client, function, shared, work, answers)
    Thread(target=_compute, args=arguments, daemon=True).start()
    for _ in work:
        status, answer = _next(answers, client, address, again)
        if status == "failed":
            raise answer if isinstance(answer, CimError) else _failed(address, what, again, answer)
        version, value = answer
        if version != __version__:
            raise ArgumentError(
                "{dask} {}: a worker has cimtool {}; expected {}, as here",
                address,
                version,
                __version__,
            )
        yield value


def _compute(
    client: Client,
    function: Callable[..., Any],
    shared: object,
    calls: Sequence[tuple[Any, ...]],
    answers: Answers,
) -> None:
    """Put what comes of each call into `answers`, up to the first that the cluster drops."""
    from distributed import as_completed

    try:
        there = client.scatter(shared, broadcast=True)
        futures = [client.submit(_answered, function, there, call, pure=False) for call in calls]
        for future in as_completed(futures, loop=client.loop):
            try:
                answers.put(("finished", future.result()))  # computed anew if its worker ended
            except Exception as error:
                answers.put(("failed" if future.status == "error" else "dropped", error))
    except (OSError, CancelledError, asyncio.CancelledError) as error:
        answers.put(("dropped", error))
    except BaseException as error:  # for the thread that waits
        answers.put(("fault", error))


def _next(answers: Answers, client: Client, address: str, again: str) -> tuple[str, Any]:
    """The next answer; CimError where none will come, as the cluster has ended or is silent."""
    while True:
        try:
            status, answer = answers.get(timeout=ASK_SECONDS)
        except Empty:
            if _workers(address, SILENT_SECONDS) is not None or not answers.empty():
                continue
            status, answer = "silent", None
        if status == "fault":
            raise answer
        if status in ("finished", "failed"):
            return status, answer
        if client.status != "running":
            happened = "the connection to the scheduler was lost"
        elif status == "silent":
            happened = f"the scheduler has not answered for {SILENT_SECONDS} seconds"
        else:
            happened = "all workers that held the model ended on their own"
        raise ArgumentError("{dask} {}: {}; {}", address, happened, again)


def _failed(address: str, what: str, again: str, error: BaseException) -> CimError:
    """The error for a call that ended in one which is not the user's mistake."""
    from distributed.scheduler import KilledWorker

    if isinstance(error, KilledWorker):
        return ArgumentError(
            "{dask} {}: each worker that computed {} ended on its own ({}), for lack of memory as "
            "a rule; {}, on workers with more memory",
            address,
            what,
            error.allowed_failures + 1,
            again,
        )
    return ArgumentError(
        "{dask} {}: a worker could not compute {} ({}: {}); expected workers with this cimtool "
        "and memory for the model",
        address,
        what,
        type(error).__name__,
        error,
    )


def _answered(
    function: Callable[..., Any], shared: object, call: tuple[Any, ...]
) -> tuple[str, Any]:
    return __version__, function(shared, *call)
