"""Times that a user waits for: each command in a new process, from the import to the demo.

Every call counts from the start of its process to its end: wall time, and the processor time of the
process and of those that it starts. The first use compiles kernels into an empty folder; all others
find theirs compiled.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness import THREADS, parser, report
from model import full_size

from cimtool.demo.data import DemoFiles

TARGET = "isaac-rram-128"
SECONDS = {"compile": 6, "verify": 9, "demo": 120}
"""Aims of wall time."""


def commands(files: DemoFiles, bundle: Path, held: Path, out: Path) -> dict[str, Sequence[object]]:
    """The arguments of Python in each row; `bundle` and `held`, for a gallery, are compiled."""
    model = ["--projectors", files.projectors, "--poly", files.poly]
    build = [*model, "--calibration", files.calibration]
    target, run = ["--target", TARGET], ("-m", "cimtool")
    simulate = [*run, "simulate", bundle, "--inputs", files.eval, "-o", out / "scores.npz"]
    return {
        "import cimtool": ("-c", "import cimtool"),
        "cimtool --help": (*run, "--help"),
        "first use": simulate,
        "simulate": simulate,
        "compile": (*run, "compile", *build, *target, "-o", out / "compiled"),
        "verify": (*run, "verify", bundle, "--data", files.eval, "--report", out / "report"),
        "sweep, 2 points": (
            *run, "sweep", *build, *target, "--data", files.eval, "--grid", "weight_bits=4,8",
            "-o", out / "sweep",
        ),
        "program": (*run, "program", held, "--gallery", files.eval, "-o", out / "programmed"),
        "export": (*run, "export", bundle, "--format", "handoff", "-o", out / "handoff"),
        "demo": (*run, "demo", "--cache", out / "cache", "--out", out / "exports"),
    }  # fmt: skip


def taken(arguments: Sequence[object], environment: Mapping[str, str]) -> tuple[float, float]:
    """Wall and processor seconds of Python with these arguments; SystemExit where it fails."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, arguments))}\n{done.stderr[-3000:]}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measured(files: DemoFiles, rounds: int, only: Sequence[str]) -> list[dict[str, object]]:
    """The median times of each row over interleaved rounds."""
    work = files.projectors.parent
    kernels = work / "kernels"
    environment = {**os.environ, "OMP_NUM_THREADS": str(THREADS), "NUMBA_CACHE_DIR": str(kernels)}
    bundle, held = work / "bundle", work / "held"
    first = commands(files, bundle, held, work / "first")
    where = first["compile"].index("-o")
    compiling = first["compile"][:where]
    taken([*compiling, "-o", bundle], environment)
    taken([*compiling, "--score-mapping", "in-memory", "-o", held], environment)
    chosen = [name for name in first if not only or name in only]
    for name in chosen:  # once for the kernels; the demo needs none beside those of these
        if name != "demo":
            taken(first[name], environment)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in chosen}
    for number in range(rounds):
        out = work / f"round{number}"
        out.mkdir()
        for name in chosen:
            cold = {"NUMBA_CACHE_DIR": str(out / "kernels")} if name == "first use" else {}
            arguments = commands(files, bundle, held, out)[name]
            times[name].append(taken(arguments, environment | cold))
    rows: list[dict[str, object]] = []
    for name, found in times.items():
        wall, processor = (statistics.median(one) for one in zip(*found, strict=True))
        aim = SECONDS.get(name, "")
        row = {"what": name, "seconds": wall, "aim, s": aim, "CPU s": processor}
        rows.append({**row, "least": min(found)[0], "most": max(found)[0]})
    return rows


def main() -> None:
    """Measure all rows, or those that are named."""
    options = parser(str(__doc__), 3)
    options.add_argument("--only", action="append", default=[], metavar="ROW", help="this row")
    given = options.parse_args()
    with full_size() as files:
        rows = measured(files, given.rounds, given.only)
    pairs = "1,500 x 1,500 pairs of the full-size model, a demo of 3 + 3 epochs"
    notes = [f"{pairs}, on {TARGET}; medians of {given.rounds} rounds, least and most beside."]
    report("waiting", rows, given.json, notes)


if __name__ == "__main__":
    main()
