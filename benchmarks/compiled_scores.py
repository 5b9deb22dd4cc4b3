"""Scores of the noise-free compiled model, by the cimtool that is installed or on PYTHONPATH.

    python benchmarks/compiled_scores.py

reads one job a line, the arguments of `prepare` with `labels`, `unseen` and `output`, as JSON, and
answers each with a line once the scores are in the file `output`. The polynomial is fitted to the
labels, of the degrees up to 6 the lowest that is good enough, unless its file is there. This file
imports nothing beside it, so that an earlier version of cimtool can run it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cimtool.api import fit, prepare
from cimtool.simulation.simulator import Simulator


def scores_of(built: Any, text: NDArray[Any], video: NDArray[Any]) -> NDArray[Any]:
    """Logits [n, m] of all pairs of rows by a compilation's last stage."""
    simulator = Simulator(built.stages[-1].program)
    features = simulator.encode("text", text), simulator.encode("video", video)
    found: NDArray[Any] = np.asarray(simulator.score(*features), np.float64)
    return found


def main() -> None:
    """Serve jobs until the input ends."""
    for line in sys.stdin:
        job = json.loads(line)
        unseen, output = np.load(job.pop("unseen")), Path(job.pop("output"))
        labels, poly = job.pop("labels"), Path(job["poly"])
        if not poly.exists():
            fit(labels, degree=range(1, 7), output=poly)
        np.save(output, scores_of(prepare(**job), unseen["text"], unseen["video"]))
        print("done", flush=True)


if __name__ == "__main__":
    main()
