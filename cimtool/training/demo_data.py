"""The demo's data: embeddings of the functions that are installed, and of their docstrings.

Pairs of natural language and code are read from the Python sources of the installation. Embeddings
are sub-word TF-IDF and truncated SVD, without any download.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import re
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from cimtool.base.arrays import Array, BoolArray
from cimtool.base.compiled import side_by_side, thread_count
from cimtool.base.errors import CimError
from cimtool.loading.digests import row_digests
from cimtool.training.demo_sources import DocumentedFunction, documented_functions

PACKAGES = ("numpy", "scipy", "sklearn")
SKIPPED_FOLDERS = frozenset({"test", "tests", "idle_test", "site-packages", "__pycache__"})


def installed_sources(packages: Iterable[str] = PACKAGES) -> tuple[Path, ...]:
    """Return the folders of the standard library and of `packages`, importing none of them."""
    return (Path(sysconfig.get_paths()["stdlib"]), *(_package_folder(name) for name in packages))


def _package_folder(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise CimError(f'package "{name}" is not installed, but its sources are wanted as a corpus')
    return Path(spec.origin).parent


def collect_pairs(folders: Iterable[Path]) -> list[DocumentedFunction]:
    """Return the pairs of all functions below `folders`, sorted, no text and no code twice.

    The order depends on what the sources hold and not on where they lie, so that the same
    installation gives the same pairs on every machine.
    """
    paths = [path for folder in folders for path in _sources(folder)]
    found = documented_functions(paths, thread_count())
    texts: set[str] = set()
    codes: set[str] = set()
    kept = []
    for pair in sorted(found):
        if pair.text not in texts and pair.code not in codes:
            kept.append(pair)
        texts.add(pair.text)
        codes.add(pair.code)
    return kept


def _sources(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*.py"):
        if SKIPPED_FOLDERS.isdisjoint(path.relative_to(folder).parts[:-1]):
            yield path


# camelCase, snake_case and ACRONYMWord come apart; digits are pieces of their own.
PIECE = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
GRAM_LENGTHS = (3, 4)
MOST_GRAMS = 16000
RAREST_GRAM = 3  # grams of fewer documents tell nothing about others


def grams(document: str) -> list[str]:
    """Return the words of `document`, identifiers split, and each word's character n-grams."""
    return [gram for piece in PIECE.findall(document) for gram in _grams_of(piece.lower())]


@functools.cache
def _grams_of(word: str) -> tuple[str, ...]:
    marked = f"<{word}>"  # so that a word's beginning and end differ from its middle
    parts = (marked[i : i + n] for n in GRAM_LENGTHS for i in range(len(marked) - n + 1))
    return (word, *parts)


@dataclass(frozen=True, eq=False)
class DocumentFeatures:
    """A fitted map from documents, each as its `grams`, to rows of norm `sqrt(width)`."""

    vectorizer: TfidfVectorizer
    svd: TruncatedSVD

    @classmethod
    def fit(
        cls, documents: Sequence[Sequence[str]], width: int = 1024, seed: int = 0
    ) -> DocumentFeatures:
        """Fit on `documents`; the same documents and seed give the same map.

        Raises CimError if they hold too little for `width` dimensions.
        """
        vectorizer = TfidfVectorizer(
            analyzer=list,
            min_df=min(RAREST_GRAM, len(documents)),
            max_features=MOST_GRAMS,
            sublinear_tf=True,
            dtype=np.float32,
        )
        weights = vectorizer.fit_transform(documents)
        if width > min(weights.shape):
            raise CimError(
                f"{weights.shape[0]} documents with {weights.shape[1]} n-grams are too few "
                f"for {width} dimensions"
            )
        # Orthogonalised: in float32 plain power iterations lose the small singular values.
        svd = TruncatedSVD(
            width,
            n_iter=1,
            n_oversamples=32,
            power_iteration_normalizer="QR",
            random_state=seed,
        )
        return cls(vectorizer, svd.fit(weights))

    def transform(self, documents: Sequence[Sequence[str]]) -> Array:
        """Return float32 `[n, width]`; a document of unknown n-grams only gives a row of zeros."""
        rows = self.svd.transform(self.vectorizer.transform(documents))
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        target = math.sqrt(rows.shape[1])
        scaled: Array = rows * (target / np.where(norms > 0, norms, 1))
        return scaled.astype(np.float32)


SEED = 0
"""Seed of the split and of the maps to embeddings."""


@dataclass(frozen=True)
class DemoFiles:
    """Files of a model and its data; each `.npz` holds aligned `text`, `video` [n, width].

    `teacher` are the projectors that the polynomial `poly` was fitted to, `projectors` those that
    were trained on it; `few` holds the first rows of `eval`.
    """

    teacher: Path
    projectors: Path
    poly: Path
    train: Path
    calibration: Path
    eval: Path
    few: Path

    @classmethod
    def under(cls, folder: Path) -> DemoFiles:
        """The demo's own in `folder`; projectors lie in the folder of their run."""
        return cls(
            teacher=folder / "teacher" / "model.pth",
            projectors=folder / "demo" / "model.pth",
            poly=folder / "poly.json",
            train=folder / "train.npz",
            calibration=folder / "calibration.npz",
            eval=folder / "eval.npz",
            few=folder / "few.npz",
        )

    def missing(self) -> list[str]:
        """Names of the files that are not there."""
        return [path.name for path in vars(self).values() if not path.is_file()]


def write_embeddings(
    pairs: Sequence[DocumentedFunction],
    files: DemoFiles,
    width: int,
    eval_rows: int,
    few_rows: int,
    calibration_rows: int,
) -> int:
    """Write embeddings of pairs that are drawn to evaluate on, and of the others; count these.

    The first `few_rows` of the former are a file of their own, for what takes long. Both sides are
    embedded by maps fitted on the others, of which the first calibrate as well. No row of these is
    one to evaluate on: functions that differ in punctuation alone have the same embedding. Raises
    CimError where there are no more than `eval_rows` pairs.
    """
    if len(pairs) <= eval_rows:
        raise CimError(f"the sources hold {len(pairs)} pairs; expected more than {eval_rows}")
    order = np.random.default_rng(SEED).permutation(len(pairs))
    shuffled = [pairs[i] for i in order]
    sides = [[pair.text for pair in shuffled], [pair.code for pair in shuffled]]
    # With a thread of BLAS each: many of its products here are too small for its own to pay.
    text, video = side_by_side(lambda documents: _embedded(documents, width, eval_rows), sides)
    seen = _seen(text, eval_rows) | _seen(video, eval_rows)
    others = eval_rows + np.flatnonzero(~seen)
    for file, rows in (
        (files.eval, np.arange(eval_rows)),
        (files.few, np.arange(min(few_rows, eval_rows))),
        (files.train, others),
        (files.calibration, others[:calibration_rows]),
    ):
        np.savez(file, text=text[rows], video=video[rows])
    return len(others)


def _embedded(documents: Sequence[str], width: int, eval_rows: int) -> Array:
    split = [grams(document) for document in documents]
    return DocumentFeatures.fit(split[eval_rows:], width, SEED).transform(split)


def _seen(rows: Array, eval_rows: int) -> BoolArray:
    """Mask of the rows behind the first `eval_rows`: those that equal one of these."""
    digests = row_digests(rows)
    return np.isin(digests[eval_rows:], digests[:eval_rows])
