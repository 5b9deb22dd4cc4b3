"""`cimtool program`: what it prints and writes, and the sentence for each mistake."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cimtool.demo.data import DemoFiles

Compiling = Callable[..., list[object]]
CAM = "fefet2-tcam-45nm"


@pytest.fixture
def bundle(
    small_trunk: DemoFiles, compiling: Compiling, cimtool: Callable[..., Any], tmp_path: Path
) -> Callable[..., Path]:
    def made(mapping: str, **flags: object) -> Path:
        folder = tmp_path / mapping
        options = {"target": "hermes-pcm-14nm", "score_mapping": mapping, "accumulator_bits": 40}
        options |= flags
        assert cimtool(*compiling(small_trunk, folder, **options)).status == 0
        return folder

    return made


@pytest.mark.thorough("a choice more; the snapshots have one")
def test_the_choice_says_what_was_taken_why_and_by_which_interval(
    small_trunk: DemoFiles, bundle: Callable[..., Path], cimtool: Callable[..., Any], tmp_path: Path
) -> None:
    folder, asked = bundle("hybrid"), ("--recall", 0.9, "--minimise", "conversions")
    program = ("program", folder, "--gallery", small_trunk.eval, *asked)
    said = " ".join(cimtool(*program, "--shortlist", 20, "-o", tmp_path / "made").out.split())
    assert (
        "Shortlists that hold the best item of 90% of the queries, on both halves of them" in said
    )
    assert "taken (*): the one with the least conversions. Of 96 calibration queries it" in said
    halves = re.search(
        r"of one half of them of ([\d.]+)% \[.*\], of the other of ([\d.]+)% \[", said
    )
    assert halves is not None
    assert all(float(one) >= 90 for one in halves.groups())
    assert "(95% intervals, Clopper and Pearson)" in said
    ran = cimtool(*program, "--shortlist", 1, "--shortlist-bits", 1, "-o", tmp_path / "none")
    assert (ran.status, ran.out) == (2, "")
    assert "no setting reaches 0.9 on both halves of the calibration queries" in ran.sentence
    assert not (tmp_path / "none").exists()


@pytest.mark.thorough("draws dies of a shortlist")
def test_dies_of_a_shortlist_tell_recall_and_r1(
    small_trunk: DemoFiles, bundle: Callable[..., Path], cimtool: Callable[..., Any], tmp_path: Path
) -> None:
    folder = bundle("hybrid", shortlist=4)
    done = cimtool("program", folder, "--gallery", small_trunk.eval)
    assert "* 1 array for the gallery; 64 a chip: 1 chip" in done.out.splitlines()
    made = folder.with_name(f"{folder.name}+{small_trunk.eval.stem}")
    output, report = tmp_path / "s.npz", tmp_path / "report"
    words = ("--noise", "--trials", 3)
    ran = cimtool("simulate", made, "--inputs", small_trunk.eval, "-o", output, *words)
    found = np.load(output)
    assert found["trial_index"].shape == (3, 40, 4)
    right = np.load(small_trunk.eval).get("text_to_video", np.arange(40))
    first = (found["trial_index"][:, :, 0] == right).mean(axis=1)
    np.testing.assert_allclose(found["trial_r1"][:, 0], first)
    exact = cimtool("simulate", folder, "--inputs", small_trunk.eval, "-o", tmp_path / "e.npz")
    assert exact.status == 0
    best = np.load(tmp_path / "e.npz")["scores"].argmax(axis=1)
    held = (found["trial_index"] == best[None, :, None]).any(axis=2).mean(axis=1)
    np.testing.assert_allclose(found["trial_recall"], held)
    assert f"share of best items on the shortlists: median {np.median(held):.4g}," in ran.out
    done = cimtool("verify", made, "--data", small_trunk.eval, "--report", report, *words, "-v")
    said = " ".join(done.out.split())
    assert f"Shortlists hold the best item of {np.median(held):.1%} of the queries (median;" in said
    (noisy,) = json.loads((report / "report.json").read_text())["noisy"]
    assert noisy["shortlist"]["recall"]["median"] == pytest.approx(np.median(held))
    assert noisy["shortlist"]["r1"]["worst"] == pytest.approx(first.min())


def test_a_gallery_is_programmed_and_queried(
    small_trunk: DemoFiles, bundle: Callable[..., Path], cimtool: Callable[..., Any], tmp_path: Path
) -> None:
    folder = bundle("in-memory")
    done = cimtool("program", folder, "--gallery", small_trunk.eval, "--chips", 1, "-v")
    assert (done.status, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "eval.npz: 40 items on hermes-pcm-14nm (in-memory)"
    assert lines[5].split()[:5] == ["mu.mu,", "mus.mu", "16", "x", "40"]
    assert "* 4 arrays for the gallery; 64 a chip: 1 chip" in lines
    # 16 rows are one tile: 8 arrays of mu and s hold 2,048 items, those of two slices 1,024.
    assert any(line.startswith("* items per chip: 2,") for line in lines)
    assert "* 7,680 cells are written; pulses a cell: not given; endurance: not given" in lines
    assert any("against the digital score: logit RMSE" in line for line in lines)
    programmed = tmp_path / "in-memory+eval"
    assert lines[-1] == f"next: cimtool simulate {programmed} --inputs NPZ"
    output = tmp_path / "scores.npz"
    done = cimtool("simulate", programmed, "--inputs", small_trunk.eval, "-o", output)
    assert done.out.splitlines() == [
        f"wrote {output}: scores [40, 40], items [40]",
        "videos are the 40 items of eval.npz in the memory; the inputs' own are not used",
        f"next: cimtool verify {programmed} --data NPZ",
    ]
    assert cimtool("verify", programmed, "--data", small_trunk.eval, "--samples", 2).status == 0


def test_json_has_everything(
    small_trunk: DemoFiles, bundle: Callable[..., Path], cimtool: Callable[..., Any], tmp_path: Path
) -> None:
    folder, output = bundle("hybrid"), tmp_path / "out"
    options = ("--gallery", small_trunk.eval, "-o", output, "--shortlist", 3, "--json")
    found = cimtool("program", folder, *options).json
    assert found["bundle"] == str(output)
    assert (found["gallery"]["mapping"], found["gallery"]["shortlist"]) == ("hybrid", 3)
    assert [one["drives"][0]["product"] for one in found["memory"]["matrices"]] == ["mu.mu"]
    memory = found["memory"]
    assert (memory["arrays"], memory["chips"], memory["cells"]) == (1, 1, 16 * 40 * 2)
    assert (memory["writes"], memory["endurance"]) == (None, None)
    assert found["accuracy"]["logit_rmse"] is None
    assert 0 < found["accuracy"]["shortlist_top10"] <= found["accuracy"]["shortlist_top1"] <= 1
    assert "shortlist.onnx" in found["files"]
    scores = tmp_path / "scores.npz"
    done = cimtool("simulate", output, "--inputs", small_trunk.eval, "-o", scores, "--json").json
    assert done["arrays"] == {"top_index": [40, 3], "top_score": [40, 3]}
    assert done["gallery"] == found["gallery"]


def test_a_mistake_is_one_sentence(
    small_trunk: DemoFiles, bundle: Callable[..., Path], cimtool: Callable[..., Any], tmp_path: Path
) -> None:
    folder = bundle("hybrid", shortlist=5)
    wide = tmp_path / "wide.npz"
    np.savez(wide, video=np.ones((3, 7), np.float32))
    cases: list[tuple[tuple[object, ...], str]] = [
        ((small_trunk.eval, "--shortlist", 0), "--shortlist is 0; expected 1 to 40"),
        ((small_trunk.eval, "--shortlist", 41), "--shortlist is 41; expected 1 to 40"),
        ((small_trunk.eval, "--chips", 0), "--chips is 0; expected at least 1"),
        ((wide,), f"{wide}: video rows have 7 numbers; "),
        ((tmp_path / "no.npz",), f"{tmp_path / 'no.npz'}: "),
    ]
    for options, sentence in cases:
        done = cimtool("program", folder, "--gallery", *options)
        assert (done.status, done.out) == (2, "")
        assert done.sentence.startswith(sentence)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hybrid", "wide.npz"]


def test_a_shortlist_without_a_hybrid_score_is_refused(
    small_trunk: DemoFiles, compiling: Compiling, cimtool: Callable[..., Any], tmp_path: Path
) -> None:
    done = cimtool(*compiling(small_trunk, tmp_path / "b", shortlist=5))
    assert done.status == 2
    assert 'shortlist = 5: score_mapping = "digital" uses none' in done.sentence


def test_inspect_names_the_gallery(
    small_trunk: DemoFiles, bundle: Callable[..., Path], cimtool: Callable[..., Any], tmp_path: Path
) -> None:
    folder, output = bundle("in-memory"), tmp_path / "out"
    assert "gallery" not in cimtool("inspect", folder, "--json").json
    cimtool("program", folder, "--gallery", small_trunk.eval, "-o", output)
    found = cimtool("inspect", output, "--json").json
    assert found["gallery"]["items"] == 40
    assert found["ledger"]["matrices"]["score.s.s_mu2.s"] == {
        "arrays": 1, "cells_written": 16 * 40 * 2, "most_written": 1
    }  # fmt: skip
    assert found["ledger"]["cells_written"] == 7680


@pytest.mark.thorough("the library's own changes and a snapshot are in the first tier")
def test_a_gallery_is_changed_in_place(
    small_trunk: DemoFiles, bundle: Callable[..., Path], cimtool: Callable[..., Any], tmp_path: Path
) -> None:
    folder, living = bundle("in-memory"), tmp_path / "living"
    cimtool("program", folder, "--gallery", small_trunk.eval, "-o", living)
    new = tmp_path / "new.npz"
    np.savez(new, video=np.load(small_trunk.calibration)["video"][:2])
    words = ("--remove", "0,39", "--replace", "5,7", new, "--add", new)
    done = cimtool("program", living, *words)
    assert (done.status, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "eval.npz, changed 1 time: 40 items on hermes-pcm-14nm (in-memory)"
    (line,) = [line for line in lines if "this change" in line]
    assert "since the first programming; the most written cell: 2 times" in line
    scores = tmp_path / "scores.npz"
    done = cimtool("simulate", living, "--inputs", small_trunk.eval, "-o", scores)
    assert done.out.splitlines()[1].startswith("videos are the 40 items of eval.npz, changed 1 ti")
    assert np.load(scores)["items"].tolist() == [40, *range(1, 39), 41]
    found = cimtool("program", living, "--remove", "41", "--json").json
    assert found["gallery"]["changes"] == 2
    assert found["cells_written"] == 0  # it was the last column
    assert found["ledger"]["next_item"] == 42
    (array, *_) = found["ledger"]["matrices"]["score.mu.mu"]
    assert array["array"] == "r0.c0"
    assert array["cells_written"] > found["memory"]["matrices"][0]["rows"] * 40 * 2
    assert array["most_written"] == 2
    assert cimtool("verify", living, "--data", small_trunk.eval).status == 2


def test_a_mistake_in_a_change_is_one_sentence(
    small_trunk: DemoFiles, bundle: Callable[..., Path], cimtool: Callable[..., Any], tmp_path: Path
) -> None:
    folder, living = bundle("hybrid", shortlist=5), tmp_path / "living"
    cimtool("program", folder, "--gallery", small_trunk.eval, "-o", living)
    before = sorted(path.name for path in tmp_path.iterdir())
    kept = (living / "manifest.json").read_bytes()
    cases: list[tuple[tuple[object, ...], str]] = [
        ((living, "--remove", "40"), f"--remove names item 40, which {living} does not hold; "),
        ((living, "--remove", "1,1"), "--remove names item 1 a second time; expected each once"),
        ((living, "--remove", "x"), "Invalid value for '--remove': \"x\" is not one integer"),
        ((living, "--remove", "1", "--recall", "0.9"), "--recall is 0.9; expected it with --gall"),
        ((living,), "expected --gallery, to program one, or --add, --remove and --replace"),
        (
            (living, "--remove", "1", "--gallery", small_trunk.eval),
            "--gallery and --remove exclude each other; expected --gallery, to program a gallery,",
        ),
        ((folder, "--remove", "1"), f"{folder}: holds no gallery to change; program "),
        ((living, "--replace", "1,2", small_trunk.eval), "--replace names 2 items and eval.npz ha"),
    ]
    for words, sentence in cases:
        done = cimtool("program", *words)
        assert (done.status, done.out) == (2, "")
        assert done.sentence.startswith(sentence)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert (living / "manifest.json").read_bytes() == kept


def test_a_gallery_goes_into_a_cam(
    small_trunk: DemoFiles, bundle: Callable[..., Path], cimtool: Callable[..., Any]
) -> None:
    folder = bundle("hybrid", shortlist=4)
    words = ("program", folder, "--gallery", small_trunk.eval, "--cam", CAM)
    done = cimtool(*words)
    assert done.status == 0
    assert "40 items in fefet2-tcam-45nm beside hermes-pcm-14nm (hybrid, shortlist 4" in done.out
    assert "(the energy of converters of words: not given)" in done.out
    assert ", time 0.35 ns (0.175 ns to 0.7 ns); " in done.out
    assert cimtool(*words, "--json").json["memory"]["words"] >= 40
    made = folder.with_name(f"{folder.name}+{small_trunk.eval.stem}")
    assert cimtool("verify", made, "--data", small_trunk.eval).status == 0
    assert "converters of words" in cimtool("cost", made, "-v").out


@pytest.mark.thorough("a change without a CAM stands for it")
def test_a_gallery_in_a_cam_is_changed(
    small_trunk: DemoFiles, bundle: Callable[..., Path], cimtool: Callable[..., Any], tmp_path: Path
) -> None:
    folder, living = bundle("hybrid", shortlist=4), tmp_path / "living"
    cimtool("program", folder, "--gallery", small_trunk.eval, "--cam", CAM, "-o", living)
    done = cimtool("program", living, "--remove", "39,3")
    assert (done.status, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].startswith(f"eval.npz, changed 1 time: 38 items in {CAM} beside hermes-pcm-1")
    (line,) = [line for line in lines if "this change" in line]
    assert line.endswith("since the first programming; the most written cell: 2 times")
    found = cimtool("program", living, "--add", small_trunk.eval, "--json").json
    assert found["cells_written"] == 40 * 16  # all of them in free words
    assert found["gallery"]["items"] == 78


def test_a_mistake_with_a_cam_is_one_sentence(
    small_trunk: DemoFiles, bundle: Callable[..., Path], cimtool: Callable[..., Any], tmp_path: Path
) -> None:
    folder = bundle("hybrid")
    cases: list[tuple[tuple[object, ...], str]] = [
        (("--query-bits", 4), "--query-bits is 4; expected it without --cam, whose queries have"),
        (("--recall", 0.9), "--recall is 0.9; expected it without --cam"),
        (("--chips", 2), "--chips is 2; expected it without --cam"),
        (("--shortlist-bits", 2), "--shortlist-bits is 2; expected 1 to 1, the bits of a cell of"),
        (("--shortlist", 41), "--shortlist is 41; expected 1 to 40, the number of items"),
    ]
    words = ("program", folder, "--gallery", small_trunk.eval, "--cam")
    ran = [(cimtool(*words, CAM, *options), sentence) for options, sentence in cases]
    ran.append((cimtool(*words, "no-tcam"), 'CAM "no-tcam" is not known: '))
    ran.append((cimtool("program", folder, "--cam", CAM, "--remove", "1"), f"--cam is {CAM}; exp"))
    for done, sentence in ran:
        assert (done.status, done.out) == (2, "")
        assert done.sentence.startswith(sentence)
    assert [path.name for path in tmp_path.iterdir()] == ["hybrid"]


def test_a_cam_is_no_target_to_compile_for(
    small_trunk: DemoFiles, compiling: Compiling, cimtool: Callable[..., Any], tmp_path: Path
) -> None:
    done = cimtool(*compiling(small_trunk, tmp_path / "b", target=CAM))
    assert done.status == 2
    assert done.sentence.startswith(f'target "{CAM}": is a content-addressable memory, which holds')
