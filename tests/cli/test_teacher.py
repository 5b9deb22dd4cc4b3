"""`cimtool teacher`: what it prints and writes, and every mistake in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threads import threads_of

from cimtool import api
from cimtool.demo.data import DemoFiles
from cimtool.training.teacher_file import read_teacher

Run = Callable[..., Any]


def arguments(options: dict[str, object]) -> list[object]:
    given = [(f"--{key.replace('_', '-')}", value) for key, value in options.items()]
    return [part for option, value in given if value is not None for part in (option, value)]


@pytest.fixture
def teaching(cimtool: Run, small_trunk: DemoFiles, tmp_path: Path) -> Run:
    """Make a small teacher; options that are None are left out."""

    def run(*more: str, **changed: object) -> Any:
        options: dict[str, object] = {
            "projectors": small_trunk.projectors,
            "data": small_trunk.eval,
            "pairs": 50,
            "a": 0.1,
            "b": 0,
            "output": tmp_path / "t.npz",
        }
        return cimtool("teacher", *arguments(options | changed), *more)

    return run


def test_a_model_without_a_polynomial_is_enough(teaching: Run, tmp_path: Path) -> None:
    ran = teaching(labels="mc")
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.partition("\n")[0].endswith(
        "right ones; Monte Carlo labels, K = 10, of sigmoid(b - a D) with a = 0.1, b = 0 "
        "(a and b as given)"
    )
    assert "standard error of a label: " in ran.out
    assert ran.out.endswith(f"wrote {tmp_path}/t.npz\nnext: cimtool fit {tmp_path}/t.npz\n")
    teacher = read_teacher(tmp_path / "t.npz")
    assert (len(teacher), teacher.kind, teacher.K, teacher.a, teacher.b) == (50, "mc", 10, 0.1, 0)


@pytest.mark.parametrize("missing", [("a", "b"), ("a",), ("b",)])
def test_a_and_b_are_asked_for_where_nothing_says_them(
    teaching: Run, small_trunk: DemoFiles, tmp_path: Path, missing: tuple[str, ...]
) -> None:
    ran = teaching(**dict.fromkeys(missing))
    assert (ran.status, ran.out) == (2, "")
    assert ran.sentence == (
        f"{small_trunk.projectors}: does not say {' and '.join(missing)} of the probability "
        "E[sigmoid(b - a D)] that pairs are labelled with; expected "
        + " and ".join(f"--{name}" for name in missing)
    )
    assert not (tmp_path / "t.npz").exists()


def test_labels_are_exact_unless_samples_are_asked_for(teaching: Run, tmp_path: Path) -> None:
    assert "right ones; exact labels" in teaching().out
    assert read_teacher(tmp_path / "t.npz").kind == "exact"
    ran = teaching(samples=5)
    assert (ran.status, ran.sentence) == (
        2, "--samples is given; exact labels have none (--labels mc)"
    )  # fmt: skip


def test_exact_labels_and_json(teaching: Run, tmp_path: Path) -> None:
    found = teaching("--json", labels="exact", a=0.2, b=1.5, seed=4, matched=1).json
    assert (found["pairs"], found["matched"], found["labels"]) == (50, 1, "exact")
    assert (found["K"], found["a"], found["b"], found["seed"]) == (None, 0.2, 1.5, 4)
    assert (found["standard_error"], found["divisors"]) == (0, {"ed": 1, "vd": 1})
    assert found["written"] == [str(tmp_path / "t.npz")]
    teacher = read_teacher(tmp_path / "t.npz")
    logit = teacher.labels.logit
    assert found["ranges"]["logit"] == pytest.approx([logit.min(), logit.max()])


def test_two_branch_notes_its_divisors(teaching: Run, small_two_branch: DemoFiles) -> None:
    found = teaching("--json", projectors=small_two_branch.projectors, data=small_two_branch.eval)
    assert found.json["divisors"] == {"ed": 16, "vd": 256}


@pytest.fixture
def gaussians(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    names = ("text_mu", "text_logvar", "video_mu", "video_logvar")
    file = tmp_path / "gaussians.npz"
    np.savez(file, **{name: rng.normal(size=(9, 8)) for name in names})
    return file


def test_gaussians_from_a_file(teaching: Run, gaussians: Path, tmp_path: Path) -> None:
    ran = teaching(projectors=None, data=None, gaussians=gaussians)
    assert (ran.status, ran.err) == (0, "")
    with np.load(gaussians) as held:
        again = api.teacher(gaussians=dict(held), pairs=50, a=0.1, b=0.0)
    written = read_teacher(tmp_path / "t.npz")
    np.testing.assert_array_equal(written.labels.logit, again.labels.logit)


def test_the_same_bytes_whatever_the_threads(
    cimtool: Run, small_two_branch: DemoFiles, tmp_path: Path
) -> None:
    files = small_two_branch
    given = arguments(
        {"projectors": files.projectors, "data": files.eval, "pairs": 300, "labels": "mc"}
        | {"a": 0.1, "b": 0}
    )
    contents = []
    for threads in (1, 2):
        place = tmp_path / f"{threads}.npz"
        with threads_of(threads):
            ran = cimtool("teacher", *given, "-o", place)
        assert (ran.status, ran.err) == (0, "")
        contents.append(place.read_bytes())
    assert contents[0] == contents[1]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"projectors": None}, "--projectors and --gaussians: neither is given; expected one of"),
        ({"gaussians": "g.npz"}, "--projectors and --gaussians: both are given; expected one of"),
        ({"data": None}, "--data is what --projectors are run on; expected both or neither"),
        ({"projectors": None, "gaussians": "g.npz"}, "--data is what --projectors are run on"),
        ({"labels": "exact", "samples": 5}, "--samples is given; exact labels have none"),
        ({"labels": "exat"}, '"exat" is not one of mc, exact; did you mean "exact"?'),
        ({"labels": "mc", "samples": 1}, "--samples is 1; expected an integer of at least 2"),
        ({"a": 0}, "--a is 0.0; expected a finite number above 0"),
        ({"b": "nan"}, "--b is nan; expected a finite number"),
        ({"pairs": 0}, "--pairs is 0; expected an integer of at least 1"),
        ({"matched": 1.1}, "--matched is 1.1; expected a share, 0 to 1"),
        ({"seed": -1}, "--seed is -1; expected 0 to 2^64 - 1"),
        (
            {"output": "t.npy"},
            "t.npy: the output is an .npz file; expected a name that ends in .npz",
        ),
        ({"projectors": "none.pth"}, "none.pth: "),
        ({"data": "none.npz"}, "none.npz: "),
        ({"data": None, "projectors": None, "gaussians": "none.npz"}, "none.npz: "),
        ({"data": None, "projectors": None, "gaussians": "g", "map": "m.toml"}, "--map names lay"),
    ],
)
def test_mistakes(teaching: Run, options: dict[str, object], sentence: str, tmp_path: Path) -> None:
    ran = teaching(**options)
    assert (ran.status, ran.out) == (2, "")
    assert sentence in ran.sentence
    assert not (tmp_path / "t.npz").exists()


def test_one_modality_with_other_rows_than_the_other(teaching: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = {"text": rng.normal(size=(5, 24)), "video": rng.normal(size=(4, 24))}
    np.savez(tmp_path / "rows.npz", **{k: v.astype(np.float32) for k, v in rows.items()})
    ran = teaching(data=tmp_path / "rows.npz")
    assert ran.status == 2
    assert ran.sentence.startswith(f"{tmp_path}/rows.npz: ")
    assert "5" in ran.sentence
    assert "4" in ran.sentence


def test_a_folder_in_the_place_is_refused(teaching: Run, tmp_path: Path) -> None:
    (tmp_path / "t.npz").mkdir()
    ran = teaching()
    assert (ran.status, ran.out) == (2, "")
    assert ran.sentence == f"{tmp_path}/t.npz: is a folder; expected a file"
