"""The demo's data: embeddings of the functions that are installed, and of their docstrings.

Pairs of natural language and code are read from the Python sources of the installation. Embeddings
are those of a pretrained encoder, of functions and beginnings of their docstrings, if it is
installed. Otherwise they are sub-word TF-IDF and truncated SVD, of whole docstrings.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
import re
import sysconfig
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfTransformer

from cimtool.base.arrays import Array, BoolArray, IntArray
from cimtool.base.errors import CimError
from cimtool.base.files import TRAINED_MODEL
from cimtool.base.threads import side_by_side, thread_count
from cimtool.demo.queries import qrels_of, queries_of, write_judged
from cimtool.demo.sources import DocumentedFunction, documented_functions

PACKAGES = ("numpy", "scipy", "sklearn")
SKIPPED_FOLDERS = frozenset({"test", "tests", "idle_test", "site-packages", "__pycache__"})


def installed_sources(packages: Iterable[str] = PACKAGES) -> tuple[Path, ...]:
    """Return the folders of the standard library and of `packages`, importing none of them."""
    return (Path(sysconfig.get_paths()["stdlib"]), *(_package_folder(name) for name in packages))


def _package_folder(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise CimError(f'package "{name}" is not installed; the demo needs its sources as a corpus')
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


def words_of(document: str) -> Iterator[str]:
    """The words of `document` in lower case, identifiers split."""
    return map(str.lower, PIECE.findall(document))


def grams_of(word: str) -> tuple[str, ...]:
    """A word and its character n-grams."""
    marked = f"<{word}>"  # so that a word's beginning and end differ from its middle
    parts = (marked[i : i + n] for n in GRAM_LENGTHS for i in range(len(marked) - n + 1))
    return (word, *parts)


def _counted(bags: Iterable[Iterable[str]]) -> tuple[csr_matrix, list[str]]:
    """The number of times that each name occurs in each bag [bags, names], and the names."""
    numbers: defaultdict[str, int] = defaultdict(itertools.count().__next__)
    counted = [Counter(bag) for bag in bags]
    columns = [numbers[name] for bag in counted for name in bag]
    values = np.fromiter(chain.from_iterable(bag.values() for bag in counted), np.float32)
    starts = np.cumsum([0, *map(len, counted)])
    shape = len(counted), len(numbers)
    return csr_matrix((values, columns, starts), shape), list(numbers)


def _gram_counts(documents: Iterable[str]) -> csr_matrix:
    """The number of times that each gram occurs in each document, grams in alphabetical order."""
    of_documents, words = _counted(map(words_of, documents))
    of_words, grams = _counted(map(grams_of, words))
    counts = of_documents @ of_words[:, sorted(range(len(grams)), key=grams.__getitem__)]
    counts.sort_indices()  # sums over a row are then the same whatever came first
    return counts


def _telling(counts: csr_matrix) -> IntArray:
    """The grams that are kept: not too rare, and of those the most frequent."""
    documents = np.bincount(counts.indices, minlength=counts.shape[1])
    kept = np.flatnonzero(documents >= min(RAREST_GRAM, counts.shape[0]))
    total = np.asarray(counts.sum(axis=0)).ravel()[kept]
    return np.sort(kept[np.argsort(-total, kind="stable")[:MOST_GRAMS]])


def document_rows(documents: Sequence[str], unseen: int, width: int = 1024, seed: int = 0) -> Array:
    """Embed documents as float32 rows `[n, width]` of norm `sqrt(width)`.

    The map, sub-word TF-IDF and truncated SVD, is fitted on all but the first `unseen`; the same
    documents and seed give the same rows, and one of unknown grams alone a row of zeros. Raises
    CimError if those hold too little for `width` dimensions.
    """
    counts = _gram_counts(documents)
    counts = counts[:, _telling(counts[unseen:])]
    seen = counts[unseen:]
    if width > min(seen.shape):
        raise CimError(
            f"{seen.shape[0]} documents with {seen.shape[1]} n-grams are too few "
            f"for {width} dimensions"
        )
    weights = TfidfTransformer(sublinear_tf=True).fit(seen).transform(counts)
    # Orthogonalised: in float32 plain power iterations lose the small singular values.
    svd = TruncatedSVD(
        width,
        n_iter=1,
        n_oversamples=32,
        power_iteration_normalizer="QR",
        random_state=seed,
    )
    fitted = svd.fit_transform(weights[unseen:])
    rows = np.concatenate([svd.transform(weights[:unseen]), fitted])
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: Array = rows * (math.sqrt(width) / np.where(norms > 0, norms, 1))
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
            teacher=folder / "teacher" / TRAINED_MODEL,
            projectors=folder / "demo" / TRAINED_MODEL,
            poly=folder / "poly.json",
            train=folder / "train.npz",
            calibration=folder / "calibration.npz",
            eval=folder / "eval.npz",
            few=folder / "few.npz",
        )

    def missing(self) -> list[str]:
        """Names of the files that are not there."""
        return [path.name for path in vars(self).values() if not path.is_file()]

    def judged(self, file: Path) -> Path | None:
        """The qrels of one of the files; None if each text has one right item."""
        qrels = qrels_of(file)
        return qrels if qrels.is_file() else None


@dataclass(frozen=True)
class DemoSettings:
    """All that the artefacts depend on, beside what is installed.

    `epochs` and `batch` are those of each of both trainings, of the teacher and on the polynomial;
    `options` are the teacher's, `poly_options` and `poly_rate` those on the polynomial;
    `first_pairs` are labelled for the one that is trained on, `last_pairs` for the one that is
    deployed, a share `matched` of them right ones. `samples` are Monte Carlo's K in the table of
    the stages, measured on `few_rows`.
    `pretrained` rows are those of the encoder, of at most `functions` functions. `split` draws the
    functions that evaluate. `rate` is the teacher's learning rate, None for that of its loss.
    """

    epochs: int
    batch: int = 256
    eval_rows: int = 1500
    few_rows: int = 256
    calibration_rows: int = 512
    width: int = 1024
    first_pairs: int = 50_000
    last_pairs: int = 300_000
    sampled_pairs: int = 10_000
    matched: float = 0.5
    samples: tuple[int, ...] = (2, 10, 50)
    options: Mapping[str, Any] = field(
        default_factory=lambda: {
            "model.hidden": 1024,
            "model.width": 128,
            "model.logvar_start": -1.0,
        }
    )
    poly_options: Mapping[str, Any] = field(
        default_factory=lambda: {"loss.tau": 1.0, "loss.variance": 0.3}
    )
    rate: float | None = None
    poly_rate: float = 3e-4
    pretrained: bool = False
    functions: int = 7500
    split: int = 0

    @classmethod
    def of_encoder(cls, epochs: int) -> DemoSettings:
        """Those for rows of the pretrained encoder; they were chosen on splits 0 and 5."""
        return cls(
            epochs,
            pretrained=True,
            width=384,
            split=1,
            rate=3e-4,
            matched=0.1,
            options={
                "model.hidden": 1024,
                "model.width": 128,
                "model.linear": True,
                "model.logvar_start": -1.0,
                "model.dropout": 0.2,
                "loss.a": 0.15,
                "loss.b": 32.0,
                "loss.match": 4.0,
                "loss.variance": 0.5,
            },
            poly_options={"loss.tau": 1.0, "loss.variance": 0.5},
            poly_rate=1e-5,
        )

    @property
    def least_bytes(self) -> int:
        """The least that the artefacts take: the float32 rows of both modalities."""
        return (self.eval_rows + self.few_rows + self.calibration_rows) * self.width * 2 * 4


def write_embeddings(
    pairs: Sequence[DocumentedFunction], files: DemoFiles, settings: DemoSettings
) -> int:
    """Write embeddings of pairs that are drawn to evaluate on, and of the others; count these.

    The first `few_rows` of the former are a file of their own, for what takes long. Both sides are
    embedded by maps fitted on the others, of which the first calibrate as well. No row of these is
    one to evaluate on: functions that differ in punctuation alone have the same embedding. Raises
    CimError if there are no more than `eval_rows` pairs.
    """
    eval_rows, width = settings.eval_rows, settings.width
    _require_more(pairs, eval_rows)
    order = np.random.default_rng(SEED).permutation(len(pairs))
    shuffled = [pairs[i] for i in order]
    sides = [[pair.text for pair in shuffled], [pair.code for pair in shuffled]]
    # With a thread of BLAS each: many of its products here are too small for its own to pay.
    text, video = side_by_side(
        lambda documents: document_rows(documents, eval_rows, width, SEED), sides
    )
    seen = _seen(text, eval_rows) | _seen(video, eval_rows)
    others = eval_rows + np.flatnonzero(~seen)
    for file, rows in (
        (files.eval, np.arange(eval_rows)),
        (files.few, np.arange(min(settings.few_rows, eval_rows))),
        (files.train, others),
        (files.calibration, others[: settings.calibration_rows]),
    ):
        np.savez(file, text=text[rows], video=video[rows])
    return len(others)


CODE_TOKENS, QUERY_TOKENS = 64, 64
"""Tokens that are encoded of a function and of a query, at most."""

NEAR = 0.999
"""Cosine of two rows above which they are the same text: rows of one text differ by batch."""

QUERIES = 3
"""Queries that train for each function; one of them evaluates."""

Encode = Callable[[Sequence[str], int], Array]
"""Rows of texts, of so many tokens each at most."""


def write_pretrained(
    pairs: Sequence[DocumentedFunction], files: DemoFiles, settings: DemoSettings, encode: Encode
) -> int:
    """Write rows of functions and of queries on them with what is right; count what trains.

    Functions are parted as by `write_embeddings`. No query or function that trains is as near as
    NEAR to one that evaluates. Raises CimError if there are no more than `eval_rows` functions.
    """
    held = settings.eval_rows
    _require_more(pairs, held)
    seed = settings.split
    order = np.random.default_rng(seed).permutation(len(pairs))[: settings.functions]
    video = encode([pairs[i].code for i in order], CODE_TOKENS)
    others = held + np.flatnonzero(~_near(video, held))
    docstrings = [pairs[i].text for i in order]
    asked = queries_of(docstrings[:held], 1, seed)
    training = queries_of([docstrings[i] for i in others], QUERIES, seed, asked.texts)
    text = encode([*asked.texts, *training.texts], QUERY_TOKENS)
    kept = np.flatnonzero(~_near(text, len(asked)))
    training = training.among(kept.tolist(), len(others))
    known, unseen = video[others], text[len(asked) :][kept]
    write_judged(files.eval, asked, text[: len(asked)], video[:held])
    write_judged(files.train, training, unseen, known)
    few = [i for i, own in enumerate(asked.own) if own < settings.few_rows]
    first = video[: settings.few_rows]
    write_judged(files.few, asked.among(few, len(first)), text[few], first)
    own = np.array(training.own[: settings.calibration_rows])
    np.savez(files.calibration, text=unseen[: len(own)], video=known[own])
    return len(training)


def _near(rows: Array, eval_rows: int) -> BoolArray:
    """Mask of the unit rows behind the first `eval_rows`: those as near as NEAR to one of these."""
    found: BoolArray = (rows[eval_rows:] @ rows[:eval_rows].T).max(axis=1) > NEAR
    return found


def _require_more(pairs: Sequence[DocumentedFunction], eval_rows: int) -> None:
    if len(pairs) <= eval_rows:
        raise CimError(f"the sources hold {len(pairs)} pairs; expected more than {eval_rows}")


def _seen(rows: Array, eval_rows: int) -> BoolArray:
    """Mask of the rows behind the first `eval_rows`: those that equal one of these."""
    known = {row.tobytes() for row in rows[:eval_rows]}
    return np.array([row.tobytes() in known for row in rows[eval_rows:]])
