"""A bundle ready to run: encode items, score pairs, check its gallery."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from cimtool.base.arrays import Array
from cimtool.base.errors import CimError, kind_of
from cimtool.base.modality_names import item_names
from cimtool.base.named import nearest
from cimtool.bundle.arrays_file import check_range, features_sha256
from cimtool.bundle.bundle import Bundle, BundleLike, read_bundle
from cimtool.ir.program import MODALITIES, Graph, features_of
from cimtool.ir.types import Type
from cimtool.loading.embeddings import (
    Embeddings,
    EmbeddingsLike,
    checked_rows,
    read_data,
    read_rows,
    require_tokens,
)
from cimtool.loading.in_memory import array_of
from cimtool.loading.item_arrays import ArrayNames
from cimtool.report.document import Document
from cimtool.report.result import Result
from cimtool.simulation.device import Device
from cimtool.simulation.simulator import Simulator


@dataclass(frozen=True, repr=False)
class Matcher(Result):
    """A bundle that is ready to run on the bit-accurate simulator.

    `device` is torch's name of the device that computes (`cpu`, `cuda`, `cuda:1`); with None, the
    simulator's kernels compute on the CPU. The integers are the same on every device.
    """

    bundle: Bundle
    device: str | None = None

    def document(self) -> Document:
        """The document of the bundle."""
        return self.bundle.document()

    @cached_property
    def simulator(self) -> Simulator:
        """The compiled program; its constants are packed when there is much to compute."""
        return Simulator(self.bundle.program, device=self.device, little=True)

    def __fspath__(self) -> str:
        """The bundle's folder, so that a function takes the matcher where it takes a bundle."""
        return str(self.bundle.folder)

    def __getattr__(self, name: str) -> Callable[[ArrayLike], dict[str, Array]]:
        """The encoder of a modality by the user's name: `encode_image`, `encode_audio`."""
        encoders = self._encoders()
        if name in encoders:
            return partial(self._encode, encoders[name])
        raise AttributeError(f"a Matcher has no {name}{nearest(name, encoders)}")

    def __dir__(self) -> list[str]:
        """All names, with those of encoders by the user's names."""
        return sorted({*super().__dir__(), *self._encoders()})

    def _encoders(self) -> dict[str, str]:
        """The modality of each encoder: by the usual names, the model's and those of its data."""
        bundle: Bundle | None = vars(self).get("bundle")
        if bundle is None:  # a copy that is not filled yet
            return {}
        card = bundle.model
        names = ArrayNames.of(card.modalities).rows
        pairs = zip(MODALITIES, card.modalities or card.called, card.called, strict=True)
        return {f"encode_{one}": m for m, *called in pairs for one in (*names[m], *called)}

    def encode_text(self, x: ArrayLike) -> dict[str, Array]:
        """The integer features that the head stores, of text embeddings [n, width]."""
        return self._encode("text", x)

    def encode_video(self, x: ArrayLike) -> dict[str, Array]:
        """The integer features that the head stores, of video embeddings [m, width]."""
        return self._encode("video", x)

    def _encode(self, modality: str, x: ArrayLike) -> dict[str, Array]:
        card = self.bundle.model
        width = card.text_width if modality == "text" else card.video_width
        rows, tokens = np.asarray(array_of(x)), None
        if rows.ndim == 3 and card.head.takes_tokens:
            tokens = rows.shape[1]
            rows = rows.reshape(len(rows), -1)
        require_tokens(tokens, modality, card, "embeddings", modality)
        if rows.ndim != 2 or rows.shape[1] != width:
            raise CimError(
                f"{modality} embeddings have shape {rows.shape}; {card.name} takes [n, {width}]"
            )
        return self.simulator.encode(modality, checked_rows(rows, modality, card.unit_rows))

    def score(self, text: Mapping[str, Array], video: Mapping[str, Array] | None = None) -> Array:
        """`logit` float32 [n, m] of all pairs of encoded items.

        If the whole score is in the memory, there is no `video`: the result is [n, M] for the
        gallery. Raises CimError unless both are features from `encode_text` and `encode_video`.
        """
        program = self.simulator.program
        held = program.gallery_items is not None
        if held and video is not None:
            raise CimError(
                f"{self.bundle.name} holds its gallery in the memory; expected score(text) without "
                "video features"
            )
        queries = checked_features(program.text, text, program.score.inputs)
        items = {} if video is None else video
        videos = None if held else checked_features(program.video, items, program.score.inputs)
        return self.simulator.score(queries, videos, np.float32)

    def scores(self, data: EmbeddingsLike) -> Array:
        """`logit` float32 [n, m] of embeddings in any form that `compile` takes.

        If the whole score is in the memory, only texts are read.
        """
        if self.simulator.program.gallery_items is not None:
            text = self.simulator.encode("text", read_rows(data, "text", self.bundle.model))
            return self.simulator.score(text, kind=np.float32)
        read = read_data(data, self.bundle.model)
        text, video = (self.simulator.encode(m, getattr(read, m)) for m in MODALITIES)
        return self.simulator.score(text, video, np.float32)


def load(bundle: BundleLike, device: str | None = None) -> Matcher:
    """Open a bundle, check it against its manifest, and make it ready to run.

    With a `device` (`cpu`, `cuda`, `cuda:1`), torch computes there. Raises CimError if the bundle
    is incomplete or the device is missing.
    """
    if device is not None:
        Device.opened(device)
    return Matcher(open_bundle(bundle), device)


def open_bundle(folder: BundleLike) -> Bundle:
    """Open a bundle after checking every file; CimError if the path is not a bundle's."""
    return read_bundle(bundle_folder(folder))


def bundle_folder(folder: BundleLike) -> Path:
    """The path of a bundle's folder; CimError if it is neither a path nor a bundle."""
    if not isinstance(folder, Path | str | os.PathLike):
        raise CimError(
            f"a bundle is given as {kind_of(folder)}; expected the path of its folder, or a bundle"
        )
    return Path(folder)


def checked_features(
    projector: Graph, features: Mapping[str, Array], inputs: Mapping[str, Type]
) -> dict[str, Array]:
    """Return the features that the score takes of one projector: rows [n, d], self terms [n].

    Integers of any type are accepted (the ONNX files return narrow types) and returned as int64,
    with which the score computes. `inputs` are the score's, by names such as `text.mu`. Raises
    CimError for a feature that is missing, has a wrong shape, is empty, is not of integers, or is
    outside the range for which the score's sums are proved.
    """
    modality = projector.name
    as_returned = f"as encode_{modality} returns them"
    if not isinstance(features, Mapping):
        raise CimError(
            f"{modality} features are given as {kind_of(features)}; expected arrays by name, "
            f"{as_returned}"
        )
    types = features_of(projector, inputs)
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
        check_range(f"{modality} features: {name}", checked[name], types[name])
    return checked


def check_gallery(bundle: Bundle, data: Embeddings) -> None:
    """Raise CimError if a bundle holds a gallery and the videos of `data` are not its items."""
    gallery = bundle.gallery
    if gallery is None:
        return
    if len(data.video) == gallery.items:
        video = Simulator(bundle.program).encode("video", data.video)
        if features_sha256(video) == gallery.features:
            return
    items = item_names(data.called)[1]
    raise CimError(
        f"{data.file}: its {len(data.video)} {items} are not the gallery of {gallery.items} items "
        f"that {bundle.name} holds ({gallery.file}); expected these rows in this order"
    )
