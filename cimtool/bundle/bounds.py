"""The bounds of scores that `verify` measured, read from its report for `simulate` and `search`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cimtool.base.arrays import Array
from cimtool.base.errors import CimError
from cimtool.base.json_files import read_table
from cimtool.base.typed_fields import fits
from cimtool.bundle.bundle import Bundle
from cimtool.reference.conformal import certain_ranks
from cimtool.report.document import Sentence
from cimtool.report.formats import counted

SECTION = "bounds"
"""The name in `report.json` of the section that holds them."""

AGAIN = "run `cimtool verify` with a bound"


@dataclass(frozen=True)
class SignedBounds:
    """An error and a margin between ranks that scores of a bundle keep with the `confidence`.

    `score` is the largest error of a pair of a new text and a new video, right or random. `margin`
    is for a new text among as many items as `items` or fewer.
    """

    confidence: float
    score: float
    margin: float
    items: int


def read_bounds(file: Path, bundle: Bundle) -> SignedBounds:
    """Read the bounds of `bundle` from a `report.json`.

    Raises CimError if the report has none, or is on another bundle.
    """
    values: Any = read_table(file, AGAIN)
    for key in ("sections", SECTION):
        values = values.get(key) if isinstance(values, Mapping) else None
    if not isinstance(values, Mapping):
        raise CimError(f"{file}: holds no bounds; expected the report of `verify` with a bound")
    if values.get("bundle") != bundle.manifest["sha256"]:
        raise CimError(
            f"{file}: its bounds are of another bundle than {bundle.folder}; expected a report on "
            "this one"
        )
    found = [_table(file, values, "random"), _table(file, values, "ranks")]
    if values.get("right") is not None:
        found.append(_table(file, values, "right"))
    random, ranks, *right = (_number(file, one, "bound") for one in found)
    items = values.get("videos")
    if not isinstance(items, int) or items < 1:
        raise CimError(f"{file}: videos of its bounds is {items!r}; {AGAIN} again")
    confidence = _number(file, values, "confidence")
    return SignedBounds(confidence, max(random, *right), ranks, items)


def _table(file: Path, values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = values.get(key)
    if not isinstance(found, Mapping):
        raise CimError(f"{file}: {key} of its bounds is no table; {AGAIN} again")
    return found


def _number(file: Path, values: Mapping[str, Any], key: str) -> float:
    """A finite number, 0 or more."""
    found: Any = values.get(key)
    if not fits(found, float) or not 0 <= found < math.inf:
        raise CimError(f"{file}: {key} of its bounds is {found!r}; {AGAIN} again")
    return float(found)


def require_few(items: int, bounds: SignedBounds, file: Path) -> None:
    """Raise CimError if ranks among this number of items are not bounded."""
    if items > bounds.items:
        raise CimError(
            f"{file}: its margin of ranks is for {bounds.items:,} items or fewer, and there are "
            f"{items:,}; expected a report measured among as many"
        )


def with_certain(best: Mapping[str, Array], top: int, margin: float) -> dict[str, Array]:
    """The arrays of the `top` best items [n, top], and `certain` [n, top].

    `best` has one item more, unless there are no more. Rank r is certain if the float score, too,
    has the r best items above all others: the score at r leads the next by more than the margin.
    """
    certain = certain_ranks(best["top_score"], margin)
    if certain.shape[1] < top:  # nothing is behind the last rank
        certain = np.pad(certain, ((0, 0), (0, 1)), constant_values=True)
    return {name: array[:, :top] for name, array in best.items()} | {"certain": certain}


def bound_sentences(arrays: Mapping[str, Array]) -> Iterator[Sentence]:
    """The bound of a score and the number of certain ranks, if the arrays have them."""
    if "bound" in arrays:
        bound = float(arrays["bound"])
        yield Sentence(f"a score is within {bound:.4g} of the float score, as the report states it")
    if "certain" in arrays:
        certain = arrays["certain"]
        yield Sentence(
            f"certain: rank 1 of {int(certain[:, 0].sum()):,} of {counted(len(certain), 'text')}, "
            f"{int(certain.sum()):,} of all {certain.size:,} ranks"
        )
