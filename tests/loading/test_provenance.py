"""Provenance: the rows that a model was trained on travel with it, and figures on them say so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cimtool
from cimtool import cli
from cimtool.base.errors import CimError
from cimtool.base.files import sha256
from cimtool.bundle.bundle import read_bundle
from cimtool.loading.checkpoint import read_checkpoint
from cimtool.loading.digests import row_digests
from cimtool.loading.provenance import Provenance, TrainedRows, provenance_of, trained_on
from cimtool.loading.source import ModelSource
from cimtool.training.teacher_file import read_teacher

SIGMOID = ("--a", "0.1", "--b", "0")
SMALL: Any = {
    "batch": 16, "learning_rate": 3e-3, "epochs": 1,
    "options": {"model.hidden": 16, "model.width": 8},
}  # fmt: skip


def drawn(rows: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, 5)).astype(np.float32)


def kept(values: dict[str, Any]) -> Provenance | None:
    content = {k: v.numpy() if isinstance(v, torch.Tensor) else v for k, v in values.items()}
    return provenance_of({"provenance": content}, "m.pth")


def test_what_is_written_is_read() -> None:
    text, video = drawn(4, 0), drawn(3, 1)
    known = Provenance.of(np.vstack([text, text]), video).after(Provenance.of(video, text), "ab")
    found = kept(known.values())
    assert found is not None
    assert (found.ancestors, found.complete) == (("ab",), True)
    expected = np.sort(row_digests(np.vstack([text, video])))
    for name in ("text", "video"):
        np.testing.assert_array_equal(found.rows[name], expected)


def test_a_start_without_provenance_leaves_it_incomplete() -> None:
    first = Provenance.of(drawn(4, 0), drawn(4, 1)).after(None, "ab")
    second = Provenance.of(drawn(4, 2), drawn(4, 3)).after(first, "cd")
    assert (second.ancestors, second.complete) == (("cd", "ab"), False)
    assert len(second.rows["text"]) == 8


@pytest.mark.parametrize(
    "values", [3, {}, {"text": [1.0]}, {"text": np.zeros(2), "video": np.zeros(2)}]
)
def test_other_values(values: Any) -> None:
    with pytest.raises(CimError, match=r"m.pth: provenance is not a record of the training rows"):
        provenance_of({"provenance": values}, "m.pth")
    assert provenance_of({}, "m.pth") is None


def test_rows_are_counted_by_modality() -> None:
    text, video = drawn(6, 0), drawn(6, 1)
    known = Provenance.of(text[:4], video[:2])
    assert known.trained_rows(text, video) == TrainedRows(4, 2)
    assert known.known_pairs(text, video).tolist() == [True, True, *[False] * 4]
    (said,) = trained_on(known, "m", text, video)
    assert said.startswith(
        "m was trained on 4 of the 6 text rows and 2 of the 6 video rows, so its"
    )
    assert trained_on(None, "m", text, video) == ()
    assert trained_on(Provenance.of(video, text), "m", text, video) == ()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Rows in two files that share 40 pairs, a model trained on the first, one trained on."""
    folder = tmp_path_factory.mktemp("provenance")
    text = np.random.default_rng(0).normal(size=(200, 12)).astype(np.float32)
    video = text[:, ::-1].copy()
    np.savez(folder / "one.npz", text=text[:120], video=video[:120])
    np.savez(folder / "other.npz", text=text[80:], video=video[80:])
    np.savez(folder / "unseen.npz", text=text + 1, video=video + 1)
    run = cimtool.train(folder / "one.npz", folder / "first", held_out=0.2, **SMALL)
    more = {**SMALL, "options": {}, "start": run.folder / "model.pth"}
    cimtool.train(folder / "unseen.npz", folder / "second", **more)
    names = ("one.npz", "other.npz", "unseen.npz", "first/model.pth", "second/model.pth")
    return {name.split(".")[0].split("/")[0]: folder / name for name in names}


def test_a_run_keeps_the_rows_that_it_trained_on(files: dict[str, Path]) -> None:
    first = read_checkpoint(files["first"])
    known = provenance_of(first.content, first.file)
    assert known is not None
    with np.load(files["one"]) as rows:
        trained = np.isin(row_digests(rows["text"]), known.rows["text"])
    assert (trained.sum(), known.ancestors, known.complete) == (96, (), True)
    second = read_checkpoint(files["second"])
    further = provenance_of(second.content, second.file)
    assert further is not None
    assert len(further.rows["video"]) == 96 + 180
    assert further.ancestors == (second.content["config"]["start"],)


def test_pairs_that_an_ancestor_was_trained_on_do_not_validate(
    files: dict[str, Path], tmp_path: Path
) -> None:
    more = {**SMALL, "options": {}, "start": files["second"]}
    run = cimtool.train(files["unseen"], tmp_path / "a", validation=files["other"], **more)
    said = " ".join(run.remarks)
    assert "second/model.pth was trained on 28 of the 120 pairs that were to validate" in said
    known = provenance_of(read_checkpoint(files["first"]).content, "")
    assert known is not None
    with np.load(files["one"]) as rows:
        seen = np.flatnonzero(known.known_pairs(rows["text"], rows["video"]))[:20]
        few = {name: rows[name][seen] for name in ("text", "video")}
    with pytest.raises(CimError, match=r"was trained on all 20 validation pairs; expected"):
        cimtool.train(files["unseen"], tmp_path / "b", validation=few, **more)
    assert not (tmp_path / "b").exists()


def test_evaluate_says_it_first(files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["evaluate", str(files["second"]), "--head", "csd", *SIGMOID]
    arguments += ["--resamples", "10", "--data"]
    assert cli.run([*arguments, str(files["one"])]) == 0
    title, first, *_ = capsys.readouterr().out.splitlines()
    assert title == f"retrieval on {files['one']}"
    assert first.startswith("* second: second was trained on 96 of the 120 text rows and 96 of the")
    assert cli.run([*arguments, str(files["one"]), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "was trained on 96 of the 120 text rows" in found["scores"][0]["warnings"][0]
    assert cli.run(["inspect", str(files["second"]), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)["trained_on"]
    assert (facts["text"], len(facts["ancestors"]), facts["complete"]) == (276, 1, True)


def test_a_bundle_and_its_report_know_them(files: dict[str, Path], tmp_path: Path) -> None:
    made = cimtool.compile(
        files["first"],
        head="csd",
        a=0.1,
        b=0.0,
        calibration=files["unseen"],
        drift="given",
        target="ideal",
        output=tmp_path / "b",
    )
    bundle = read_bundle(made.folder)
    assert bundle.training is not None
    assert len(bundle.training.rows["text"]) == 96
    report = cimtool.verify(bundle.folder, files["one"])
    assert report.subject.data.trained == TrainedRows(96, 96)
    page = (bundle.folder / "report.md").read_text()
    assert "the model was trained on 96 of the texts and 96 of the videos" in page
    score, *_ = cimtool.evaluate(files["one"], bundle.folder, resamples=10).scores
    assert "b was trained on 96 of the 120 text rows" in score.warnings[0]


def test_a_polynomial_knows_the_model_that_it_was_fitted_to(
    files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    teacher, poly = tmp_path / "teacher.npz", tmp_path / "poly.json"
    arguments = ["--projectors", str(files["first"]), "--data", str(files["one"])]
    assert cli.run(["teacher", *arguments, *SIGMOID, "--pairs", "400", "-o", str(teacher)]) == 0
    said = "the model was trained on 80.0% of the text rows and 80.0% of the video rows"
    assert said in capsys.readouterr().out
    assert cli.run(["fit", str(teacher), "--degree", "1", "-o", str(poly), "-v"]) == 0
    assert "training rows: 80.0% of the text rows and 80.0% of the video rows of the teacher" in (
        capsys.readouterr().out
    )
    made = json.loads(poly.read_text())
    assert made["fitted_to"] == sha256(files["first"])
    for name in ("first", "second"):  # the second started from the first
        assert not any("fitted" in x for x in ModelSource(files[name], poly).load().warnings)
    other = cimtool.train(files["unseen"], tmp_path / "other", **SMALL).folder / "model.pth"
    (*_, warning) = ModelSource(other, poly).load().warnings
    expected = f"{poly} was fitted to another model ({made['fitted_to'][:8]}), neither {other} nor"
    assert warning.startswith(expected)
    bundle = cimtool.compile(
        other, poly, calibration=files["one"], drift="given", target="ideal", output=tmp_path / "b"
    )
    assert warning in read_bundle(bundle.folder).model.warnings
    more = {**SMALL, "options": {}, "poly": poly}
    on = cimtool.train(files["unseen"], tmp_path / "on", start=other, **more)
    assert any("neither the start of this run nor one that it started" in x for x in on.remarks)
    on = cimtool.train(files["unseen"], tmp_path / "same", start=files["first"], **more)
    assert not any("was fitted to another" in x for x in on.remarks)
    compared = cimtool.fit(teacher, degree=1, projectors=other, data=files["one"])
    assert any("pairs of another model than R@1 is measured of" in x for x in compared.notes)


@pytest.mark.thorough("the same by another command or kind of data")
def test_fine_tuning_says_how_many_of_its_judges_were_trained_on(
    files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        *("train", "--hardware", "ideal", "--start", str(files["first"])),
        *("--head", "csd", *SIGMOID),
        *("--data", str(files["one"]), "--calibration", str(files["unseen"])),
        *("--batch", "16", "--epochs", "1", "--json", "-o"),
    ]
    assert cli.run([*arguments, str(tmp_path / "same"), "--seed", "0"]) == 0
    # The seed of the start holds out rows that this held out too.
    assert json.loads(capsys.readouterr().out)["remarks"] == []
    assert cli.run([*arguments, str(tmp_path / "other"), "--seed", "1"]) == 0
    (said,) = json.loads(capsys.readouterr().out)["remarks"]
    assert said.startswith(f"{files['first']} was trained on ")
    assert said.endswith(" of the 12 pairs that choose the epoch; their error is not an error on "
                         "unseen rows.")  # fmt: skip


def test_shares_of_a_teachers_file(tmp_path: Path) -> None:
    file = tmp_path / "teacher.npz"
    np.savez(file, ed=[1.0], vd=[1.0], y=[-2.0], trained=[0.5, 1.5])
    with pytest.raises(CimError, match=r"trained is \[0.5, 1.5\]; expected two shares, 0 to 1"):
        read_teacher(file)
