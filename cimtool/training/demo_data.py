"""The demo's artefacts: a corpus, projectors trained on it and a fitted polynomial, cached."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from cimtool.base.arrays import Array
from cimtool.base.errors import CimError
from cimtool.loading.calibration_rows import row_digests
from cimtool.training.corpus import PACKAGES, Pair, collect_pairs, installed_sources
from cimtool.training.features import Features
from cimtool.training.fit import fit_polynomial, save_polynomial
from cimtool.training.loop import TrainSettings, encode, save_projectors, train
from cimtool.training.teacher import Sigmoid, mixed_pairs, teacher_labels
from cimtool.training.towers import TwoTower

FORMAT = 3  # raised when the same settings come to mean other artefacts
MANIFEST = "manifest.json"
DISTRIBUTIONS = (
    "numpy",
    "scipy",
    "scikit-learn",
    "torch",
)  # sources of the corpus, and the trainer
Progress = Callable[[str], None]


@dataclass(frozen=True)
class DemoSettings:
    """Everything that the demo's artefacts depend on, beside what is installed."""

    epochs: int
    eval_rows: int = 1500
    calibration_rows: int = 512
    width: int = 1024
    hidden: int = 2048
    batch: int = 64
    teacher_pairs: int = 16000
    degree: int = 4
    seed: int = 0


@dataclass(frozen=True)
class DemoFiles:
    """Where the artefacts are; each `.npz` holds aligned `text`, `video`, float32 `[n, width]`."""

    projectors: Path
    poly: Path
    train: Path
    calibration: Path
    eval: Path

    @classmethod
    def under(cls, folder: Path) -> DemoFiles:
        """Return the paths in `folder`."""
        return cls(
            projectors=folder / "projectors.pth",
            poly=folder / "poly.json",
            train=folder / "train.npz",
            calibration=folder / "calibration.npz",
            eval=folder / "eval.npz",
        )

    def missing(self) -> list[str]:
        """Return the names of the files that are not there."""
        return [path.name for path in vars(self).values() if not path.is_file()]


@dataclass(frozen=True, eq=False)
class _Split:
    """Aligned embeddings: what the projectors train on, and functions they never see."""

    train: tuple[Array, Array]
    eval: tuple[Array, Array]


def prepare_demo(folder: Path, epochs: int, progress: Progress) -> DemoFiles:
    """Return the demo's artefacts after `epochs` of training, made below `folder` unless cached.

    Takes minutes at first and nothing afterwards: each combination of settings and installed
    versions has a folder of its own, which appears only once it is complete. `progress` is told in
    one line what is being done. Raises CimError if `epochs` is below 1, `folder` cannot be written
    or a cached folder has lost files.
    """
    if epochs < 1:
        raise CimError(f"epochs is {epochs}; expected 1 or more")
    return prepare(folder, DemoSettings(epochs), installed_sources(), progress)


def prepare(
    folder: Path, settings: DemoSettings, sources: Sequence[Path], progress: Progress
) -> DemoFiles:
    """Do what `prepare_demo` does for any settings and folders of sources."""
    inputs = _inputs(settings, sources)
    text = json.dumps(inputs, indent=2) + "\n"
    finished = folder / hashlib.sha256(text.encode()).hexdigest()[:12]
    if finished.exists():
        return _cached(finished, progress)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix="unfinished-") as beside:
            work = Path(beside) / finished.name
            work.mkdir()
            _make(DemoFiles.under(work), settings, sources, progress)
            (work / MANIFEST).write_text(text, encoding="utf-8")
            work.rename(finished)
    except OSError as error:
        if finished.exists():  # another run made the same ones meanwhile
            return _cached(finished, progress)
        raise CimError(f"demo data cannot be written to {folder}: {error.strerror}") from error
    return DemoFiles.under(finished)


def _cached(finished: Path, progress: Progress) -> DemoFiles:
    files = DemoFiles.under(finished)
    if missing := files.missing():
        raise CimError(f"{finished} lacks {', '.join(missing)}; delete it to have it made again")
    progress(f"using the trained model in {finished}")
    return files


def _inputs(settings: DemoSettings, sources: Sequence[Path]) -> dict[str, object]:
    """Return what decides the artefacts, by which they are cached."""
    packages = {name: importlib.metadata.version(name) for name in DISTRIBUTIONS}
    return {
        "format": FORMAT,
        "settings": asdict(settings),
        "python": platform.python_version(),
        "packages": packages,
        "sources": [str(path) for path in sources],
    }


def _make(
    files: DemoFiles, settings: DemoSettings, sources: Sequence[Path], progress: Progress
) -> None:
    progress(f"reading functions and their docstrings from {', '.join(('Python', *PACKAGES))}")
    pairs = collect_pairs(sources)
    progress(f"{len(pairs)} pairs: TF-IDF and SVD to {settings.width} dimensions")
    split = _embed(pairs, settings)
    progress(f"training two projectors on {len(split.train[0])} pairs")
    options = TrainSettings(
        epochs=settings.epochs,
        batch=settings.batch,
        hidden=settings.hidden,
        width=settings.width,
        seed=settings.seed,
    )
    towers = train(*split.train, options, progress)
    save_projectors(towers, files.projectors)
    progress(f"fitting the polynomial to {settings.teacher_pairs} Monte Carlo labels")
    _fit(towers, split, settings, files.poly)
    _save_rows(files.train, *split.train)
    _save_rows(files.eval, *split.eval)
    _save_rows(files.calibration, *_unevaluated(split, settings.calibration_rows))


def _embed(pairs: Sequence[Pair], settings: DemoSettings) -> _Split:
    """Split the pairs at random and embed both sides by maps fitted on the training part."""
    held = settings.eval_rows
    if len(pairs) <= held:
        raise CimError(f"the sources hold {len(pairs)} pairs; expected more than {held}")
    order = np.random.default_rng(settings.seed).permutation(len(pairs))
    shuffled = [pairs[i] for i in order]
    sides = []
    for documents in ([pair.text for pair in shuffled], [pair.code for pair in shuffled]):
        features = Features.fit(documents[held:], settings.width, settings.seed)
        sides.append((features.transform(documents[held:]), features.transform(documents[:held])))
    (train_text, eval_text), (train_video, eval_video) = sides
    return _Split((train_text, train_video), (eval_text, eval_video))


def _unevaluated(split: _Split, count: int) -> tuple[Array, Array]:
    """The first training pairs of which neither row is an evaluation row.

    Functions that differ in punctuation alone have the same row.
    """
    seen = [
        np.isin(row_digests(train), row_digests(held))
        for train, held in zip(split.train, split.eval, strict=True)
    ]
    rows = np.flatnonzero(~(seen[0] | seen[1]))[:count]
    return split.train[0][rows], split.train[1][rows]


def _fit(towers: TwoTower, split: _Split, settings: DemoSettings, path: Path) -> None:
    text, video = encode(towers, *split.train)
    i, j = mixed_pairs(len(text), settings.teacher_pairs, seed=settings.seed)
    sigmoid = Sigmoid()
    labels = teacher_labels(text[i], video[j], sigmoid, settings.seed)
    save_polynomial(fit_polynomial(labels, sigmoid, settings.degree), path)


def _save_rows(path: Path, text: Array, video: Array) -> None:
    np.savez(path, text=text, video=video)
