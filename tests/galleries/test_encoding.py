"""Encoding of a gallery: the simulator's features, the same bytes, and going on after a kill."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from cimtool import api
from cimtool.base.errors import CimError
from cimtool.base.folders import sealed_text
from cimtool.bundle.inspect import format_facts
from cimtool.demo.data import DemoFiles
from cimtool.galleries import encoding
from cimtool.galleries.encoding import INDEX, Shards, open_gallery


def files_in(folder: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in folder.iterdir()}


@pytest.fixture
def items(small_trunk: DemoFiles, tmp_path: Path) -> Path:
    with np.load(small_trunk.eval) as held:
        np.save(tmp_path / "items.npy", held["video"])
    return tmp_path / "items.npy"


def test_shards_hold_the_features_of_the_simulator(
    small_bundle: Path, items: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, "BLOCK", 4)
    found = api.encode(small_bundle, items, output=tmp_path / "gallery", items_per_shard=15)
    matcher = api.load(small_bundle)
    expected = matcher.encode_video(np.load(items))
    rows = []
    for shard in found.shards:
        with shard.opened(matcher.bundle.program) as features:
            rows += [features(block) for block in shard.blocks]
    assert [shard.items for shard in found.shards] == [15, 15, 10]
    assert set(rows[0]) == set(expected)
    for name, whole in expected.items():
        assert np.array_equal(np.concatenate([one[name] for one in rows]), whole)
        assert rows[0][name].dtype.itemsize <= whole.dtype.itemsize
    assert rows[0]["mu"].dtype == np.int8


def test_mapped_rows_give_the_bytes_of_rows_in_an_archive(
    small_bundle: Path, small_trunk: DemoFiles, items: Path, tmp_path: Path
) -> None:
    fortran = tmp_path / "fortran.npy"
    np.save(fortran, np.asfortranarray(np.load(items)))
    made = []
    for name, file in (("a", items), ("b", small_trunk.eval), ("c", fortran)):
        api.encode(small_bundle, file, output=tmp_path / name, items_per_shard=15)
        made.append({k: v for k, v in files_in(tmp_path / name).items() if k != "encoding.json"})
    assert made[0] == made[1] == made[2]


@pytest.mark.thorough("kills a real encoding")
def test_an_encoding_that_was_killed_goes_on_and_ends_with_the_same_bytes(
    small_bundle: Path, items: Path, tmp_path: Path
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    many = tmp_path / "many.npy"
    np.save(many, np.tile(np.load(items), (50, 1)))
    options = ["--gallery", str(many), "--items-per-shard", "20"]
    command = [sys.executable, "-m", "cimtool", "encode", str(small_bundle), *options, "-o"]
    with subprocess.Popen([*command, str(killed)], stderr=subprocess.DEVNULL) as process:
        while not (killed / "000003.safetensors").exists():
            assert process.poll() is None
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)
    assert not (killed / INDEX).exists()
    with pytest.raises(CimError, match="so it is not a gallery, or not complete yet"):
        open_gallery(killed, api.load(small_bundle).bundle)
    kept = (killed / "000003.safetensors").stat().st_mtime_ns
    api.encode(small_bundle, many, output=killed, items_per_shard=20)
    assert (killed / "000003.safetensors").stat().st_mtime_ns == kept
    api.encode(small_bundle, many, output=whole, items_per_shard=20)
    assert files_in(killed) == files_in(whole)


@pytest.mark.parametrize("broken", ["shard", "missing", "index"])
def test_encoding_again_writes_anew_what_is_not_as_it_was_written(
    broken: str, small_bundle: Path, items: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "gallery"
    api.encode(small_bundle, items, output=folder, items_per_shard=15)
    before, changed = files_in(folder), folder / "000001.safetensors"
    kept = (folder / "000000.safetensors").stat().st_mtime_ns
    if broken == "missing":
        changed.unlink()
    else:
        content = bytearray(changed.read_bytes())
        content[-1] ^= 1
        changed.write_bytes(content)
    if broken == "index":
        (folder / INDEX).write_text("{", "utf-8")
    api.encode(small_bundle, items, output=folder, items_per_shard=15)
    assert files_in(folder) == before
    assert broken == "index" or (folder / "000000.safetensors").stat().st_mtime_ns == kept


def test_a_folder_of_another_gallery_is_refused(
    small_bundle: Path, items: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "gallery"
    api.encode(small_bundle, items, output=folder)
    with pytest.raises(CimError, match="holds a gallery with another number of items a shard"):
        api.encode(small_bundle, items, output=folder, items_per_shard=3)
    np.save(items, np.load(items)[::-1])
    with pytest.raises(CimError, match="holds a gallery with another input"):
        api.encode(small_bundle, items, output=folder)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            np.full((40, 24), np.nan),
            "of rows 30 to 39: embeddings: row 5 of video holds nan",
        ),
        (np.zeros((40, 23)), "items.npy: video rows have 23 numbers; .* expects 24"),
        (np.zeros((0, 24)), "items.npy: embeddings: video has no rows"),
        (np.zeros(24), "items.npy: embeddings: video has shape"),
        (np.array([["x"] * 24]), "holds texts; expected their embeddings"),
    ],
)
def test_rows_that_do_not_fit_are_refused(
    rows: np.ndarray, said: str, small_bundle: Path, items: Path, tmp_path: Path
) -> None:
    if rows.dtype.kind == "f" and np.isnan(rows).any():
        rows = np.load(items)
        rows[35] = np.nan
    np.save(items, rows)
    with pytest.raises(CimError, match=said):
        api.encode(small_bundle, items, output=tmp_path / "gallery", items_per_shard=15)
    assert not (tmp_path / "gallery" / INDEX).exists()


def test_a_broken_npy_is_refused(small_bundle: Path, items: Path, tmp_path: Path) -> None:
    items.write_bytes(items.read_bytes()[:-1])
    with pytest.raises(CimError, match="is truncated or corrupt"):
        api.encode(small_bundle, items, output=tmp_path / "gallery")
    items.write_bytes(b"nothing")
    with pytest.raises(CimError, match="is not a NumPy array"):
        api.encode(small_bundle, items, output=tmp_path / "gallery")


@pytest.fixture
def whole(small_bundle: Path, small_trunk: DemoFiles, tmp_path: Path) -> Path:
    place = tmp_path / "held"
    api.encode(small_bundle, small_trunk.eval, output=place, items_per_shard=15)
    return place


def test_a_gallery_is_described_and_every_shard_verified(whole: Path) -> None:
    facts = Shards.facts(whole)
    assert (facts["kind"], facts["items"], facts["shards"]) == ("gallery", 40, 3)
    files = sorted(whole.glob("*.safetensors"))
    assert facts["bytes"] == sum(one.stat().st_size for one in files)
    assert f"  items per shard: {facts['items per shard']}" in format_facts(facts)
    content = bytearray(files[1].read_bytes())
    content[-1] ^= 1
    files[1].write_bytes(content)
    with pytest.raises(CimError, match=f"^{files[1]}: is not the shard that was written"):
        Shards.facts(whole)


def test_the_remedy_of_a_broken_shard_is_to_encode_again(
    whole: Path, small_bundle: Path, small_trunk: DemoFiles
) -> None:
    broken, index = (
        sorted(whole.glob("*.safetensors"))[0],
        json.loads((whole / INDEX).read_text()),
    )
    broken.write_bytes(b"nothing")
    index["shards"][0] = hashlib.sha256(b"nothing").hexdigest()
    (whole / INDEX).write_text(sealed_text(index))
    with pytest.raises(
        CimError,
        match=r"is not a safetensors file .*; run `cimtool encode` "
        r"again$",
    ):
        api.search(small_bundle, whole, small_trunk.eval, top=1)
