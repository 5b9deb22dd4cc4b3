"""Bits that few calibration rows choose, on rows that nothing has seen.

    python benchmarks/few_rows.py --work FOLDER --minilm PAIRS.npz --clip PAIRS.npz
        --wikipedia ITEMS.npz [--demo demo-cache] [--videos 32 64 128] [--draws 0 1]

A draw takes so many of a set's calibration videos with their texts. Of both bits, those of the
target and those that these rows choose at the same cost, the logit RMSE from the exact score.
FOLDER keeps the models, trained with seed 0, as `accuracy.py` does.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from accuracy import ISAAC, PLACES, Measured, compiled
from budgets import taken
from data_sets import Case, case_of
from harness import parser, report, use_threads

BUILDS = {"the target's bits": {"drift": "given"}, "chosen bits": {"drift": "least"}}


def few(case: Case, videos: int, draw: int, folder: Path) -> Case | None:
    """The case with so many calibration videos and their texts; None if it has fewer."""
    with np.load(case.calibration) as held:
        rows = {name: held[name] for name in held.files}
    if len(rows["video"]) < videos:
        return None
    order = np.random.default_rng(draw).permutation(len(rows["video"]))
    file = folder / f"{case.name}-{videos}-{draw}.npz"
    drawn: dict[str, Any] = dict(taken(rows, np.sort(order[:videos])))
    np.savez(file, **drawn)
    return replace(case, calibration=file)


def measure(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row for each set, number of videos and draw."""
    for name in given.sets:
        if (place := getattr(given, PLACES[name])) is None:
            continue
        whole = Measured(case_of(name, place, 0, given.work))
        every = whole.case
        for videos in given.videos:
            for draw in given.draws:
                if (case := few(every, videos, draw, given.work)) is None:
                    continue
                whole.case = case
                cells = {key: compiled(whole, *ISAAC, own) for key, own in BUILDS.items()}
                errors = [one["figures"]["logit_rmse"][0] for one in cells.values()]
                row = {"rows": name, "videos": videos, "draw": draw}
                row |= {key: f"{one:.3g}" for key, one in zip(cells, errors, strict=True)}
                yield row | {"times": f"{errors[1] / errors[0]:.2f}"}


def main(words: Sequence[str] | None = None) -> None:
    """Measure and print the table."""
    options = parser(str(__doc__), rounds=1)
    options.add_argument("--work", type=Path, required=True, help="folder that keeps the models")
    for name in dict.fromkeys(PLACES.values()):
        options.add_argument(f"--{name}", type=Path, metavar="FILE", help="as in accuracy.py")
    options.add_argument("--sets", nargs="+", choices=[*PLACES], default=[*PLACES], metavar="SET")
    options.add_argument("--videos", type=int, nargs="+", default=[32, 64, 128])
    options.add_argument("--draws", type=int, nargs="+", default=[0, 1])
    given = options.parse_args(words)
    use_threads(1)
    given.work.mkdir(parents=True, exist_ok=True)
    report("few_rows", list(measure(given)), given.json)


if __name__ == "__main__":
    main()
