"""`cimtool teacher`: what it prints and writes, and every mistake in one sentence."""

from __future__ import annotations

import json
import re
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

ORIGINS = "--projectors, --logvar and --gaussians"
RANDOM: dict[str, object] = {"projectors": None, "logvar": -5}


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


def test_random_weights_are_named_by_the_options_of_train(
    teaching: Run, cimtool: Run, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    ran = teaching(**RANDOM, seed=3, pairs=2000, matched=0.5)
    assert (ran.status, ran.err) == (0, "")
    (said,) = re.findall(
        r"Pairs of random weights \((.+)\); train with seed 3 starts there\n", ran.out
    )
    options: list[object] = [word for value in said.split(", ") for word in ("--set", value)]
    assert options[-3::2] == ["model.logvar_start=-5", "model.linear=false"]
    poly = tmp_path / "poly_coeffs.pt"
    assert cimtool("fit", tmp_path / "t.npz", "--degree", 2, "-o", poly).status == 0
    options += ["--seed", 3, "--epochs", 1, "--batch", 8, "-o", tmp_path / "run"]
    assert cimtool("train", "--data", small_trunk.eval, "--poly", poly, *options).status == 0
    start = json.loads((tmp_path / "run" / "history.json").read_text("utf-8"))["epochs"][0]
    assert start["watched"]["outside held out"] < 0.05, "the pairs lie in the polynomial's band"


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
        ({"projectors": None}, f"{ORIGINS}: none is given; expected one of them"),
        ({"gaussians": "g.npz"}, f"{ORIGINS}: two are given; expected one of them"),
        ({"logvar": -5}, f"{ORIGINS}: two are given; expected one of them"),
        ({"logvar": -5, "gaussians": "g.npz"}, f"{ORIGINS}: all are given; expected one of them"),
        ({"data": None}, "--data is what --projectors are run on; expected both or neither"),
        ({"projectors": None, "gaussians": "g.npz"}, "--data is what --projectors are run on"),
        (
            {"projectors": None, "logvar": -5, "data": None},
            "--data is what the random weights of --logvar are run on; expected both or neither",
        ),
        (RANDOM | {"logvar": "nan"}, "--logvar is nan; expected a number from -80 to 80"),
        (RANDOM | {"seed": 2**63}, "--seed is 9223372036854775808; expected 0 to 2^63 - 1"),
        (RANDOM | {"map": "m.toml"}, "--map names layers of --projectors; expected it with them"),
        (
            RANDOM | {"a": None, "b": None},
            "a trunk of random weights: does not say a and b of the probability",
        ),
        (RANDOM | {"logvar": 81}, "--logvar is 81.0; expected a number from -80 to 80"),
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
