"""Retrieval with fewer conversions and fewer converter bits, by references and by weight code.

    python benchmarks/converter_accuracy.py --work FOLDER [--demo demo-cache/HASH]
        [--clip PAIRS.npz] [--classes ITEMS.npz] [--targets isaac-rram-128] [--references fixed]

R@1 (of classes mAP) of unseen rows, text to video / video to text in percent, with conversions and
energy of one text and its query beside. The model is the demo's, and of the other rows two linear
layers a side by canonical correlation (benchmarks/budgets.py). A build that changes nothing of a
target, or would take more conversions there, has no row: the reason is printed, as is what of a
target's references is only assumed. FOLDER keeps every point: a run that was cut off goes on.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from budgets import class_case, clip_case, correlated
from harness import parser, report, use_threads

from cimtool import api
from cimtool.base.arrays import Array
from cimtool.demo.data import DemoFiles
from cimtool.hardware.configuration import reference_notes
from cimtool.hardware.settings import Settings, resolve
from cimtool.hardware.target import load_target

Row = dict[str, Any]

REFERENCES = ("fixed", "slice", "column", "cycle", "levels")
TARGETS = ("isaac-rram-128", "hermes-pcm-14nm", "prime-rram-256", "neurram-rram-130nm")
PAIRS = 600

FEWER = {"dac_bits": ("inputs of 2 bits a cycle", 2), "cell_bits": ("cells of 4 bits", 4)}
"""Keys of which more bits take fewer conversions, at a target's own converter bits."""

ROWS = 512


def settings_of(target: str) -> Settings:
    """A target's own settings."""
    return resolve(load_target(target), None, {})


def builds(target: str) -> Iterator[tuple[str, Row, str]]:
    """Builds of a target: a name, what is changed, and the reason where it is not done.

    Its own, converters of up to three bits less, and fewer conversions.
    """
    own = settings_of(target)
    assert own.adc_bits is not None, f"{target} has no converters"
    yield f"{own.adc_bits} bits, its own", {}, ""
    for less in (1, 2, 3):
        yield f"{own.adc_bits - less} bits", {"adc_bits": own.adc_bits - less}, ""
    for key, (name, bits) in FEWER.items():
        had = getattr(own, key)
        reason = "" if had < bits else f"{key} is {had}, so it takes no fewer conversions"
        yield name, {key: bits}, reason
    yield f"{ROWS} rows", {"rows": ROWS}, ""


def codes(target: str) -> Sequence[str]:
    """The weight codes that are compared; a centred one takes a column beside the others."""
    own = settings_of(target).encoding
    return (own, "centred") if own == "offset-flip" else (own,)


def cell(outcome: Any, metric: str) -> str:
    """Both ways of a metric in percent, or why there is none."""
    if outcome.error is not None:
        return "-"
    ways = (outcome.metrics[f"{metric}_{way}"] for way in ("text_to_video", "video_to_text"))
    return " / ".join(f"{100 * value:.1f}" for value in ways)


def measured(
    model: Row, metric: str, target: str, references: Sequence[str], work: Path
) -> Iterator[Row]:
    """A row for each build and weight code, with a column for each kind of references."""
    own = settings_of(target)
    assert own.columns is not None
    for name, changed, reason in builds(target):
        for code in () if reason else codes(target):
            columns = own.columns + (code == "centred")
            chosen = {"rows": own.rows} | changed | {"encoding": code}
            chosen["array"] = f"{chosen.pop('rows')}x{columns}"
            grid: dict[str, Sequence[Any]] = {key: [value] for key, value in chosen.items()}
            grid["references"] = references
            found = api.sweep(**model, target=target, grid=grid, output=work / target)
            outcomes = {str(p.named["references"]): one for _, p, one in found.numbered()}
            row: Row = {"target": target, "build": name, "code": code}
            row |= {kind: cell(outcomes[kind], metric) for kind in references}
            costs = [one.cost for one in outcomes.values()]
            energies = [cost["energy_pj"] / 1e6 for cost in costs]
            row["conversions"] = f"{costs[0]['conversions']:,}"
            ends = dict.fromkeys(f"{end:.3g}" for end in (min(energies), max(energies)))
            row["energy, uJ"] = " to ".join(ends)
            row["priced by"] = costs[0]["energy_basis"]
            yield row


def remarks(target: str, references: Sequence[str]) -> Iterator[str]:
    """A sentence for each build that a target does not have, and for references assumed of it."""
    for name, _, reason in builds(target):
        if reason:
            yield f"{target}: no row of {name}: {reason}"
    for kind in references:
        settings = resolve(load_target(target), None, {"references": kind})
        yield from reference_notes(load_target(target), settings)


def first(file: Path, pairs: int) -> dict[str, Array]:
    """The first so many pairs of a file of rows side by side."""
    with np.load(file) as held:
        return {side: held[side][:pairs] for side in ("text", "video")}


def main() -> None:
    """Print the table."""
    options = parser(__doc__ or "", 1)
    options.add_argument("--work", type=Path, required=True, help="folder that keeps the points")
    options.add_argument("--demo", type=Path, metavar="DIR", help="made by `cimtool demo`")
    options.add_argument("--clip", type=Path, metavar="FILE", help="captions and images")
    options.add_argument("--classes", type=Path, metavar="FILE", help="items with classes")
    options.add_argument("--pairs", type=int, default=PAIRS, help="of the demo's unseen pairs")
    options.add_argument("--targets", default=",".join(TARGETS))
    options.add_argument("--references", default=",".join(REFERENCES))
    given = options.parse_args()
    use_threads()
    references, targets = given.references.split(","), given.targets.split(",")
    cases: list[tuple[str, Row, str]] = []
    with tempfile.TemporaryDirectory() as name:
        if given.demo:
            files = DemoFiles.under(given.demo)
            model: Row = {"projectors": files.projectors, "poly": files.poly}
            model |= {"data": first(files.eval, given.pairs), "calibration": files.calibration}
            cases.append((f"demo-{given.pairs}", model, "r1"))
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
            for target in targets
            for row in measured(model, metric, target, references, given.work / case)
        ]
    said = [sentence for target in targets for sentence in remarks(target, references)]
    report("converter_accuracy", rows, given.json, said)


if __name__ == "__main__":
    main()
