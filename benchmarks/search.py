"""Search of a gallery in shards: pairs a second, memory, and the same answers on two Dask workers.

A random model of 64 dimensions; items and queries are normal numbers, and all goes through the
files that `cimtool encode` and `cimtool search` write. `--dask` adds a cluster on loopback of two
workers, of which one is killed on the way.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from gallery import compiled
from harness import Row, in_child, parser, report, use_threads
from harness import seconds as timed

import cimtool

D, WIDTH, QUERIES, TOP = 64, 32, 100, 10
ITEMS = 10_000_000
ROWS = 1 << 18
"""Rows of embeddings that are drawn at a time."""

MOST_GB, LEAST_PAIRS = 2.0, 20e6


def write_rows(file: Path, items: int) -> None:
    """Write normal rows as an `.npy`, a part at a time."""
    rows = np.lib.format.open_memmap(file, "w+", np.dtype(np.float32), (items, WIDTH))
    rng = np.random.default_rng(items)
    for start in range(0, items, ROWS):
        part = rows[start : start + ROWS]
        part[:] = rng.standard_normal(part.shape, np.float32)


def anonymous_bytes() -> int:
    """Memory of this process beside mapped files."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    (line,) = (one for one in lines if one.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024


def watched(function: Callable[[], object]) -> tuple[float, float]:
    """Seconds of a call, and GB of memory beside mapped files that were held at most."""
    peak, ended = [anonymous_bytes()], threading.Event()

    def watch() -> None:
        while not ended.wait(0.02):
            peak.append(anonymous_bytes())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        taken = timed(function)
    finally:
        ended.set()
        thread.join()
    return taken, max(peak) / 1e9


def encoded(folder: Path) -> tuple[float, float]:
    """Encode the gallery, watched."""
    use_threads()
    return watched(
        lambda: cimtool.encode(folder / "model", folder / "items.npy", output=folder / "gallery")
    )


def searched(folder: Path, output: str, dask: str | None = None) -> tuple[float, float]:
    """Search the gallery, watched."""
    use_threads()
    return watched(
        lambda: cimtool.search(
            folder / "model",
            folder / "gallery",
            {"text": np.load(folder / "queries.npy")},
            top=TOP,
            output=folder / output,
            dask=dask,
        )
    )


def on_cluster(folder: Path) -> tuple[float, float]:
    """Search on two workers, of which one is killed after a fifth of the time that it takes."""
    port = "8797"
    address = f"tcp://127.0.0.1:{port}"
    here = ["--no-dashboard", "--local-directory", str(folder)]
    commands = [["scheduler", "--host", "127.0.0.1", "--port", port, "--no-dashboard"]] + [
        ["worker", address, "--no-nanny", "--nthreads", "1", *here] for _ in range(2)
    ]
    started = [
        subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.dask_{command}", *options],
            stderr=subprocess.DEVNULL,
        )
        for command, *options in commands
    ]
    try:
        from distributed import Client

        with Client(address, timeout=60, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)
        killer = threading.Timer(10, lambda: started[-1].send_signal(signal.SIGKILL))
        killer.start()
        found: tuple[float, float] = in_child(searched, folder, "cluster.npz", address)
        if killer.is_alive():
            killer.cancel()
            raise SystemExit("the search ended before a worker was killed; expected more items")
        return found
    finally:
        for one in started:
            with suppress(ProcessLookupError):
                one.kill()
            one.wait(30)


def row(name: str, items: int, queries: int, found: tuple[float, float]) -> Row:
    taken, peak = found
    return {
        "what": name,
        "seconds": taken,
        "million pairs/s": queries * items / taken / 1e6,
        "GB beside mapped files": peak,
    }


def main() -> None:
    options = parser(str(__doc__), rounds=1)
    options.add_argument("--items", type=int, default=ITEMS)
    options.add_argument("--dask", action="store_true", help="also on a cluster on loopback")
    given: Any = options.parse_args()
    use_threads()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="cimtool-benchmark-") as temporary:
        folder = Path(temporary)
        compiled(D, folder / "model")
        write_rows(folder / "items.npy", given.items)
        np.save(folder / "queries.npy", np.random.default_rng(0).normal(size=(QUERIES, WIDTH)))
        rows.append(row("encode", given.items, 1, in_child(encoded, folder)))
        size = sum(one.stat().st_size for one in (folder / "gallery").iterdir())
        for _ in range(given.rounds):
            found = in_child(searched, folder, "here.npz")
            rows.append(row("search", given.items, QUERIES, found))
        if given.dask:
            start = time.perf_counter()
            found = on_cluster(folder)
            print(f"cluster: {time.perf_counter() - start:.1f} s")
            rows.append(row("search, two workers, one killed", given.items, QUERIES, found))
            same = (folder / "here.npz").read_bytes() == (folder / "cluster.npz").read_bytes()
            if not same:
                raise SystemExit("the answers of the cluster are others")
    notes = [
        f"{given.items:,} items of d = {D}, {size / given.items:.4g} bytes an item, "
        f"{QUERIES} queries; encoding counts items in place of pairs.",
        f"Limits: {MOST_GB} GB and {LEAST_PAIRS / 1e6:.0f} million pairs a second.",
    ]
    report("search", rows, given.json, notes)


if __name__ == "__main__":
    main()
