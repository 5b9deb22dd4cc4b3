"""A Dask cluster that computes beside this process: its connection, and answers as they come."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cimtool import __version__
from cimtool.base.errors import ArgumentError, CimError

if TYPE_CHECKING:
    from distributed import Client, Future

CONNECT_SECONDS = 5
"""Seconds that a Dask scheduler may take to answer."""


@contextmanager
def connected(address: str) -> Iterator[Client]:
    """Yield a client of the Dask scheduler at `address`, which has a worker.

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
    log = logging.getLogger("distributed")
    level = log.level
    log.setLevel(logging.CRITICAL)  # a lost connection is raised here, in a sentence
    try:
        with Client(address, timeout=CONNECT_SECONDS, set_as_default=False) as client:
            yield client
    finally:
        log.setLevel(level)


def on_cluster(
    client: Client,
    address: str,
    function: Callable[..., Any],
    shared: object,
    calls: Iterable[tuple[Any, ...]],
    what: str,
) -> Iterator[Any]:
    """Yield `function(shared, *call)` of each call, in the order in which workers end.

    Every worker gets `shared` over the network once; the calls of one that dies go to the others,
    as do its answers that were not fetched yet. Raises the CimError of a call, one that names
    `what` where the workers cannot run cimtool, and one where no worker, or no scheduler, is left.
    """
    from distributed import as_completed

    there = client.scatter(shared, broadcast=True)
    futures = [client.submit(_answered, function, there, call, pure=False) for call in calls]
    for future in as_completed(futures, loop=client.loop):
        version, answer = _result(future, address, what)
        if version != __version__:
            raise ArgumentError(
                "{dask} {}: a worker has cimtool {}; expected {}, as here",
                address,
                version,
                __version__,
            )
        yield answer


def _result(future: Future, address: str, what: str) -> tuple[str, Any]:
    """The result of a call that has ended; where its worker died since then, once it ends anew."""
    try:
        found: tuple[str, Any] = future.result()
    except CimError:
        raise
    except Exception as error:
        if future.status != "error":  # not the call's own: nobody has its answer
            raise ArgumentError(
                "{dask} {}: its scheduler or its last worker ended before {} was computed; "
                "expected both to run until the end",
                address,
                what,
            ) from None
        raise ArgumentError(
            "{dask} {}: a worker could not compute {} ({}: {}); expected workers with "
            "this cimtool and memory for the model",
            address,
            what,
            type(error).__name__,
            error,
        ) from error
    return found


def _answered(
    function: Callable[..., Any], shared: object, call: tuple[Any, ...]
) -> tuple[str, Any]:
    return __version__, function(shared, *call)
