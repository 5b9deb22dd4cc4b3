"""Digests of rows, which identify a row without storing it.

A digest is the first 8 bytes of the SHA-256 of a row's float32 bytes. The row is in the form that
the model takes: at unit norm if the layout expects that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from cimtool.base.arrays import Array, BoolArray

Digests = npt.NDArray[np.uint64]

DIGEST_BYTES = 8


def row_digests(rows: Array) -> Digests:
    """Digests [n] uint64 of rows [n, width], taken as float32."""
    whole = np.ascontiguousarray(rows, "<f4")
    digests = b"".join(hashlib.sha256(row.data).digest()[:DIGEST_BYTES] for row in whole)
    return np.frombuffer(digests, "<u8").astype(np.uint64)


def digests_of(text: Array, video: Array) -> dict[str, Digests]:
    """Digests of rows [n, width] by modality, sorted, without repeats."""
    return {"text": np.unique(row_digests(text)), "video": np.unique(row_digests(video))}


def known_rows(known: Mapping[str, Digests], text: Array, video: Array) -> dict[str, BoolArray]:
    """Masks [n] by modality of the rows whose digests are known."""
    rows = {"text": text, "video": video}
    return {name: np.isin(row_digests(own), known[name]) for name, own in rows.items()}


def arrays_digest(arrays: Mapping[str, Array]) -> str:
    """The SHA-256, in hexadecimal, of arrays: their names, types, shapes and bytes."""
    found = hashlib.sha256()
    for name, values in sorted(arrays.items()):
        held = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
        found.update(f"{name} {held.dtype.str} {held.shape} ".encode())
        found.update(held.tobytes())
    return found.hexdigest()
