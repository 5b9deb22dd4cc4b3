"""`cimtool fit`: what it prints and writes, what `compile` takes, every mistake in one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cimtool import api
from cimtool.demo.data import DemoFiles
from cimtool.loading.polynomial import read_polynomial
from cimtool.loading.source import ModelSource
from cimtool.training.polynomial import without_scales
from cimtool.training.teacher_file import read_teacher

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def teacher(small_trunk: DemoFiles, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("teacher") / "t.npz"
    api.teacher(small_trunk.projectors, small_trunk.eval, pairs=600, a=0.1, b=0.0, output=file)
    return file


def test_a_fit_prints_its_errors_and_writes_three_files(
    cimtool: Run, teacher: Path, tmp_path: Path
) -> None:
    ran = cimtool("fit", teacher, "--degree", 4, "-o", tmp_path / "p.json", "-v")
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.splitlines()[1].startswith("On ")
    assert "held-out pairs the polynomial of degree 4 is " in ran.out
    assert "wrong pairs" in ran.out
    assert "labels: exact; a = 0.1, b = 0" in ran.out
    assert f"next: cimtool compile --projectors FILE --poly {tmp_path}/p.json" in ran.out
    assert {file.name for file in tmp_path.iterdir()} == {"p.json", "p.fit.html", "p.fit.json"}


def test_judgements_say_what_is_right(
    cimtool: Run, teacher: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    qrels = tmp_path / "q.txt"
    qrels.write_text("".join(f"{i} 0 {j} 1\n" for i in range(20) for j in range(40)))
    rows = "--projectors", small_trunk.projectors, "--data", small_trunk.eval
    command = "fit", teacher, "--degree", 1, "--qrels", qrels
    found = cimtool(*command, *rows, "-o", tmp_path / "p.json", "--json").json
    for one in found["comparison"]["candidates"]:
        assert one["r1_text_to_video"]["value"] == 1.0
    assert "Right pairs are those that q.txt grades" in (tmp_path / "p.fit.html").read_text()
    refused = cimtool(*command, "-o", tmp_path / "q.json")
    assert (refused.status, refused.sentence) == (
        2,
        "--qrels judges pairs of --data; expected both",
    )
    qrels.write_text("0 0 40 1\n")
    refused = cimtool(*command, *rows, "-o", tmp_path / "q.json")
    assert refused.status == 2
    assert f"{qrels}: line 1: item 40 is not known; expected a video row of" in refused.sentence
    assert not (tmp_path / "q.json").exists()


def test_the_features_of_the_file_are_said(
    cimtool: Run, teacher: Path, small_two_branch: DemoFiles, tmp_path: Path
) -> None:
    """Scales of a .json, none of a .pt, which has unscaled ed and vd; a layout's divisors first."""
    own = tmp_path / "own.npz"
    model, rows = small_two_branch.projectors, small_two_branch.eval
    api.teacher(model, rows, a=0.1, b=0, pairs=600, output=own)
    for file, by in ((teacher, ("", "")), (own, (" / 16", " / 256"))):
        for suffix in (".json", ".pt"):
            poly = tmp_path / f"p{suffix}"
            told = cimtool("fit", file, "-o", poly, "--degree", 2, "-v").out
            written = read_polynomial(poly)
            scales = written.scale_ed, written.scale_vd
            assert (scales == (1, 1)) == (suffix == ".pt")
            of = ["" if scale == 1 else f" / {scale:g}" for scale in scales]
            assert f"file's features: ed{by[0]}{of[0]} and vd{by[1]}{of[1]}\n" in told
            page = (tmp_path / "p.fit.html").read_text()
            assert f"{written.coeff[1]:.9g}<" in page


def test_json_is_what_is_written(cimtool: Run, teacher: Path, tmp_path: Path) -> None:
    poly, report = tmp_path / "p.json", tmp_path / "report"
    found = cimtool(
        "fit", teacher, "-o", poly, "--report", report, "--degree", 2, "--alpha", 0.5, "--json"
    ).json
    names = [poly, report / "p.fit.html", report / "p.fit.json"]
    assert found.pop("written") == list(map(str, names))
    assert all(name.is_file() for name in names)
    assert found == json.loads(names[2].read_text())
    assert (found["degree"], found["alpha"]) == (2, 0.5)


def test_compile_takes_the_fit(
    cimtool: Run, compiling: Run, small_trunk: DemoFiles, teacher: Path, tmp_path: Path
) -> None:
    poly = tmp_path / "p.json"
    assert cimtool("fit", teacher, "-o", poly).status == 0
    assert cimtool(*compiling(small_trunk, tmp_path / "bundle", poly=poly)).status == 0
    model = ModelSource(small_trunk.projectors, poly).load()
    assert (model.a, model.b, model.samples) == (0.1, 0, None)


def test_a_two_branch_model_scores_by_its_fit(
    cimtool: Run, small_two_branch: DemoFiles, tmp_path: Path
) -> None:
    files = small_two_branch
    file, poly = tmp_path / "t.npz", tmp_path / "p.json"
    given = ("--a", 0.1, "--b", 0, "--pairs", 500, "--matched", 0.5, "-o", file)
    ran = cimtool("teacher", "--projectors", files.projectors, "--data", files.eval, *given)
    assert ran.status == 0
    found = cimtool("fit", file, "-o", poly, "--json").json
    assert found["divisors"] == {"ed": 16, "vd": 256}
    labels = read_teacher(file).labels
    logits = (
        ModelSource(files.projectors, poly).load().head.polynomial.evaluate(labels.ed, labels.vd)
    )
    assert np.sqrt(np.mean(np.square(logits - labels.logit))) < 0.01


def test_a_teacher_of_clipped_probabilities(cimtool: Run, tmp_path: Path) -> None:
    ed = np.linspace(20, 250, 400)
    y = np.clip(1 / (1 + np.exp(0.1 * ed)), 1e-6, 1 - 1e-6).astype(np.float32)
    np.savez(tmp_path / "t.npz", ed=ed, vd=np.sin(ed), y=y)
    ran = cimtool("fit", tmp_path / "t.npz", "-o", tmp_path / "p.json", "--degree", 1)
    assert ran.status == 0
    clipped = int((ed > 10 * np.log(1e6)).sum())
    assert f"* warning: {clipped} labels ({clipped / 400:.1%}) are probabilities clipped" in ran.out
    assert "a and b are not in the file; give them to `cimtool compile`" in ran.out
    fitted = read_polynomial(tmp_path / "p.json")
    np.testing.assert_allclose(fitted.evaluate(ed, np.sin(ed)), -0.1 * ed, atol=0.1)


def changed(teacher: Path, folder: Path, **arrays: object) -> Path:
    """The teacher with some arrays replaced, or left out where they are None."""
    with np.load(teacher) as held:
        values: dict[str, Any] = dict(held) | arrays
    file = folder / "changed.npz"
    np.savez(file, **{name: value for name, value in values.items() if value is not None})
    return file


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"ed": None}, "changed.npz: ed is missing; it holds vd, y, "),
        ({"vd": np.zeros(599)}, "changed.npz: ed has 600 pairs and vd 599; expected equal numbers"),
        (
            {"video": np.zeros(3)},
            "changed.npz: ed has 600 pairs and video 3; expected equal numbers",
        ),
        ({"log_p": np.full(600, np.nan)}, "changed.npz: log_p of pair 0 is nan; expected finite"),
        ({"ed": np.full(600, 7.0)}, "changed.npz: ed is 7.0 for all of the teacher's pairs"),
        (
            {"log_p": np.full(600, -13.0), "log_1mp": np.zeros(600), "y": np.full(600, -13.0)},
            "changed.npz: the teacher's labels are all -13 (logit); expected labels that vary",
        ),
    ],
)
def test_teachers_that_cannot_be_fitted(
    cimtool: Run, teacher: Path, arrays: dict[str, object], sentence: str, tmp_path: Path
) -> None:
    file = changed(teacher, tmp_path, **arrays)
    ran = cimtool("fit", file, "-o", tmp_path / "made" / "p.json")
    assert (ran.status, ran.out) == (2, "")
    assert sentence in ran.sentence
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--degree", 9), "--degree is 9; expected 1 to 8"),
        (("--degree", 0), "--degree is 0; expected 1 to 8"),
        (("--degree", "1,9"), "--degree is 9; expected 1 to 8"),
        (("--degree", "1,1"), "--degree 1 is given twice; expected each once"),
        (("--degree", "1,x"), '"1,x" is not one integer, 4, or several, 1,2,3'),
        (("--tolerance", -1), "--tolerance is -1; expected a finite number, 0 or more"),
        (("--data", "d.npz"), "--data is what --projectors are run on; expected both or neither"),
        (("--target", "ideal"), "--target prices the items of --data; expected both"),
        (("--pt-keys", "d"), '"d" is not one of coeff, c'),
        (("--alpha", -1), "--alpha is -1.0; expected a finite number, 0 or more"),
        (("--scale-ed", 0), "--scale-ed is 0; expected a number from 1e-30 to 1e+30"),
        (("--scale-ed", 1e200), "--scale-ed is 1e+200; expected a number from 1e-30 to 1e+30"),
        (("--scale-vd", "nan"), "--scale-vd is nan; expected a number from 1e-30 to 1e+30"),
        (("--seed", -1), "--seed is -1; expected 0 to 2^63 - 1"),
        (
            ("-o", "p.npz"),
            "p.npz: the output is a .json or .pt file; expected a name that ends in .json or .pt",
        ),
    ],
)
def test_mistakes(
    cimtool: Run, teacher: Path, options: tuple[object, ...], sentence: str, tmp_path: Path
) -> None:
    output = () if "-o" in options else ("-o", tmp_path / "p.json")
    ran = cimtool("fit", teacher, *output, *options)
    assert (ran.status, ran.out) == (2, "")
    assert sentence in ran.sentence
    assert not list(tmp_path.iterdir())


DEGREES = ("--degree", "1,2,3", "--json")


def test_several_degrees_are_put_side_by_side_and_the_cheapest_that_is_enough_is_written(
    cimtool: Run, teacher: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    poly = tmp_path / "p.json"
    ranked = ("--projectors", small_trunk.projectors, "--data", small_trunk.eval)
    ranked += ("--target", "hermes-pcm-14nm")
    found = cimtool("fit", teacher, *DEGREES, *ranked, "-o", poly).json
    table = found["comparison"]
    assert [one["name"] for one in table["candidates"]] == [
        "raw embeddings",
        "csd", "-ed", "degree 1, ed alone", "degree 2, ed alone", "degree 3, ed alone",
        "degree 1", "degree 2", "degree 3",
    ]  # fmt: skip
    assert [one["products"] for one in table["candidates"]] == [None] + [1] * 5 + [6] * 3
    by_name = {one["name"]: one for one in table["candidates"]}
    first = by_name["degree 1, ed alone"]
    assert 16 < first["multiplications"] < by_name["degree 3, ed alone"]["multiplications"]
    assert by_name["degree 1"]["multiplications"] > 6 * 16
    # Falling lines in ed all rank as -ed does.
    assert first["r1_text_to_video"] == by_name["csd"]["r1_text_to_video"]
    assert by_name["-ed"]["rmse"] is None
    energies = [by_name[name]["in_memory"]["energy_pj_an_item"] for name in ("csd", "degree 1")]
    assert 0 < energies[0]["value"] < energies[1]["value"] / 3
    assert not energies[0]["lower_bound"]
    assert first["rmse"]["low"] <= first["rmse"]["value"] <= first["rmse"]["high"]
    fitted = read_polynomial(poly)
    written = f"degree {fitted.degree}" + ("" if fitted.reads_vd else ", ed alone")
    assert table["enough"] == written
    assert (found["degree"], found["ed_alone"]) == (fitted.degree, not fitted.reads_vd)
    page = (tmp_path / "p.fit.html").read_text("utf-8")
    assert "Which degree?" in page
    assert "R@1 text to video, %" in page


def test_the_table_has_the_recall_of_a_known_model_and_says_what_it_lacks(
    cimtool: Run, teacher: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    given = ("fit", teacher, "--degree", "1,2", "-o", tmp_path / "p.json", "-v")
    lacking = "R@1 needs --projectors, and --data that they have not seen."
    assert lacking in cimtool(*given).out
    ran = cimtool(*given, "--projectors", small_trunk.projectors, "--data", small_trunk.eval)
    assert lacking not in ran.out
    assert "In brackets: 95% of 1,000 resamples of the texts. R@1 is of 40 texts and" in ran.out
    assert json.loads((tmp_path / "p.fit.json").read_text())["comparison"]["data"] == "eval.npz"


@pytest.mark.parametrize("keys", ["c", "coeff"])
def test_keys_of_a_pt_are_refused_for_json(
    cimtool: Run, teacher: Path, tmp_path: Path, keys: str
) -> None:
    ran = cimtool("fit", teacher, "--pt-keys", keys, "-o", tmp_path / "p.json")
    assert (ran.status, ran.out) == (2, "")
    assert ran.sentence == "--pt-keys names the keys of a .pt; expected a .pt as --output"
    assert not (tmp_path / "p.json").exists()


def test_the_tolerance_decides(cimtool: Run, teacher: Path, tmp_path: Path) -> None:
    poly = tmp_path / "p.json"
    wide = cimtool("fit", teacher, *DEGREES, "--tolerance", 100, "-o", poly).json
    assert wide["comparison"]["enough"] == "degree 1, ed alone"
    assert not read_polynomial(poly).reads_vd
    none = cimtool("fit", teacher, *DEGREES, "--tolerance", 0, "-o", poly).json
    assert none["comparison"]["enough"] not in ("degree 1, ed alone", "degree 1")
    alone = cimtool("fit", teacher, "--degree", 2, "--ed-alone", "--json", "-o", poly).json
    assert (alone["degree"], alone["ed_alone"]) == (2, True)
    assert not read_polynomial(poly).reads_vd


def test_one_degree_says_what_is_enough(cimtool: Run, teacher: Path, tmp_path: Path) -> None:
    ran = cimtool("fit", teacher, "--degree", 4, "--tolerance", 100, "-o", tmp_path / "p.json")
    assert "Degree 1, ed alone is enough: its RMSE, " in ran.out
    assert "; it takes 1 matrix product per query in place of 6." in ran.out
    assert read_polynomial(tmp_path / "p.json").degree == 4
    given = ("--degree", 1, "--ed-alone", "-o", tmp_path / "p.json")
    assert (
        "No cheaper form is as good as degree 1, ed alone." in cimtool("fit", teacher, *given).out
    )


def test_a_pt_is_read_by_torch_and_by_every_command(
    cimtool: Run, compiling: Run, small_trunk: DemoFiles, teacher: Path, tmp_path: Path
) -> None:
    files = tmp_path / "p.json", tmp_path / "poly_coeffs.pt", tmp_path / "c.pt"
    fit = "fit", teacher, "--degree", 4
    assert cimtool(*fit, "-o", files[0]).status == 0
    assert cimtool(*fit, "-o", files[1]).status == 0
    assert cimtool(*fit, "-o", files[2], "--pt-keys", "c").status == 0
    whole, plain, short = (read_polynomial(file) for file in files)
    assert plain == short == without_scales(whole)
    labels = read_teacher(teacher).labels
    np.testing.assert_array_equal(
        plain.evaluate(labels.ed, labels.vd), whole.evaluate(labels.ed, labels.vd)
    )
    public = torch.load(files[1], weights_only=True)
    assert (public["degree"], public["bias"], public["fit_logit"]) == (4, plain.bias, True)
    assert public["coeff"].dtype == torch.float64
    assert tuple(public["coeff"].tolist()) == plain.coeff
    own = torch.load(files[2], weights_only=True)
    assert (tuple(own["c"].tolist()), own["b"]) == (plain.coeff, plain.bias)
    assert own["teacher_meta"] == {"a": 0.1, "b": 0.0}
    given = compiling(small_trunk, tmp_path / "bundle", poly=files[1])
    assert cimtool(*given).status == 0
    assert read_polynomial(files[1]).domain == read_polynomial(files[0]).domain


def test_too_few_pairs(cimtool: Run, small_trunk: DemoFiles, tmp_path: Path) -> None:
    file = tmp_path / "few.npz"
    api.teacher(small_trunk.projectors, small_trunk.eval, pairs=12, a=0.1, b=0.0, output=file)
    ran = cimtool("fit", file, "--degree", 4, "-o", tmp_path / "p.json")
    assert ran.status == 2
    assert "pairs to fit; a polynomial of degree 4 has 15 coefficients" in ran.sentence
