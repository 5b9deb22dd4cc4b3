"""Sources of a teacher's pairs: models of both layouts, arrays and files of Gaussians."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cimtool
from cimtool.base.arrays import Array
from cimtool.base.errors import CimError
from cimtool.base.progress import silent
from cimtool.demo.data import DemoFiles
from cimtool.loading.embeddings import read_embeddings
from cimtool.loading.source import ModelSource
from cimtool.simulation.simulator import Simulator
from cimtool.training.items import ARRAYS, Items, gaussian_items, model_items

Arrays = dict[str, Array]


def arrays(n: int = 4, m: int = 4, d: int = 6) -> Arrays:
    rng = np.random.default_rng(n)
    shapes = ((n, d), (n, d), (m, d), (m, d))
    return {name: rng.normal(size=shape) for name, shape in zip(ARRAYS, shapes, strict=True)}


def test_a_model_needs_no_polynomial(small_trunk: DemoFiles) -> None:
    items = model_items(ModelSource(small_trunk.projectors), small_trunk.eval, silent)
    model = ModelSource(small_trunk.projectors, small_trunk.poly).load()
    rows = read_embeddings(small_trunk.eval)
    wanted = Simulator(model.program).encode("text", rows.text)
    np.testing.assert_array_equal(items.text.mu, wanted["mu"])
    np.testing.assert_array_equal(items.text.s, wanted["s"])
    np.testing.assert_array_equal(items.right, np.arange(40))
    assert (items.scale_ed, items.scale_vd) == (1, 1)


def test_judgements_alone_say_what_is_right(small_trunk: DemoFiles, tmp_path: Path) -> None:
    qrels, read = tmp_path / "q.txt", read_embeddings(small_trunk.eval)
    qrels.write_text("0 0 3 1\n0 0 5 2\n2 0 3 1\n")
    data = {"text": read.text[:6], "video": read.video}  # no pairs
    items = model_items(ModelSource(small_trunk.projectors), data, silent, qrels)
    assert items.right.tolist() == [5, 41, 3, 43, 44, 45]
    truth = items.truth
    assert truth.judged is items.judged
    assert np.argwhere(truth.right_pairs()).tolist() == [[0, 3], [0, 5], [2, 3]]
    text, video = items.drawn(500, 0.9, seed=0)
    assert video.max() < 40
    right = set(zip(text.tolist(), video.tolist(), strict=True)) & {(0, 3), (0, 5), (2, 3)}
    assert {(0, 5), (2, 3)} <= right
    matched = items.matched((text, video))
    assert {(int(i), int(j)) for i, j in zip(text[matched], video[matched], strict=True)} == right


def test_two_branch_says_what_it_divides_the_statistics_by(small_two_branch: DemoFiles) -> None:
    items = model_items(ModelSource(small_two_branch.projectors), small_two_branch.eval, silent)
    assert (items.scale_ed, items.scale_vd) == (16, 256)
    np.testing.assert_allclose(np.linalg.norm(items.video.mu, axis=1), 1, rtol=1e-6)


def test_blocks_of_rows_are_put_together(
    small_trunk: DemoFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = model_items(ModelSource(small_trunk.projectors), small_trunk.eval, silent)
    monkeypatch.setattr("cimtool.training.items.ROW_BLOCK", 7)
    parts = model_items(ModelSource(small_trunk.projectors), small_trunk.eval, silent)
    np.testing.assert_allclose(parts.video.mu, whole.video.mu, rtol=1e-5, atol=1e-6)
    assert parts.video.s.shape == whole.video.s.shape


def alone(labels: list[int] | np.ndarray | None) -> Items:
    """Items of one modality, as a model gives them."""
    side = gaussian_items(arrays(6, 6)).text
    known = None if labels is None else np.array(labels)
    return Items(side, side, np.arange(6), file="rows.npz", labels=known, alone=True)


def test_right_pairs_of_one_modality_are_two_items_of_a_class() -> None:
    items = alone([3, 1, 3, 1, 1, 7])
    text, video = items.drawn(600, 1.0, seed=0)
    assert items.labels is not None
    assert (text != video).all()
    np.testing.assert_array_equal(items.labels[text], items.labels[video])
    drawn = set(zip(text.tolist(), video.tolist(), strict=True))
    assert drawn == {(0, 2), (2, 0), *((i, j) for i in (1, 3, 4) for j in (1, 3, 4) if i != j)}
    assert items.matched((text, video)).all()
    half = items.drawn(4000, 0.5, seed=0)
    wrong = 1 - (8 / 36)  # of any with any
    assert 1 - items.matched(half).mean() == pytest.approx(0.5 * wrong, abs=0.03)
    again = items.drawn(4000, 0.5, seed=0)
    np.testing.assert_array_equal(again, half)


def test_two_items_with_a_class_in_common_are_a_right_pair() -> None:
    sets = [[1, 1, 0], [1, 0, 0], [0, 1, 1], [0, 0, 0], [0, 0, 1], [0, 0, 0]]
    items = alone(np.array(sets, bool))
    text, video = items.drawn(600, 1.0, seed=0)
    drawn = set(zip(text.tolist(), video.tolist(), strict=True))
    assert drawn == {(0, 1), (1, 0), (0, 2), (2, 0), (2, 4), (4, 2)}
    assert items.matched((text, video)).all()
    every = np.divmod(np.arange(36), 6)
    right = {(i, j) for i, j, one in zip(*every, items.matched(every), strict=True) if one}
    assert right == drawn


def test_a_teacher_of_a_model_of_one_modality(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(60, 6)).astype(np.float32)
    data = {"rows": rows, "labels": np.arange(60) % 3}
    options = {"model.hidden": "8", "model.width": 4}
    model = cimtool.train(
        data, tmp_path / "run", model="variational-autoencoder", loss="triplet", epochs=1,
        batch=30, options=options,
    ).folder / "model.pth"  # fmt: skip
    sigmoid: dict[str, Any] = {"a": 0.1, "b": 0.0}
    made = cimtool.teacher(model, data, labels="exact", pairs=200, matched=1.0, **sigmoid)
    assert made.text is not None
    assert made.video is not None
    assert made.matched is not None
    assert made.matched.all()
    assert (made.text != made.video).all()
    np.testing.assert_array_equal(made.text % 3, made.video % 3)
    with pytest.raises(CimError, match=r"embeddings: labels is missing, .* or matched 0"):
        cimtool.teacher(model, {"rows": rows}, labels="exact", pairs=200, **sigmoid)
    with pytest.raises(CimError, match=r"model\.pth: does not say a and b of the probability"):
        cimtool.teacher(model, data, labels="exact", pairs=200)


def test_without_labels_right_pairs_of_one_modality_are_not_known() -> None:
    for labels, message in ((None, "labels is missing, so which"), ([*range(6)], "no two items")):
        with pytest.raises(CimError, match=f"^rows.npz: {message} .*matched 0"):
            alone(labels).drawn(10, 0.9, seed=0)
        rows = alone(labels).drawn(100, 0.0, seed=0)
        assert (rows[0] != rows[1]).any()
        assert not alone(labels).matched(rows).any()


def test_arrays_and_a_file_of_them_are_the_same(tmp_path: Path) -> None:
    given = {**arrays(3, 5), "text_to_video": np.array([4, 0, 4])}
    np.savez(tmp_path / "gaussians.npz", **given)
    for items in (gaussian_items(given), gaussian_items(tmp_path / "gaussians.npz")):
        np.testing.assert_array_equal(items.text.mu, given["text_mu"])
        np.testing.assert_array_equal(items.video.s, np.exp(given["video_logvar"]))
        np.testing.assert_array_equal(items.right, [4, 0, 4])


def without(name: str) -> Callable[[Arrays], object]:
    return lambda held: held.pop(name)


def changed(**values: object) -> Callable[[Arrays], object]:
    return lambda held: held.update({k: np.asarray(v) for k, v in values.items()})


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (without("video_logvar"), "video_logvar is missing; it holds text_mu, text_logvar, vid"),
        (changed(video_mu=np.zeros((3, 6))), "video_mu has shape [3, 6] and video_logvar [4, 6]"),
        (changed(text_mu=np.zeros(4)), "text_mu has shape [4]; expected two dimensions, [rows, w"),
        (changed(text_mu=[["a"]]), "text_mu holds texts; expected their embeddings, rows"),
        (changed(text_mu=np.zeros((0, 6))), "text_mu has no rows"),
        (changed(text_mu=np.full((4, 6), np.nan)), "row 0 of text_mu holds nan; expected finite"),
        (changed(text_logvar=np.full((4, 6), 800)), "text_logvar holds 800, whose exp is beyond"),
        (changed(**arrays(4, 4, 5) | {k: arrays()[k] for k in ARRAYS[:2]}),
         "text_mu has 6 dimensions and video_mu 5; expected one d"),
        (changed(**arrays(4, 3)), "4 texts and 3 videos, and text_to_video is missing"),
        (changed(text_to_video=[0, 1, 2, 4]), "row 3 of text_to_video is 4; expected a video"),
        (changed(text_to_video=[0, 1, 2, -1]), "row 3 of text_to_video is -1; expected a"),
        (changed(text_to_video=[0, 1, 2]), "text_to_video has shape [3]; expected [4], one"),
        (changed(text_to_image=[0.0] * 4), "text_to_image is of float64; expected integers"),
    ],
)  # fmt: skip
def test_arrays_that_do_not_fit_are_refused(
    change: Callable[[Arrays], object], sentence: str, tmp_path: Path
) -> None:
    held = arrays()
    change(held)
    with pytest.raises(CimError) as caught:
        gaussian_items(held)
    assert str(caught.value).startswith(f"gaussians: {sentence}")
    file = tmp_path / "g.npz"
    np.savez(file, **held)
    with pytest.raises(CimError) as caught:
        gaussian_items(file)
    assert str(caught.value).startswith(f"{file}: {sentence}")


def test_a_name_that_is_nearly_right_is_told() -> None:
    held = arrays()
    held["text_logvars"] = held.pop("text_logvar")
    with pytest.raises(CimError, match=r"text_logvar is missing; .*did you mean \"text_logvars\""):
        gaussian_items(held)
