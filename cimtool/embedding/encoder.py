"""Encoders in folders: rows of texts and of images, each on its own.

An item is run alone, without padding: what stands beside it in a batch would change the last bits
of its row, and with weights that are quantized as they run, more than these.
"""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cimtool.base.arrays import Array
from cimtool.base.errors import Argument, ArgumentError, CimError
from cimtool.base.files import place_in, sha256
from cimtool.base.hub_names import FETCH
from cimtool.base.json_files import read_json
from cimtool.embedding import open_clip
from cimtool.embedding.images import CONFIG, Preprocessing
from cimtool.embedding.items import EncoderItems
from cimtool.embedding.tokens import (
    MODEL_CONFIG,
    TOKENIZER,
    TOKENIZER_CONFIG,
    TextTokens,
    Tokens,
)
from cimtool.embedding.towers import SAFETENSORS, Tower, open_tower
from cimtool.loading.checkpoint import read_checkpoint, single
from cimtool.loading.dense_config import CONFIG as MODULE_CONFIG
from cimtool.loading.dense_config import DENSE_KEYS, is_dense

TokenPooling = Literal["mean", "cls"]

MODULES = "modules.json"
"""The file of sentence-transformers that lists what follows its network."""

ORDER = ("Transformer", "Pooling", "Dense", "Normalize")
"""The modules that are run here, in the order in which they may stand."""

HUB_NAME = re.compile(r"(hf://|hf-hub:)?((?:[\w.-]+/)?([\w.-]+))(@[\w.-]+)?", re.ASCII)
"""A name on a hub, as other tools take it: `owner/model`, behind `hf://` or `hf-hub:` or alone."""

LARGEST_WIDTH = 1 << 16
"""Most numbers of a row."""


def encoder_folder(given: str, argument: Argument) -> Path:
    """The folder that a user gives; CimError for a name on a hub, with the command to fetch it."""
    folder = Path(given)
    if folder.is_dir():
        return folder
    name = HUB_NAME.fullmatch(given)
    if name is not None and (name[1] or name[2] != name[3]) and not folder.exists():
        raise ArgumentError(
            "{} {} is no folder here, and nothing is downloaded; expected a folder, such as `{}` "
            "makes",
            argument, given, FETCH.format(name[2], name[3]),
        )  # fmt: skip
    raise ArgumentError("{} {} is no folder; expected the folder of an encoder", argument, given)


@dataclass(frozen=True, eq=False)
class DenseModule:
    """A Dense module of sentence-transformers: `activation(weight x + bias)`, in double."""

    weight: Array
    bias: Array
    activation: str

    @classmethod
    def read(cls, folder: Path) -> DenseModule:
        """Read a module's folder; CimError if it holds none, or another activation."""
        file = folder / SAFETENSORS
        content = dict(read_checkpoint(file).content)
        activation = content.pop("output_activation", None)
        if not is_dense(content) or activation is None:
            raise CimError(
                f"{file}: is no Dense module; expected {' and '.join(DENSE_KEYS)} alone, and "
                f"{MODULE_CONFIG} beside it"
            )
        weight = single(content[DENSE_KEYS[0]]).astype(np.float64)
        bias = single(content.get(DENSE_KEYS[1], np.zeros(len(weight)))).astype(np.float64)
        if weight.ndim != 2 or bias.shape != weight.shape[:1]:
            raise CimError(
                f"{file}: {DENSE_KEYS[0]} has shape {list(weight.shape)} and {DENSE_KEYS[1]} "
                f"{list(bias.shape)}; expected a matrix and a number for each of its rows"
            )
        return cls(weight, bias, str(activation))

    def of(self, row: Array, file: Path) -> Array:
        """The row [out] that it makes of a row [in]; CimError for another width."""
        if row.size != self.weight.shape[1]:
            raise CimError(
                f"{file}: gives rows of {row.size:,} numbers, and the Dense module after it takes "
                f"{self.weight.shape[1]:,}; expected as many"
            )
        # Without BLAS, whose last bits depend on the CPU's cores.
        found: Array = np.einsum("ij,j->i", self.weight, row) + self.bias
        return {"none": found, "tanh": np.tanh(found), "relu": np.maximum(found, 0)}[
            self.activation
        ]


@dataclass
class StepsAfter:
    """The steps after the states of tokens, as sentence-transformers' files list them.

    `files` are those that were read beside the list, below the folder.
    """

    pooling: TokenPooling | None = None
    dense: list[DenseModule] = field(default_factory=list)
    unit: bool = False
    files: list[str] = field(default_factory=list)


class ItemEncoder(ABC):
    """An encoder of one modality. `facts` is all that its rows depend on, beside the items."""

    def __init__(self, folder: Path, tower: Tower, files: Sequence[str], package: str) -> None:
        self.tower = tower
        read = (tower.file, *(folder / name for name in (MODEL_CONFIG, *files)))
        self.facts: dict[str, Any] = {
            "encoder": folder.resolve().name,
            "files": {
                file.relative_to(folder).as_posix(): sha256(file) for file in read if file.is_file()
            },
            "packages": {name: version(name) for name in (*tower.packages, package)},
        }

    @abstractmethod
    def digest(self, items: EncoderItems, row: int) -> str:
        """The SHA-256 of an item."""

    def tokens_of(self, items: EncoderItems, row: int) -> TextTokens | None:
        """The tokens of an item; None for an image."""
        return None

    @abstractmethod
    def row(self, items: EncoderItems, row: int, tokens: TextTokens | None) -> Array:
        """The embedding of an item with these `tokens_of` it, float32 [width].

        Raises CimError if it cannot be encoded.
        """

    def _checked(self, found: Array, place: str) -> Array:
        """A row as float32 [width]."""
        if found.ndim != 1 or not 1 <= found.size <= LARGEST_WIDTH:
            raise CimError(
                f"{self.tower.file}: gives shape {list(found.shape)} for an item; expected a row "
                f"of at most {LARGEST_WIDTH:,} numbers"
            )
        row = found.astype(np.float32)
        if not np.isfinite(row).all():
            raise CimError(
                f"{self.tower.file}: gives numbers that are not finite for {place}; expected others"
            )
        return row


class TextEncoder(ItemEncoder):
    """An encoder of texts: tokens, a network, and what sentence-transformers puts behind it."""

    def __init__(self, folder: Path, pooling: TokenPooling | None) -> None:
        tower = open_tower(folder, "text")
        self.tokens = Tokens(folder, tower.length, tower.longest)
        steps = _steps_after(folder)
        self.pooling = pooling or steps.pooling
        self.dense, self.unit = steps.dense, steps.unit
        files = (TOKENIZER, TOKENIZER_CONFIG, open_clip.CONFIG, MODULES, *steps.files)
        super().__init__(folder, tower, files, "tokenizers")
        self.facts["tokens_at_most"] = self.tokens.most
        self.facts["pooling"], self.facts["unit_norm"] = self.pooling, self.unit

    def digest(self, items: EncoderItems, row: int) -> str:
        """The SHA-256 of a text."""
        return hashlib.sha256(items.values[row].encode()).hexdigest()

    def tokens_of(self, items: EncoderItems, row: int) -> TextTokens:
        """The tokens of a text."""
        return self.tokens.of(items.values[row])

    def row(self, items: EncoderItems, row: int, tokens: TextTokens | None) -> Array:
        """The network's row, or its states pooled over the tokens and passed through the modules.

        A row of the network itself is complete: a file with one has the modules inside.
        """
        assert tokens is not None
        found = self._pooled(self.tower.run(self._feeds(tokens))[0], tokens.count)
        if self.unit:
            found = found / max(float(np.linalg.norm(found)), np.finfo(np.float32).tiny)
        return self._checked(found, items.places[row])

    def _feeds(self, tokens: TextTokens) -> Mapping[str, Array]:
        ids = np.array([tokens.numbers], np.int64)
        mask = (np.arange(ids.size) < tokens.count).astype(np.int64)[None]
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        return {name: given[name] for name in self.tower.takes}

    def _pooled(self, found: Array, count: int) -> Array:
        """One row [width], in double, of a row or of states [tokens, width]."""
        if found.ndim != 2:
            return found.astype(np.float64)
        if self.pooling is None:
            raise ArgumentError(
                "{}: gives states of tokens, and the folder has no {} that says how they become "
                "one row; expected {pooling} mean or cls",
                self.tower.file, MODULES,
            )  # fmt: skip
        states = found[:count].astype(np.float64)
        row: Array = states.mean(axis=0) if self.pooling == "mean" else states[0]
        for one in self.dense:
            row = one.of(row, self.tower.file)
        return row


class ImageEncoder(ItemEncoder):
    """An encoder of images: pixels, and a network."""

    def __init__(self, folder: Path) -> None:
        tower = open_tower(folder, "image")
        self.pixels = Preprocessing.read(folder)
        super().__init__(folder, tower, (CONFIG, open_clip.CONFIG), "pillow")

    def digest(self, items: EncoderItems, row: int) -> str:
        """The SHA-256 of an image's file."""
        return sha256(items.path(row))

    def row(self, items: EncoderItems, row: int, tokens: TextTokens | None) -> Array:
        """The network's row."""
        pixels = self.pixels.pixels(items.path(row))
        found = self.tower.run({self.tower.takes[0]: pixels[None]})
        return self._checked(found[0], items.places[row])


def _steps_after(folder: Path) -> StepsAfter:
    """The steps that sentence-transformers' files list after the network.

    CimError for a module that is not run here, or not in the order of ORDER.
    """
    file, steps = folder / MODULES, StepsAfter()
    if not file.is_file():
        return steps
    listed = read_json(file)
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise CimError(f"{file}: is no list of modules; expected that of sentence-transformers")
    kinds = [str(one.get("type", "")).rpartition(".")[2] for one in listed]
    for kind in kinds:
        if kind not in ORDER:
            raise CimError(
                f"{file}: has a module {kind or 'without type'}; expected {', '.join(ORDER)}, "
                "which are run here"
            )
    places = [ORDER.index(kind) for kind in kinds]
    once = [kind for kind in kinds if kind != "Dense"]
    if places != sorted(places) or len(set(once)) < len(once):
        raise CimError(f"{file}: has {', '.join(kinds)}; expected the order {', '.join(ORDER)}")
    for kind, one in zip(kinds, listed, strict=True):
        path = str(one.get("path"))
        if kind == "Pooling":
            steps.pooling = _pooling_of(place_in(folder, path) / MODULE_CONFIG)
        elif kind == "Dense":
            steps.dense.append(DenseModule.read(place_in(folder, path)))
            steps.files += [f"{path}/{name}" for name in (SAFETENSORS, MODULE_CONFIG)]
        elif kind == "Normalize":
            steps.unit = True
    return steps


def _pooling_of(file: Path) -> TokenPooling:
    """The pooling of a module; CimError for one that is not run here."""
    values = read_json(file)
    if isinstance(values, dict):
        modes = {
            key
            for key, value in values.items()
            if key.startswith("pooling_mode_") and value is True
        }
        modes |= {f"pooling_mode_{values['pooling_mode']}"} if "pooling_mode" in values else set()
        if modes in ({"pooling_mode_mean_tokens"}, {"pooling_mode_mean"}):
            return "mean"
        if modes in ({"pooling_mode_cls_token"}, {"pooling_mode_cls"}):
            return "cls"
    raise CimError(f"{file}: pools otherwise than by the mean or the first token; expected these")
