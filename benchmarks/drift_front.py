"""The front of error against conversions that `compile --drift` gives, on rows it never saw.

    python benchmarks/drift_front.py --demo demo-cache/HASH [--svg FILE] [--target NAME]

The demo's model is compiled with the bits of the target, with `--drift least`, and with
`--drift logit_rmse=X` for errors X from that of few samples down to near the polynomial's own. The
error is measured on pairs of the rows that evaluate the demo, and beside it what K samples err.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from drift_goals import TARGET, GoalCase, demo_case
from harness import parser, report, use_threads

from cimtool import api
from cimtool.base.errors import CimError
from cimtool.base.intervals import Change
from cimtool.bundle.compilation import Compilation
from cimtool.experiments.drift_goals import ErrorWithin, Half
from cimtool.experiments.widths import LayerCosts
from cimtool.hardware.configuration import Configuration
from cimtool.loading.embeddings import embeddings_of
from cimtool.report.charts import Points, above_levels
from cimtool.report.svg import as_file

SAMPLES = (10, 50, 200, 1000)
ERRORS = (1.0, 0.6, 0.35, 0.2, 0.12, 0.085, 0.065, 0.055)
"""Goals: the logit RMSE."""

BASELINE, LEAST = "given", "least"


@dataclass(frozen=True)
class FrontPoint:
    """Bits by a goal: their error on unseen rows, and their costs of a text and a video."""

    goal: str
    error: Change
    arrays: float
    conversions: float
    energy: float


def points(case: GoalCase, folder: Path, unseen: Half, target: str) -> Iterator[FrontPoint]:
    """Compile for each goal and measure it; goals that no bits reach are named and left out."""
    for goal in (BASELINE, LEAST, *(f"logit_rmse={error:g}" for error in ERRORS)):
        calibration = folder / "calibration.npz"
        try:
            found = api.prepare(**case.options, calibration=calibration, target=target, drift=goal)
        except CimError as error:
            print(error, file=sys.stderr)
            continue
        yield measured(goal, found, unseen)


def measured(goal: str, found: Compilation, unseen: Half) -> FrontPoint:
    """The error of a compiled model on unseen rows, and its costs."""
    program = found.stages[-1].program
    error = ErrorWithin("logit_rmse", 1.0).measured(unseen, unseen.scored(program)).error
    build = LayerCosts.of(program, Configuration(found.target, found.settings))
    return FrontPoint(goal, error, **build.cost(build.bits))


def sampled(case: GoalCase, held: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """The logit RMSE of Monte Carlo by samples."""
    for count in SAMPLES:
        rows = Half.of(case.model(), embeddings_of(held), count)
        yield f"Monte Carlo, K = {count:,}", ErrorWithin("logit_rmse", None).allowed(rows)


def picture(found: list[FrontPoint], levels: list[tuple[str, float]]) -> str:
    """Error over conversions, both logarithmic; samples as levels."""

    def at(*goals: str) -> list[tuple[float, float]]:
        return [(one.conversions, one.error.value) for one in found if one.goal in goals]

    limited = [one.goal for one in found if "=" in one.goal]
    lines = [
        Points("least cost", sorted(at(*limited))),
        Points("8 bits everywhere", at(BASELINE)),
        Points("least error", at(LEAST)),
    ]
    label = "Logit RMSE from the exact score over conversions, and that of Monte Carlo"
    drawn = above_levels(lines, levels, "conversions of a text and a video", "logit RMSE", label)
    return as_file(drawn)


def row(one: FrontPoint) -> dict[str, Any]:
    """A row of the table."""
    error = one.error
    return {
        "drift": one.goal,
        "logit RMSE (95%)": f"{error.value:.4g} [{error.low:.4g}, {error.high:.4g}]",
        "conversions": f"{one.conversions:,.0f}",
        "arrays": f"{one.arrays:,.0f}",
        "energy, uJ": f"{one.energy / 1e6:.3g}",
    }


def main() -> None:
    """Measure the front, and draw it."""
    options = parser(__doc__ or "", 1)
    options.add_argument("--demo", type=Path, required=True, metavar="DIR")
    options.add_argument("--target", default=TARGET)
    options.add_argument("--svg", type=Path, metavar="FILE", help="write the picture there")
    given = options.parse_args()
    use_threads()
    case = demo_case(given.demo, ())
    right = np.arange(len(case.text))
    held = {"text": case.text, "video": case.video, "text_to_video": right}
    levels = list(sampled(case, held))
    unseen = Half.of(case.model(), embeddings_of(held))
    found = list(points(case, given.demo, unseen, given.target))
    if given.svg is not None:
        given.svg.write_text(picture(found, levels), "utf-8")
    own = ErrorWithin("logit_rmse", 1.0).measured(unseen, unseen.scores).error.value
    notes = [f"{name}: {level:.4g}" for name, level in levels]
    notes += [f"the float score: {own:.4g}; {' x '.join(map(str, unseen.scores.shape))} pairs"]
    report("drift_front", [row(one) for one in found], given.json, notes)


if __name__ == "__main__":
    main()
