"""Digests of rows, by which a row is known again without being kept.

A digest is the first 8 bytes of the SHA-256 of a row's float32 bytes, as the model takes it (at
unit norm where its layout expects that).
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from cimtool.base.arrays import Array

Digests = npt.NDArray[np.uint64]

DIGEST_BYTES = 8


def row_digests(rows: Array) -> Digests:
    """Digests [n] uint64 of rows [n, width], taken as float32."""
    whole = np.ascontiguousarray(rows, "<f4")
    digests = b"".join(hashlib.sha256(row.data).digest()[:DIGEST_BYTES] for row in whole)
    return np.frombuffer(digests, "<u8").astype(np.uint64)
