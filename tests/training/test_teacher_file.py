"""Teachers in files: this tool's own, and any other's with ed, vd and y."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cimtool.base.arrays import Array
from cimtool.base.errors import CimError
from cimtool.demo.data import DemoFiles
from cimtool.reference.statistics import Gaussians
from cimtool.training.items import ARRAYS, Items, gaussian_items
from cimtool.training.teacher import TeacherSigmoid
from cimtool.training.teacher_file import (
    COLUMNS,
    LabelKind,
    Teacher,
    make_teacher,
    read_teacher,
    teacher,
    write_teacher,
)

NOTED = ("kind", "a", "b", "K", "seed", "scale_ed", "scale_vd")


@pytest.fixture
def items() -> Items:
    rng = np.random.default_rng(0)
    given = {name: rng.normal(size=(20, 12)) for name in ("text_mu", "video_mu")}
    given |= {name: np.full((20, 12), -3.0) for name in ("text_logvar", "video_logvar")}
    return replace(gaussian_items(given), right=np.arange(20)[::-1], scale_ed=12.0, scale_vd=144.0)


def made(items: Items, kind: LabelKind = "mc", seed: int = 7, matched: float = 0.5) -> Teacher:
    return make_teacher(items, 60, matched, kind, TeacherSigmoid(0.2, 1.5, 4), seed)


@pytest.mark.parametrize("kind", ["mc", "exact"])
def test_a_written_teacher_reads_back(items: Items, kind: LabelKind, tmp_path: Path) -> None:
    teacher = made(items, kind)
    write_teacher(teacher, tmp_path / "t.npz")
    found = read_teacher(tmp_path / "t.npz")
    assert [getattr(found, name) for name in NOTED] == [getattr(teacher, name) for name in NOTED]
    assert (found.K is None) == (kind == "exact")
    for name in ("ed", "vd", "log_p", "log_1mp", "logit", "standard_error"):
        np.testing.assert_array_equal(getattr(found.labels, name), getattr(teacher.labels, name))
    for name in ("text", "video", "matched"):
        np.testing.assert_array_equal(getattr(found, name), getattr(teacher, name))
    assert (found.clipped, len(found)) == (0, 60)


def test_a_and_b_are_those_that_the_checkpoint_keeps(
    small_trunk: DemoFiles, tmp_path: Path
) -> None:
    content = torch.load(small_trunk.projectors, weights_only=True)
    torch.save({**content, "a": 0.3, "b": 4.0}, tmp_path / "kept.pth")
    options: dict[str, Any] = {"pairs": 8, "matched": 0.5}
    for file, given, expected in (
        (tmp_path / "kept.pth", {}, (0.3, 4.0)),
        (tmp_path / "kept.pth", {"b": 1.0}, (0.3, 1.0)),
        (small_trunk.projectors, {"a": 0.2, "b": 0.0}, (0.2, 0.0)),
    ):
        found = teacher(file, small_trunk.train, **options, **given)
        assert (found.a, found.b) == expected


def test_a_checkpoint_trained_on_a_polynomial_keeps_a_and_b_with_it(
    small_trunk: DemoFiles, tmp_path: Path
) -> None:
    content = torch.load(small_trunk.projectors, weights_only=True)
    inner = {"degree": 1, "coeff": [-0.5, 0.25], "bias": 1.0, "a": 0.3, "b": 4.0}
    torch.save({**content, "poly": inner}, tmp_path / "kept.pth")
    found = teacher(tmp_path / "kept.pth", small_trunk.train, pairs=8, matched=0.5)
    assert (found.a, found.b) == (0.3, 4.0)


@pytest.mark.parametrize("given", [{}, {"a": 0.1}, {"b": 0.0}])
def test_a_sigmoid_that_nobody_says_is_asked_for_before_rows_are_encoded(
    small_trunk: DemoFiles, given: dict[str, float]
) -> None:
    said: list[str] = []
    missing = " and ".join(name for name in ("a", "b") if name not in given)
    sentence = f"does not say {missing} of the probability .* with; expected {missing}$"
    with pytest.raises(CimError, match=f"^{small_trunk.projectors}: {sentence}"):
        teacher(small_trunk.projectors, small_trunk.train, pairs=8, say=said.append, **given)
    assert said == []
    gaussians = {name: np.zeros((3, 2)) for name in ARRAYS}
    with pytest.raises(CimError, match=f"^gaussians: {sentence}"):
        teacher(gaussians=gaussians, pairs=8, **given)


def test_a_teacher_says_where_a_and_b_come_from(small_trunk: DemoFiles, tmp_path: Path) -> None:
    content = torch.load(small_trunk.projectors, weights_only=True)
    torch.save({**content, "a": 0.3, "b": 4.0}, kept := tmp_path / "kept.pth")
    for given, origin in (
        ({}, f"a and b of {kept}"),
        ({"a": 0.1}, f"a as given, b of {kept}"),
        ({"a": 0.1, "b": 0.0}, "a and b as given"),
    ):
        assert teacher(kept, small_trunk.train, pairs=8, **given).origin == origin  # type: ignore[arg-type]


def test_right_pairs_are_those_of_the_items(items: Items) -> None:
    teacher = made(items, "exact", matched=1.0)
    assert teacher.matched is not None
    assert teacher.matched.all()
    assert teacher.text is not None
    np.testing.assert_array_equal(teacher.video, 19 - teacher.text)


def test_the_same_teacher_has_the_same_bytes_and_another_seed_others(
    items: Items, tmp_path: Path
) -> None:
    contents = []
    for seed in (7, 7, 8):
        write_teacher(made(items, seed=seed), tmp_path / "t.npz")
        contents.append((tmp_path / "t.npz").read_bytes())
    assert contents[0] == contents[1] != contents[2]


def test_the_file_has_plain_arrays_in_raw_statistics(items: Items, tmp_path: Path) -> None:
    teacher = made(items)
    write_teacher(teacher, tmp_path / "t.npz")
    with np.load(tmp_path / "t.npz", allow_pickle=False) as held:
        assert {name: held[name].shape for name in COLUMNS} == dict.fromkeys(COLUMNS, (60,))
        np.testing.assert_array_equal(held["y"], teacher.labels.logit)
        assert str(held["labels"]) == "mc"
        assert (held["scale_ed"], held["K"], held["seed"]) == (12, 4, 7)
    text, video = teacher.text, teacher.video
    delta = items.text.mu[text] - items.video.mu[video]
    ed = (delta**2 + items.text.s[text] + items.video.s[video]).sum(axis=1)
    np.testing.assert_allclose(teacher.labels.ed, ed)


def write(folder: Path, **arrays: object) -> Path:
    rng = np.random.default_rng(1)
    standard: dict[str, object] = {
        "ed": rng.uniform(100, 200, 30),
        "vd": rng.uniform(10, 20, 30),
        "y": -rng.uniform(5, 9, 30),
    }
    file = folder / "teacher.npz"
    np.savez(file, **{k: v for k, v in (standard | arrays).items() if v is not None})
    return file


def test_logits_alone_are_enough(tmp_path: Path) -> None:
    y = np.linspace(-800, 40, 30)
    found = read_teacher(write(tmp_path, y=y))
    np.testing.assert_allclose(found.labels.logit, y, rtol=1e-12)
    assert [getattr(found, name) for name in NOTED] == [None] * 5 + [1, 1]
    assert found.labels.standard_error is None
    assert (found.text, found.matched, found.clipped) == (None, None, 0)
    assert not found.probabilities


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_probabilities_become_logits_without_those_that_were_clipped(
    dtype: type, tmp_path: Path
) -> None:
    logits = np.linspace(-20, 20, 30)
    clipped = np.clip(1 / (1 + np.exp(-logits)), 1e-6, 1 - 1e-6).astype(dtype)
    meta = np.array({"a": 0.1}, dtype=object)  # pickled: never read
    file = write(tmp_path, y=clipped[:, None], meta=meta, standard_error=np.ones(30))
    found = read_teacher(file)
    kept = np.abs(logits) < -np.log(1e-6)
    assert found.clipped == 30 - kept.sum() > 5
    np.testing.assert_allclose(
        found.labels.logit, logits[kept], rtol=1e-2 if dtype == np.float32 else 1e-9
    )
    with np.load(file, allow_pickle=True) as held:
        np.testing.assert_array_equal(found.labels.ed, held["ed"][kept])
    assert found.labels.standard_error is None
    assert found.probabilities


def test_labels_between_0_and_1_are_not_probabilities_beside_log_p(tmp_path: Path) -> None:
    y = np.linspace(0.1, 0.9, 30)
    assert read_teacher(write(tmp_path, y=y)).probabilities
    given = {"log_p": -np.log1p(np.exp(-y)), "log_1mp": -np.log1p(np.exp(y))}
    found = read_teacher(write(tmp_path, y=y, **given))
    assert not found.probabilities
    np.testing.assert_allclose(found.labels.logit, y)


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"vd": None}, "vd is missing; it holds ed, y"),
        ({"vd": None, "v_d": np.ones(30)}, 'vd is missing; it holds ed, y, v_d; did you mean'),
        ({"y": np.zeros(29)}, "ed has 30 pairs and y 29; expected equal numbers"),
        ({"text": np.zeros(31)}, "ed has 30 pairs and text 31; expected equal numbers"),
        ({"y": np.full(30, np.nan)}, "y of pair 0 is nan; expected finite numbers"),
        ({"ed": np.r_[np.ones(29), np.inf]}, "ed of pair 29 is inf; expected finite numbers"),
        ({"y": np.array(["a"] * 30)}, "y is of <U1 and shape [30]; expected one number per pair"),
        ({"ed": np.ones((6, 5))}, "ed is of float64 and shape [6, 5]; expected one number per p"),
        ({"y": np.full(30, 1e-6)}, "all 30 labels are probabilities clipped at 1e-6, so no"),
        ({"standard_error": np.full(30, -1.0)}, "standard_error holds -1.0; expected 0 or more"),
        ({"a": 0.0}, "a is 0; expected a number above 0"),
        ({"b": np.nan}, "b is nan; expected one finite number"),
        ({"scale_vd": [1.0, 2.0]}, "scale_vd is [1.0, 2.0]; expected one finite number"),
    ],
)  # fmt: skip
def test_files_that_do_not_fit_are_refused(
    arrays: dict[str, Array], sentence: str, tmp_path: Path
) -> None:
    file = write(tmp_path, **arrays)
    with pytest.raises(CimError, match="^" + re.escape(f"{file}: {sentence}")):
        read_teacher(file)


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "poly.json").write_text("{}")
    with pytest.raises(
        CimError, match=r'poly\.json: "\.json" is not the suffix of a teacher: .npz'
    ):
        read_teacher(tmp_path / "poly.json")
    for name in ("none.npz", "none"):
        with pytest.raises(CimError, match=f"{name}: there is no such file"):
            read_teacher(tmp_path / name)
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(CimError, match=r"broken\.npz: is truncated, corrupt, or not an \.npz file"):
        read_teacher(tmp_path / "broken.npz")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ((0, 0.5, 1), "pairs is 0; expected an integer of at least 1"),
        ((5, 1.5, 1), "matched is 1.5; expected a share, 0 to 1"),
        ((5, np.nan, 1), "matched is nan; expected a share, 0 to 1"),
        ((5, 0.5, -1), "seed is -1; expected 0 to 2^64 - 1"),
        ((5, 0.5, 2**64), "seed is 18446744073709551616; expected 0 to 2^64 - 1"),
    ],
)
def test_numbers_out_of_range_are_refused(
    options: tuple[int, float, int], sentence: str, items: Items
) -> None:
    pairs, matched, seed = options
    with pytest.raises(CimError, match="^" + re.escape(sentence) + "$"):
        make_teacher(items, pairs, matched, "exact", TeacherSigmoid(0.1, 0.0), seed)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", ["mc", "exact"])
@pytest.mark.parametrize(
    ("size", "sentence"),
    [
        (1e200, "ed comes to inf; expected Gaussians"),
        (1e110, "vd comes to inf; expected Gaussians"),
    ],
)
def test_an_overflow_is_one_sentence_of_file_and_rows(
    kind: LabelKind, size: float, sentence: str, items: Items
) -> None:
    mu, s = items.text.mu.copy(), items.text.s.copy()
    mu[3] *= size
    s[3] *= size
    spoilt = replace(items, text=Gaussians(mu, s), file="g.npz")
    with pytest.raises(CimError, match=rf"^g\.npz: text row 3 and video row \d+: {sentence}"):
        make_teacher(spoilt, 60, 0.5, kind, TeacherSigmoid(0.1, 0.0))


def test_a_probability_that_is_not_reached_is_of_a_file_and_rows(items: Items) -> None:
    s = items.text.s.copy()
    s[3] *= 1e80
    spoilt = replace(items, text=Gaussians(items.text.mu, s), file="g.npz")
    with pytest.raises(
        CimError, match=r"^g\.npz: text row 3 and video row \d+: the exact probability of a pair is"
    ):
        make_teacher(spoilt, 60, 0.5, "exact", TeacherSigmoid(0.1, 0.0))


def test_labels_of_another_kind_are_refused(items: Items) -> None:
    with pytest.raises(CimError, match='labels "Exact" is not known: exact, mc; did you mean'):
        made(items, "Exact")  # type: ignore[arg-type]


def test_the_largest_seed_reads_back(items: Items, tmp_path: Path) -> None:
    write_teacher(made(items, "exact", seed=2**64 - 1), tmp_path / "t.npz")
    assert read_teacher(tmp_path / "t.npz").seed == 2**64 - 1


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"K": -3}, "K is -3; expected one integer, 0 or more"),
        ({"K": 2.5}, "K is 2.5; expected one integer, 0 or more"),
        ({"text": np.full(60, 1.5)}, "text holds numbers that are not rows"),
        ({"log_1mp": None}, "holds one of log_p and log_1mp; expected both, or neither"),
        ({"log_p": np.ones(60)}, "log_p 1 and log_1mp .* expected log p"),
        ({"y": np.zeros(60)}, "has y 0, log_p .* and their difference as y"),
    ],
)
def test_what_contradicts_itself_is_refused(
    items: Items, tmp_path: Path, changed: dict[str, object], message: str
) -> None:
    write_teacher(made(items, "exact"), tmp_path / "t.npz")
    with np.load(tmp_path / "t.npz") as held:
        arrays = {name: held[name] for name in held.files} | changed
    kept = {name: value for name, value in arrays.items() if value is not None}
    np.savez(tmp_path / "t.npz", **kept)  # type: ignore[arg-type]
    with pytest.raises(CimError, match=message):
        read_teacher(tmp_path / "t.npz")
