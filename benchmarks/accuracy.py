"""How far each stage of a compiled model is from the exact score, beside Monte Carlo with K=10.

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
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import parser, report, use_threads

from cimtool.api import prepare
from cimtool.base.arrays import Array, IntArray
from cimtool.reference.exact import exact
from cimtool.reference.montecarlo import monte_carlo
from cimtool.reference.statistics import Gaussians, pair_statistics
from cimtool.reference.surrogate import Polynomial, exponents
from cimtool.simulation.simulator import Simulator
from cimtool.training.demo_data import DemoFiles
from cimtool.training.fit import fit_polynomial
from cimtool.training.loop import TrainSettings, encode, train_towers
from cimtool.training.models.two_branch import TwoBranch, two_branch_checkpoint
from cimtool.training.teacher import Labels, Sigmoid
from cimtool.training.towers import TwoTower
from cimtool.verification.drift import Row, Table, truth_of
from cimtool.verification.headline import points_text

TARGET = "isaac-rram-128"
SAMPLES = 10
HIDDEN, EPOCHS, BATCH = 1024, 20, 32
DEGREE = 4
STAGES = {"trained": "polynomial", "lowered": "lowered", "quantized": "quantized"}
"""Stages that are reported beside the last, by the names they get; the others change no number."""


@dataclass(frozen=True)
class Training:
    """How the two-branch projectors are trained: on `-a ed / temperature`."""

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
    """Something to compile and to measure; `a` and `b` where the files do not say."""

    name: str
    projectors: Path
    poly: Path | None
    calibration: Path
    unseen: Pairs
    sigmoid: dict[str, float]


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


def trained(training: Training, pairs: Pairs, seed: int) -> TwoTower:
    """Two-branch projectors of the pairs."""
    width = pairs.text.shape[1]
    settings = TrainSettings(
        epochs=EPOCHS,
        batch=BATCH,
        temperature=training.temperature,
        a=training.a,
        seed=seed,
    )

    def make() -> TwoTower:
        start = training.logvar_start
        return TwoTower(*(TwoBranch(width, HIDDEN, logvar_start=start) for _ in range(2)))

    return train_towers(make, pairs.text, pairs.image[pairs.right], settings, lambda line: None)


def gaussians(towers: TwoTower, pairs: Pairs) -> tuple[Gaussians, Gaussians]:
    """Texts and images as the projectors see them."""
    text, _ = encode(towers, pairs.text, pairs.image[:1])
    _, image = encode(towers, pairs.text[:1], pairs.image)
    return text, image


def balanced(text: Gaussians, image: Gaussians, right: IntArray, a: float) -> float:
    """The b at which b - a ed is 0 half way between right and wrong pairs."""
    distance = a * pair_statistics(text, image)[0]
    is_right = np.zeros(distance.shape, bool)
    is_right[np.arange(len(right)), right] = True
    return round(float(distance[is_right].mean() + distance[~is_right].mean()) / 2, 2)


def surrogate(text: Gaussians, image: Gaussians, a: float, b: float) -> Polynomial:
    """Fit the exact logits of all training pairs, in the layout's ed/d and vd/d^2."""
    ed, vd = (x.ravel() for x in pair_statistics(text, image))
    labels = exact(text, image, a, b)
    return fit_polynomial(
        Labels(ed / text.d, vd / text.d**2, labels.log_p.ravel(), labels.log_1mp.ravel()),
        Sigmoid(a, b),
        DEGREE,
    )


def clip_cases(file: Path, seed: int, folder: Path) -> Iterator[Case]:
    """Train, fit and save the two-branch models, as the layout's public code saves them."""
    seen, unseen = halves(file, seed)
    calibration = folder / "calibration.npz"
    np.savez(calibration, text=seen.text, image=seen.image, text_to_image=seen.right)
    models = {name: trained(training, seen, seed) for name, training in TRAININGS.items()}
    for name, a, given in CASES:
        text, image = gaussians(models[name], seen)
        b = balanced(text, image, seen.right, a) if given is None else given
        poly = surrogate(text, image, a, b)
        powers = zip(poly.coeff, exponents(poly.degree), strict=True)
        coeff = [c / poly.scale_ed**i / poly.scale_vd**j for c, (i, j) in powers]
        saved = two_branch_checkpoint(
            models[name], coeff, poly.bias, poly.degree, {}, epoch=EPOCHS, loss=0.0
        )
        path = folder / f"{name}-{a:g}.pth"
        torch.save(saved, path)
        title = f"two-branch, {name}, a = {a:g}, b = {b:g}"
        yield Case(title, path, None, calibration, unseen, {"a": a, "b": b})


def demo_case(folder: Path, items: int) -> Case:
    """The demo's model and the first of its evaluation rows."""
    files = DemoFiles.under(folder)
    with np.load(files.eval) as arrays:
        text, video = arrays["text"][:items], arrays["video"][:items]
    unseen = Pairs(text, video, np.arange(len(text)))
    return Case("demo", files.projectors, files.poly, files.calibration, unseen, {})


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
    built = prepare(
        case.projectors, case.poly, calibration=case.calibration, target=TARGET, **case.sigmoid
    )
    model, pairs = built.model, case.unseen
    if model.a is None or model.b is None:
        raise SystemExit(f"{case.projectors}: the polynomial does not say a and b")
    stages = {stage.name: Simulator(stage.program) for stage in built.stages}
    inputs = {"text": pairs.text, "video": pairs.image}
    features = {m: stages["trained"].encode(m, x) for m, x in inputs.items()}
    items = [Gaussians(own["mu"], own["s"]) for own in features.values()]
    table = Table(
        truth_of(pairs.right, None, len(pairs.image)), exact(*items, model.a, model.b).logit
    )
    table.add_reference("exact")
    sampled = monte_carlo(*items, model.a, model.b, SAMPLES)
    table.add_monte_carlo(f"Monte Carlo K={SAMPLES}", sampled.logit)
    for name, title in (STAGES | {built.stages[-1].name: "compiled"}).items():
        text, video = (stages[name].encode(m, x) for m, x in inputs.items())
        table.add(title, stages[name].score(text, video), text["mu"], video["mu"])
    for one in table.finished(seed=0)[1:]:
        yield row(case, one)


def row(case: Case, one: Row) -> dict[str, Any]:
    """What one way to score loses against the exact reference."""
    drift, found, lost = one.drift, one.retrieval, one.losses["r1_loss"]
    assert drift is not None
    assert found is not None
    return {
        "model": case.name,
        "score": one.stage,
        "logit RMSE": drift.logit_rmse,
        "centred": drift.centred_rmse,
        "of spread": f"{drift.relative_rmse:.2%}",
        "top-1 %": 100 * drift.top1_agreement,
        "R@1 t>v %": 100 * found.text_to_video.r1,
        "R@1 v>t %": 100 * found.video_to_text.r1,
        "R@1 loss (95%)": points_text(lost),
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
