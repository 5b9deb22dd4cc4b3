"""Shards of a gallery: their description, in which a changed one is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from cimtool import api
from cimtool.base.errors import CimError
from cimtool.galleries.shards import describe_gallery
from cimtool.loading.inspect import format_facts
from cimtool.training.demo_data import DemoFiles


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
