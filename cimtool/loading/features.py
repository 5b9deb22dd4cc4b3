"""Features from a caller's hands: what `Matcher.score` takes, checked before use."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cimtool.base.arrays import Array
from cimtool.base.errors import CimError
from cimtool.ir.program import features_of
from cimtool.ir.types import Type


def checked_features(
    modality: str, features: Mapping[str, Array], inputs: Mapping[str, Type]
) -> dict[str, Array]:
    """Return the features that the score takes of one modality: rows [n, d], self terms [n].

    Any kind of integer is taken (the ONNX files return narrow ones) and returned as int64, in which
    the score computes. `inputs` are the score's, by names such as `text.mu`. Raises CimError for a
    feature that is missing, of another shape than the others demand, empty, not of integers, or
    outside the range for which the score's sums are proved.
    """
    as_returned = f"as encode_{modality} returns them"
    if not isinstance(features, Mapping):
        raise CimError(
            f"{modality} features are given as {kind_of(features)}; expected arrays by name, "
            f"{as_returned}"
        )
    types = features_of(modality, inputs)
    missing = [name for name in types if name not in features]
    if missing:
        held = ", ".join(map(str, list(features)[:8])) or "nothing"
        raise CimError(
            f"{modality} features: {missing[0]} is missing; they hold {held}; expected "
            f"{', '.join(types)}"
        )
    checked = {name: np.asarray(features[name]) for name in types}
    rows = checked["mu"].shape[:1]
    for name, array in checked.items():
        shape = (*rows, *types[name].shape[1:])
        if array.shape != shape or array.size == 0 or array.dtype.kind not in "iu":
            raise CimError(
                f"{modality} features: {name} is {array.dtype} {list(array.shape)}; expected "
                f"integers {list(shape)}, {as_returned}"
            )
        checked[name] = array.astype(np.int64)
        _check_range(f"{modality} features: {name}", checked[name], types[name])
    return checked


def _check_range(where: str, values: Array, known: Type) -> None:
    outside = (values < known.lo) | (values > known.hi)
    if outside.any():
        raise CimError(
            f"{where} holds {values[outside][0]}; expected {int(known.lo.min())} to "
            f"{int(known.hi.max())}, as this bundle encodes"
        )


def kind_of(value: object) -> str:
    """The type of a value, for a message; of a tuple, with those of its elements."""
    kind = type(value).__name__
    if not isinstance(value, tuple):
        return kind
    return f"{kind} ({', '.join(map(kind_of, value))})"
