"""Evaluation rows that are calibration rows: known by their digests, refused in one sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cimtool import api
from cimtool.base.errors import CimError
from cimtool.bundle.bundle import CALIBRATION, read_bundle
from cimtool.loading.calibration_rows import require_unseen
from cimtool.loading.digests import digests_of, row_digests
from cimtool.loading.embeddings import Embeddings, embeddings_of, read_embeddings
from cimtool.training.demo_data import DemoFiles


def data(text: np.ndarray, video: np.ndarray) -> Embeddings:
    return embeddings_of({"text": text, "video": video}, "rows.npz")


def drawn(rows: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, 5)).astype(np.float32)


def test_digests_are_sorted_and_each_is_kept_once() -> None:
    rows = drawn(9, 0)
    found = digests_of(np.concatenate([rows, rows[:3]]), rows[::-1])
    np.testing.assert_array_equal(found["text"], np.sort(row_digests(rows)))
    np.testing.assert_array_equal(found["video"], found["text"])


def test_seen_rows_are_counted_by_modality() -> None:
    seen, fresh = drawn(4, 1), drawn(6, 2)
    known = digests_of(seen, seen)
    require_unseen(known, data(fresh, fresh), "model")
    mixed = np.concatenate([fresh, seen[1:3], seen[1:2]])
    with pytest.raises(CimError) as caught:
        require_unseen(known, data(mixed, mixed), "model")
    assert str(caught.value) == (
        "rows.npz: model was calibrated on 3 of its 9 text rows and 3 of its 9 video rows; "
        "expected unseen rows, or allow_calibration_rows"
    )
    with pytest.raises(CimError, match=r"calibrated on 4 of its 4 video rows; expected"):
        require_unseen(known, data(fresh[:4], seen), "model")


def test_a_row_of_the_other_modality_is_unseen() -> None:
    text, video = drawn(4, 3), drawn(4, 4)
    require_unseen(digests_of(text, video), data(video, text), "model")


def test_a_bundle_keeps_the_rows_it_was_calibrated_on(
    small_bundle: Path, small_trunk: DemoFiles
) -> None:
    bundle = read_bundle(small_bundle)
    assert CALIBRATION in bundle.manifest["files"]
    assert {name: len(value) for name, value in bundle.calibration.items()} == {
        "text": 96,
        "video": 96,
    }
    require_unseen(bundle.calibration, read_embeddings(small_trunk.eval), bundle.name)
    rows = read_embeddings(small_trunk.calibration)
    with pytest.raises(CimError, match=r"calibration.npz: small@isaac-rram-128 was calibrated on"):
        require_unseen(bundle.calibration, rows, bundle.name)


def test_rows_are_compared_as_the_model_takes_them(
    small_two_branch: DemoFiles, tmp_path: Path
) -> None:
    """A layout that expects unit rows does not see a row's length."""
    with np.load(small_two_branch.calibration) as held:
        rows = {name: held[name] for name in held.files}
    twice, eightfold = ({name: factor * value for name, value in rows.items()} for factor in (2, 8))
    bundle = api.compile(small_two_branch.projectors, calibration=twice, output=tmp_path / "b")
    seen = api.read_data(eightfold, bundle.model)
    with pytest.raises(CimError, match=r"on 96 of its 96 text rows and 96 of its 96 video rows"):
        require_unseen(bundle.calibration, seen, bundle.name)


def test_a_programmed_bundle_knows_them_too(small_trunk: DemoFiles, tmp_path: Path) -> None:
    made = api.compile(
        small_trunk.projectors, small_trunk.poly, calibration=small_trunk.calibration,
        output=tmp_path / "b", score_mapping="in-memory",
    )  # fmt: skip
    programmed = api.program(made.folder, small_trunk.eval, output=tmp_path / "p").bundle
    for name, value in made.calibration.items():
        np.testing.assert_array_equal(read_bundle(programmed.folder).calibration[name], value)
