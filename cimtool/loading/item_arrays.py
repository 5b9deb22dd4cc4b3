"""Arrays of a data file, by name: rows, right videos, ids, classes and comparisons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from cimtool.base.arrays import Array, BoolArray, IntArray
from cimtool.base.errors import CimError
from cimtool.base.modality_names import (
    COUNTED,
    NAMES,
    TEXT_VIDEO,
    Modalities,
    one_row,
    sizes_text,
)
from cimtool.base.named import one_of
from cimtool.ir.program import MODALITIES
from cimtool.reference.truth import Classes, Comparisons

TEXT, VIDEO = NAMES["text"], NAMES["video"]
"""The names under which a file may hold a modality."""

LABELS = ("labels", "label")
TRUTH = ("text_to_video", "text_to_image")
ALONE = "rows"
"""Items of one modality, used as texts and as videos."""
IDS = {"text": ("text_ids",), "video": ("video_ids", "image_ids"), ALONE: ("row_ids",)}
"""The names under which a file may hold the ids of a modality's items, for TREC files."""

PAIRS, MATCH, TRIPLETS = "pairs", "match", "triplets"
"""Compared items of one modality: pairs [P, 2] with yes or no [P], or triplets [T, 3], as rows."""

KEYS = (*TEXT, *VIDEO, *LABELS, *TRUTH, ALONE, *chain(*IDS.values()))
OF_ALONE = (PAIRS, MATCH, TRIPLETS)


@dataclass(frozen=True)
class ArrayNames:
    """Names that arrays may have: rows and ids by modality, and right videos."""

    rows: Mapping[str, tuple[str, ...]]
    ids: Mapping[str, tuple[str, ...]]
    right: tuple[str, ...]

    @property
    def wanted(self) -> tuple[str, ...]:
        """All of these names, and the names of labels."""
        return (*chain(*self.rows.values(), *self.ids.values()), *self.right, *LABELS)

    @classmethod
    def of(
        cls, modalities: Modalities | None, values: Mapping[str, Any] | None = None
    ) -> ArrayNames:
        """The names for text and video, or for two other modalities; aliases come second.

        The name of the other modality is not an alias: `image` and `video` as two modalities don't
        stand for each other.
        """
        if modalities is None:
            return cls(NAMES, {m: IDS[m] for m in MODALITIES}, TRUTH)
        rows: dict[str, tuple[str, ...]] = {}
        ids: dict[str, tuple[str, ...]] = {}
        for modality, name in zip(MODALITIES, modalities, strict=True):
            known = next((one for one in NAMES.values() if name in one), ())
            aliases = tuple(one for one in known if one not in modalities)
            others = () if values is not None and name in values else aliases
            rows[modality] = tuple(dict.fromkeys((name, *others)))
            ids[modality] = tuple(f"{one}_ids" for one in rows[modality])
        right = tuple(f"{one}_to_{other}" for one in rows["text"] for other in rows["video"])
        return cls(rows, ids, right)


def finite_rows(value: Any, key: str, dtype: type[np.floating[Any]] = np.float32) -> Array:
    """Return rows in a float type; CimError unless they are finite and have two dimensions."""
    array = np.asarray(value) if isinstance(value, np.ndarray) else np.asarray("")
    if array.dtype.kind not in "fiu":
        kind = array.dtype if isinstance(value, np.ndarray) else type(value).__name__
        if isinstance(value, np.ndarray) and array.dtype.kind in "US":
            raise CimError(f"{key} holds texts; expected their embeddings, rows of real numbers")
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


def item_rows(value: Any, key: str) -> tuple[Array, int | None]:
    """Rows [n, width] in float32 and None, or of tokens [n, T, width] the rows [n, T width] and T.

    Raises CimError as `finite_rows` does.
    """
    if not isinstance(value, np.ndarray) or value.ndim < 3:
        return finite_rows(value, key), None
    if value.ndim > 3 or 0 in value.shape[1:]:
        raise CimError(
            f"{key} has shape {list(value.shape)}; expected [rows, width], or [rows, tokens, width]"
        )
    return finite_rows(value.reshape(len(value), -1), key), value.shape[1]


def right_videos(
    values: Mapping[str, Any],
    texts: int,
    videos: int,
    names: tuple[str, ...] = TRUTH,
    called: Modalities = TEXT_VIDEO,
) -> IntArray | None:
    """The right video of each text [texts]; None if it is not known."""
    key = one_of(values, names)
    if key is None:
        return np.arange(texts, dtype=np.int64) if texts == videos else None
    truth = _integers(values[key], key, texts)
    wrong = (truth < 0) | (truth >= videos)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise CimError(
            f"row {row} of {key} is {truth[row]}; expected {one_row(called[1])}, 0 to {videos - 1}"
        )
    return truth


def require_right(
    right: IntArray | None, texts: int, videos: int, called: Modalities = TEXT_VIDEO
) -> IntArray:
    """Return the right video of each text; CimError, with the data's names, if it is not known."""
    if right is not None:
        return right
    one, other = called
    if set(called) <= set(COUNTED):
        raise CimError(
            f"{sizes_text((texts, videos), called)}, and {one}_to_{other} is missing, which says "
            f"which {other} row is right for each {one}"
        )
    raise CimError(
        f"{one} has {texts} rows and {other} {videos}, and {one}_to_{other} is missing, which says "
        f"which row of {other} is right for each row of {one}"
    )


def ids_in(
    values: Mapping[str, Any], names: tuple[str, ...], count: int
) -> tuple[str, Array] | None:
    """The name of the array of ids, and the ids as texts [count]; None if there is no array."""
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
        raise CimError(f"{key} has {one} more than once; expected a different id for each row")
    return key, ids


def classes_in(values: Mapping[str, Any], texts: int) -> Classes | None:
    """Class numbers [texts], or [texts, C] true for each class that a text has; None without any.

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
    """Classes [texts, C] from rows of 0 and 1; a text may have several."""
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
    if (beyond := array > np.iinfo(np.int64).max).any():
        raise CimError(f"{key} holds {array[beyond][0]}; expected integers below 2^63")
    return array.astype(np.int64)


def comparisons_in(values: Mapping[str, Any], items: int) -> Comparisons | None:
    """The pairs or triplets of items; None if there are none."""
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
        if match.shape != (len(rows),):
            raise CimError(
                f"{MATCH} has shape {list(match.shape)}; expected [{len(rows)}] of 0 and 1, one "
                f"for each of {PAIRS}"
            )
        if not (known := np.isin(match, (0, 1))).all():
            row = int(np.argmin(known))
            raise CimError(f"row {row} of {MATCH} is {match[row]}; expected 0 or 1")
        match = match != 0
    if match is not None and not match.any():
        raise CimError(f"{MATCH} is 0 for all of {PAIRS}; expected some that belong together")
    return Comparisons(rows.astype(np.int64), match)
