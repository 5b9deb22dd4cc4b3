"""Time and memory of scoring 1,000 queries against large galleries: the ten best of each.

Features are random integers over the whole range that the score takes; only the score is measured.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch
from harness import Row, arguments, forget_peak, in_child, peak_bytes, report, use_threads
from harness import seconds as timed

import cimtool
from cimtool.bundle.bundle import Bundle
from cimtool.bundle.simulate import best_scores
from cimtool.ir.program import features_of
from cimtool.ir.surrogate import Polynomial
from cimtool.training.models.trunk import TrunkProjector

QUERIES, TOP = 1000, 10
GALLERIES = ((64, 1_000_000), (1024, 100_000))
"""(d, items)."""

MOST_GB = 6.0


def compiled(d: int, folder: Path) -> Bundle:
    """A small random model of `d` dimensions: the score does not see its projectors."""
    torch.manual_seed(d)
    rng = np.random.default_rng(d)
    rows = rng.normal(size=(256, 32)).astype(np.float32)
    towers = (TrunkProjector(32, 32, d).eval(), TrunkProjector(32, 32, d).eval())
    polynomial = Polynomial(2, (-0.1, 0.001, 0.0001, 0.0, 0.0), 0.05, a=0.1, b=0.0, K=10)
    bundle: Bundle = cimtool.compile(
        towers, polynomial, calibration={"text": rows, "video": rows}, target="ideal", output=folder
    )
    return bundle


def scored(folder: Path, d: int, items: int) -> tuple[float, float]:
    """Seconds and peak memory in GB of a process that scores all queries against all items."""
    use_threads()
    forget_peak()
    matcher = cimtool.load(folder)
    rng = np.random.default_rng(items)
    program = matcher.simulator.program
    features = {
        graph.name: {
            name: rng.integers(
                known.lo,
                known.hi,
                (count, *map(int, known.shape[1:])),
                endpoint=True,
            )
            for name, known in features_of(graph, program.score.inputs).items()
        }
        for graph, count in ((program.text, QUERIES), (program.video, items))
    }
    taken = timed(lambda: best_scores(matcher.simulator, features["text"], features["video"], TOP))
    return taken, peak_bytes() / 1e9


def main() -> None:
    options = arguments(str(__doc__), rounds=1)
    use_threads()
    rows: list[Row] = []
    for d, items in GALLERIES:
        with tempfile.TemporaryDirectory(prefix="cimtool-benchmark-") as temporary:
            folder = Path(temporary) / f"gallery{d}"
            compiled(d, folder)
            taken, peak = in_child(scored, folder, d, items)
        rows.append(
            {
                "d": d,
                "queries x items": f"{QUERIES:,} x {items:,}",
                "seconds": taken,
                "million pairs/s": QUERIES * items / taken / 1e6,
                "peak GB": peak,
                "of 6 GB": f"{peak / MOST_GB:.0%}",
            }
        )
    notes = ["The peak holds the process itself and the gallery's features as int64."]
    report("gallery", rows, options.json, notes)


if __name__ == "__main__":
    main()
