"""Shards of a gallery: their description, in which a changed one is found."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from cimtool import api
from cimtool.base.errors import CimError
from cimtool.base.folders import sealed_text
from cimtool.demo.data import DemoFiles
from cimtool.galleries.shards import INDEX, describe_gallery
from cimtool.loading.inspect import format_facts


@pytest.fixture
def folder(small_bundle: Path, small_trunk: DemoFiles, tmp_path: Path) -> Path:
    place = tmp_path / "held"
    api.encode(small_bundle, small_trunk.eval, output=place, items_per_shard=15)
    return place


def test_a_gallery_is_described_and_every_shard_verified(folder: Path) -> None:
    facts = describe_gallery(folder)
    assert (facts["kind"], facts["items"], facts["shards"]) == ("gallery", 40, 3)
    files = sorted(folder.glob("*.safetensors"))
    assert facts["bytes"] == sum(one.stat().st_size for one in files)
    assert f"  items per shard: {facts['items per shard']}" in format_facts(facts)
    content = bytearray(files[1].read_bytes())
    content[-1] ^= 1
    files[1].write_bytes(content)
    with pytest.raises(CimError, match=f"^{files[1]}: is not the shard that was written"):
        describe_gallery(folder)


def test_the_remedy_of_a_broken_shard_is_to_encode_again(
    folder: Path, small_bundle: Path, small_trunk: DemoFiles
) -> None:
    broken, index = (
        sorted(folder.glob("*.safetensors"))[0],
        json.loads((folder / INDEX).read_text()),
    )
    broken.write_bytes(b"nothing")
    index["shards"][0] = hashlib.sha256(b"nothing").hexdigest()
    (folder / INDEX).write_text(sealed_text(index))
    with pytest.raises(CimError, match=r"is no safetensors file .*; run `cimtool encode` again$"):
        api.search(small_bundle, folder, small_trunk.eval, top=1)
