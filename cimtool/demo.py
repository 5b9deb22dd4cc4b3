"""The demo: the whole walk on real data, from what is installed to a report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cimtool import api
from cimtool.base.progress import Say, silent
from cimtool.bundle.bundle import check_place
from cimtool.hardware.target import load_target
from cimtool.training.demo_data import DemoFiles, prepare_demo
from cimtool.verification.report import Report

NAME = "demo"
CACHE = Path("demo-cache")
OUT = Path("exports")


@dataclass(frozen=True)
class Walk:
    """What the demo made: its artefacts, the bundle's folder, the scores and the report."""

    files: DemoFiles
    bundle: Path
    scores: Path
    report: Report


def walk(
    target: str,
    epochs: int,
    cache: Path,
    out: Path,
    step: Say,
    say: Say = silent,
) -> Walk:
    """Train a model unless `cache` has it; then compile, simulate and verify it under `out`.

    `step` is told each step in one line, `say` what happens within. Raises CimError for an unknown
    target, epochs below 1 or a place that cannot be written, CheckFailed where a bit differs.
    """
    hardware = load_target(target)
    name = f"{NAME}@{hardware.name}"
    bundle, scores = out / name, out / f"{name}.scores.npz"
    check_place(bundle)
    files = prepare_demo(cache, epochs, step)
    step(f"compiling for {hardware.name}")
    api.compile(
        files.projectors,
        files.poly,
        calibration=files.calibration,
        target=hardware,
        output=bundle,
        say=say,
    )
    step("simulating all pairs of the evaluation set")
    api.simulate(bundle, files.eval, output=scores, say=say)
    step("verifying every stage and every bit on the same pairs")
    report = api.verify(bundle, files.eval, say=say)
    return Walk(files, bundle, scores, report)
