"""The tensors of a checkpoint that a program's layers are, and the checkpoint with new ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from cimtool.base.arrays import Array
from cimtool.base.errors import CimError
from cimtool.ir.arithmetic import Mvm, TensorKeys
from cimtool.ir.program import Graph
from cimtool.loading.model import Model


def tensor_keys(model: Model, file: str) -> dict[str, dict[str, TensorKeys]]:
    """The tensors of the checkpoint `file` that a model's layers are, by modality and node.

    Raises CimError for a layer that is not one tensor of the file.
    """
    graphs = (model.program.text, model.program.video)
    return {graph.name: _keys_of(graph, f"{file}: layout {model.layout}") for graph in graphs}


def _keys_of(graph: Graph, where: str) -> dict[str, TensorKeys]:
    keys = {}
    for node in graph.nodes:
        if isinstance(node.op, Mvm):
            if node.op.keys is None:
                raise CimError(
                    f"{where}: {graph.layer(node)} is computed from several tensors; expected a "
                    "layer that is one tensor of the file, which alone can be fine-tuned"
                )
            keys[node.name] = node.op.keys
    return keys


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
