"""Distance of each stage of a compiled model from the exact score, beside Monte Carlo with K=10.

    python benchmarks/accuracy.py --clip PAIRS.npz [--seed N] --demo demo-cache/HASH [--items N]

Two-branch models are trained on half of the images of PAIRS (`text` [n, d] and `image` [m, d] of
unit norm, `text_to_image` [n]), calibrated on the same half, and measured on the other; the demo
model on its own evaluation rows.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from harness import parser, report, use_threads

import cimtool
from cimtool.api import prepare
from cimtool.base.arrays import Array, IntArray
from cimtool.demo.data import DemoFiles
from cimtool.reference.exact import exact
from cimtool.reference.montecarlo import monte_carlo
from cimtool.reference.statistics import Gaussians
from cimtool.reference.truth import truth_of
from cimtool.simulation.simulator import Simulator
from cimtool.training.teacher_file import Teacher
from cimtool.training.trainer import BEST
from cimtool.verification.drift import DriftTable, StageRow
from cimtool.verification.notes import points_text

TARGET = "isaac-rram-128"
SAMPLES = 10
HIDDEN, EPOCHS, BATCH = 1024, 20, 32
PAIRS, MATCHED = 20_000, 0.1
"""Pairs of a teacher, and the share of right ones."""
STAGES = {"trained": "polynomial", "lowered": "lowered", "quantized": "quantized"}
"""Stages that are reported beside the last, by the names they get; the others change no number."""


@dataclass(frozen=True)
class Training:
    """Training of the two-branch projectors: on `-a ed / temperature`."""

    a: float
    temperature: float
    logvar_start: float


TRAININGS = {
    # The published a = 0.1 and tau = 0.07, and variances that stay near 1 as initialised.
    "public": Training(a=0.1, temperature=0.07, logvar_start=0.0),
    # A steeper sigmoid, and variances that start small beside the distances.
    "small variances": Training(a=5.0, temperature=1.0, logvar_start=-4.0),
}
CASES: tuple[tuple[str, float, float | None], ...] = (
    ("public", 0.1, 0.0),
    ("small variances", 0.1, 0.0),
    ("small variances", 5.0, None),
    ("small variances", 15.0, None),
)
"""Training, a, b; None for a * ed half way between right and wrong training pairs."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """Rows of texts [n, d] and images [m, d], and which image [n] is right for each text."""

    text: Array
    image: Array
    right: IntArray


@dataclass(frozen=True, eq=False)
class Case:
    """Something to compile and to measure."""

    name: str
    projectors: Path
    poly: Path
    calibration: Path
    unseen: Pairs


def halves(file: Path, seed: int) -> tuple[Pairs, Pairs]:
    """Two halves of a file's images with their texts, split at random."""
    with np.load(file) as arrays:
        text, image, right = (arrays[key] for key in ("text", "image", "text_to_image"))
    order = np.random.default_rng(seed).permutation(len(image))
    parts = []
    for chosen in np.split(order, [len(order) // 2]):
        place = np.full(len(image), -1)
        place[chosen] = np.arange(len(chosen))
        kept = place[right] >= 0
        parts.append(Pairs(text[kept], image[chosen], place[right[kept]]))
    return parts[0], parts[1]


def trained(training: Training, data: Path, seed: int, folder: Path) -> Path:
    """Two-branch projectors of the pairs in a file."""
    run = cimtool.train(
        data,
        folder,
        model="two-branch",
        epochs=EPOCHS,
        batch=BATCH,
        seed=seed,
        options={
            "model.hidden": HIDDEN,
            "model.logvar_start": training.logvar_start,
            "loss.a": training.a,
            "loss.tau": training.temperature,
        },
    )
    best: Path = run.folder / BEST
    return best


def balanced(drawn: Teacher, a: float) -> float:
    """The b at which b - a ed is 0 half way between right and wrong pairs."""
    distance, right = a * drawn.labels.ed, drawn.matched
    assert right is not None
    return round(float(distance[right].mean() + distance[~right].mean()) / 2, 2)


def clip_cases(file: Path, seed: int, folder: Path) -> Iterator[Case]:
    """Train two-branch models on half of a file, and fit polynomials to their exact logits."""
    seen, unseen = halves(file, seed)
    data = folder / "calibration.npz"
    np.savez(data, text=seen.text, image=seen.image, text_to_image=seen.right)
    models = {name: trained(one, data, seed, folder / name) for name, one in TRAININGS.items()}
    teacher = partial(cimtool.teacher, data=data, labels="exact", pairs=PAIRS, matched=MATCHED)
    for name, a, given in CASES:
        b = balanced(teacher(models[name], a=a, b=0.0), a) if given is None else given
        poly = folder / f"{name}-{a:g}.json"
        cimtool.fit(teacher(models[name], a=a, b=b), output=poly)
        title = f"two-branch, {name}, a = {a:g}, b = {b:g}"
        yield Case(title, models[name], poly, data, unseen)


def demo_case(folder: Path, items: int) -> Case:
    """The demo's model and the first of its evaluation rows."""
    files = DemoFiles.under(folder)
    with np.load(files.eval) as arrays:
        text, video = arrays["text"][:items], arrays["video"][:items]
    unseen = Pairs(text, video, np.arange(len(text)))
    return Case("demo", files.projectors, files.poly, files.calibration, unseen)


def with_cases(options: argparse.ArgumentParser) -> argparse.Namespace:
    """The command line, with what `cases` needs of it."""
    options.add_argument("--clip", type=Path, metavar="NPZ", help="text, image, text_to_image")
    options.add_argument("--seed", type=int, default=0, help="of the split and of the training")
    options.add_argument("--demo", type=Path, metavar="FOLDER", help="made by `cimtool demo`")
    given = options.parse_args()
    if given.clip is None and given.demo is None:
        options.error("expected --clip, --demo or both")
    return given


def cases(given: argparse.Namespace) -> Iterator[Case]:
    """The two-branch models, trained now, and the demo's, as far as they are asked for."""
    if given.clip is not None:
        with tempfile.TemporaryDirectory(prefix="cimtool-benchmark-") as folder:
            yield from clip_cases(given.clip, given.seed, Path(folder))
    if given.demo is not None:
        yield demo_case(given.demo, given.items)


def measured(case: Case) -> Iterator[dict[str, Any]]:
    """One row a way to score: the references, the polynomial and every stage."""
    built = prepare(case.projectors, case.poly, calibration=case.calibration, target=TARGET)
    model, pairs = built.model, case.unseen
    if model.a is None or model.b is None:
        raise SystemExit(f"{case.projectors}: the polynomial does not say a and b")
    stages = {stage.name: Simulator(stage.program) for stage in built.stages}
    inputs = {"text": pairs.text, "video": pairs.image}
    features = {m: stages["trained"].encode(m, x) for m, x in inputs.items()}
    texts, videos = (Gaussians(own["mu"], own["s"]) for own in features.values())
    table = DriftTable(
        truth_of(pairs.right, None, len(pairs.image)), exact(texts, videos, model.a, model.b).logit
    )
    table.add_reference("exact", texts.mu, videos.mu)
    sampled = monte_carlo(texts, videos, model.a, model.b, SAMPLES)
    table.add_monte_carlo(f"Monte Carlo K={SAMPLES}", sampled.logit)
    for name, title in (STAGES | {built.stages[-1].name: "compiled"}).items():
        text, video = (stages[name].encode(m, x) for m, x in inputs.items())
        table.add(title, stages[name].score(text, video), text["mu"], video["mu"])
    for one in table.finished(seed=0)[1:]:
        yield row(case, one)


def row(case: Case, one: StageRow) -> dict[str, Any]:
    """Loss of one way to score against the exact reference."""
    found = one.metrics
    return {
        "model": case.name,
        "score": one.stage,
        "logit RMSE": found["logit_rmse"],
        "centred": found["centred_rmse"],
        "of spread": f"{found['relative_rmse']:.2%}",
        "top-1 %": 100 * found["top1_agreement"],
        "R@1 t>v %": 100 * found["r1_text_to_video"],
        "R@1 v>t %": 100 * found["r1_video_to_text"],
        "R@1 loss (95%)": points_text(one.losses["r1_loss"]),
    }


def main() -> None:
    options = parser(str(__doc__), rounds=1)
    options.add_argument("--items", type=int, default=1500, help="of the demo's rows")
    given = with_cases(options)
    use_threads()
    rows: list[dict[str, Any]] = []
    for case in cases(given):
        rows += measured(case)
    report("accuracy", rows, given.json)


if __name__ == "__main__":
    main()
