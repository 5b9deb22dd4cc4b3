"""Builds on five data sets, of several seeds, on rows that nothing has seen, with their costs.

    python benchmarks/accuracy.py --work FOLDER --demo demo-cache --minilm PAIRS.npz
        --clip PAIRS.npz --wikipedia ITEMS.npz [--former CHECKOUT] [--sets SET ...] [--seeds 0 1 2]

A seed is one of the training, and of the split if a set has none. Of each set, seed, target and
build: the logit RMSE from the exact score, the part of it that can change a rank (centred), the
losses of R@1 and mAP from the exact score in the worse direction, and arrays, conversions and the
energy of encoding a text and a video. Beside them the float polynomial, which no bits can better,
and Monte Carlo with 10 and with 200 samples a side, on the first items.

FOLDER keeps the models and one line of JSON a cell: a run that was cut off goes on. `--former` is a
checkout of an earlier version, which fits and compiles the rows named `former`; their costs are
those of `8 bits` and of `4-bit weights`, whose layers have the same bits.

Figures are means over seeds. Brackets reach from the lowest to the highest end of the 95% intervals
of single seeds, each over resampled queries.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np
import torch
from claim import EXACT, LOSS, MAP_LOSS, Scores, figures_of
from compiled_scores import scores_of
from data_sets import Case, case_of
from harness import parser, report, use_threads

from cimtool.api import prepare
from cimtool.base.arrays import FloatArray
from cimtool.base.errors import CimError
from cimtool.base.progress import silent
from cimtool.experiments.widths import LayerCosts
from cimtool.hardware.configuration import Configuration
from cimtool.loading.source import ModelSource
from cimtool.reference.bootstrap import students
from cimtool.reference.exact import exact
from cimtool.reference.metrics import on_grid
from cimtool.reference.montecarlo import monte_carlo
from cimtool.simulation.simulator import Simulator
from cimtool.verification.references import gaussians, trained_features

TARGETS = ("isaac-rram-128", "hermes-pcm-14nm", "dcim-28nm-isscc22")
ISAAC, CONVERTED = TARGETS[:1], TARGETS[:2]
"""The first target, and those with converters: without them the integers are those of the first."""

DRAWS, SIGMOIDS = 3, 100_000_000
FLOAT, POLYNOMIAL = "-", "polynomial in float"
"""The target of rows that no target has compiled, and the first of these."""
MONTE_CARLO = {f"Monte Carlo, K = {samples}": samples for samples in (10, 200)}
GOAL = "drift goal"


@dataclass(frozen=True)
class Build:
    """A build: options of `prepare`, and targets; with `costs`, the former version compiles it.

    `costs` names the build of the present version that has the same bits.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    targets: Sequence[str] = ISAAC
    costs: str | None = None


FOUR, GPTQ = {"weight_bits": 4}, {"weight_rounding": "gptq"}
FIRST = (
    Build("default", {}, TARGETS),
    Build("8 bits", {"drift": "given"}),
    Build("former 8 bits", {}, CONVERTED, costs="8 bits"),
)
"""Builds of every seed, before all others."""

OTHERS = (
    Build("4-bit weights", FOUR),
    Build("4-bit weights, gptq", FOUR | GPTQ),
    Build("chosen bits at the cost of 4-bit weights, gptq", FOUR | GPTQ | {"drift": "least"}),
    Build(
        "former 4-bit weights, mse, gptq",
        FOUR | GPTQ | {"calibrator": "mse"},
        costs="4-bit weights",
    ),
    Build("6-bit converters, fixed", {"adc_bits": 6}),
    Build("6-bit converters, a slice", {"adc_bits": 6, "references": "slice"}),
    Build("5-bit converters, a slice", {"adc_bits": 5, "references": "slice"}),
    Build(GOAL),
)
BUILDS = (*FIRST, *OTHERS)

PLACES = {
    "demo": "demo",
    "MiniLM to CLIP": "minilm",
    "CLIP to CLIP": "clip",
    "CLIP to CLIP, two-branch": "clip",
    "Wikipedia": "wikipedia",
    "small variances": "demo",
}
"""The option that says where a set's rows are."""

GOALS = {
    "demo": "mc=200",
    "small variances": "mc=10",
    "MiniLM to CLIP": "mc=200",
    "CLIP to CLIP": "mc=200",
    "CLIP to CLIP, two-branch": "logit_rmse=0.005",
    "Wikipedia": "mc=200",
}
"""The goal of `--drift` on each set."""

SHOWN = {
    "logit RMSE": ("logit_rmse", 1),
    "centred": ("centred_rmse", 1),
    "R@1 loss, points": (LOSS, 100),
    "mAP loss, points": (MAP_LOSS, 100),
}
"""Figures and their factors by the titles of the columns."""

NOTES = (
    "Brackets: the lowest and the highest end of the 95% intervals of single seeds",
    "arrays; conversions and energy of encoding a text and a video",
)

Cell = dict[str, Any]
Figures = dict[str, list[float]]


class Measured:
    """A case with the scores of its unseen rows in float: the model's own and the exact ones."""

    def __init__(self, case: Case) -> None:
        model = ModelSource(case.projectors, case.poly).load(silent)
        assert model.a is not None
        assert model.b is not None
        simulator = Simulator(model.program)
        self.case, self.sigmoid = case, (model.a, model.b)
        self.items = gaussians(trained_features(simulator, case.unseen))
        self.reference = on_grid(exact(*self.items, *self.sigmoid).logit)
        self.scores = simulator.scores(case.unseen.text, case.unseen.video)

    def figures(self, scores: FloatArray) -> Figures:
        """Errors and losses of logits [n, m], each with the ends of its interval."""
        ways = [Scores(EXACT, self.reference), Scores("build", scores)]
        found = figures_of(ways, self.reference, self.case.unseen.truth)[1].figures
        shown = {key: found[key] for key, _ in SHOWN.values() if key in found}
        return {key: [one.value, one.low, one.high] for key, one in shown.items()}

    def sampled(self, samples: int) -> Figures:
        """The RMSE of Monte Carlo on as many of the first items as SIGMOIDS allows."""
        few = slice(isqrt(SIGMOIDS) // samples)
        text, video = (side[few] for side in self.items)
        near, errors = self.reference[few, few], []
        for seed in range(DRAWS):
            drawn = on_grid(monte_carlo(text, video, *self.sigmoid, samples, seed).logit)
            errors.append(float(np.sqrt(np.square(drawn - near).mean())))
        found = students(errors)
        return {"logit_rmse": [found.value, found.low, found.high]}


class Former:
    """An earlier version in a process of its own, which compiles one job after another."""

    def __init__(self, checkout: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("compiled_scores.py")],
            env={**os.environ, "PYTHONPATH": str(checkout.resolve())},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def scores(self, case: Case, target: str, options: Mapping[str, Any]) -> FloatArray:
        """Logits [n, m] of the unseen rows."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with tempfile.TemporaryDirectory() as name:
            unseen, output = Path(name) / "unseen.npz", Path(name) / "scores.npy"
            # A checkpoint may hold a polynomial of a degree that an earlier version does not know.
            model, content = Path(name) / "model.pth", torch.load(case.projectors)
            torch.save({key: value for key, value in content.items() if key != "poly"}, model)
            np.savez(unseen, text=case.unseen.text, video=case.unseen.video)
            assert case.labels is not None
            poly = case.labels.with_name(f"{case.labels.stem}-former.json")
            files = {"projectors": model, "poly": poly, "labels": case.labels}
            files |= {"calibration": case.calibration, "unseen": unseen, "output": output}
            job = {key: str(file.resolve()) for key, file in files.items()}
            self.process.stdin.write(json.dumps(job | {"target": target, **options}) + "\n")
            self.process.stdin.flush()
            if not self.process.stdout.readline():
                raise SystemExit("the former version failed; its message stands above")
            found: FloatArray = np.load(output)
            return found


def compiled(measured: Measured, target: str, options: Mapping[str, Any]) -> Cell:
    """Figures and costs of a build, or why there is none."""
    case, begin = measured.case, time.perf_counter()
    try:
        found = prepare(
            case.projectors, case.poly, calibration=case.calibration, target=target,
            **options,
        )  # fmt: skip
    except CimError as error:
        return {"refused": str(error)}
    seconds = time.perf_counter() - begin
    figures = measured.figures(scores_of(found, case.unseen.text, case.unseen.video))
    start = Configuration(found.target, found.settings)
    layers = LayerCosts.of(found.stages[-1].program, start)
    return {"figures": figures, "costs": layers.cost(layers.bits), "seconds": seconds}


def in_float(measured: Measured, name: str) -> Cell:
    """The polynomial in float, or Monte Carlo."""
    samples = MONTE_CARLO.get(name)
    if samples is None:
        return {"figures": measured.figures(measured.scores)}
    return {"figures": measured.sampled(samples)}


def planned(given: argparse.Namespace) -> Iterator[tuple[str, int, str, Build]]:
    """Every set, seed, target and build that is asked for."""
    in_float = [Build(name, targets=(FLOAT,)) for name in (POLYNOMIAL, *MONTE_CARLO)]
    sets = [name for name in given.sets if getattr(given, PLACES[name]) is not None]
    for builds in ((*in_float, *FIRST), OTHERS):
        for seed, name, build in itertools.product(given.seeds, sets, builds):
            if build.costs is None or given.former is not None:
                yield from ((name, seed, target, build) for target in build.targets)


def measure(given: argparse.Namespace, file: Path) -> Iterator[Cell]:
    """The cells that `file` holds, and then those that it lacks, which are added to it."""
    done = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    yield from done
    known = {(one["set"], one["seed"], one["target"], one["build"]) for one in done}
    former = None if given.former is None else Former(given.former)
    of, measured = None, None
    for name, seed, target, build in planned(given):
        if (name, seed, target, build.name) in known:
            continue
        if of != (name, seed) or measured is None:
            of = name, seed
            measured = Measured(case_of(name, getattr(given, PLACES[name]), seed, given.work))
        if target == FLOAT:
            cell = in_float(measured, build.name)
        elif build.costs is not None:
            assert former is not None
            scores = former.scores(measured.case, target, build.options)
            cell = {"figures": measured.figures(scores)}
        else:
            goal = {"drift": GOALS[name]} if build.name == GOAL else {}
            cell = compiled(measured, target, {**build.options, **goal})
        cell = {"set": name, "seed": seed, "target": target, "build": build.name, **cell}
        with file.open("a") as lines:
            lines.write(json.dumps(cell) + "\n")
        print(cell, file=sys.stderr, flush=True)
        yield cell


def rows(found: Sequence[Cell]) -> Iterator[dict[str, Any]]:
    """A row for each set, target and build: means over seeds, and the worst seed."""
    groups: dict[tuple[str, str, str], list[Cell]] = {}
    for one in found:
        groups.setdefault((one["set"], one["target"], one["build"]), []).append(one)
    costs = {key: cells[0].get("costs", {}) for key, cells in groups.items()}
    same = {build.name: build.costs for build in BUILDS if build.costs is not None}
    order = {
        name: i for i, name in enumerate((POLYNOMIAL, *MONTE_CARLO, *(b.name for b in BUILDS)))
    }
    places = sorted(
        groups, key=lambda k: ([*PLACES].index(k[0]), (FLOAT, *TARGETS).index(k[1]), order[k[2]])
    )
    for name, target, build in places:
        cells = [one for one in groups[name, target, build] if "figures" in one]
        row = {"rows": name, "target": target, "build": build, "seeds": len(cells)}
        for title, (key, factor) in SHOWN.items():
            values = [one["figures"][key] for one in cells if key in one["figures"]]
            row[title] = mean_text(values, factor)
        of = costs.get((name, target, same.get(build, build)), {})
        row["arrays"] = f"{of['arrays']:,.0f}" if of else ""
        row["conversions"] = f"{of['conversions']:,.0f}" if of else ""
        row["uJ"] = f"{of['energy'] / 1e6:.3g}" if of else ""
        yield row


def mean_text(values: Sequence[Sequence[float]], factor: float) -> str:
    """The mean over seeds, and in brackets the lowest and the highest end of a seed's interval."""
    if not values:
        return "-"
    mean, low, high = (
        float(np.mean([v[0] for v in values])),
        min(v[1] for v in values),
        max(v[2] for v in values),
    )
    form = ".1f" if factor == 100 else ".3g"
    return f"{factor * mean:{form}} [{factor * low:{form}}, {factor * high:{form}}]"


def main(words: Sequence[str] | None = None) -> None:
    """Measure what is not measured yet, and print the table."""
    options = parser(str(__doc__), rounds=1)
    options.add_argument("--work", type=Path, required=True, help="folder that keeps everything")
    options.add_argument("--demo", type=Path, metavar="DIR", help="the demo's cache")
    options.add_argument("--minilm", type=Path, metavar="NPZ", help="text, image of two encoders")
    options.add_argument("--clip", type=Path, metavar="NPZ", help="text, image, text_to_image")
    options.add_argument("--wikipedia", type=Path, metavar="NPZ", help="text, image, label, split")
    options.add_argument("--former", type=Path, metavar="DIR", help="an earlier version")
    options.add_argument("--sets", nargs="+", choices=[*PLACES], default=[*PLACES], metavar="SET")
    options.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    given = options.parse_args(words)
    use_threads(1)
    given.work.mkdir(parents=True, exist_ok=True)
    found = list(measure(given, given.work / "cells.jsonl"))
    report("accuracy", list(rows(found)), given.json, NOTES)


if __name__ == "__main__":
    main()
