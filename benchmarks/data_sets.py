"""Models with rows that they have not seen: the demo's, and those of embeddings in files.

Everything that is trained lies in a folder of its own, and is kept there.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from budgets import class_case, taken
from demo_seeds import ROWS, demo_files, demo_models

import cimtool
from cimtool.demo.data import DemoFiles, collect_pairs, installed_sources, write_embeddings
from cimtool.demo.walk import LAST
from cimtool.loading.embeddings import Embeddings, embeddings_of, read_data
from cimtool.loading.qrels import judged_data
from cimtool.loading.source import ModelSource
from cimtool.training.teacher_file import Teacher
from cimtool.training.trainer import BEST

Rows = Mapping[str, Any]
"""Arrays by name."""


@dataclass(frozen=True, eq=False)
class Case:
    """A model, rows that calibrate it, and rows that it has not seen.

    `labels` are what its polynomial was fitted to, for other versions that fit their own.
    """

    name: str
    projectors: Path
    poly: Path
    calibration: Path
    unseen: Embeddings
    labels: Path | None = None


def captions(file: Path) -> Rows:
    """Captions and images of a file: `text`, `image`, and `text_to_image` if they are no pairs."""
    with np.load(file) as held:
        text, image = held["text"], held["image"]
        right = held["text_to_image"] if "text_to_image" in held else np.arange(len(text))
    return {"text": text, "video": image, "text_to_video": right}


def split(rows: Rows, seed: int, share: float) -> tuple[Rows, Rows]:
    """A share of the videos with their texts, drawn at random, and the others."""
    order = np.random.default_rng(seed).permutation(len(rows["video"]))
    first, others = np.split(order, [round(share * len(order))])
    return taken(rows, first), taken(rows, others)


# Models of the published two-branch form, of CLIP's captions and images.

HIDDEN, EPOCHS, BATCH = 1024, 20, 32
DEGREE = 4
"""That of the published code; in ed alone degree 2 would do."""

PAIRS, MATCHED = 20_000, 0.1
"""Pairs of a teacher, and the share of right ones."""


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


def trained(training: Training, data: Path, seed: int, folder: Path) -> Path:
    """Two-branch projectors of the pairs in a file."""
    run = cimtool.train(
        data,
        folder,
        model="two-branch",
        epochs=EPOCHS,
        batch=BATCH,
        seed=seed,
        resume=True,
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


def clip_cases(
    file: Path, seed: int, folder: Path, chosen: Sequence[tuple[str, float, float | None]] = CASES
) -> Iterator[Case]:
    """Train two-branch models on half of a file, and fit polynomials to their exact logits."""
    seen, unseen = split(captions(file), seed, 0.5)
    data = folder / "calibration.npz"
    np.savez(data, **seen)
    models = {
        name: trained(TRAININGS[name], data, seed, folder / name)
        for name in dict.fromkeys(one[0] for one in chosen)
    }
    teacher = partial(cimtool.teacher, data=data, labels="exact", pairs=PAIRS, matched=MATCHED)
    for name, a, given in chosen:
        b = balanced(teacher(models[name], a=a, b=0.0), a) if given is None else given
        poly, labels = (folder / f"{name}-{a:g}{suffix}" for suffix in (".json", ".npz"))
        labelled = teacher(models[name], a=a, b=b, output=labels)
        cimtool.fit(labelled, degree=DEGREE, output=poly)
        title = f"two-branch, {name}, a = {a:g}, b = {b:g}"
        yield Case(title, models[name], poly, data, embeddings_of(unseen), labels)


def demo_case(folder: Path, items: int) -> Case:
    """The demo's model and the first of its evaluation rows."""
    files = DemoFiles.under(folder)
    with np.load(files.eval) as arrays:
        rows = dict(arrays)
    unseen = taken(rows, np.arange(items))
    return Case("demo", files.projectors, files.poly, files.calibration, embeddings_of(unseen))


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


# The sets of benchmarks/accuracy.py, each by a file or folder, a seed, and a folder for the model.

LABELLED = 100_000
"""Pairs with exact labels that a polynomial is fitted to."""

SAMPLED: Mapping[str, Any] = {
    "loss": "sampled-nce",
    "epochs": 30,
    "batch": 128,
    "options": {
        "model.hidden": 512,
        "model.width": 128,
        "model.logvar_start": -1.0,
        "model.linear": False,
    },
}
"""Training of a few hundred pairs of two encoders."""

SHARE = 0.6
"""Share of the captions and images that train."""

CALIBRATED = 512


def fitted(projectors: Path, data: Path, matched: float, output: Path) -> tuple[Path, Path]:
    """A polynomial, and the exact labels of pairs of the rows that trained which it is fitted to.

    Files that are there already are kept.
    """
    labels = output.with_suffix(".npz")
    if not labels.exists():
        cimtool.teacher(
            projectors, data, labels="exact", pairs=LABELLED, matched=matched, output=labels
        )
    if not output.exists():
        cimtool.fit(labels, output=output)
    return output, labels


def encoder_demo(cache: Path, seed: int, folder: Path) -> Case:
    """The demo; other seeds train as it does."""
    settings = ROWS["encoder"]
    files = demo_files(settings, cache)
    (projectors,) = demo_models(files, settings, (seed,))
    poly, labels = files.poly, files.poly.with_name(LAST)
    if seed:
        poly, labels = fitted(projectors, files.train, settings.matched, folder / "poly.json")
    read = ModelSource(projectors).for_rows(files.eval).load_projectors()
    unseen = read_data(judged_data(files.eval, files.judged(files.eval), read.modalities), read)
    return Case("", projectors, poly, files.calibration, unseen, labels)


def small_variances(cache: Path, seed: int, folder: Path) -> Case:
    """The demo's older training on rows made here, which leaves next to no variance."""
    files = DemoFiles.under(cache / "rows-made-here")
    if not files.calibration.exists():
        files.eval.parent.mkdir(parents=True, exist_ok=True)
        write_embeddings(collect_pairs(installed_sources()), files, ROWS["tf-idf"])
    teacher, own = folder / "teacher", folder / "model"
    train = partial(cimtool.train, files.train, epochs=3, batch=256, seed=seed, resume=True)
    train(teacher, loss="soft-contrastive")
    first, _ = fitted(teacher / BEST, files.train, 0.5, folder / "first.json")
    train(own, loss="pairwise-poly", start=teacher / BEST, poly=first)
    poly, labels = fitted(own / BEST, files.train, 0.5, folder / "poly.json")
    unseen = read_data(files.eval, ModelSource(own / BEST).load_projectors())
    return Case("", own / BEST, poly, files.calibration, unseen, labels)


def of_rows(seen: Rows, unseen: Rows, seed: int, folder: Path) -> Case:
    """Train on some rows, whose first ones calibrate; what is measured is kept as `unseen.npz`."""
    data, calibration = folder / "train.npz", folder / "calibration.npz"
    np.savez(data, **seen)
    first: Rows = taken(seen, np.arange(min(CALIBRATED, len(seen["video"]))))
    np.savez(calibration, **first)
    np.savez(folder / "unseen.npz", **unseen)
    cimtool.train(data, folder / "model", seed=seed, resume=True, **SAMPLED)
    model = folder / "model" / BEST
    poly, labels = fitted(model, data, 0.5, folder / "poly.json")
    return Case("", model, poly, calibration, embeddings_of(unseen), labels)


def captions_of(file: Path, seed: int, folder: Path) -> Case:
    """Captions and images; SHARE of the images train."""
    seen, unseen = split(captions(file), seed, SHARE)
    return of_rows(seen, unseen, seed, folder)


def two_branch(file: Path, seed: int, folder: Path) -> Case:
    """Captions and images by a two-branch model of a steep sigmoid."""
    (found,) = clip_cases(file, seed, folder, [("small variances", 5.0, None)])
    return found


def classes(file: Path, seed: int, folder: Path) -> Case:
    """Articles in classes: those of the training split train."""
    case = class_case(file)
    seen = {side: case.training[side] for side in ("text", "video")}
    seen["text_to_video"] = np.arange(len(seen["text"]))
    unseen = {**case.rest, "text_to_video": np.arange(len(case.rest["text"]))}
    return of_rows(seen, unseen, seed, folder)


SETS: Mapping[str, Callable[[Path, int, Path], Case]] = {
    "demo": encoder_demo,
    "small variances": small_variances,
    "MiniLM to CLIP": captions_of,
    "CLIP to CLIP": captions_of,
    "CLIP to CLIP, two-branch": two_branch,
    "Wikipedia": classes,
}


def case_of(name: str, place: Path, seed: int, work: Path) -> Case:
    """The case of a set and a seed, trained in a folder of its own unless it is there."""
    folder = work / f"{name.replace(', ', '-').replace(' ', '-').lower()}-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    return SETS[name](place, seed, folder)
