"""A checkpoint that training starts from: its model, its options, its weights, its polynomial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.named import nearest
from cimtool.loading.checkpoint import read_checkpoint
from cimtool.loading.layer_map import LayerMap
from cimtool.loading.layouts import recognise
from cimtool.loading.score import INNER_POLYNOMIAL
from cimtool.loading.weights import Weights, find_weights
from cimtool.training.held_out import Split
from cimtool.training.models import Model
from cimtool.training.towers import TwoTower


@dataclass(frozen=True, eq=False)
class Start:
    """The weights of both modalities by the keys of a tower's state dict, and the values beside."""

    text: Weights
    video: Weights
    content: Mapping[str, Any]

    @property
    def poly(self) -> Mapping[str, Any] | None:
        """The polynomial that the checkpoint holds, as it stands there."""
        found = self.content.get(INNER_POLYNOMIAL)
        return found if isinstance(found, Mapping) else None

    @property
    def config(self) -> Mapping[str, Any]:
        """The settings of the run that wrote the checkpoint; none where it was no run."""
        found = self.content.get("config")
        return found if isinstance(found, Mapping) else {}

    def trained_on(self, digest: str) -> bool:
        """True where that run trained on the data with this digest, or on a part of them."""
        return self.config.get("data") == digest

    def split(self, digest: str) -> Split | None:
        """The part of the data with this digest that run held out; None if it had other data.

        Raises CimError where it trained on all of them.
        """
        if not self.trained_on(digest):
            return None
        share, seed = self.config.get("held_out"), self.config.get("split_seed")
        if isinstance(share, float) and isinstance(seed, int):
            return Split(share, seed)
        raise ArgumentError(
            "{}: was trained on all of {data}, so none of it can be held out; expected "
            "{validation}",
            self.text.file,
        )

    def model(self) -> str:
        """The name of the model that trains this layout; CimError where none does."""
        layout = recognise(self.text, self.video)
        names = [name for name, model in Model.family.items() if model.layout == layout.name]
        if layout.name in names or len(names) == 1:
            return layout.name if layout.name in names else names[0]
        trained = self.config.get("model")
        if trained in names:
            return str(trained)
        raise ArgumentError(
            '{}: which model trains layout "{}" cannot be told ({}); say it with {model}',
            self.text.file,
            layout.name,
            ", ".join(names) or "none does",
        )

    def load(self, towers: TwoTower, model: str) -> None:
        """Put the weights into towers; CimError naming the key that is missing or does not fit."""
        for module, weights in (
            (towers.text_proj, self.text),
            (towers.video_proj, self.video),
        ):
            _load(module, weights, model)
        if towers.text_proj is towers.video_proj:
            self._require_one_block(model)

    def _require_one_block(self, model: str) -> None:
        for key, array in self.text.arrays.items():
            if not np.array_equal(array, self.video.arrays[key]):
                raise CimError(
                    f"{self.text.file}: {self.text.keys[key]} and {self.video.keys[key]} differ; "
                    f'expected the same, as model "{model}" has one block for both'
                )


def read_start(path: Path) -> Start:
    """Read a checkpoint with the weights of both modalities; CimError where it is none."""
    checkpoint = read_checkpoint(path)
    return Start(*find_weights(checkpoint, LayerMap()), checkpoint.content)


def _load(module: nn.Module, weights: Weights, model: str) -> None:
    wanted = module.state_dict()
    for key in weights.arrays:
        if key not in wanted:
            raise CimError(
                f'{weights.file}: {weights.keys[key]} is no weight of model "{model}"'
                f"{nearest(key, wanted)}"
            )
    for key, tensor in wanted.items():
        layer, _, parameter = key.rpartition(".")
        if parameter == "num_batches_tracked" and key not in weights.arrays:
            continue  # counts batches for nothing that is computed here
        array = weights.get(layer, parameter, tuple(tensor.shape))
        tensor.copy_(torch.from_numpy(array))
