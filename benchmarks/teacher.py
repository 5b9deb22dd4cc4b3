"""Cost of a teacher of 300,000 pairs: labelling by Monte Carlo K=10 and exactly, and the fit."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from harness import in_child, peak_bytes, report, seconds, use_threads

import cimtool
from cimtool.base.arrays import Array
from cimtool.training.arguments import LabelKind

D, ITEMS, PAIRS = 1024, 1500, 300_000
SECONDS = {"Monte Carlo K=10": 120}
GIGABYTES = 2


def gaussians() -> dict[str, Array]:
    """Random items whose a ed is about 23."""
    rng = np.random.default_rng(0)
    arrays = {}
    for modality in ("text", "video"):
        arrays[f"{modality}_mu"] = 0.25 * rng.normal(size=(ITEMS, D))
        arrays[f"{modality}_logvar"] = np.log(0.1 * rng.uniform(0.01, 1, size=(ITEMS, D)))
    return arrays


def measured(what: str, pairs: int, file: Path) -> tuple[float, float, int]:
    """Wall and CPU seconds and peak memory of one of the three in a process of its own."""
    use_threads()
    if what == "fit of degree 4":
        call: Callable[[], object] = partial(
            cimtool.fit, file, degree=4, output=file.with_suffix(".json")
        )
    else:
        kind: LabelKind = "exact" if what == "exact" else "mc"
        call = partial(
            cimtool.teacher, gaussians=gaussians(), pairs=pairs, labels=kind, output=file
        )
    start = time.process_time()
    taken = seconds(call)
    return taken, time.process_time() - start, peak_bytes()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table there as well")
    options = parser.parse_args()
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        for what in ("Monte Carlo K=10", "exact", "fit of degree 4"):
            taken, cpu, peak = in_child(measured, what, options.pairs, Path(folder) / "teacher.npz")
            limit = SECONDS.get(what)
            rows.append(
                {
                    "what": what,
                    "pairs": options.pairs,
                    "seconds": taken,
                    "limit, s": limit if limit and options.pairs == PAIRS else "",
                    "CPU s": cpu,
                    "pairs/s": round(options.pairs / taken),
                    "peak GB": peak / 1e9,
                    f"of {GIGABYTES} GB": f"{peak / 1e9 / GIGABYTES:.0%}",
                }
            )
    report("teacher", rows, options.json, [f"d = {D}, {ITEMS} x {ITEMS} items, two threads."])


if __name__ == "__main__":
    main()
