"""Comparison of a loaded model with outputs that the user gives, before it is compiled."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cimtool.base.arrays import Array, FloatArray
from cimtool.base.errors import CimError, naming
from cimtool.base.named import nearest
from cimtool.ir.program import MODALITIES
from cimtool.loading.embeddings import require_width, unit_rows
from cimtool.loading.item_arrays import ArrayNames, finite_rows
from cimtool.loading.model import Model
from cimtool.loading.npy import read_npz
from cimtool.simulation.simulator import run_rows

OUTPUT_TOLERANCE = 1e-4
"""Allowed difference, as a share of the largest expected value.

Single precision stays below it; a wrong weight or activation does not.
"""

HALF_TOLERANCE = 2e-2
"""Up to this share, outputs in half precision may explain the difference."""

OUTPUT_NAMES = ("mu", "logvar")


def check_outputs(model: Model, given: Path | str | Mapping[str, Array]) -> list[str]:
    """Compare a model in float64 with expected outputs for rows; returns a note for each array.

    A file (.npz) or a mapping holds rows [n, in] as `text`, `video` or both, and the known outputs
    among `text_mu`, `text_logvar`, `video_mu`, `video_logvar` [n, d]. `image` may replace `video`;
    if the model names its modalities, the arrays have these names. Raises CimError for the first
    array that differs, and if there is nothing to compare.
    """
    where = "check" if isinstance(given, Mapping) else str(given)
    arrays: Mapping[str, Any] = given if isinstance(given, Mapping) else read_npz(Path(given))
    names = ArrayNames.of(model.modalities).rows
    called = [_called(names[modality], arrays) for modality in MODALITIES]
    keys = {m: {output: f"{m}_{output}" for output in OUTPUT_NAMES} for m in called}
    expected = [key for own in keys.values() for key in own.values()]
    for name in arrays:
        if name not in (*called, *expected):
            hint = nearest(name, [*called, *expected])
            raise CimError(
                f"{where}: holds {name}; expected {', '.join(called)} and {', '.join(expected)}"
                f"{hint}"
            )
    if not set(expected) & set(arrays):
        raise CimError(f"{where}: holds no outputs; expected one of {', '.join(expected)}")
    notes = []
    with naming(where):
        for modality, name, tower in zip(MODALITIES, called, model.towers, strict=True):
            wanted = {out: key for out, key in keys[name].items() if key in arrays}
            if not wanted:
                continue
            rows = _rows(arrays, modality, name, model)
            found = _outputs(run_rows(tower, rows.astype(np.float64)))
            for output, key in wanted.items():
                if output not in found:
                    raise CimError(f"{key}: the {name} projector gives mu alone")
                off = _difference(key, found[output], finite_rows(arrays[key], key, np.float64))
                notes.append(f"{key} of {where}: {len(rows)} rows within {off:.1e} of the largest")
    return notes


def _called(names: Sequence[str], arrays: Collection[str]) -> str:
    """The name of a modality that the arrays use: `image` for `image_mu`."""
    known = (name for name in names for key in arrays if f"{key}_".startswith(f"{name}_"))
    return next(known, names[0])


def _rows(arrays: Mapping[str, Any], modality: str, name: str, model: Model) -> Array:
    """A modality's rows as the model takes them; the array is called `name`."""
    if name not in arrays:
        raise CimError(f"has no rows {name}; expected them beside their outputs")
    rows = finite_rows(arrays[name], name)
    require_width(rows, modality, model, name, name)
    return unit_rows(rows, name) if model.unit_rows else rows


def _outputs(found: Mapping[str, Array]) -> dict[str, FloatArray]:
    """Mu and, if there is a variance, its logarithm."""
    outputs = {"mu": np.asarray(found["mu"])}
    if "s" in found:
        outputs["logvar"] = np.log(found["s"])
    return outputs


def _difference(key: str, own: FloatArray, expected: FloatArray) -> float:
    """The largest difference as a share of the largest value; CimError if it is too large."""
    if own.shape != expected.shape:
        raise CimError(f"{key} has shape {list(expected.shape)}; expected {list(own.shape)}")
    off = np.abs(own - expected)
    share = float(off.max() / (np.abs(expected).max() or 1.0))
    if share > OUTPUT_TOLERANCE:
        row, column = np.unravel_index(int(off.argmax()), off.shape)
        causes = "other weights, another activation, or rows of another form?"
        if share <= HALF_TOLERANCE and _is_half(expected):
            causes = "its numbers are those of half precision; expected the outputs of float32"
        raise CimError(
            f"{key} holds {expected[row, column]:.6g} in row {row}, dimension {column}, but the "
            f"model that was read gives {own[row, column]:.6g}; expected differences of at most "
            f"{OUTPUT_TOLERANCE:g} of the largest value ({causes})"
        )
    return share


def _is_half(numbers: FloatArray) -> bool:
    """True if float16 holds all numbers exactly, or bfloat16 does (upper 16 bits of float32)."""
    single = numbers.astype(np.float32)
    with np.errstate(over="ignore"):
        is_float16 = np.array_equal(single.astype(np.float16), numbers)
    return is_float16 or not (single.view(np.uint32) & 0xFFFF).any()
