"""Embeddings: the rows of texts and videos, and the right video of each text, in every form.

They are read from files and pairs of files, or taken as arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from cimtool.base.arrays import Array, BoolArray, FloatArray, IntArray
from cimtool.base.errors import CimError, kind_of, naming
from cimtool.base.named import one_of, require_one
from cimtool.ir.program import MODALITIES
from cimtool.loading.checkpoint import TORCH_SUFFIXES, read_torch, require_suffix
from cimtool.loading.model import ModelCard
from cimtool.loading.npy import read_npy, read_npz
from cimtool.reference.classes import Classes
from cimtool.reference.judgements import Comparisons, Judgements
from cimtool.reference.truth import Truth, truth_among_others, truth_judged, truth_of

TEXT = ("text",)
VIDEO = ("video", "image")
NAMES = {"text": TEXT, "video": VIDEO}
"""The names under which a file may hold a modality."""

LABELS = ("labels", "label")
TRUTH = ("text_to_video", "text_to_image")
ALONE = "rows"
"""Items of one modality, which are texts and videos at once."""
IDS = {"text": ("text_ids",), "video": ("video_ids", "image_ids"), ALONE: ("row_ids",)}
"""The names under which a file may hold the ids of a modality's items, for TREC files."""

PAIRS, MATCH, TRIPLETS = "pairs", "match", "triplets"
"""Items of one modality that are compared: rows [P, 2] with yes or no [P], or rows [T, 3]."""

KEYS = (*TEXT, *VIDEO, *LABELS, *TRUTH, ALONE, *chain(*IDS.values()))
OF_ALONE = (PAIRS, MATCH, TRIPLETS)

UNIT_TOLERANCE = 1e-3
"""Rows whose norm is this near 1 count as unit rows and stay as they are."""


@dataclass(frozen=True)
class Embeddings:
    """Rows of both modalities, float32: text [N, in], video [M, in].

    `text_to_video` [N] is the row of the right video of each text, None where it is not known;
    `labels` is the class [N] of each text, or [N, C] true for each of its classes, where they are
    known. `file` is where they come from, for messages. With `alone` the rows are items of one
    modality: text and video are the same. `unread` are the names of further arrays, such as a third
    modality, that nothing is read from. `known_ids` are the ids of a modality's items, and the name
    of their array, where the data have them; `judged` says what is right, whatever else would.
    `compared` are pairs or triplets of items of one modality, which say it where no labels do.
    """

    text: Array
    video: Array
    text_to_video: IntArray | None
    labels: Classes | None = None
    file: str = "embeddings"
    alone: bool = False
    unread: tuple[str, ...] = ()
    known_ids: Mapping[str, tuple[str, Array]] = field(default_factory=dict)
    judged: Judgements | None = None
    compared: Comparisons | None = None

    def ids(self, modality: str) -> Array:
        """The ids [n] of a modality's items, texts; their rows where the data have none."""
        if modality in self.known_ids:
            return self.known_ids[modality][1]
        return np.arange(len(getattr(self, modality))).astype(str)

    def named(self, modality: str) -> str | None:
        """The name of the array of a modality's ids; None where the data have none."""
        return self.known_ids[modality][0] if modality in self.known_ids else None

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences that a reader of figures on these embeddings should see."""
        if not self.unread:
            return ()
        names = ", ".join(self.unread)
        return (f"{self.file}: {names} {'is' if len(self.unread) == 1 else 'are'} not read",)

    @property
    def right(self) -> IntArray:
        """The right video of each text [N], for what cannot do without; CimError where unknown."""
        with naming(self.file):
            return require_right(self.text_to_video, len(self.text), len(self.video))

    def among(self, kept: BoolArray) -> Embeddings:
        """These texts, a mask [N], with the videos of theirs; CimError where these are unknown."""
        videos, right = np.unique(self.right[kept], return_inverse=True)
        labels = None if self.labels is None else self.labels[kept]
        text, video = self.text[kept], self.video[videos]
        parts = {"text": np.flatnonzero(kept), "video": videos}
        ids = {m: (key, one[parts[m]]) for m, (key, one) in self.known_ids.items()}
        compared = None
        if self.compared is not None:
            compared = self.compared.among(videos, len(self.video))
        return replace(
            self, text=text, video=video, text_to_video=right, labels=labels, known_ids=ids,
            compared=compared,
        )  # fmt: skip

    @property
    def groups(self) -> IntArray:
        """Numbers [N] of texts that are drawn together: those of a video, or joined by pairs."""
        if self.labels is None and self.compared is not None:
            return self.compared.groups(len(self.text))
        return self.right

    def arrays(self) -> dict[str, Array]:
        """The arrays by the names under which a file holds them."""
        if self.alone:
            found = {ALONE: self.text}
        else:
            found = {TEXT[0]: self.text, VIDEO[0]: self.video}
            if self.text_to_video is not None:
                found[TRUTH[0]] = self.text_to_video
        found |= dict(self.known_ids.values())
        if self.compared is not None:
            found |= self.compared.arrays
        return found if self.labels is None else {**found, LABELS[0]: self.labels}

    @property
    def truth(self) -> Truth:
        """The right items of each query; CimError where they are not known."""
        return self.truth_of(self.alone)

    def truth_of(self, leave_one_out: bool) -> Truth:
        """The same, or with `leave_one_out` where row i of both is one item."""
        if self.judged is not None:
            return truth_judged(self.judged, len(self.text), len(self.video), leave_one_out)
        if self.labels is None and self.compared is not None:
            return truth_judged(self.compared.judgements(), len(self.text), len(self.text), True)
        if leave_one_out:
            return truth_among_others(len(self.text), self.labels)
        return truth_of(self.right, self.labels, len(self.video))


File = Path | str
EmbeddingsLike = File | tuple[File, File] | Embeddings | Mapping[str, Array]
"""Embeddings as a file, a pair of files (text first), as read, or as arrays by name."""


def read_embeddings(path: Path, video: Path | None = None) -> Embeddings:
    """Read one `.npz`, `.pt` or `.pth`, or a pair: `.npy` or `.pt`, text in `path` and `video`.

    Raises CimError for a file that is missing, broken, or whose arrays are not embeddings.
    """
    if video is not None:
        return embeddings_of({"text": _one(path), "video": _one(video)}, f"{path}, {video}")
    if path.suffix == ".npy":
        raise CimError(f"{path}: holds one modality; expected a pair of .npy files, text first")
    require_suffix(path, "embeddings", (".npz", *TORCH_SUFFIXES))
    if path.suffix == ".npz":
        return embeddings_of(read_npz(path, (*KEYS, *OF_ALONE)), str(path))
    values = read_torch(path)
    if not isinstance(values, dict):
        raise CimError(f"{path}: holds one modality; expected a pair of files, or both in one")
    return embeddings_of(values, str(path))


def read_modality(path: Path, modality: str) -> Array:
    """Read one modality's rows, float32 [n, width], of a file that may hold others as well.

    A `.npy` holds these rows alone. Raises CimError as `read_embeddings` does.
    """
    require_suffix(path, "embeddings", (".npy", ".npz", *TORCH_SUFFIXES))
    if path.suffix == ".npz":
        return modality_of(read_npz(path, (*NAMES[modality], ALONE)), modality, str(path))
    values = _one(path)
    named = values if isinstance(values, dict) else {modality: values}
    return modality_of(named, modality, str(path))


def modality_of(values: Mapping[str, Any], modality: str, where: str = "embeddings") -> Array:
    """Take one modality's rows, float32 [n, width], of arrays by name; CimError as above."""
    names = (ALONE,) if _is_alone(values) else NAMES[modality]
    with naming(where):
        key = require_one(values, names)
        return finite_rows(values[key], key)


def _one(path: Path) -> Any:
    require_suffix(path, "one modality's embeddings", (".npy", *TORCH_SUFFIXES))
    return read_npy(path) if path.suffix == ".npy" else read_torch(path)


def embeddings_of(values: Mapping[str, Any], where: str = "embeddings") -> Embeddings:
    """Check arrays by name (`text`, `video`, ... with their aliases) and take them as embeddings.

    Without `text_to_video` row i of the texts belongs to row i of the videos. Items of one modality
    come as `rows` alone, with labels or without. Raises CimError starting with `where`.
    """
    with naming(where):
        unread = tuple(name for name in values if name not in KEYS)
        if _is_alone(values):
            return _alone(values, where, tuple(name for name in unread if name not in OF_ALONE))
        keys = [require_one(values, names) for names in (TEXT, VIDEO)]
        text, video = (finite_rows(values[key], key) for key in keys)
        truth = right_videos(values, len(text), len(video))
        labels = _classes(values, len(text))
        sizes = {"text": len(text), "video": len(video)}
        ids = {m: found for m, n in sizes.items() if (found := _ids(values, IDS[m], n)) is not None}
        return Embeddings(text, video, truth, labels, where, unread=unread, known_ids=ids)


def _is_alone(values: Mapping[str, Any]) -> bool:
    return ALONE in values and not any(name in values for name in (*TEXT, *VIDEO))


def _alone(values: Mapping[str, Any], file: str, unread: tuple[str, ...]) -> Embeddings:
    """Items of one modality, each the right one of itself."""
    if (key := one_of(values, TRUTH)) is not None:
        raise CimError(
            f"holds {ALONE} and {key}; expected text and video with it, or {ALONE} without"
        )
    rows = finite_rows(values[ALONE], ALONE)
    itself = np.arange(len(rows), dtype=np.int64)
    named = _ids(values, IDS[ALONE], len(rows))
    ids = {} if named is None else dict.fromkeys(MODALITIES, named)
    found = Embeddings(rows, rows, itself, _classes(values, len(rows)), file, True, unread, ids)
    return replace(found, compared=_comparisons(values, len(rows)))


def _comparisons(values: Mapping[str, Any], items: int) -> Comparisons | None:
    """The pairs or triplets of items; None where there are none."""
    key = one_of(values, (PAIRS, TRIPLETS))
    if (key == PAIRS) != (MATCH in values):
        raise CimError(
            f"holds {' and '.join(k for k in OF_ALONE if k in values)}; expected {PAIRS} [P, 2] "
            f"with {MATCH} [P], or {TRIPLETS} [T, 3]"
        )
    if key is None:
        return None
    rows, width = np.asarray(values[key]), 2 if key == PAIRS else 3
    if rows.dtype.kind not in "iu" or rows.ndim != 2 or rows.shape[1] != width or not len(rows):
        raise CimError(
            f"{key} has shape {list(rows.shape)} of {rows.dtype}; expected integers [n, {width}], "
            "rows of items"
        )
    ordered = np.sort(rows, axis=1)
    wrong = (ordered[:, 0] < 0) | (ordered[:, -1] >= items)
    wrong |= (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise CimError(
            f"row {row} of {key} is {' '.join(map(str, rows[row]))}; expected {width} different "
            f"rows, 0 to {items - 1}"
        )
    match = None
    if key == PAIRS:
        match = np.asarray(values[MATCH])
        if match.shape != (len(rows),) or not np.isin(match, (0, 1)).all():
            raise CimError(
                f"{MATCH} has shape {list(match.shape)}; expected [{len(rows)}] of 0 and 1, one "
                f"for each of {PAIRS}"
            )
        match = match != 0
    if match is not None and not match.any():
        raise CimError(f"{MATCH} is 0 for all of {PAIRS}; expected some that belong together")
    return Comparisons(rows.astype(np.int64), match)


def finite_rows(value: Any, key: str, dtype: type[np.floating[Any]] = np.float32) -> Array:
    """Return rows of a type of float; CimError where they are not finite, in two dimensions."""
    array = np.asarray(value) if isinstance(value, np.ndarray) else np.asarray("")
    if array.dtype.kind not in "fiu":
        kind = array.dtype if isinstance(value, np.ndarray) else type(value).__name__
        raise CimError(f"{key} is of {kind}; expected an array of real numbers")
    if array.ndim != 2 or array.shape[1] == 0:
        raise CimError(
            f"{key} has shape {list(array.shape)}; expected two dimensions, [rows, width]"
        )
    if len(array) == 0:
        raise CimError(f"{key} has no rows")
    with np.errstate(over="ignore"):
        rows = np.ascontiguousarray(array, dtype)
    finite = np.isfinite(rows).all(axis=1)
    if not finite.all():
        row = int(np.argmin(finite))
        bad = array[row][~np.isfinite(rows[row])][0]
        raise CimError(f"row {row} of {key} holds {bad}; expected finite {rows.dtype} numbers")
    return rows


def right_videos(values: Mapping[str, Any], texts: int, videos: int) -> IntArray | None:
    """The right video of each text [texts]; None where that is not known."""
    key = one_of(values, TRUTH)
    if key is None:
        return np.arange(texts, dtype=np.int64) if texts == videos else None
    truth = _integers(values[key], key, texts)
    wrong = (truth < 0) | (truth >= videos)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise CimError(
            f"row {row} of {key} is {truth[row]}; expected a video row, 0 to {videos - 1}"
        )
    return truth


def require_right(right: IntArray | None, texts: int, videos: int) -> IntArray:
    """Return the right video of each text; CimError where it is not known."""
    if right is None:
        raise CimError(
            f"{texts} texts and {videos} videos, and text_to_video is missing, which says which "
            "video row is right for each text"
        )
    return right


def _ids(values: Mapping[str, Any], names: tuple[str, ...], count: int) -> tuple[str, Array] | None:
    """The array of the ids of some items, as texts [count], with its name; None where missing."""
    key = one_of(values, names)
    if key is None:
        return None
    array = np.asarray(values[key])
    if array.dtype.kind not in "iuU" or array.shape != (count,):
        raise CimError(
            f"{key} has shape {list(array.shape)} of {array.dtype}; expected [{count}] texts or "
            "integers"
        )
    ids = array.astype(str)
    for row, one in enumerate(ids.tolist()):
        if len(one.split()) != 1 or one.split()[0] != one:
            raise CimError(f'{key} of row {row} is "{one}"; expected a text without spaces')
    _, first, counts = np.unique(ids, return_index=True, return_counts=True)
    if (counts > 1).any():
        one = ids[first[np.argmax(counts > 1)]]
        raise CimError(f"{key} has {one} more than once; expected an id of its own for each row")
    return key, ids


def _classes(values: Mapping[str, Any], texts: int) -> Classes | None:
    """Class numbers [texts], or [texts, C] true for each class that a text has.

    Names of classes are numbered in alphabetical order.
    """
    key = one_of(values, LABELS)
    if key is None:
        return None
    array = np.asarray(values[key])
    if array.ndim == 2 and array.dtype.kind in "biuf":
        return _several_classes(array, key, texts)
    if array.dtype.kind in "US":
        array = np.unique(array, return_inverse=True)[1].reshape(array.shape)
    return _integers(array, key, texts)


def _several_classes(array: Array, key: str, texts: int) -> BoolArray:
    """Classes of which a text may have several: true where a row of 0 and 1 has 1, [texts, C]."""
    count = array.shape[1]
    if len(array) != texts or count < 2:
        raise CimError(
            f"{key} has shape {list(array.shape)}; expected [{texts}], a class per text, or "
            f"[{texts}, C] of 0 and 1 for C classes, of which a text may have several"
        )
    wrong = (array != 0) & (array != 1)
    if wrong.any():
        row = int(np.argmax(wrong.any(axis=1)))
        raise CimError(
            f"row {row} of {key} holds {array[row][wrong[row]][0]}; expected 0 or 1 for each of "
            f"{count} classes"
        )
    if not array.any():
        raise CimError(
            f"{key} has shape {list(array.shape)} and no 1; expected 1 for each class of a text"
        )
    found: BoolArray = array != 0
    return found


def _integers(value: Any, key: str, texts: int) -> IntArray:
    array = np.asarray(value)
    if array.dtype.kind not in "iu":
        raise CimError(f"{key} is of {array.dtype}; expected integers")
    if array.shape != (texts,):
        raise CimError(f"{key} has shape {list(array.shape)}; expected [{texts}], one per text")
    return array.astype(np.int64)


def require_rivals(embeddings: Embeddings) -> None:
    """Raise CimError where a modality has fewer than two rows, so that nothing can be ranked."""
    for modality in MODALITIES:
        if len(getattr(embeddings, modality)) < 2:
            raise CimError(
                f"{embeddings.file}: {modality} has 1 row; expected at least 2, for one row alone "
                "ranks nothing"
            )


def unit_rows(rows: Array, where: str = "embeddings") -> Array:
    """Return float32 rows of unit norm; those within 1e-3 of it are taken as they are.

    The others are divided in float64 and rounded. CimError for a row of zeros.
    """
    norms: FloatArray = np.linalg.norm(rows.astype(np.float64), axis=1)
    if not norms.all():
        row = int(np.argmin(norms))
        raise CimError(f"{where}: row {row} is all zeros; expected a row that can be normalised")
    off = np.abs(norms - 1) > UNIT_TOLERANCE
    if not off.any():
        return rows
    result = rows.copy()
    result[off] = (rows[off].astype(np.float64) / norms[off, None]).astype(np.float32)
    return result


def checked_rows(rows: Array, where: str, unit: bool) -> Array:
    """Return one modality's rows as finite float32 [n, width], at unit norm where `unit` says so.

    Raises CimError naming the row where one cannot be taken.
    """
    with naming("embeddings"):
        checked = finite_rows(rows, where)
    return unit_rows(checked, f"{where} embeddings") if unit else checked


def with_unit_rows(embeddings: Embeddings) -> Embeddings:
    """Embeddings with both modalities' rows at unit norm, for a layout that expects them."""
    text, video = (unit_rows(getattr(embeddings, m), f"{embeddings.file}: {m}") for m in MODALITIES)
    return replace(embeddings, text=text, video=video)


def read_data(data: EmbeddingsLike, model: ModelCard) -> Embeddings:
    """Embeddings of any form as a model takes them; CimError where they do not fit."""
    read = embeddings_in(data)
    for modality in MODALITIES:
        _require_width(getattr(read, modality), modality, model, read.file)
    return with_unit_rows(read) if model.unit_rows else read


def embeddings_in(data: EmbeddingsLike) -> Embeddings:
    """Embeddings of any form, whatever model they are for."""
    if isinstance(data, Embeddings):
        return data
    if isinstance(data, Mapping):
        return embeddings_of(data)
    return read_embeddings(*files_of(data))


def read_rows(data: EmbeddingsLike, modality: str, model: ModelCard) -> Array:
    """One modality's rows [n, width] as a model takes them; the other modality is not read.

    Raises CimError where they are missing, are no embeddings, or of another width.
    """
    file = file_of(data, modality)
    where = "embeddings" if file is None else str(file)
    if isinstance(data, Embeddings):
        rows: Array = getattr(data, modality)
    elif isinstance(data, Mapping):
        rows = modality_of(data, modality)
    else:
        rows = read_modality(Path(where), modality)
    _require_width(rows, modality, model, where)
    return unit_rows(rows, f"{where}: {modality}") if model.unit_rows else rows


def _require_width(rows: Array, modality: str, model: ModelCard, where: str) -> None:
    width = model.text_width if modality == "text" else model.video_width
    if rows.shape[1] != width:
        raise CimError(
            f"{where}: {modality} rows have {rows.shape[1]} numbers; {model.name} expects {width}"
        )


def files_of(data: EmbeddingsLike) -> tuple[Path, ...]:
    """The files that embeddings are read from; none where they are given as arrays."""
    if isinstance(data, Embeddings | Mapping):
        return ()
    files = data if isinstance(data, tuple) else (data,)
    if len(files) not in (1, 2) or not all(isinstance(file, Path | str) for file in files):
        raise CimError(
            f"embeddings are given as {kind_of(data)}; expected a file, a pair of files (text "
            "first) or arrays by name (text, video)"
        )
    return tuple(map(Path, files))


def file_of(data: EmbeddingsLike, modality: str) -> Path | None:
    """The file that one modality's rows are read from; None where they are given as arrays."""
    files = files_of(data)
    return None if not files else files[0] if modality == "text" else files[-1]
