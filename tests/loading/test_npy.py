"""`.npy` and `.npz`: as NumPy reads them, and hostile ones refused before memory is taken."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from cimtool.base.arrays import Array
from cimtool.base.errors import CimError
from cimtool.base.untrusted import MOST_MEMBERS
from cimtool.loading.npy import read_npy, read_npz

ARRAYS = {
    "rows": np.arange(12.0, dtype=np.float32).reshape(3, 4),
    "columns first": np.asfortranarray(np.arange(12).reshape(3, 4)),
    "one number": np.array(3.5),
    "none": np.zeros((0, 5)),
    "texts": np.array(["a", "bcd"]),
    "other bytes first": np.arange(3, dtype=">i4"),
    "truths": np.array([True, False]),
}


def npy(array: Array) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def raw(header: str, body: bytes = b"", version: int = 1) -> bytes:
    length = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes([version, 0]) + length + header.encode() + body


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_are_those_that_numpy_saved(name: str, tmp_path: Path) -> None:
    file = tmp_path / "a.npy"
    file.write_bytes(npy(ARRAYS[name]))
    found = read_npy(file)
    assert found.dtype == ARRAYS[name].dtype
    np.testing.assert_array_equal(found, ARRAYS[name])


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_archives_are_those_that_numpy_saved(save: object, tmp_path: Path) -> None:
    assert callable(save)
    save(tmp_path / "a.npz", **ARRAYS)
    found = read_npz(tmp_path / "a.npz", [*ARRAYS][:3])
    assert [name for name, value in found.items() if value is not None] == [*ARRAYS][:3]
    np.testing.assert_array_equal(found["rows"], ARRAYS["rows"])


@pytest.mark.parametrize(
    "header",
    [
        '{"shape": (2,), "descr": "<f4", "fortran_order": False}',
        "{'descr':'<f4','fortran_order':False,'shape':(2L,),}\n",
    ],
)
def test_headers_of_other_writers(header: str, tmp_path: Path) -> None:
    file = tmp_path / "a.npy"
    file.write_bytes(raw(header, np.float32([1, 2]).tobytes(), version=3))
    np.testing.assert_array_equal(read_npy(file), [1, 2])


FIELDS = "{'descr': %s, 'fortran_order': False, 'shape': %s, }"

HOSTILE = {
    "brackets": (raw("(" * 9000), "is not an array of numbers or texts; its header is '(((("),
    "a long header": (
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff",
        "its header has 4,294,967,295 bytes; expected at most 10,000",
    ),
    "no length": (b"\x93NUMPY\x01\x00\x01", "is truncated within its header"),
    "an unknown format": (b"\x93NUMPY\x09\x00", "is not a NumPy array of format 1 to 3"),
    "a huge shape": (raw(FIELDS % ("'<f8'", "(1000000000000,)")), "its header says 8000000000000"),
    "more digits": (raw(FIELDS % ("'<f8'", f"({'1' * 5000},)")), "is not an array of numbers"),
    "no shape": (raw("{'descr': '<f8', 'fortran_order': False}"), "is not an array of numbers"),
    "a key twice": (raw("{'descr': '<f8', 'descr': '<f8', 'shape': (1,)}"), "is not an array of"),
    "a call": (raw(FIELDS % ("__import__('os')", "(1,)")), "is not an array of numbers"),
    "a structure": (raw(FIELDS % ("[('a', '<i8')]", "(1,)")), "is not an array of numbers"),
    "bytes": (raw(FIELDS % ("'V1000000000'", "(0, 1)")), "holds |V1000000000; expected numbers"),
    "extents that no array has": (
        raw(FIELDS % ("'<f4'", f"(0, {10**17}, {10**17})")),
        "which no array can have",
    ),
    "an unknown type": (raw(FIELDS % ("'<q9'", "(1,)")), "is of the unknown type '<q9'"),
    "objects": (raw(FIELDS % ("'|O'", "(1,)")), "holds Python objects, which are never loaded"),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("zipped", [False, True])
def test_hostile_headers(name: str, zipped: bool, tmp_path: Path) -> None:
    content, said = HOSTILE[name]
    file = tmp_path / ("a.npz" if zipped else "a.npy")
    if zipped:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("text.npy", content)
    else:
        file.write_bytes(content)
    with pytest.raises(CimError) as caught:
        read_npz(file) if zipped else read_npy(file)
    assert said in str(caught.value)


def archive_of(file: Path, method: int, *members: tuple[str, bytes]) -> Path:
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return file


def test_zeros_that_unfold_are_refused(tmp_path: Path) -> None:
    zeros = npy(np.zeros(40_000_000, np.int8))
    file = archive_of(tmp_path / "a.npz", zipfile.ZIP_DEFLATED, ("text.npy", zeros))
    assert file.stat().st_size < 50_000
    with pytest.raises(CimError, match=r"a\.npz: text needs 320,000,000 bytes of memory"):
        read_npz(file)


def test_a_shape_beyond_its_member_is_refused(tmp_path: Path) -> None:
    short = npy(np.zeros(1000))[:-8]
    file = archive_of(tmp_path / "a.npz", zipfile.ZIP_DEFLATED, ("text.npy", short))
    with pytest.raises(CimError, match="its header says 8000 bytes"):
        read_npz(file)


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_other_ways_of_compression_are_refused(method: int, tmp_path: Path) -> None:
    file = archive_of(tmp_path / "a.npz", method, ("text.npy", npy(np.zeros(3))))
    with pytest.raises(CimError, match=f"is compressed by method {method} of .zip"):
        read_npz(file)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_comes_twice_is_refused(tmp_path: Path) -> None:
    members = [("text.npy", npy(np.zeros(3)))] * 2
    file = archive_of(tmp_path / "a.npz", zipfile.ZIP_STORED, *members)
    with pytest.raises(CimError, match="holds text twice; expected it once"):
        read_npz(file)


def test_a_name_with_control_characters_is_refused(tmp_path: Path) -> None:
    file = archive_of(tmp_path / "a.npz", zipfile.ZIP_STORED, ("te\nxt.npy", npy(np.zeros(3))))
    with pytest.raises(CimError, match=r"holds 'te\\nxt'; expected printable names"):
        read_npz(file)


def test_an_archive_of_very_many_arrays_is_refused(tmp_path: Path) -> None:
    empty = npy(np.zeros(0))
    members = ((f"{number}.npy", empty) for number in range(MOST_MEMBERS + 1))
    file = archive_of(tmp_path / "a.npz", zipfile.ZIP_STORED, *members)
    with pytest.raises(CimError, match="holds 10,001 files; expected 10,000 at most"):
        read_npz(file, ())


def test_an_archive_with_two_directories_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.npz"
    np.savez(file, a=np.ones(2))
    whole = file.read_bytes()
    for made in (b"before" + whole, whole[:-2] + b"\1\0a"):
        file.write_bytes(made)
        with pytest.raises(
            CimError, match=r"x\.npz: its directory is not where its end record says"
        ):
            read_npz(file)
