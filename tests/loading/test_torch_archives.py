"""Archives that are read without torch: the same values as by torch, or torch reads them."""

from __future__ import annotations

import zipfile
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cimtool.base.errors import CimError
from cimtool.loading.checkpoint import (
    BROKEN,
    SMALL,
    MappedArray,
    archive_pickle,
    read_checkpoint,
    read_torch,
    single,
)
from cimtool.loading.torch_archives import StoredTensor, UnusualArchive, read_plain

LARGE = torch.arange(SMALL + 1).to(torch.bfloat16)
WHOLE = torch.arange(24).reshape(4, 6)

PLAIN: dict[str, Any] = {
    "a state_dict": torch.nn.Linear(3, 2).state_dict(),
    "parameters": {"w": torch.nn.Parameter(torch.ones(2, 3))},
    "values": {"n": [1, (None, "x", True)], 3: 1.5, "t": OrderedDict(a=torch.ones(1))},
    "types": {
        str(one): torch.tensor([0, 1, 2]).to(one)
        for one in (
            *(torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32),
            *(torch.int16, torch.int8, torch.uint8, torch.bool),
        )
    },
    "parts of a storage": {"whole": WHOLE, "rows": WHOLE[1:3], "number": WHOLE[2, 2]},
    "large in half precision": {"w": LARGE, "twice": LARGE},
    "an axis of one number": {"w": WHOLE[:, :1].contiguous().T, "v": torch.ones(1, 5, 1)},
}
UNUSUAL: dict[str, Any] = {
    "columns": {"w": WHOLE[:, 1:3]},
    "transposed": {"w": WHOLE.T},
    "expanded": {"w": torch.ones(1).expand(3)},
    "without numbers": {"w": torch.ones(0, 3)},
    "a set": {"w": torch.ones(2), "s": {1, 2}},
    "a dictionary made of pairs": {"w": torch.ones(2), "c": Counter("ab")},
    "a size": {"w": torch.ones(2), "s": torch.ones(2, 3).shape},
    "a type": {"w": torch.ones(2), "s": torch.float32},
    "complex": {"n": 1j, "w": torch.ones(2)},
}


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray):
        one, other = map(single, (one, other))
        return one.dtype == other.dtype and np.array_equal(one, other)
    return type(one) is type(other) and one == other


@pytest.mark.parametrize("name", PLAIN)
def test_plain_archives_need_no_torch_and_hold_the_same(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ä.pth"
    torch.save(PLAIN[name], path)
    expected = read_torch(path)
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("it came to torch"))
    assert same(read_checkpoint(path).content, expected)


def structure(path: Path) -> Any:
    """The content of a file, read without torch."""
    with path.open("rb") as stream:
        pickled = archive_pickle(path, stream)
        assert pickled is not None
        return read_plain(path, stream, pickled.value)


@pytest.mark.parametrize("name", UNUSUAL)
def test_torch_reads_what_is_unusual(name: str, tmp_path: Path) -> None:
    path = tmp_path / "m.pth"
    torch.save(UNUSUAL[name], path)
    assert same(read_checkpoint(path).content, read_torch(path))
    with pytest.raises(UnusualArchive):
        structure(path)


def test_values_inside_themselves_and_shared_ones(tmp_path: Path) -> None:
    path = tmp_path / "m.pth"
    shared = [1.5]
    inside: dict[str, Any] = {"w": torch.ones(2)}
    inside["self"] = [inside]
    torch.save({"one": shared, "two": shared, "inside": inside}, path)
    found = structure(path)
    assert found["one"] is found["two"]
    assert found["inside"]["self"][0] is found["inside"]
    with pytest.raises(CimError, match="nests containers more than 64 deep"):
        read_checkpoint(path)


def test_large_arrays_stay_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "m.pth"
    torch.save({"few": torch.ones(3), "many": torch.ones(SMALL + 1)}, path)
    content = read_checkpoint(path).content
    assert not isinstance(content["few"], MappedArray)
    many = content["many"]
    assert isinstance(many, MappedArray)
    assert isinstance(many.base, np.ndarray)
    assert many.place is not None


@pytest.mark.parametrize("member", ["version", "byteorder", "data.pkl"])
def test_other_archives_are_left_to_torch(member: str, tmp_path: Path) -> None:
    path, changed = tmp_path / "m.pth", tmp_path / "changed.pth"
    torch.save({"w": torch.ones(3)}, path)
    (tensor,) = structure(path).values()
    assert isinstance(tensor, StoredTensor)
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(changed, "w") as made:
        for one in archive.infolist():
            content = archive.read(one)
            made.writestr(one.filename, b"big" if one.filename.endswith(member) else content)
    with pytest.raises((UnusualArchive, *BROKEN)):
        structure(changed)


def test_a_place_behind_the_end_is_left_to_torch(tmp_path: Path) -> None:
    """The local header of the last record says that its name is longer."""
    path = tmp_path / "m.pth"
    torch.save({"w": torch.ones(3)}, path)
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        (record,) = (one for one in archive.infolist() if one.filename.endswith("data/0"))
    content[record.header_offset + 28 : record.header_offset + 30] = b"\xff\xff"
    path.write_bytes(content)
    with pytest.raises(UnusualArchive):
        structure(path)
