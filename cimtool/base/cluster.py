"""A Dask cluster that computes for this process: its connection, and answers as they come.

Dask unpickles every message of a peer, even an unasked one. So anyone who can answer at a
scheduler's address, or reach a worker, can run code there and here. Only tls:// keeps others out:
both sides show a certificate of the same authority. Questions before any work (the workers, their
versions) are answered in plain msgpack, and objects beside it are not opened. Dask still opens
pickles of one kind, `ToPickle`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any

from cimtool import __version__
from cimtool.base.errors import Argument, ArgumentError, CimError
from cimtool.base.plugins import needing

AUTHORITY, CERTIFICATE, KEY = (
    f"DASK_DISTRIBUTED__COMM__TLS__{name}" for name in ("CA_FILE", "CLIENT__CERT", "CLIENT__KEY")
)
"""Environment variables that name a client's TLS files; the certificate's may hold the key too.

Dask's configuration files may name them as well.
"""


def check_tls(address: str, scheme: str, place: str, seconds: float) -> None:
    """Raise CimError if Dask's files for TLS are missing or wrong, or the handshake fails.

    If nobody answers within `seconds`, nothing is raised. TCP needs no files, but files that are
    named must be right, as Dask reads them in any case.
    """
    from distributed.comm.addressing import parse_host_port
    from distributed.security import Security

    try:
        security = Security()
    except ValueError as error:  # of a version of TLS
        raise ArgumentError("{dask} {}: Dask's configuration says {}", address, error) from error
    _check_files(address, scheme == "tls", security.get_tls_config_for_role("client"))
    if scheme == "tcp":
        if security.require_encryption:
            raise ArgumentError(
                "{dask} is {}, and Dask's configuration requires encryption; expected tls://{}",
                address,
                place,
            )
        return
    context = security.get_connection_args("client")["ssl_context"]
    try:
        with (
            socket.create_connection(parse_host_port(place), seconds) as plain,
            context.wrap_socket(plain) as stream,
        ):
            stream.recv(1)  # a server that refuses our certificate says so after the handshake
    except ssl.SSLError as error:
        raise ArgumentError(
            "{dask} {}: the TLS handshake failed ({}); expected a scheduler over TLS, with "
            "certificates of the authority in {} on both sides",
            address,
            error.reason or error,
            AUTHORITY,
        ) from error
    except (OSError, ValueError):
        return


def _check_files(address: str, required: bool, files: Mapping[str, str | None]) -> None:
    """Raise CimError for a TLS file that is not named, does not exist, or has wrong content."""
    named = {AUTHORITY: files["ca_file"], CERTIFICATE: files["cert"], KEY: files["key"]}
    for variable, file in named.items():
        if file is None and required and variable != KEY:
            raise ArgumentError(
                "{dask} {}: TLS has no file; set {} to a PEM file",
                address,
                variable,
            )
        if file is not None and not os.path.isfile(file):
            raise ArgumentError(
                "{dask} {}: {} is {}, and there is no such file", address, variable, file
            )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority, certificate, key = named.values()
    if authority is not None:
        with _in_pem(address, f"{AUTHORITY} is {authority}", "certificates of an authority"):
            context.load_verify_locations(authority)
    if certificate is not None:
        said = f"{CERTIFICATE} is {certificate}" + (f" and {KEY} {key}" if key else "")
        with _in_pem(address, said, "a certificate and its key"):
            context.load_cert_chain(certificate, key)


@contextmanager
def _in_pem(address: str, said: str, expected: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:  # an SSLError is one
        raise ArgumentError(
            "{dask} {}: {}, which cannot be read ({}); expected {} in PEM",
            address,
            said,
            getattr(error, "reason", None) or error.strerror or error,
            expected,
        ) from error


if TYPE_CHECKING:
    from distributed import Client

SCHEMES = ("tcp", "tls")

CONNECT_SECONDS = 5
"""Seconds that a Dask scheduler may take to answer at first."""

SILENT_SECONDS = 15
"""Seconds without an answer after which a scheduler is given up."""

FROZEN_SECONDS = 20
"""Seconds without a heartbeat after which a worker is given up; Dask itself waits 5 minutes."""

RESTART_SECONDS = 5
"""Seconds without a worker after which a cluster is given up: nannies may start new ones."""

ASK_SECONDS = 1
"""Seconds without a result after which the scheduler is asked."""

CLOSE_SECONDS = 2
"""Seconds that a client may take to leave a scheduler, which may not answer."""

Answers = SimpleQueue[tuple[str, Any]]
"""Outcomes of calls: `finished`, `failed`, `dropped` or `fault`, and the value or the error."""


@contextmanager
def connected(address: str) -> Iterator[Client]:
    """Connect to the Dask scheduler at `address`, which has a worker; Dask's log stays silent.

    A tls:// address uses the files that Dask's configuration names. Raises CimError if the extra
    `dask` is missing, the address is neither tcp:// nor tls://, a file is no certificate, no
    scheduler or worker answers, or a worker has another cimtool.
    """
    with needing(Argument("dask")):
        from distributed import Client
        from distributed.comm.addressing import parse_address
    scheme, place = parse_address(address)
    if scheme not in SCHEMES or not place:
        raise ArgumentError(
            "{dask} is {}; expected the address of a scheduler, such as tcp://host:8786 or "
            "tls://host:8786",
            f'"{address}"',
        )
    check_tls(address, scheme, place, CONNECT_SECONDS)
    # Before there is a client: a client that cannot connect logs many lines for a long time.
    workers = _workers(address, CONNECT_SECONDS)
    if workers is not None and not workers:
        raise ArgumentError(
            "{dask} {}: the scheduler has no workers; expected at least one (`dask worker {}`)",
            address,
            address,
        )
    if workers is not None:
        _check_versions(address)
    with _without_log():
        client = None if workers is None else _registered(Client, address)
        if client is None:
            raise ArgumentError(
                "{dask} {}: no scheduler answered within {} seconds; expected the address of a "
                "running one, such as tcp://host:8786 or tls://host:8786",
                address,
                CONNECT_SECONDS,
            )
        try:
            yield client
        finally:
            with suppress(TimeoutError):
                client.close(CLOSE_SECONDS)


def _check_versions(address: str) -> None:
    """Raise CimError for a worker with another version of cimtool.

    A worker that does not say its version is checked again with its first answer.
    """
    from distributed.versions import get_versions

    async def versions(scheduler: Any) -> Any:
        asked = {"op": "versions", "packages": ["cimtool"]}
        return await scheduler.broadcast(msg=asked, on_error="ignore")

    own = get_versions(["cimtool"])["packages"]["cimtool"]
    found = None
    with suppress(OSError, ValueError, TypeError, KeyError):
        answers = _asked(address, CONNECT_SECONDS, versions).values()
        told = {one["packages"]["cimtool"] for one in answers}
        found = next((one for one in sorted(filter(None, told)) if one != own), None)
    if own is not None and found is not None:
        raise _another_version(address, found, own)


def _another_version(address: str, found: str, own: str) -> CimError:
    return ArgumentError(
        "{dask} {}: a worker has cimtool {}; expected {}, as here", address, found, own
    )


def _registered(kind: type[Client], address: str) -> Client | None:
    """A client that the scheduler at `address` has registered; None if it does not in time.

    Dask's timeout covers the connection alone.
    """
    made = SimpleQueue["Client | None"]()

    def register() -> None:
        client = None
        with suppress(OSError):
            client = kind(address, timeout=CONNECT_SECONDS, set_as_default=False)
        made.put(client)

    Thread(target=register, daemon=True).start()
    try:
        return made.get(timeout=CONNECT_SECONDS)
    except Empty:
        return None


def _workers(address: str, seconds: float) -> Mapping[str, float] | None:
    """The last heartbeat of each worker of the scheduler at `address`, by the scheduler's clock.

    None if the scheduler does not answer in time.
    """

    async def heartbeats(scheduler: Any) -> Mapping[str, float]:
        found = (await scheduler.identity())["workers"]
        return {worker: state["last_seen"] for worker, state in found.items()}

    try:
        found: Mapping[str, float] = _asked(address, seconds, heartbeats)
    except (OSError, ValueError, TypeError, MemoryError):  # the last two: the peer is not Dask
        return None
    return found


def _asked(address: str, seconds: float, question: Callable[[Any], Awaitable[Any]]) -> Any:
    """The answer of the scheduler at `address` to a question; OSError if there is none in time.

    It is asked in a thread, because the caller's thread (a notebook's) may already run a loop.
    """
    from distributed.core import rpc
    from distributed.security import Security

    arguments = Security().get_connection_args("client")

    async def answer() -> Any:
        made = rpc(address, timeout=seconds, connection_args=arguments, deserialize=False)
        async with made as scheduler:
            return await asyncio.wait_for(question(scheduler), seconds)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, answer()).result()


@dataclass
class _Heartbeats:
    """Each worker's last heartbeat and when it was first seen here; the workers given up so far."""

    address: str
    told: dict[str, tuple[float, float]] = field(default_factory=dict)
    given_up: set[str] = field(default_factory=set)
    none_since: float | None = None

    def scheduler_state(self) -> str:
        """Ask the scheduler: it is `silent`, `alone` (without workers) or `working`."""
        workers = _workers(self.address, SILENT_SECONDS)
        if workers is None:
            return "silent"
        self.give_up_frozen(workers)
        now = time.monotonic()
        self.none_since = None if workers else self.none_since or now
        alone = self.none_since is not None and now - self.none_since > RESTART_SECONDS
        return "alone" if alone else "working"

    def give_up_frozen(self, workers: Mapping[str, float]) -> None:
        """Let the scheduler move the work of workers without new heartbeats to the others.

        A worker that was only slow learns this at its next heartbeat, and ends or starts anew.
        """
        now = time.monotonic()
        self.told = {
            worker: known if (known := self.told.get(worker)) and known[0] == seen else (seen, now)
            for worker, seen in workers.items()
        }
        frozen = [one for one, (_, since) in self.told.items() if now - since > FROZEN_SECONDS]
        for worker in frozen:
            self.given_up.add(worker)

            async def removed(scheduler: Any, worker: str = worker) -> None:
                await scheduler.unregister(address=worker, stimulus_id=f"frozen-{worker}")

            with suppress(OSError):
                _asked(self.address, SILENT_SECONDS, removed)


@contextmanager
def _without_log() -> Iterator[None]:
    """Keep Dask's log of a lost connection off stderr: every line has a traceback."""
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
    """Yield `function(shared, *call)` of each call, in the order in which the calls end.

    Every worker gets `shared` over the network once. If a worker dies or falls silent, the others
    repeat its open calls and the calls whose answers were not fetched yet. Raises the CimError of
    a call. Raises a CimError that names `what` if the workers cannot run cimtool, and one that
    ends in the advice `again` if the scheduler or all workers end or fall silent.
    """
    work = list(calls)
    answers: Answers = SimpleQueue()
    # In a separate thread: a call to a scheduler that has fallen silent never returns.
    arguments = (client, function, shared, work, answers)
    Thread(target=_compute, args=arguments, daemon=True).start()
    heartbeats = _Heartbeats(address)
    for _ in work:
        status, answer = _next(answers, client, heartbeats, again)
        if status == "failed":
            raise answer if isinstance(answer, CimError) else _failed(address, what, again, answer)
        version, value = answer
        if version != __version__:
            raise _another_version(address, version, __version__)
        yield value


def _compute(
    client: Client,
    function: Callable[..., Any],
    shared: object,
    calls: Sequence[tuple[Any, ...]],
    answers: Answers,
) -> None:
    """Put the outcome of each call into `answers`, until the cluster drops all remaining calls.

    If the workers that held `shared` ended, it is sent again: Dask drops the copies of idle
    workers.
    """
    from distributed import as_completed

    left, progress = calls, True
    try:
        while left and progress:
            there = client.scatter(shared, broadcast=True, timeout=CONNECT_SECONDS)
            submitted = {
                client.submit(_answered, function, there, call, pure=False): call for call in left
            }
            left, progress = [], False
            for future in as_completed(submitted, loop=client.loop):
                try:
                    answers.put(("finished", future.result()))
                    progress = True
                except Exception as error:
                    if future.status == "error":
                        answers.put(("failed", error))
                    else:
                        left.append(submitted[future])
            progress = progress and client.status == "running"
        if left:
            answers.put(("dropped", None))
    except (OSError, CancelledError, asyncio.CancelledError) as error:
        answers.put(("dropped", error))
    except BaseException as error:  # for the thread that waits
        answers.put(("fault", error))


def _next(answers: Answers, client: Client, heartbeats: _Heartbeats, again: str) -> tuple[str, Any]:
    """The next answer; CimError if none will come because the cluster has ended or is silent."""
    while True:
        try:
            status, answer = answers.get(timeout=ASK_SECONDS)
        except Empty:
            status, answer = heartbeats.scheduler_state(), None
            if status == "working" or not answers.empty():
                continue
        if status == "fault":
            raise answer
        if status in ("finished", "failed"):
            return status, answer
        if client.status != "running":
            happened = "the connection to the scheduler was lost"
        elif status == "silent":
            happened = f"the scheduler has not answered for {SILENT_SECONDS} seconds"
        elif heartbeats.given_up:
            silent = ", ".join(sorted(heartbeats.given_up))
            happened = f"workers did not answer for {FROZEN_SECONDS} seconds ({silent})"
        else:
            happened = "all workers that held the model were killed"
        raise ArgumentError("{dask} {}: {}; {}", heartbeats.address, happened, again)


def _failed(address: str, what: str, again: str, error: BaseException) -> CimError:
    """The error for a call that failed without a mistake of the user."""
    from distributed.scheduler import KilledWorker

    if isinstance(error, KilledWorker):
        return ArgumentError(
            "{dask} {}: each worker that computed {} was killed ({} in all), usually for lack of "
            "memory; {}, on workers with more memory",
            address,
            what,
            error.allowed_failures + 1,
            again,
        )
    return ArgumentError(
        "{dask} {}: a worker could not compute {} ({}: {}); expected workers with this cimtool and "
        "enough memory for the model",
        address,
        what,
        type(error).__name__,
        error,
    )


def _answered(
    function: Callable[..., Any], shared: object, call: tuple[Any, ...]
) -> tuple[str, Any]:
    return __version__, function(shared, *call)
