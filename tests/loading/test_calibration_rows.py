"""Evaluation rows that are calibration rows: known by their digests, refused in one sentence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cimtool import api
from cimtool.base.data_notes import data_noted
from cimtool.base.errors import CimError
from cimtool.bundle.bundle import CALIBRATION, read_bundle
from cimtool.demo.data import DemoFiles
from cimtool.loading.calibration_rows import require_unseen, without_seen
from cimtool.loading.digests import digests_of, row_digests
from cimtool.loading.embeddings import Embeddings, embeddings_of, read_embeddings
from cimtool.reference.truth import Judgements


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
        "rows.npz: model was calibrated on 3 of its 9 text rows (6, 7, 8) and 3 of its 9 video "
        "rows (6, 7, 8); expected unseen rows, calibration_rows drop or allow"
    )
    with pytest.raises(CimError, match=r"on 4 of its 4 video rows \(0, 1, 2, 3\); expected"):
        require_unseen(known, data(fresh[:4], seen), "model")


def test_the_first_of_many_are_named() -> None:
    rows = drawn(9, 0)
    with pytest.raises(CimError, match=r"on 9 of its 9 text rows \(0, 1, 2, 3, 4, \.\.\.\) and"):
        require_unseen(digests_of(rows, rows), data(rows, rows), "model")


def test_seen_rows_are_left_out_with_their_pairs() -> None:
    """Video 0 has texts 0 and 1, video 1 text 2, video 2 text 3, and video 3 none."""
    text, video = drawn(4, 1), drawn(4, 2)
    right = np.array([0, 0, 1, 2])
    arrays = {"text": text, "video": video, "text_to_video": right, "labels": np.arange(4)}
    rows = embeddings_of({**arrays, "text_ids": np.array(list("abcd"))}, "rows.npz")

    def left(texts: slice, videos: slice) -> Embeddings:
        with data_noted() as notes:
            (found,) = without_seen([digests_of(text[texts], video[videos])], [rows], "model")
        remain = f"{len(found.text)} texts and {len(found.video)} videos remain"
        assert remain in " ".join(notes.sentences)
        return found

    none = slice(0)
    one_of_two = left(slice(1), none)
    np.testing.assert_array_equal(one_of_two.text, text[1:])
    np.testing.assert_array_equal(one_of_two.video, video)
    np.testing.assert_array_equal(one_of_two.right, [0, 1, 2])
    np.testing.assert_array_equal(one_of_two.labels, [1, 2, 3])
    assert one_of_two.ids("text").tolist() == ["b", "c", "d"]
    both = left(slice(2), none)
    np.testing.assert_array_equal(both.video, video[1:])
    np.testing.assert_array_equal(both.right, [0, 1])
    of_video = left(none, slice(1))
    np.testing.assert_array_equal(of_video.text, text[2:])
    np.testing.assert_array_equal(of_video.video, video[1:])
    with pytest.raises(
        CimError, match=r"^rows.npz: 3 of its 4 text rows \(0, 1, 2\) calibrated m; "
    ):
        without_seen([digests_of(text[:3], video[:0])], [rows], "m")


def test_judgements_keep_the_pairs_that_are_left() -> None:
    rows = data(drawn(4, 1), drawn(4, 2))
    pairs = np.array([0, 1, 2, 2]), np.array([0, 1, 2, 0]), np.array([1, 2, 3, 4])
    judged = replace(rows, judged=Judgements(*pairs))
    found = judged.without(np.arange(4) == 1, np.arange(4) == 0)
    assert found.judged is not None
    assert (found.judged.text.tolist(), found.judged.video.tolist()) == ([1], [1])
    assert found.judged.grade.tolist() == [3]
    assert found.text_to_video is None


@pytest.mark.thorough("the same by another command or kind of data")
def test_reports_are_those_of_the_rows_that_are_left(
    small_bundle: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    with np.load(small_trunk.eval) as unseen, np.load(small_trunk.calibration) as seen:
        fresh = {name: unseen[name] for name in ("text", "video")}
        mixed = {name: np.concatenate([rows, seen[name][:3]]) for name, rows in fresh.items()}
    wanted = api.verify(small_bundle, fresh, report=tmp_path / "fresh")
    found = api.verify(small_bundle, mixed, report=tmp_path / "mixed", calibration_rows="drop")
    assert found.to_json() == wanted.to_json()
    both = api.compare([small_bundle, small_bundle], mixed, calibration_rows="drop").reports
    assert {report.subject.data.texts for report in both} == {len(fresh["text"])}
    with pytest.raises(CimError, match='calibration_rows "all" is not known: allow, drop, refuse'):
        api.verify(small_bundle, mixed, calibration_rows="all")  # type: ignore[arg-type]


def test_items_in_the_arrays_are_not_left_out(small_trunk: DemoFiles, tmp_path: Path) -> None:
    made = api.compile(
        small_trunk.projectors, small_trunk.poly, calibration=small_trunk.calibration,
        target="ideal", output=tmp_path / "b", score_mapping="in-memory",
    )  # fmt: skip
    held = api.program(made.folder, small_trunk.eval, output=tmp_path / "p").bundle.folder
    with pytest.raises(
        CimError, match=r"cannot be used for p, whose items are in its arrays; expected a"
    ):
        api.verify(held, small_trunk.eval, calibration_rows="drop")


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
    bundle = api.compile(
        small_two_branch.projectors,
        calibration=twice,
        drift="given",
        target="ideal",
        output=tmp_path / "b",
    )
    seen = api.read_data(eightfold, bundle.model)
    with pytest.raises(CimError, match=r"on 96 of its 96 text rows .* and 96 of its 96 video rows"):
        require_unseen(bundle.calibration, seen, bundle.name)


def test_a_programmed_bundle_knows_them_too(small_trunk: DemoFiles, tmp_path: Path) -> None:
    made = api.compile(
        small_trunk.projectors, small_trunk.poly, calibration=small_trunk.calibration,
        target="ideal", output=tmp_path / "b", score_mapping="in-memory",
    )  # fmt: skip
    programmed = api.program(made.folder, small_trunk.eval, output=tmp_path / "p").bundle
    for name, value in made.calibration.items():
        np.testing.assert_array_equal(read_bundle(programmed.folder).calibration[name], value)
