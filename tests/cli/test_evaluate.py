"""`cimtool evaluate` as a user meets it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cimtool.demo.data import DemoFiles

Run = Callable[..., Any]


def test_it_prints_a_table_of_the_raw_embeddings(cimtool: Run, small_trunk: DemoFiles) -> None:
    ran = cimtool("evaluate", "--data", small_trunk.eval, "--resamples", 20)
    assert (ran.status, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0] == f"retrieval on {small_trunk.eval}"
    assert lines[1].startswith("R@1 is ")
    assert lines[1].endswith("; guessing has about 2.5%.")
    assert [line.strip() for line in lines[2:4]] == ["embeddings", "(embeddings,"]
    assert lines[6].startswith(" text to video: R@1, %")
    assert len(lines) <= 15
    assert "95% of 20 resamples" in ran.out


def test_images_are_called_images(cimtool: Run, small_trunk: DemoFiles, tmp_path: Path) -> None:
    with np.load(small_trunk.eval) as held:
        np.savez(tmp_path / "images.npz", text=held["text"], image=held["video"])
    ran = cimtool("evaluate", "--data", tmp_path / "images.npz", "--resamples", 20)
    assert ran.out.splitlines()[6].startswith(" text to image: R@1, %")
    assert "40 texts and 40 images are queries" in ran.out
    assert "video" not in ran.out
    plain = cimtool("evaluate", "--data", small_trunk.eval, "--resamples", 20, "--json").json
    same = cimtool("evaluate", "--data", tmp_path / "images.npz", "--resamples", 20, "--json").json
    assert same["scores"][0]["figures"] == plain["scores"][0]["figures"]
    assert same["scores"][0]["modalities"] == ["text", "image"]


def test_without_a_polynomial_the_score_of_a_and_b_is_named(
    cimtool: Run, small_trunk: DemoFiles
) -> None:
    evaluate = ("evaluate", small_trunk.projectors, "--data", small_trunk.eval, "--resamples", 20)
    ran = cimtool(*evaluate, "--a", 1, "--b", 2)
    assert "--head csd (b - a ed, whose a and b are known)" in ran.sentence
    assert "--head csd (b - a ed, which needs" in cimtool(*evaluate).sentence
    assert cimtool(*evaluate, "--a", 1, "--b", 2, "--head", "csd").status == 0


def test_one_object_of_a_bundle_beside_its_model(
    cimtool: Run, small_trunk: DemoFiles, small_bundle: Path
) -> None:
    ran = cimtool(
        "evaluate", small_trunk.projectors, small_bundle, "--poly", small_trunk.poly,
        "--data", small_trunk.eval, "--resamples", 20, "--json",
    )  # fmt: skip
    found = ran.json
    kinds = ["float", "compiled", "embeddings"]
    assert [one["kind"] for one in found["scores"]] == kinds
    figure = found["scores"][1]["figures"]["r1_text_to_video"]
    assert set(figure) == {"value", "low", "high", "difference"}
    assert set(figure["difference"]) == {"value", "low", "high"}
    assert found["queries"] == {"text_to_video": 40, "video_to_text": 40}


def test_items_of_one_modality_come_as_rows(cimtool: Run, tmp_path: Path) -> None:
    file = tmp_path / "rows.npz"
    rng = np.random.default_rng(0)
    np.savez(file, rows=rng.normal(size=(30, 4)), labels=np.arange(30) % 3)
    ran = cimtool("evaluate", "--data", file, "--head", "euclidean", "--resamples", 20, "-v")
    assert "an item does not find itself" in ran.out
    assert "mAP@50, %" in ran.out


def test_one_onnx_file_is_half_a_model(cimtool: Run, tmp_path: Path) -> None:
    ran = cimtool("evaluate", tmp_path / "text.onnx", "--data", tmp_path / "rows.npz")
    assert ran.status == 2
    assert "one ONNX file is one projector; expected two, text first" in ran.sentence


@pytest.mark.parametrize(("option", "values"), [("seed", (1, 2)), ("poly", ("a.json", "b.json"))])
def test_an_option_given_twice_is_refused(
    option: str, values: tuple[object, object], cimtool: Callable[..., Any], small_trunk: DemoFiles
) -> None:
    given = (part for value in values for part in (f"--{option}", value))
    ran = cimtool("evaluate", "--data", small_trunk.eval, *given)
    assert (ran.status, ran.out) == (2, "")
    assert ran.sentence.startswith(f"--{option} is given 2 times; expected one")


def test_an_array_that_is_not_read_is_named(cimtool: Run, tmp_path: Path) -> None:
    file = tmp_path / "three.npz"
    rows = np.random.default_rng(0).normal(size=(30, 4))
    np.savez(file, text=rows, video=rows, audio=rows)
    ran = cimtool("evaluate", "--data", file, "--resamples", 20)
    assert f"{file}: audio is not read" in ran.out


def test_runs_of_judged_items_are_written_and_judgements_amiss_are_not(
    cimtool: Run, tmp_path: Path
) -> None:
    file, qrels, folder = (tmp_path / name for name in ("e.npz", "q.txt", "runs"))
    rows = np.random.default_rng(0).normal(size=(30, 4))
    np.savez(file, text=rows, video=rows[:20] + 1)
    arguments = ("evaluate", "--data", file, "--resamples", 20, "--qrels", qrels, "--trec", folder)
    qrels.write_text("0 0 25 1\n")
    refused = cimtool(*arguments)
    assert (refused.status, refused.out, folder.exists()) == (2, "", False)
    wanted = f"{qrels}: line 1: item 25 is not known; expected a video row of {file}, 0 to 19"
    assert refused.sentence == wanted
    qrels.write_text("".join(f"{i} 0 {j} {1 + i % 2}\n" for i in range(28) for j in (i % 7, 9)))
    ran = cimtool(*arguments)
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.splitlines()[6].startswith(" text to video: mAP, %")
    assert (
        f"right pairs are those that {qrels} grades above 0, 56 pairs of 28 texts and 8 videos"
        in ran.out
    )
    assert f"wrote runs and qrels into {folder}" in ran.out
    written = {path.name for path in folder.iterdir()}
    ways = ("text_to_video", "video_to_text")
    assert written == {f"{way}.qrels" for way in ways} | {f"embeddings.{way}.run" for way in ways}
