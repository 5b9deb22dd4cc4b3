"""A Dask cluster that computes beside this process: its connection, and answers as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from cimtool import __version__
from cimtool.base.errors import ArgumentError, CimError

if TYPE_CHECKING:
    from distributed import Client

CONNECT_SECONDS = 5
"""Seconds that a Dask scheduler may take to answer."""


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
    client: Client,
    address: str,
    function: Callable[..., Any],
    shared: object,
    calls: Iterable[tuple[Any, ...]],
    what: str,
) -> Iterator[Any]:
    """Yield `function(shared, *call)` of each call, in the order in which workers end.

    Every worker gets `shared` over the network once; the calls of one that dies go to the others.
    Raises the CimError of a call, and one that names `what` where the workers cannot run cimtool.
    """
    from distributed import as_completed

    there = client.scatter(shared, broadcast=True)
    futures = [client.submit(_answered, function, there, call, pure=False) for call in calls]
    for future in as_completed(futures, loop=client.loop):
        if future.status != "finished":
            error = future.exception()
            if isinstance(error, CimError):
                raise error
            raise ArgumentError(
                "{dask} {}: a worker could not compute {} ({}: {}); expected workers with "
                "this cimtool and memory for the model",
                address,
                what,
                type(error).__name__,
                error,
            )
        version, answer = future.result()
        if version != __version__:
            raise ArgumentError(
                "{dask} {}: a worker has cimtool {}; expected {}, as here",
                address,
                version,
                __version__,
            )
        yield answer


def _answered(
    function: Callable[..., Any], shared: object, call: tuple[Any, ...]
) -> tuple[str, Any]:
    return __version__, function(shared, *call)
