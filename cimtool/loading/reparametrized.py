"""Weights that torch keeps as something else: weight norms, other norms and masks, adapters.

A weight norm's two tensors make its weight, `g v / ||v||`, as
https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.parametrizations.weight_norm.html
defines it; of all others the module itself knows how.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from cimtool.base.arrays import Array
from cimtool.base.errors import CimError

WEIGHT_NORMS = (
    (".parametrizations.weight.original0", ".parametrizations.weight.original1"),
    (".weight_g", ".weight_v"),
)
"""The ends of the keys of a weight norm's lengths and directions, in both of torch's forms."""

EXPORT = "or both projectors as ONNX (torch.onnx.export)"

OTHERS = (
    (
        r"\.(weight)_u$|\.parametrizations\.(\w+)\.\d+\._u$",
        "is of a spectral norm; expected the {part} itself: "
        "torch.nn.utils.remove_spectral_norm(layer), or "
        'torch.nn.utils.parametrize.remove_parametrizations(layer, "{part}"), before it is saved',
    ),
    (
        r"\.(weight|bias)_mask$",
        "is the mask of a pruned layer; expected its {part}: "
        'torch.nn.utils.prune.remove(layer, "{part}") before it is saved',
    ),
    (
        r"\.parametrizations\.(\w+)\.",
        "is of a parametrized {part}; expected the {part} itself: "
        'torch.nn.utils.parametrize.remove_parametrizations(layer, "{part}") before it is saved',
    ),
    (
        r"\.(lora_\w+|base_layer)\b",
        "is of an adapter (LoRA) that stands beside its layer; expected it merged: "
        "model.merge_and_unload() of peft before it is saved",
    ),
)
"""The keys by which other forms are known, the parameter that is one, and what works."""


def with_weights(
    arrays: Mapping[str, Array], keys: Mapping[str, str], file: str
) -> tuple[dict[str, Array], dict[str, str]]:
    """Arrays and their full keys by name, weight norms as the weights [out, in] that they are.

    Raises CimError for a direction that is 0, for lengths beyond float32, and for a weight that is
    there in another form too.
    """
    found, full = dict[str, Array](), dict[str, str]()
    pairs = {name: pair for name in arrays if (pair := _weight_norm(name, arrays)) is not None}
    directions = {f"{layer}{end}" for layer, (_, end) in pairs.values()}
    for name, array in arrays.items():
        if name in pairs:
            layer, (length, direction) = pairs[name]
            made, of = f"{layer}.weight", f"{layer}{direction}"
            if made in arrays or made in found:
                raise CimError(
                    f"{file}: {keys[name].removesuffix(length)}.weight is there in two forms; "
                    "expected one of them"
                )
            found[made] = _weight(array, arrays[of], f"{file}: {keys[of]}")
            full[made] = keys[name].removesuffix(length) + ".weight"
        elif name not in directions:
            found[name], full[name] = array, keys[name]
    return found, full


def require_weights(keys: Mapping[str, str], file: str) -> None:
    """Raise CimError for a key, of full keys by name, of a weight that is kept in another form."""
    for pattern, sentence in OTHERS:
        for name, key in keys.items():
            if found := re.search(pattern, f".{name}"):
                said = sentence.format(part=next(filter(None, found.groups())))
                raise CimError(f"{file}: {key} {said}, {EXPORT}")


def _weight_norm(name: str, arrays: Mapping[str, Array]) -> tuple[str, tuple[str, str]] | None:
    """The layer and the ends of keys of a weight norm whose lengths a key is; None of others."""
    for length, direction in WEIGHT_NORMS:
        layer = name.removesuffix(length)
        v = arrays.get(f"{layer}{direction}")
        if layer != name and v is not None and _are_lengths(arrays[name], v):
            return layer, (length, direction)
    return None


def _are_lengths(g: Array, v: Array) -> bool:
    """True for one length of directions, or one for each place along one of their axes."""
    long = [axis for axis, extent in enumerate(g.shape) if extent > 1]
    one_axis = g.ndim == v.ndim and len(long) < 2 and all(g.shape[a] == v.shape[a] for a in long)
    real = g.dtype.kind == v.dtype.kind == "f"
    return real and v.ndim > 1 and (one_axis or g.ndim == 0)


def _weight(g: Array, v: Array, where: str) -> Array:
    axes = tuple(axis for axis in range(v.ndim) if g.ndim == 0 or g.shape[axis] == 1)
    directions = v.astype(np.float64)
    largest = np.abs(directions).max(axis=axes, keepdims=True)
    if not largest.all():
        raise CimError(f"{where} has a direction of zeros, which a weight norm does not divide by")
    directions /= largest  # whose squares are then neither 0 nor infinite
    weight = directions * (g / np.sqrt(np.square(directions).sum(axis=axes, keepdims=True)))
    if np.abs(weight).max() > np.finfo(np.float32).max:
        raise CimError(f"{where} makes weights beyond float32; expected a norm that float32 holds")
    single: Array = weight.astype(np.float32)
    return single
