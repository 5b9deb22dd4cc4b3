"""Gain of a 4-bit build by fine-tuning with the hardware in the loop, on pairs that it never saw.

    python benchmarks/fine_tuning.py --demo demo-cache/HASH [--clip PAIRS.npz]
                                     [--noise-model NAME [--noise-in-loop]] [--calibrator NAME] ...

Logits are compared with those of the model that fine-tuning started from, in float. The demo's
model learns from the rows that it was trained on, the two-branch models of `data_sets.py` from the
half of `--clip` that they were trained on. With `--noise-model` both builds are measured
on `--dies` too, of another seed than those in the loop.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from data_sets import Case, clip_cases, demo_case
from harness import parser, report, use_threads

from cimtool.api import prepare
from cimtool.base.arrays import Array
from cimtool.bundle.compilation import Compilation
from cimtool.bundle.dies import NoiseOptions
from cimtool.hardware.noise.spec import load_noise
from cimtool.reference.measures import WAYS
from cimtool.reference.queries import metrics, uncertainties
from cimtool.reference.retrieval import retrieval, retrieved
from cimtool.reference.truth import truth_of
from cimtool.simulation.die_program import Conditions, on_die
from cimtool.simulation.simulator import Simulator
from cimtool.training.api import fine_tune
from cimtool.training.fine_tune import OPTIMISATION
from cimtool.training.trainer import BEST

TARGET = "isaac-rram-128"
DIE_SEED = 1000
"""The dies that are measured are of this seed, those in the loop of the run's."""


def recalls(logits: Array, right: Array) -> tuple[float, float]:
    """R@10 in per cent, from texts and from videos, whose best text counts."""
    found = retrieval(logits, truth_of(right, None, logits.shape[1]))
    return 100 * found["r10_text_to_video"], 100 * found["r10_video_to_text"]


def figures_of(case: Case, name: str, logits: Array, wanted: Array) -> dict[str, Any]:
    """One row: how far the logits of a build are from those wanted, and what it finds."""
    off = logits - wanted
    text, video = recalls(logits, case.unseen.right)
    return {
        "model": case.name,
        "build": name,
        "logit RMSE": float(np.sqrt(np.square(off).mean())),
        "bias": float(off.mean()),
        "R@10 t>v %": text,
        "R@10 v>t %": video,
    }


def gains(plain: Array, tuned: Array, right: Array) -> str:
    """Gain of fine-tuning in R@10, paired by query, with the intervals of a report."""
    truth = truth_of(right, None, plain.shape[1])
    before, after = (partial(metrics, retrieved(logits, truth)) for logits in (plain, tuned))
    (found,) = uncertainties([after], before, right, truth.videos, seed=0)
    parts = []
    for way in WAYS:
        lost = found.losses[f"r10_{way}"]
        low, high = -100 * lost.high, -100 * lost.low
        parts.append(
            f"{way.replace('_', ' ')} {-100 * lost.value:+.1f} ({low:+.1f} to {high:+.1f})"
        )
    return "gained by fine-tuning, points of R@10: " + ", ".join(parts)


def on_dies(case: Case, built: Compilation, wanted: Array, options: argparse.Namespace) -> Array:
    """Logit RMSE and R@10 both ways [dies, 3] of a build on dies."""
    noise = load_noise(options.noise_model)
    conditions = Conditions(noise, noise.seconds(None), seed=DIE_SEED)
    text, right = case.unseen.text[: options.die_items], case.unseen.right[: options.die_items]
    own = np.unique(right, return_inverse=True)
    found = []
    for index in range(options.dies):
        program = on_die(built.stages[-1].program, built.settings, conditions, index).program
        logits = Simulator(program).scores(text, case.unseen.video[own[0]])
        off = logits - wanted[: len(text), own[0]]
        found.append((float(np.sqrt(np.square(off).mean())), *recalls(logits, own[1])))
    return np.array(found)


def die_rows(case: Case, name: str, found: Array) -> Iterator[dict[str, Any]]:
    """The median of each figure over dies, its mean, and the worst in twenty."""
    worst = np.percentile(found, (95, 5, 5), axis=0).diagonal()
    kinds = {"median": np.median(found, axis=0), "mean": found.mean(axis=0), "worst in 20": worst}
    for title, (rmse, text, video) in kinds.items():
        yield {
            "model": case.name,
            "build": f"{name}, dies: {title}",
            "logit RMSE": float(rmse),
            "bias": "",
            "R@10 t>v %": float(text),
            "R@10 v>t %": float(video),
        }


def build(options: argparse.Namespace) -> dict[str, Any]:
    """The settings of both builds."""
    own = {"input_bits": options.input_bits, "calibrator": options.calibrator}
    return {"weight_bits": 4, "activation_bits": 4, **own}


def tuned_file(case: Case, data: Path, options: argparse.Namespace, folder: Path) -> Path:
    """The fine-tuned checkpoint: the one that is given, else a new one."""
    if options.tuned is not None:
        return Path(options.tuned)
    noise = NoiseOptions(model=options.noise_model) if options.noise_in_loop else None
    run = fine_tune(
        case.projectors,
        case.poly,
        data=data,
        calibration=case.calibration,
        target=TARGET,
        output=folder / f"tuned for {case.name}",
        epochs=options.epochs,
        batch=options.batch,
        learning_rate=options.learning_rate,
        seed=options.seed,
        noise=noise,
        say=print,
        **build(options),
    )
    return run.folder / BEST


def measured(
    case: Case, data: Path, options: argparse.Namespace, folder: Path
) -> tuple[list[dict[str, Any]], str]:
    """Float, the plain build and the fine-tuned one, and both on dies; and the paired gain."""
    given = {"calibration": case.calibration, "target": TARGET, **build(options)}
    files = {"compiled": case.projectors, "fine-tuned": tuned_file(case, data, options, folder)}
    builds = {name: prepare(file, case.poly, **given) for name, file in files.items()}
    rows = case.unseen.text, case.unseen.video
    wanted = Simulator(builds["compiled"].stages[0].program).scores(*rows)
    found = [figures_of(case, "float", wanted, wanted)]
    logits = {}
    for name, built in builds.items():
        logits[name] = Simulator(built.stages[-1].program).scores(*rows)
        found.append(figures_of(case, name, logits[name], wanted))
        if options.noise_model:
            found += die_rows(case, name, on_dies(case, built, wanted, options))
    return found, gains(logits["compiled"], logits["fine-tuned"], case.unseen.right)


def main() -> None:
    options = parser(str(__doc__), rounds=1)
    options.add_argument("--demo", type=Path, metavar="FOLDER", help="made by `cimtool demo`")
    options.add_argument("--items", type=int, default=1500, help="of the demo's evaluation rows")
    options.add_argument("--clip", type=Path, metavar="NPZ", help="text, image, text_to_image")
    options.add_argument("--tuned", type=Path, metavar="PTH", help="measure this, tune nothing")
    options.add_argument("--noise-model", metavar="NAME|TOML", help="measure on dies of it too")
    options.add_argument("--noise-in-loop", action="store_true", help="and fine-tune with them")
    options.add_argument("--dies", type=int, default=20)
    options.add_argument("--die-items", type=int, default=400, help="texts that dies are asked")
    options.add_argument("--input-bits", type=int, default=4, help="the other bits are 4")
    options.add_argument("--calibrator", default="tails")
    options.add_argument("--epochs", type=int, default=OPTIMISATION.epochs)
    options.add_argument("--batch", type=int, default=OPTIMISATION.batch)
    options.add_argument("--learning-rate", type=float, default=OPTIMISATION.learning_rate)
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    use_threads()
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    with tempfile.TemporaryDirectory(prefix="cimtool-benchmark-") as name:
        folder = Path(name)
        cases: list[tuple[Case, Path]] = []
        if given.demo is not None:
            case = demo_case(given.demo, given.items)
            cases.append((case, given.demo / "train.npz"))
        if given.clip is not None:
            clip = clip_cases(given.clip, given.seed, folder)
            cases += [(case, case.calibration) for case in clip]
        for case, data in cases:
            found, gain = measured(case, data, given, folder)
            rows += found
            notes.append(f"{case.name}: {gain}")
    report("fine_tuning", rows, given.json, notes)


if __name__ == "__main__":
    main()
