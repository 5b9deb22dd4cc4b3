"""Search in shards: the answers of `simulate --top`, however they are cut, here or on a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from dask_processes import free_port, processes, scheduler, wait_for_two, worker
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from cimtool import api
from cimtool.base import cluster
from cimtool.base.errors import CimError
from cimtool.base.files import sha256
from cimtool.base.folders import sealed_text
from cimtool.demo.data import DemoFiles
from cimtool.galleries import encoding
from cimtool.galleries.search import BestItems

Made = Callable[[int], Path]


@pytest.fixture
def gallery(
    small_bundle: Path, small_trunk: DemoFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Made:
    """The demo's 40 items twice, so that every score is there twice, in shards of a size."""
    monkeypatch.setattr(encoding, "BLOCK", 4)
    with np.load(small_trunk.eval) as held:
        np.save(tmp_path / "items.npy", np.concatenate([held["video"], held["video"]]))

    def made(items_per_shard: int) -> Path:
        folder = tmp_path / f"by{items_per_shard}"
        api.encode(
            small_bundle, tmp_path / "items.npy", output=folder, items_per_shard=items_per_shard
        )
        return folder

    return made


@pytest.fixture
def expected(small_bundle: Path, small_trunk: DemoFiles) -> np.ndarray:
    scores: np.ndarray = api.load(small_bundle).scores(small_trunk.eval)
    return np.concatenate([scores, scores], axis=1)


@pytest.mark.thorough("more sizes of shards", quick=("-7]", "-1000]"))
@pytest.mark.parametrize("items_per_shard", [1, 7, 33, 80, 1000])
@pytest.mark.parametrize("top", [1, 5, 80])
def test_the_answers_are_those_of_all_scores(
    items_per_shard: int, top: int, gallery: Made, expected: np.ndarray, small_bundle: Path,
    small_trunk: DemoFiles,
) -> None:  # fmt: skip
    found = api.search(small_bundle, gallery(items_per_shard), small_trunk.eval, top=top)
    best = np.argsort(-expected, axis=1, kind="stable")[:, :top]
    assert np.array_equal(found["top_index"], best)
    assert np.array_equal(found["top_score"], np.take_along_axis(expected, best, axis=1))
    assert found["top_score"].dtype == np.float32


@given(
    scores=st.lists(st.integers(0, 3), min_size=1, max_size=12),
    order=st.randoms(),
    top=st.integers(1, 12),
    cuts=st.sets(st.integers(1, 11)),
)
def test_the_best_are_the_same_in_whatever_parts_they_come(
    scores: list[int], order: object, top: int, cuts: set[int]
) -> None:
    values = np.array([scores], np.float32)
    parts = np.split(np.arange(len(scores)), sorted(one for one in cuts if one < len(scores)))
    order.shuffle(parts)  # type: ignore[attr-defined]
    found = BestItems.none(1)
    for part in parts:
        found = found.joined(BestItems(part[None], values[:, part]), top)
    best = np.argsort(-values, axis=1, kind="stable")[:, :top]
    assert np.array_equal(found.items, best)
    assert np.array_equal(found.scores, np.take_along_axis(values, best, axis=1))


@pytest.fixture
def slow_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time for processes that start on a busy machine."""
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 60)


@pytest.mark.thorough("waits for timeouts of real clusters and processes")
@pytest.mark.usefixtures("slow_cluster")
def test_a_cluster_of_which_a_worker_is_killed_answers_the_same(
    gallery: Made,
    small_bundle: Path,
    small_trunk: DemoFiles,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = gallery(2)
    here = api.search(small_bundle, folder, small_trunk.eval, top=5, output=tmp_path / "a.npz")
    port, said = free_port(), []
    address = f"tcp://127.0.0.1:{port}"
    both = [worker(port, tmp_path / name) for name in ("one", "two")]
    with processes(scheduler(port), *both) as (_, victim, survivor):
        wait_for_two(address)
        monkeypatch.chdir(folder.parent)  # the workers are in another folder

        def say(text: str) -> None:
            said.append(text)
            if len(said) == 1:
                victim.kill()

        there = api.search(
            small_bundle, folder.name, small_trunk.eval, top=5, output=tmp_path / "b.npz",
            dask=address, say=say,
        )  # fmt: skip
        assert (victim.wait(30), survivor.poll()) == (-9, None)
    assert len(said) == 40
    assert all(np.array_equal(here[name], there[name]) for name in here)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


@pytest.mark.thorough("waits for timeouts of real clusters and processes")
@pytest.mark.usefixtures("slow_cluster")
@pytest.mark.parametrize(
    ("last", "happened"),
    [
        ("scheduler", "the connection to the scheduler was lost"),
        ("workers", "all workers that held the model were killed"),
    ],
)
def test_a_cluster_that_ends_is_told(
    last: str,
    happened: str,
    gallery: Made,
    small_bundle: Path,
    small_trunk: DemoFiles,
    tmp_path: Path,
) -> None:
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    both = [worker(port, tmp_path / name) for name in ("one", "two")]
    with processes(scheduler(port), *both) as (head, *others):
        wait_for_two(address)

        def say(text: str) -> None:
            for one in [head] if last == "scheduler" else others:
                one.kill()
                one.wait(30)

        with pytest.raises(CimError, match=f"{happened}; run the command again$"):
            api.search(small_bundle, gallery(1), small_trunk.eval, top=5, dask=address, say=say)


@pytest.mark.thorough("starts a cluster")
@pytest.mark.usefixtures("slow_cluster")
def test_a_worker_tells_of_a_changed_shard(
    gallery: Made, small_bundle: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    folder = gallery(20)
    changed_byte(folder / "000002.safetensors")
    port = free_port()
    with processes(scheduler(port), *(worker(port, tmp_path / one) for one in "ab")):
        wait_for_two(f"tcp://127.0.0.1:{port}")
        with pytest.raises(CimError, match="is not the shard that was written"):
            api.search(
                small_bundle, folder, small_trunk.eval, top=1, dask=f"tcp://127.0.0.1:{port}"
            )


def changed_byte(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def changed_index(folder: Path, **values: object) -> None:
    """Other values in the index, whose SHA-256 of itself is made anew."""
    file = folder / "gallery.json"
    file.write_text(sealed_text(json.loads(file.read_text("utf-8")) | values), "utf-8")


def swapped_shards(folder: Path) -> None:
    """Two shards in each other's place, and their SHA-256 in the index too."""
    file, names = folder / "gallery.json", ("000000.safetensors", "000001.safetensors")
    one, other = ((folder / name).read_bytes() for name in names)
    (folder / names[0]).write_bytes(other)
    (folder / names[1]).write_bytes(one)
    index = json.loads(file.read_text("utf-8"))
    index["shards"][:2] = index["shards"][1::-1]
    file.write_text(json.dumps(index, indent=1) + "\n", "utf-8")


def other_features(folder: Path, name: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    """A shard of other features whose SHA-256 the index has."""
    file = folder / "000000.safetensors"
    features = load_file(file)
    save_file(features | {name: change(features[name])}, file)
    held = json.loads((folder / "gallery.json").read_text("utf-8"))["shards"]
    changed_index(folder, shards=[sha256(file), *held[1:]])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda g: changed_byte(g / "000001.safetensors"), "000001.safetensors: is not the shard"),
        (lambda g: (g / "000001.safetensors").unlink(), "000001.safetensors: there is no such"),
        (lambda g: (g / "gallery.json").unlink(), "not a gallery, or not complete yet"),
        (lambda g: (g / "gallery.json").write_text("{"), "gallery.json: is not JSON"),
        (swapped_shards, "gallery.json: changed since it was written"),
        (
            lambda g: (g / "gallery.json").write_bytes((g / "gallery.json").read_bytes() + b"\n"),
            "gallery.json: changed since it was written",
        ),
        (
            lambda g: changed_index(g, format_version=1),
            "format_version is 1; expected 2; run `cimtool encode` again",
        ),
        (lambda g: changed_index(g, items=81), "lists 4 shards for 81 items; expected 5"),
        (lambda g: changed_index(g, items="many"), "items = .many.: must be an integer"),
        (lambda g: changed_index(g, bundle_sha256="0" * 64), "was encoded by small@isaac-rram-128"),
        (lambda g: other_features(g, "mu", lambda x: x[:, :-1]), "mu has shape"),
        (
            lambda g: other_features(g, "mu", lambda x: np.full_like(x, -128)),
            "holds -128; expected -127",
        ),
        (
            lambda g: other_features(g, "mu", lambda x: x.astype(np.float32)),
            "mu is of F32; expected I8",
        ),
    ],
)
def test_a_gallery_that_is_not_as_written_is_refused(
    change: Callable[[Path], object], said: str, gallery: Made, small_bundle: Path,
    small_trunk: DemoFiles, tmp_path: Path,
) -> None:  # fmt: skip
    folder, output = gallery(20), tmp_path / "best.npz"
    change(folder)
    with pytest.raises(CimError, match=said):
        api.search(small_bundle, folder, small_trunk.eval, top=1, output=output)
    assert not output.exists()


def test_arguments_that_do_not_fit_are_refused(
    gallery: Made, small_bundle: Path, small_trunk: DemoFiles, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 0.5)
    folder = gallery(20)
    for top in (0, 81):
        with pytest.raises(CimError, match=f"top is {top}; expected 1 to 80, the number of items"):
            api.search(small_bundle, folder, small_trunk.eval, top=top)
    address = f"tcp://127.0.0.1:{free_port()}"
    with pytest.raises(CimError, match="no scheduler answered within"):
        api.search(small_bundle, folder, small_trunk.eval, top=1, dask=address)
    other = tmp_path / "other"
    api.compile(
        small_trunk.projectors,
        small_trunk.poly,
        calibration=small_trunk.calibration,
        drift="given",
        target="ideal",
        output=other,
    )
    with pytest.raises(CimError, match="was encoded by small@isaac-rram-128, not by other"):
        api.search(other, folder, small_trunk.eval, top=1)
    held = tmp_path / "in-memory"
    api.compile(
        small_trunk.projectors, small_trunk.poly, calibration=small_trunk.calibration, output=held,
        target="isaac-rram-128", score_mapping="in-memory",
    )  # fmt: skip
    api.program(held, small_trunk.eval, output=tmp_path / "programmed")
    with pytest.raises(CimError, match="holds a gallery in its arrays; expected the bundle before"):
        api.search(tmp_path / "programmed", folder, small_trunk.eval, top=1)
