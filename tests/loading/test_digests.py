from __future__ import annotations

import hashlib

import numpy as np

from cimtool.loading.digests import row_digests


def test_a_digest_is_the_beginning_of_the_rows_sha256() -> None:
    rows = np.array([[1.0, -2.0], [0.5, 3.0]], np.float32)
    expected = [
        int.from_bytes(hashlib.sha256(row.astype("<f4").tobytes()).digest()[:8], "little")
        for row in rows
    ]
    found = row_digests(rows)
    assert found.dtype == np.uint64
    assert found.tolist() == expected
    np.testing.assert_array_equal(row_digests(np.asfortranarray(rows)), found)
