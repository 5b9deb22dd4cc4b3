"""Retrieval with fewer conversions and fewer converter bits, by references and by weight code.

    python benchmarks/converter_accuracy.py --work FOLDER [--demo demo-cache/HASH]
        [--clip PAIRS.npz] [--classes ITEMS.npz] [--targets isaac-rram-128] [--references fixed]

R@1 (mAP of classes) of unseen rows both ways, in percent, with conversions and energy of one query
beside. The model is the demo's, and of the other rows two linear layers a side by canonical
correlation (benchmarks/budgets.py). FOLDER keeps every point: a run that was cut off goes on.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from budgets import class_case, clip_case, correlated
from harness import parser, report, use_threads

from cimtool import api
from cimtool.hardware.settings import resolve
from cimtool.hardware.target import load_target
from cimtool.training.demo_data import DemoFiles

Grid = Mapping[str, Sequence[Any]]

REFERENCES = ("fixed", "slice", "column", "cycle", "levels")
ISAAC = "isaac-rram-128"
LINES: Mapping[str, Mapping[str, Any]] = {
    "inputs of 2 bits a cycle": {"dac_bits": 2},
    "cells of 4 bits": {"cell_bits": 4},
    "512 rows": {"array": "512x129"},
}
"""Builds of ISAAC with fewer conversions, at its own converter bits."""

CODES = ("offset-flip", "centred")
"""Weight codes that are compared on ISAAC; the second takes a column beside the others."""


def lines(target: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Builds of a target: its own, with converters of up to three bits less, with fewer of them."""
    bits = resolve(load_target(target), None, {}).adc_bits
    assert bits is not None, f"{target} has no converters"
    yield "its own", {}
    for less in (1, 2, 3):
        yield f"{bits - less} bits", {"adc_bits": bits - less}
    if target == ISAAC:
        yield from ((name, dict(changed)) for name, changed in LINES.items())


def cell(outcome: Any, metric: str) -> str:
    """Both ways of a metric in percent, or why there is none."""
    if outcome.error is not None:
        return "-"
    ways = (outcome.metrics[f"{metric}_{way}"] for way in ("text_to_video", "video_to_text"))
    return " / ".join(f"{100 * value:.1f}" for value in ways)


def measured(
    model: Mapping[str, Any], metric: str, target: str, references: Sequence[str], place: Path
) -> Iterator[dict[str, Any]]:
    """A row for each build and weight code, with a column for each kind of references."""
    codes = CODES if target == ISAAC else (resolve(load_target(target), None, {}).encoding,)
    for line, changed in lines(target):
        for code in codes:
            grid: dict[str, Sequence[Any]] = {key: [value] for key, value in changed.items()}
            grid |= {"encoding": [code], "references": references}
            if code == "centred" and "array" not in grid:
                grid["array"] = ["128x129"]
            found = api.sweep(**model, target=target, grid=grid, output=place)
            row: dict[str, Any] = {"target": target, "build": line, "code": code}
            row |= {
                str(point.named["references"]): cell(outcome, metric)
                for _, point, outcome in found.numbered()
            }
            cost = next((one.cost for one in found.outcomes if one.error is None), {})
            row["conversions"] = f"{cost.get('conversions', 0):,}"
            row["energy, uJ"] = cost.get("energy_pj", float("nan")) / 1e6
            row["priced by"] = cost.get("energy_basis", "-")
            yield row


def main() -> None:
    """Print the table."""
    options = parser(__doc__ or "", 1)
    options.add_argument("--work", type=Path, required=True, help="folder that keeps the points")
    options.add_argument("--demo", type=Path, metavar="DIR", help="made by `cimtool demo`")
    options.add_argument("--clip", type=Path, metavar="FILE", help="captions and images")
    options.add_argument("--classes", type=Path, metavar="FILE", help="items with classes")
    options.add_argument("--targets", default=ISAAC)
    options.add_argument("--references", default=",".join(REFERENCES))
    given = options.parse_args()
    use_threads()
    references = given.references.split(",")
    cases: list[tuple[str, dict[str, Any], str]] = []
    with tempfile.TemporaryDirectory() as name:
        if given.demo:
            files = DemoFiles.under(given.demo)
            model = {"projectors": files.projectors, "poly": files.poly, "data": files.eval}
            cases.append(("demo", model | {"calibration": files.calibration}, "r1"))
        for make, file, metric in (
            (clip_case, given.clip, "r1"),
            (class_case, given.classes, "map"),
        ):
            if file:
                case = make(file)
                folder = Path(name) / case.name
                folder.mkdir()
                model = correlated(case, folder)
                del model["target"]
                cases.append((case.name, model | {"data": case.rest}, metric))
        rows = [
            {"rows": case, **row}
            for case, model, metric in cases
            for target in given.targets.split(",")
            for row in measured(model, metric, target, references, given.work / f"{case}-{target}")
        ]
    report("converter_accuracy", rows, given.json)


if __name__ == "__main__":
    main()
