"""Halves of the kept rows: what asks has no item in common with what fits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cimtool import api
from cimtool.base.errors import CimError
from cimtool.bundle.matcher import open_bundle
from cimtool.demo.data import DemoFiles
from cimtool.galleries.gallery_job import GalleryJob
from cimtool.loading.embeddings import File
from cimtool.simulation.simulator import Simulator


def job(files: DemoFiles, calibration: dict[str, Any], place: Path) -> GalleryJob:
    made = api.compile(
        files.projectors, files.poly, calibration=calibration, target="isaac-rram-128",
        score_mapping="hybrid", output=place,
    )  # fmt: skip
    bundle = open_bundle(made.folder)
    simulator = Simulator(bundle.program)
    return GalleryJob(bundle, simulator.encode("video", rows(files.eval)["video"]), simulator)


def rows(file: File) -> dict[str, Any]:
    with np.load(file) as held:
        return {name: held[name] for name in held.files}


def distinct(values: np.ndarray) -> set[bytes]:
    return {row.tobytes() for row in np.ascontiguousarray(values)}


def test_captions_of_an_image_are_in_one_half(small_trunk: DemoFiles, tmp_path: Path) -> None:
    known = rows(small_trunk.calibration)
    of_item = np.repeat(np.arange(20), 3)
    texts, videos = known["text"][: len(of_item)], known["video"][of_item]
    found = job(small_trunk, {"text": texts, "video": videos}, tmp_path / "b")
    (odd, even), (fit, ask) = found.halves
    assert (fit, ask) == (even, odd)
    assert not distinct(odd.right["mu"]) & distinct(even.right["mu"])
    assert len(odd.queries["mu"]) == len(even.queries["mu"]) == 30
    expected = found.queries["mu"][of_item % 2 == 0]
    np.testing.assert_array_equal(even.queries["mu"], expected)


def test_rows_of_an_item_each_alternate(small_trunk: DemoFiles, tmp_path: Path) -> None:
    found = job(small_trunk, rows(small_trunk.calibration), tmp_path / "b")
    (odd, even), _ = found.halves
    np.testing.assert_array_equal(even.queries["mu"], found.queries["mu"][::2])
    np.testing.assert_array_equal(odd.right["mu"], found.right["mu"][1::2])


def test_one_item_leaves_nothing_to_check_on(small_trunk: DemoFiles, tmp_path: Path) -> None:
    known = rows(small_trunk.calibration)
    one = {"text": known["text"][:8], "video": np.repeat(known["video"][:1], 8, axis=0)}
    one["video"][0] *= np.float32(1 + 1e-6)  # another row, stored as the same numbers
    found = job(small_trunk, one, tmp_path / "b")
    with pytest.raises(CimError, match="8 kept calibration rows are all of one item"):
        found.halves  # noqa: B018
