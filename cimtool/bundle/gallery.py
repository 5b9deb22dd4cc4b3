"""The items that a bundle's arrays hold, told by their features."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from cimtool.base.arrays import Array
from cimtool.base.errors import CimError
from cimtool.bundle.bundle import Bundle
from cimtool.loading.embeddings import Embeddings
from cimtool.simulation.simulator import Simulator


def check_gallery(bundle: Bundle, data: Embeddings) -> None:
    """Raise CimError where a bundle holds a gallery and the videos of `data` are not its items."""
    gallery = bundle.gallery
    if gallery is None:
        return
    if len(data.video) == gallery.items:
        video = Simulator(bundle.program).encode("video", data.video)
        if features_sha256(video) == gallery.features:
            return
    raise CimError(
        f"{data.file}: its {len(data.video)} videos are not the gallery of {gallery.items} items "
        f"that {bundle.name} holds ({gallery.file}); expected these rows in this order"
    )


def features_sha256(features: Mapping[str, Array]) -> str:
    """The SHA-256 of integer features, the same however they are stored."""
    digest = hashlib.sha256()
    for name in sorted(features):
        values = np.ascontiguousarray(features[name], np.int64)
        digest.update(f"{name}{values.shape}".encode())
        digest.update(values.data)
    return digest.hexdigest()
