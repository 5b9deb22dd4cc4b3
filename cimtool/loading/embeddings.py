"""Embeddings: the rows of texts and videos, and the right video of each text.

They come from a file, a pair of files, or arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cimtool.base.arrays import Array, BoolArray, FloatArray, IntArray
from cimtool.base.data_notes import note_unread, unread
from cimtool.base.errors import ArgumentError, CimError, kind_of, naming
from cimtool.base.modality_names import (
    TEXT_VIDEO,
    Modalities,
    name_of,
    names_held,
    sizes_text,
)
from cimtool.base.named import one_of, require_one
from cimtool.ir.program import MODALITIES
from cimtool.loading.checkpoint import TORCH_SUFFIXES, read_torch, require_suffix
from cimtool.loading.digests import arrays_digest
from cimtool.loading.in_memory import NamedColumns, by_name
from cimtool.loading.item_arrays import (
    ALONE,
    IDS,
    KEYS,
    LABELS,
    OF_ALONE,
    TEXT,
    TRUTH,
    VIDEO,
    ArrayNames,
    classes_in,
    comparisons_in,
    finite_rows,
    ids_in,
    item_rows,
    require_right,
    right_videos,
)
from cimtool.loading.model import ModelCard
from cimtool.loading.npy import npz_names, read_npy, read_npz
from cimtool.loading.row_norms import warn_of_scale
from cimtool.reference.truth import (
    Classes,
    Comparisons,
    Judgements,
    Truth,
    truth_among_others,
    truth_judged,
    truth_of,
)

UNIT_TOLERANCE = 1e-3
"""Largest distance from 1 at which a row's norm counts as 1; such rows are not changed."""


TokenCounts = tuple[int | None, int | None]
"""Tokens of a text and of a video; None if an item is one row."""


@dataclass(frozen=True)
class Embeddings:
    """Rows of both modalities, float32: text [N, in], video [M, in].

    `text_to_video` [N] is the row of the right video of each text, None if it is not known.
    `labels` is the class [N] of each text, or [N, C] true for each of its classes, or None. `file`
    is the source, for messages. With `alone`, the rows are items of one modality: text and video
    are the same. `unread` names further arrays that are not read, such as a third modality.
    `known_ids` has, by modality, the name of the array of ids and the ids, if the data have them.
    If `judged` is given, it alone decides which items are right. `compared` are pairs or triplets
    of items of one modality; they decide if there are no labels. `modalities` are the names of the
    arrays taken as text and video, None for the usual names. `called` are the names of both
    modalities in tables, so that images are called images. `tokens` are those of a text and of a
    video if their rows came as tokens [N, T, in], which are flat here; None for each that did not.
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
    modalities: Modalities | None = None
    called: Modalities = TEXT_VIDEO
    tokens: TokenCounts = (None, None)

    def ids(self, modality: str) -> Array:
        """The ids [n] of a modality's items, as texts; row numbers if the data have no ids."""
        if modality in self.known_ids:
            return self.known_ids[modality][1]
        return np.arange(len(getattr(self, modality))).astype(str)

    def named(self, modality: str) -> str | None:
        """The name of the array of a modality's ids; None if the data have no ids."""
        return self.known_ids[modality][0] if modality in self.known_ids else None

    @property
    def counted(self) -> str:
        """The numbers of items, in words: `1,500 texts and 300 images`."""
        return sizes_text((len(self.text), len(self.video)), self.called)

    @property
    def digest(self) -> str:
        """The SHA-256 of everything that figures depend on: the rows, and the right items."""
        return self.digest_of(self.truth)

    def digest_of(self, truth: Truth) -> str:
        """The `digest` where right items are those of `truth`."""
        found: dict[str, Array] = {"text": self.text, "video": self.video}
        found |= {"right": truth.text_to_video, "leave_one_out": np.array(truth.leave_one_out)}
        if truth.labels is not None:
            found["labels"] = truth.labels[0]
        if truth.judged is not None:
            judged = truth.judged
            found["judged"] = np.stack([judged.text, judged.video, judged.grade])
        return arrays_digest(found)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences that a reader of figures on these embeddings should see."""
        return unread(self.file, self.unread)

    @property
    def right(self) -> IntArray:
        """The right video of each text [N]; CimError if it is not known."""
        with naming(self.file):
            return require_right(self.text_to_video, len(self.text), len(self.video), self.called)

    def among(self, kept: BoolArray) -> Embeddings:
        """The texts that a mask [N] marks, and their right videos; CimError if not known."""
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

    def without(self, text: BoolArray, video: BoolArray) -> Embeddings:
        """The data without the rows that masks [N] and [M] mark, and without their partners.

        A text is left out with its right video, a video with the last of its texts. With
        judgements, no partner is left out.
        """
        kept_text, kept_video, right = ~text, ~video, self.text_to_video
        if self.alone:
            kept_text = kept_video = kept_text & kept_video
        elif right is not None and self.judged is None:
            kept_text &= kept_video[right]
            texts, left = (np.bincount(x, minlength=len(video)) for x in (right, right[kept_text]))
            kept_video &= (left > 0) | (texts == 0)
        if right is not None:
            known = kept_video[right[kept_text]].all()
            right = (np.cumsum(kept_video) - 1)[right[kept_text]] if known else None
        parts = {"text": np.flatnonzero(kept_text), "video": np.flatnonzero(kept_video)}
        judged, compared = self.judged, self.compared
        if judged is not None:
            judged = judged.between(kept_text, kept_video)
        if compared is not None:
            compared = compared.among(parts["video"], len(video))
        return replace(
            self,
            text=self.text[kept_text],
            video=self.video[kept_video],
            text_to_video=right,
            labels=None if self.labels is None else self.labels[kept_text],
            known_ids={m: (key, one[parts[m]]) for m, (key, one) in self.known_ids.items()},
            judged=judged,
            compared=compared,
        )

    @property
    def groups(self) -> IntArray:
        """Group numbers [N]: texts of one group, by video or by pairs, are drawn together."""
        if self.labels is None and self.compared is not None:
            return self.compared.groups(len(self.text))
        return self.right

    def arrays(self) -> dict[str, Array]:
        """The arrays, by their names in a file."""
        if self.alone:
            found = {ALONE: self.text}
        else:
            text, video = self.modalities or MODALITIES
            found = {text: self.text, video: self.video}
            if self.text_to_video is not None:
                found[f"{text}_to_{video}"] = self.text_to_video
        found |= dict(self.known_ids.values())
        if self.compared is not None:
            found |= self.compared.arrays
        return found if self.labels is None else {**found, LABELS[0]: self.labels}

    @property
    def truth(self) -> Truth:
        """The right items of each query; CimError if they are not known."""
        return self.truth_of(self.alone)

    def truth_of(self, leave_one_out: bool) -> Truth:
        """The right items of each query; with `leave_one_out`, row i of both is the same item."""
        if self.judged is not None:
            return truth_judged(self.judged, len(self.text), len(self.video), leave_one_out)
        if self.labels is None and self.compared is not None:
            return truth_judged(self.compared.judgements(), len(self.text), len(self.text), True)
        if leave_one_out:
            return truth_among_others(len(self.text), self.labels)
        return truth_of(self.right, self.labels, len(self.video))


def with_distractors(data: Embeddings, rows: Array) -> Embeddings:
    """The data with further videos, right for no text; CimError for items of one modality."""
    if data.alone or data.compared is not None:
        raise ArgumentError(
            "{distractors}: {} holds items of one modality; expected texts and videos", data.file
        )
    ids = {name: one for name, one in data.known_ids.items() if name != "video"}
    return replace(data, video=np.concatenate([data.video, rows]), known_ids=ids)


File = Path | str
EmbeddingsLike = (
    File | tuple[File, File] | Embeddings | Mapping[str, Any] | NamedColumns
    | tuple[ArrayLike, ArrayLike]
)  # fmt: skip
"""Embeddings as a file, a pair of files (text first), already read, or in memory.

In memory they are arrays or tensors by name, a table or dataset with such columns, or a pair.
"""


def read_embeddings(
    path: Path, video: Path | None = None, modalities: Modalities | None = None
) -> Embeddings:
    """Read one `.npz`, `.pt` or `.pth`, or a pair of `.npy`, `.pt` or `.pth`: text, then video.

    If a file holds more modalities, `modalities` names the two that are taken as text and video.
    Raises CimError for a file that is missing, broken, or whose arrays are not embeddings.
    """
    if video is not None:
        return embeddings_of({"text": _one(path), "video": _one(video)}, f"{path}, {video}")
    if path.suffix == ".npy":
        raise CimError(f"{path}: holds one modality; expected a pair of .npy files, text first")
    require_suffix(path, "embeddings", (".npz", *TORCH_SUFFIXES))
    if path.suffix == ".npz":
        if modalities is None:
            wanted: tuple[str, ...] = (*KEYS, *OF_ALONE)
        else:
            modalities = names_held(modalities, npz_names(path))
            wanted = ArrayNames.of(modalities).wanted
        return embeddings_of(read_npz(path, wanted), str(path), modalities)
    values = read_torch(path)
    if not isinstance(values, dict):
        held = "one modality" if isinstance(values, np.ndarray) else f"a {type(values).__name__}"
        raise CimError(
            f"{path}: holds {held}; expected a pair of files, or a dictionary of both in one"
        )
    return embeddings_of(values, str(path), modalities)


def read_modality(
    path: Path, modality: str, modalities: Modalities | None = None
) -> tuple[str, Array, int | None]:
    """Read the name, the rows, float32 [n, width], and the tokens of one modality of a file.

    The file may hold other modalities too, except a `.npy`. `modalities` are the names of the
    arrays taken as text and video. Raises CimError as `read_embeddings` does.
    """
    require_suffix(path, "embeddings", (".npy", ".npz", *TORCH_SUFFIXES))
    if path.suffix == ".npz":
        if modalities is not None:
            modalities = names_held(modalities, npz_names(path))
        names = (*ArrayNames.of(modalities).rows[modality], ALONE)
        return modality_of(read_npz(path, names), modality, str(path), modalities)
    values = _one(path)
    named = values if isinstance(values, dict) else {modality: values}
    if not isinstance(values, dict):
        return modality_of(named, modality, str(path))
    return modality_of(named, modality, str(path), modalities)


def modality_of(
    values: Mapping[str, Any],
    modality: str,
    where: str = "embeddings",
    modalities: Modalities | None = None,
) -> tuple[str, Array, int | None]:
    """The name, the rows, float32 [n, width], and the tokens of one modality in arrays by name.

    Tokens are None if they are not an axis of the array. Raises CimError as `read_modality` does.
    """
    modalities = names_held(modalities, values.keys())
    names = (ALONE,) if _is_alone(values) else ArrayNames.of(modalities, values).rows[modality]
    with naming(where):
        key = require_one(values, names)
        note_unread(where, _others(values, modalities))
        return modality if key == ALONE else key, *item_rows(values[key], key)


def _one(path: Path) -> Any:
    require_suffix(path, "one modality's embeddings", (".npy", *TORCH_SUFFIXES))
    return read_npy(path) if path.suffix == ".npy" else read_torch(path)


def embeddings_of(
    values: Mapping[str, Any], where: str = "embeddings", modalities: Modalities | None = None
) -> Embeddings:
    """Check arrays by name (`text`, `video`, ... with their aliases) and take them as embeddings.

    Without `text_to_video`, row i of the texts belongs to row i of the videos. Items of a single
    modality come as `rows`, with labels or without. `modalities` are the names of the arrays taken
    as text and video. The sentence of a CimError starts with `where`.
    """
    modalities = names_held(modalities, values.keys())
    with naming(where):
        names, others = ArrayNames.of(modalities, values), _others(values, modalities)
        if modalities is None and _is_alone(values):
            return _alone(values, where, others)
        keys = [require_one(values, names.rows[modality]) for modality in MODALITIES]
        (text, of_text), (video, of_video) = (item_rows(values[key], key) for key in keys)
        called = keys[0], keys[1]
        truth = right_videos(values, len(text), len(video), names.right, called)
        labels = classes_in(values, len(text))
        sizes = {"text": len(text), "video": len(video)}
        ids = {m: ids_in(values, names.ids[m], n) for m, n in sizes.items()}
        known_ids = {m: found for m, found in ids.items() if found is not None}
        return Embeddings(
            text, video, truth, labels, where, unread=others, known_ids=known_ids,
            modalities=modalities, called=called, tokens=(of_text, of_video),
        )  # fmt: skip


def _is_alone(values: Mapping[str, Any]) -> bool:
    return ALONE in values and not any(name in values for name in (*TEXT, *VIDEO))


def _others(values: Mapping[str, Any], modalities: Modalities | None) -> tuple[str, ...]:
    """The names of the arrays that data of these modalities don't use."""
    known: tuple[str, ...] = ArrayNames.of(modalities, values).wanted
    if modalities is None:
        known = (*KEYS, *OF_ALONE) if _is_alone(values) else KEYS
    return tuple(name for name in values if name not in known)


def _alone(values: Mapping[str, Any], file: str, others: tuple[str, ...]) -> Embeddings:
    """Items of one modality; the right item of each is itself."""
    if (key := one_of(values, TRUTH)) is not None:
        both = key.replace("_to_", " and ")
        raise CimError(f"holds {ALONE} and {key}; expected {both} with it, or {ALONE} without")
    rows, tokens = item_rows(values[ALONE], ALONE)
    itself = np.arange(len(rows), dtype=np.int64)
    named = ids_in(values, IDS[ALONE], len(rows))
    ids = {} if named is None else dict.fromkeys(MODALITIES, named)
    found = Embeddings(
        rows,
        rows,
        itself,
        labels=classes_in(values, len(rows)),
        file=file,
        alone=True,
        unread=others,
        known_ids=ids,
        tokens=(tokens, tokens),
    )
    return replace(found, compared=comparisons_in(values, len(rows)))


def require_rivals(embeddings: Embeddings) -> None:
    """Raise CimError if a modality has fewer than two rows: nothing can be ranked."""
    for modality, name in zip(MODALITIES, embeddings.called, strict=True):
        if len(getattr(embeddings, modality)) < 2:
            raise CimError(
                f"{embeddings.file}: {name} has 1 row; expected at least 2, as one row cannot be "
                "ranked"
            )


def unit_rows(rows: Array, where: str = "embeddings") -> Array:
    """Return float32 rows at unit norm; rows within UNIT_TOLERANCE of it are not changed.

    Other rows are divided in float64 and rounded. Raises CimError for a row of zeros.
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
    """Return one modality's rows as finite float32 [n, width], at unit norm with `unit`.

    Raises CimError, which names the row, if a row is not finite or cannot be normalised.
    """
    with naming("embeddings"):
        checked = finite_rows(rows, where)
    return unit_rows(checked, f"{where} embeddings") if unit else checked


def with_unit_rows(embeddings: Embeddings) -> Embeddings:
    """Embeddings with the rows of both modalities at unit norm."""
    text, video = (
        unit_rows(rows, f"{embeddings.file}: {name}")
        for name, rows in zip(embeddings.called, (embeddings.text, embeddings.video), strict=True)
    )
    return replace(embeddings, text=text, video=video)


def read_data(data: EmbeddingsLike, model: ModelCard) -> Embeddings:
    """Embeddings of any form as a model takes them; CimError if they don't fit.

    Warns if the scale of the rows differs from the scale of the calibration rows.
    """
    read = embeddings_in(data, model.modalities)
    for modality, name, tokens in zip(MODALITIES, read.called, read.tokens, strict=True):
        require_tokens(tokens, modality, model, read.file, name)
        require_width(getattr(read, modality), modality, model, read.file, name)
    if model.head.takes_tokens:
        read = replace(read, tokens=model.head.tokens)
    taken = with_unit_rows(read) if model.unit_rows else read
    for modality, name in zip(MODALITIES, taken.called, strict=True):
        warn_of_scale(getattr(taken, modality), modality, model, taken.file, name)
    return taken


def embeddings_in(data: EmbeddingsLike, modalities: Modalities | None = None) -> Embeddings:
    """Embeddings of any form, not yet checked against a model.

    `modalities` chooses two modalities of a file or of arrays by name; a pair of files and
    Embeddings are taken unchanged.
    """
    if isinstance(data, Embeddings):
        return data
    if (named := by_name(data, modalities)) is not None:
        return embeddings_of(named, modalities=modalities)
    first, *second = files_of(data)
    read = read_embeddings(first, next(iter(second), None), modalities)
    note_unread(read.file, read.unread)
    return read


def read_rows(data: EmbeddingsLike, modality: str, model: ModelCard) -> Array:
    """One modality's rows [n, width] as a model takes them; the other modality is not read.

    Raises CimError if they are missing, are not embeddings, or have another width. Warns as
    `read_data` does.
    """
    where, alone = "embeddings", name_of(modality, model.modalities or TEXT_VIDEO)
    if isinstance(data, Embeddings):
        name, rows = name_of(modality, data.called), getattr(data, modality)
        tokens = data.tokens[MODALITIES.index(modality)]
    elif (named := by_name(data, model.modalities, alone)) is not None:
        name, rows, tokens = modality_of(named, modality, modalities=model.modalities)
    else:
        where = str(file_of(data, modality))
        name, rows, tokens = read_modality(Path(where), modality, model.modalities)
    require_tokens(tokens, modality, model, where, name)
    require_width(rows, modality, model, where, name)
    taken = unit_rows(rows, f"{where}: {name}") if model.unit_rows else rows
    warn_of_scale(taken, modality, model, where, name)
    return taken


def require_tokens(
    tokens: int | None, modality: str, model: ModelCard, where: str, name: str
) -> None:
    """Raise CimError unless an item has the tokens that a model takes; None if they are flat.

    The sentence calls the modality by the user's `name`.
    """
    expected = model.head.tokens[MODALITIES.index(modality)]
    if tokens not in (None, expected):
        taken = f"{expected} tokens" if model.head.takes_tokens else "one row"
        raise CimError(
            f"{where}: {name} has {tokens} tokens for each item; {model.name} expects {taken}"
        )


def require_vectors(data: Embeddings) -> None:
    """Raise CimError if an item is several tokens."""
    for name, tokens in zip(data.called, data.tokens, strict=True):
        if tokens is not None:
            raise CimError(
                f"{data.file}: {name} has {tokens} tokens for each item; expected one row, "
                "[rows, width]"
            )


def require_width(
    rows: Array, modality: str, model: ModelCard, where: str, name: str | None = None
) -> None:
    """Raise CimError unless rows [n, width] have the width that a model takes.

    The sentence calls the modality by the user's `name`.
    """
    width = model.text_width if modality == "text" else model.video_width
    if rows.shape[1] != width:
        raise CimError(
            f"{where}: {name or modality} rows have {rows.shape[1]} numbers; {model.name} expects "
            f"{width}"
        )


def files_of(data: EmbeddingsLike) -> tuple[Path, ...]:
    """The files that embeddings are read from; none if they are given as arrays."""
    if isinstance(data, Embeddings) or by_name(data) is not None:
        return ()
    files: tuple[Any, ...] = data if isinstance(data, tuple) else (data,)
    if len(files) not in (1, 2) or not all(isinstance(file, Path | str) for file in files):
        raise CimError(
            f"embeddings are given as {kind_of(data)}; expected a file, a pair of files or of "
            "arrays (text first), or arrays by name (text, video)"
        )
    return tuple(map(Path, files))


def file_of(data: EmbeddingsLike, modality: str) -> Path | None:
    """The file that one modality's rows are read from; None if they are given as arrays."""
    if by_name(data, alone=modality) is not None:
        return None
    files = files_of(data)
    return None if not files else files[0] if modality == "text" else files[-1]
