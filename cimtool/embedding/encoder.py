"""Encoders in folders: rows of texts and of images, each on its own.

An item is run alone, without padding: what stands beside it in a batch would change the last bits
of its row, and with weights that are quantized as they run, more than these.
"""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cimtool.base.arrays import Array
from cimtool.base.errors import Argument, ArgumentError, CimError
from cimtool.base.files import place_in, sha256
from cimtool.base.json_files import read_json
from cimtool.embedding.images import CONFIG, Preprocessing
from cimtool.embedding.items import EncoderItems
from cimtool.embedding.tokens import (
    MODEL_CONFIG,
    TOKENIZER,
    TOKENIZER_CONFIG,
    TextTokens,
    Tokens,
)
from cimtool.embedding.towers import Tower, open_tower

TokenPooling = Literal["mean", "cls"]

MODULES = "modules.json"
"""The file of sentence-transformers that lists what follows its network."""

HUB_NAME = re.compile(r"(hf://)?((?:[\w.-]+/)?([\w.-]+))(@[\w.-]+)?", re.ASCII)
"""A name on a hub, as other tools take it: `hf://owner/model`, or `owner/model`."""

FETCH = "hf download {} --local-dir {}"
"""The command of a hub's own client that downloads a model into a folder."""

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

    @abstractmethod
    def row(self, items: EncoderItems, row: int) -> Array:
        """The embedding of an item, float32 [width]; CimError if it cannot be encoded."""

    def cut(self, items: EncoderItems, row: int) -> bool:
        """True if the end of an item is left out."""
        return False

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
        self.tokens = Tokens(folder, tower.length)
        steps = _steps_after(folder)
        self.pooling = pooling or steps.get("pooling")
        self.unit = "unit" in steps
        super().__init__(folder, tower, (TOKENIZER, TOKENIZER_CONFIG, MODULES), "tokenizers")
        self.facts["tokens_at_most"] = self.tokens.most
        self.facts["pooling"], self.facts["unit_norm"] = self.pooling, self.unit

    def digest(self, items: EncoderItems, row: int) -> str:
        """The SHA-256 of a text."""
        return hashlib.sha256(items.values[row].encode()).hexdigest()

    def cut(self, items: EncoderItems, row: int) -> bool:
        """True for a text of more tokens than are taken."""
        return self.tokens.of(items.values[row]).cut

    def row(self, items: EncoderItems, row: int) -> Array:
        """The network's row, or its states pooled over the tokens of the text."""
        tokens = self.tokens.of(items.values[row])
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
        return row


class ImageEncoder(ItemEncoder):
    """An encoder of images: pixels, and a network."""

    def __init__(self, folder: Path) -> None:
        tower = open_tower(folder, "image")
        self.pixels = Preprocessing.read(folder)
        super().__init__(folder, tower, (CONFIG,), "pillow")

    def digest(self, items: EncoderItems, row: int) -> str:
        """The SHA-256 of an image's file."""
        return sha256(items.path(row))

    def row(self, items: EncoderItems, row: int) -> Array:
        """The network's row."""
        pixels = self.pixels.pixels(items.path(row))
        found = self.tower.run({self.tower.takes[0]: pixels[None]})
        return self._checked(found[0], items.places[row])


def _steps_after(folder: Path) -> dict[str, Any]:
    """The pooling, and `unit` if rows get unit norm, as sentence-transformers' files say.

    CimError for a step that is not run here.
    """
    file = folder / MODULES
    if not file.is_file():
        return {}
    listed = read_json(file)
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise CimError(f"{file}: is no list of modules; expected that of sentence-transformers")
    steps: dict[str, Any] = {}
    for one in listed:
        kind = str(one.get("type", "")).rpartition(".")[2]
        if kind == "Pooling":
            steps["pooling"] = _pooling_of(place_in(folder, str(one.get("path"))) / "config.json")
        elif kind == "Normalize":
            steps["unit"] = True
        elif kind != "Transformer":
            raise CimError(
                f"{file}: has a module {kind or 'without type'}; expected Transformer, Pooling and "
                "Normalize, which are run here"
            )
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
