"""Files of others: ordinary ones alone, with a budget of memory."""

from __future__ import annotations

import json
import os
import struct
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from safetensors.numpy import save_file

from cimtool.base.errors import CimError
from cimtool.base.files import LARGEST_HOLES, require_file, sha256
from cimtool.base.json_files import DEEPEST, parse_json, read_json
from cimtool.base.toml_files import read_toml
from cimtool.base.untrusted import (
    LARGEST_DIRECTORY,
    MAX_MEMORY,
    MOST_MEMBERS,
    SPARE,
    Budget,
    memory_limited,
    memory_size,
    read_bounded,
)
from cimtool.loading.checkpoint import read_checkpoint
from cimtool.loading.npy import read_npz
from cimtool.loading.onnx.graph import describe_onnx


@pytest.mark.parametrize("place", ["/dev/zero", "/dev/null", "/proc/self/status", "pipe"])
def test_devices_and_pipes_are_refused_before_they_are_read(place: str, tmp_path: Path) -> None:
    if place == "pipe":
        place = str(tmp_path / "pipe")
        os.mkfifo(place)
    for reader in (require_file, Budget.of, read_toml, read_json):
        with pytest.raises(CimError, match="is a device, a pipe or a socket; expected an ordinary"):
            reader(Path(place))


def test_a_folder_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CimError, match="is a folder; expected a file"):
        require_file(tmp_path)
    with pytest.raises(CimError, match="there is no such file"):
        require_file(tmp_path / "none")


def test_a_budget_is_eight_times_the_file_and_256_mb(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_bytes(bytes(1000))
    budget = Budget.of(file)
    assert budget.limit == 8000 + SPARE
    budget.take(1000, 1, "one")  # counts as numbers of 8 bytes
    with pytest.raises(CimError, match=r"^two needs 268,435,457 bytes .* may use 268,443,456;"):
        budget.take(1, SPARE + 1, "two")
    budget.take(1, SPARE, "three")
    assert budget.left == 0


def test_a_limit_holds_for_safetensors_and_onnx(tmp_path: Path) -> None:
    weights = np.zeros((3000, 2), np.float16)
    save_file({"w": weights}, tmp_path / "w.safetensors")
    graph = helper.make_graph([], "g", [], [], [numpy_helper.from_array(weights, "w")])
    graph.node.append(helper.make_node("Relu", ["x"], ["y"]))
    onnx.save_model(helper.make_model(graph), tmp_path / "w.onnx")
    readers = {"w.safetensors": read_checkpoint, "w.onnx": describe_onnx}
    for name, reader in readers.items():
        for limit, taken in ((40_000, "w needs 48,000"), (10_000, ".* needs")):
            with (
                memory_limited(limit),
                pytest.raises(CimError, match=rf"{name}: {taken}.*may use {limit:,}"),
            ):
                reader(tmp_path / name)
        with memory_limited(50_000):
            reader(tmp_path / name)


def test_a_limit_takes_the_place_of_the_budget_and_ends(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_bytes(bytes(1000))
    with memory_limited(100):
        assert Budget.of(file).limit == 100
        with memory_limited(None):
            assert Budget.of(file).limit == 100
    assert MAX_MEMORY not in os.environ
    assert Budget.of(file).limit > SPARE


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("123", 123), ("2k", 2048), ("3M", 3 << 20), ("4G", 4 << 30)]
)
def test_sizes(text: str, size: int) -> None:
    assert memory_size(text) == size


@pytest.mark.parametrize("text", ["", "G", "-1", "1.5G", "4GB", "1 G", "9" * 30, "٣"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(
        CimError, match="is not an amount of memory; expected bytes, such as 500000000"
    ):
        memory_size(text)


def test_a_file_that_is_too_long_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_bytes(bytes(11))
    assert read_bounded(file, 11) == bytes(11)
    with pytest.raises(CimError, match="has 11 bytes; expected at most 10 of such a file"):
        read_bounded(file, 10)


def test_json_is_as_deep_as_it_may_be() -> None:
    assert parse_json("[" * DEEPEST + "]" * DEEPEST)
    for depth in (DEEPEST + 1, 100_000):
        with pytest.raises(ValueError, match=f"nested more than {DEEPEST} deep"):
            parse_json("[" * depth + "]" * depth)


@pytest.mark.parametrize("text", ["nonsense", "[1", '{"a": ' + "9" * 5000 + "}", "[" * 5000])
def test_what_is_no_json(text: str, tmp_path: Path) -> None:
    file = tmp_path / "values.json"
    file.write_text(text)
    with pytest.raises(CimError, match="not valid JSON"):
        read_json(file)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = 1" + "9" * 4300, "has a line of 4,305 bytes; expected at most 4,096"),
        ("a = " + "[" * 4000, "nested too deep"),
        ("a = " + "[\n" * 40_000, "nested too deep"),
        ("a" + ".a" * 2000 + " = 1", "nested too deep"),
        ("a = 0x" + "f" * 4000, "it has an integer beyond 64 bits"),
        ("a" + ".a" * 49_990 + " = 1", "has a line of 99,985 bytes"),
        ("#\n" * 50_001, "has 100,002 bytes; expected at most 100,000"),
    ],
)
def test_toml_that_would_take_all_memory(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "target.toml"
    file.write_text(text)
    with pytest.raises(CimError, match=said):
        read_toml(file)


def test_a_file_of_holes_is_refused_and_a_written_one_is_not(tmp_path: Path) -> None:
    file = tmp_path / "data"
    with file.open("wb") as stream:
        stream.write(bytes(1000))
        stream.truncate(10**12)
    for reader in (require_file, Budget.of, sha256):
        with pytest.raises(CimError, match=r"has 1,000,000,000,000 bytes but the disk holds"):
            reader(file)
    with file.open("r+b") as stream:
        stream.truncate(LARGEST_HOLES)
    require_file(file)


def test_what_is_no_file_has_no_digest(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(CimError, match="is a device, a pipe or a socket"):
            sha256(place)


def test_a_header_of_very_many_tensors_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    names = {str(i): {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(90_000)}
    header = json.dumps(names).encode()
    file.write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(
        CimError, match=r"its header has 5,[\d,]+ bytes; expected at most 4,194,304"
    ):
        read_checkpoint(file)


def test_json_of_very_many_values_is_refused() -> None:
    with pytest.raises(ValueError, match="it has more than 10,000,000 values"):
        parse_json(b"[" + b"[]," * 5_000_000 + b"[]]")


def entry(extra: bytes = b"") -> bytes:
    """The entry of an empty file, `a`, in the directory of an archive."""
    fields = (b"PK\1\2", 20, 20, *[0] * 7, 1, len(extra), *[0] * 5)
    return struct.pack("<4s6H3L5H2L", *fields) + b"a" + extra


def with_entries(whole: bytes, more: Sequence[bytes], beside: int) -> bytes:
    """An archive with more entries in its directory, and so many `beside` them in its end."""
    place = whole.rindex(b"PK\5\6")
    count, size, start = struct.unpack_from("<HII", whole, place + 10)
    directory, count = whole[start : start + size] + b"".join(more), count + len(more) + beside
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, count, count, len(directory), start, 0)
    return whole[:start] + directory + end


ENTRIES: dict[str, tuple[list[bytes], int, str]] = {
    "long ones": (
        [entry(struct.pack("<HH", 0x9999, 0) * 16383)] * 300,
        0,
        f"its directory has 19,.* bytes; expected at most {LARGEST_DIRECTORY:,}",
    ),
    "many": ([entry()] * MOST_MEMBERS, 0, r"holds 10,0\d\d files; expected 10,000 at most"),
    "more than said": (
        [entry()] * 9,
        -9,
        r"its directory has 1\d files, but its end record says \d;",
    ),
}


@pytest.mark.parametrize("name", ENTRIES)
@pytest.mark.parametrize("suffix", [".npz", ".pth"])
def test_a_directory_is_refused_before_it_is_read(suffix: str, name: str, tmp_path: Path) -> None:
    file, (more, beside, said) = tmp_path / f"x{suffix}", ENTRIES[name]
    if suffix == ".npz":
        np.savez(file, **{f"a{i}": np.ones(2) for i in range(5)})
    else:
        torch.save({"a": torch.ones(2)}, file)
    file.write_bytes(with_entries(file.read_bytes(), more, beside))
    started = time.monotonic()
    with pytest.raises(CimError, match=said):
        (read_npz if suffix == ".npz" else read_checkpoint)(file)
    assert time.monotonic() - started < 5
