"""Which tensors of a checkpoint the layers of a program are, and the checkpoint with new ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from cimtool.base.arrays import Array
from cimtool.base.errors import CimError
from cimtool.ir.arithmetic import Mvm
from cimtool.ir.program import MODALITIES, Builder
from cimtool.ir.types import real
from cimtool.loading.checkpoint import Checkpoint
from cimtool.loading.layer_map import LayerMap
from cimtool.loading.layout import Layout, recognise
from cimtool.loading.weights import Weights, find_weights


@dataclass(frozen=True)
class Keys:
    """Where a checkpoint holds a layer's weight, and its bias if it has one."""

    weight: str
    bias: str | None


def layer_keys(checkpoint: Checkpoint, layer_map: LayerMap) -> dict[str, dict[str, Keys]]:
    """Where the checkpoint holds each layer, by modality and node.

    Raises CimError for a layer that is not one tensor of the file.
    """
    both = find_weights(checkpoint, layer_map)
    layout = recognise(*both)
    return {
        modality: _keys_of(layout, weights, modality)
        for modality, weights in zip(MODALITIES, both, strict=True)
    }


def _keys_of(layout: type[Layout], weights: Weights, modality: str) -> dict[str, Keys]:
    # A layout does not say which keys it reads, so it gets to see numbers that tell tensors apart.
    arrays = enumerate(weights.arrays.items(), start=1)
    marks = {name: np.full(array.shape, float(mark)) for mark, (name, array) in arrays}
    tower = layout.tower(replace(weights, arrays=marks))
    builder = Builder(modality, {"x": real(("n", tower.width))})
    tower.build(builder, "x")
    found = {}
    for node in builder.by_name.values():
        if isinstance(node.op, Mvm):
            where = f"layout {layout.name}: {modality}.{node.name}"
            bias = _key(weights, node.op.bias, where) if node.op.bias.any() else None
            found[node.name] = Keys(_key(weights, node.op.weight, where), bias)
    return found


def _key(weights: Weights, marked: Array, where: str) -> str:
    names, mark = list(weights.arrays), float(marked.flat[0])
    if np.any(marked != mark) or mark not in range(1, len(names) + 1):
        raise CimError(
            f"{weights.file}: {where} is computed from several tensors; expected a layer that is "
            "one tensor of the file, which alone can be fine-tuned"
        )
    return weights.keys[names[int(mark) - 1]]


def with_tensors(content: Mapping[str, Any], new: Mapping[str, Array], above: str = "") -> Any:
    """A checkpoint's values as torch saves them, nested as before, with new arrays by full key."""
    found: dict[str, Any] = {}
    for key, value in content.items():
        name = f"{above}.{key}" if above else key
        if isinstance(value, Mapping):
            found[key] = with_tensors(value, new, name)
        elif isinstance(value, np.ndarray):
            found[key] = torch.from_numpy(np.array(new.get(name, value)))
        else:
            found[key] = value
    return found
