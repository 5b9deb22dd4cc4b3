"""Arrays of a bundle's files: other names, types and shapes are one sentence, before numbers."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from cimtool.base.errors import CimError
from cimtool.bundle.arrays_file import DIGESTS, features_form, read_arrays, read_features
from cimtool.ir.types import integer

TYPES = {"mu": integer(("m", 3), -5, 5, 1.0), "s": integer(("m",), 0, 9, 1.0)}


def raw(kind: str, shape: list[int], size: int) -> bytes:
    """A file of one array `text`, of any type and shape that its header says."""
    header = json.dumps({"text": {"dtype": kind, "shape": shape, "data_offsets": [0, size]}})
    return struct.pack("<Q", len(header)) + header.encode() + bytes(size)


@pytest.mark.parametrize(
    ("kind", "shape", "size", "said"),
    [
        ("F8_E4M3", [2], 2, "text is of F8_E4M3; expected BOOL, I8"),
        ("F8_E8M0", [2], 2, "text is of F8_E8M0; expected"),
        ("BF16", [2], 4, "text is of BF16; expected"),
        ("I8", [0, 2**62], 0, r"text has shape \[0, 4611686018427387904\]; expected smaller"),
        ("I8", [0, 2**64 - 1], 0, "text has shape|is not a safetensors file"),
    ],
)
def test_what_numpy_cannot_hold(
    kind: str, shape: list[int], size: int, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "constants.safetensors"
    file.write_bytes(raw(kind, shape, size))
    with pytest.raises(CimError, match=said):
        read_arrays(file)


ROWS = np.arange(3, dtype=np.uint64)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"text": ROWS}, "has arrays text; expected text, video"),
        ({"text": ROWS, "video": ROWS, "x": ROWS}, "has arrays text, video, x; expected"),
        ({"text": ROWS, "video": ROWS.astype(float)}, "video is of F64; expected U64"),
        ({"text": ROWS[None], "video": ROWS}, r"text has shape \[1, 3\]; expected \[1\]"),
        ({"text": ROWS[0], "video": ROWS}, r"text has shape \[\]; expected \[texts\]"),
    ],
)
def test_digests(arrays: dict[str, np.ndarray], said: str, tmp_path: Path) -> None:
    file = tmp_path / "calibration.safetensors"
    file.write_bytes(save({"text": ROWS[:2], "video": ROWS}))
    assert set(read_arrays(file, DIGESTS)) == {"text", "video"}
    file.write_bytes(save({name: np.asarray(one) for name, one in arrays.items()}))
    with pytest.raises(CimError, match=said):
        read_arrays(file, DIGESTS)


@pytest.mark.parametrize(
    ("mu", "s", "said"),
    [
        (np.zeros((4, 3), np.int8), np.zeros(3, np.int8), r"s has shape \[3\]; expected \[4\]"),
        (np.zeros((4, 2), np.int8), np.zeros(4, np.int8), r"mu has shape \[4, 2\]; .* \[4, 3\]"),
        (np.full((4, 3), 6, np.int8), np.zeros(4, np.int8), "mu holds 6; expected -5 to 5"),
        (np.zeros((4, 3), np.float32), np.zeros(4, np.int8), "mu is of F32; expected I8"),
    ],
)
def test_features(mu: np.ndarray, s: np.ndarray, said: str, tmp_path: Path) -> None:
    file = tmp_path / "queries.safetensors"
    file.write_bytes(save({"mu": mu, "s": s}))
    with pytest.raises(CimError, match=said):
        read_features(file, TYPES, features_form(TYPES, "queries"))
