"""Data of several modalities, read and trained on pair by pair."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cimtool as library
from cimtool.base.errors import CimError
from cimtool.loading.embeddings import (
    embeddings_of,
    modality_of,
    read_embeddings,
    read_modality,
)
from cimtool.loading.source import ModelSource

N = 60
NAMES = ("text", "video", "audio")


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of three modalities, 6 wide, of which row i is one item."""
    rng = np.random.default_rng(0)
    common = rng.normal(size=(N, 6))
    rows = {name: (common + 0.5 * rng.normal(size=(N, 6))).astype(np.float32) for name in NAMES}
    path = tmp_path_factory.mktemp("three") / "three.npz"
    np.savez(path, **rows, labels=np.arange(N) % 5)
    return path


OPTIONS: dict[str, Any] = {
    "model": "two-branch", "epochs": 1, "batch": 16, "options": {"model.hidden": 8},
}  # fmt: skip


@pytest.fixture(scope="module")
def trained(three: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "ta"
    library.train(three, folder, modalities=("text", "audio"), **OPTIONS)
    return folder / "model.pth"


def test_two_of_three_arrays_are_text_and_video(three: Path) -> None:
    arrays = dict(np.load(three))
    for pair in (("text", "audio"), ("audio", "text"), ("audio", "video")):
        found = read_embeddings(three, None, pair)
        np.testing.assert_array_equal(found.text, arrays[pair[0]])
        np.testing.assert_array_equal(found.video, arrays[pair[1]])
        assert found.modalities == pair
        assert found.unread == tuple(name for name in NAMES if name not in pair)
        np.testing.assert_array_equal(read_modality(three, "video", pair)[1], arrays[pair[1]])
        assert set(found.arrays()) == {*pair, f"{pair[0]}_to_{pair[1]}", "labels"}
    assert read_embeddings(three).unread == ("audio",)


def test_right_items_and_ids_are_named_after_them() -> None:
    values = {
        "speech": np.eye(3), "image": np.eye(3)[:2], "speech_to_image": np.array([0, 1, 1]),
        "speech_ids": np.array(["a", "b", "c"]),
    }  # fmt: skip
    found = embeddings_of(values, "e.npz", ("speech", "video"))
    assert found.text_to_video is not None
    assert found.text_to_video.tolist() == [0, 1, 1]
    assert found.ids("text").tolist() == ["a", "b", "c"]
    both = {"text": np.eye(2), "image": np.eye(2), "video": 2 * np.eye(2)}
    assert embeddings_of(both, "e.npz", ("text", "image")).video.max() == 1
    with pytest.raises(CimError, match="holds video and image; expected one"):
        embeddings_of(both, "e.npz")
    video = {"video": both["video"]}
    with pytest.raises(CimError, match="image is missing; it holds video"):
        modality_of(video, "text", "e.npz", ("image", "video"))


def test_a_model_knows_its_modalities_and_so_does_its_bundle(
    three: Path, trained: Path, tmp_path: Path
) -> None:
    model = ModelSource(trained, head="cosine").load()
    assert model.modalities == ("text", "audio")
    bundle = library.compile(
        trained,
        head="cosine",
        calibration=three,
        drift="given",
        target="ideal",
        output=tmp_path / "ta",
    )
    assert bundle.model.modalities == ("text", "audio")
    arrays = dict(np.load(three))
    matcher = library.load(tmp_path / "ta")
    pair = {"text": arrays["text"], "audio": arrays["audio"]}
    as_video = matcher.encode_video(arrays["audio"])
    scores = matcher.score(matcher.encode_text(arrays["text"]), as_video)
    np.testing.assert_array_equal(matcher.scores(three), scores)
    np.testing.assert_array_equal(matcher.scores(pair), scores)
    found = library.evaluate(three, bundle.folder, calibration_rows="allow", resamples=2)
    assert f"{three}: video is not read" in found.notes
    assert {one.modalities for one in found.scores} == {("text", "audio")}


def test_a_run_goes_on_with_the_modalities_of_its_start(
    three: Path, trained: Path, tmp_path: Path
) -> None:
    library.train(three, tmp_path / "next", start=trained, **{**OPTIONS, "options": {}})
    again = ModelSource(tmp_path / "next" / "model.pth", head="cosine").load()
    assert again.modalities == ("text", "audio")


def test_every_pair_is_in_one_table(
    cimtool: Callable[..., Any], three: Path, trained: Path
) -> None:
    arguments = ("evaluate", "--data", three, "--modalities", "text,video,audio", "--resamples", 9)
    ran = cimtool(*arguments)
    assert (ran.status, ran.err) == (0, "")
    assert "is not read" not in ran.out
    assert "cosine, video and audio)" in ran.out
    assert " first to second: mAP, %" in ran.out
    found = cimtool(*arguments, "--json").json
    pairs = [["text", "video"], ["text", "audio"], ["video", "audio"]]
    assert [one["modalities"] for one in found["scores"]] == pairs
    arrays = dict(np.load(three))
    for one, (first, second) in zip(found["scores"], pairs, strict=True):
        alone = {"text": arrays[first], "video": arrays[second], "labels": arrays["labels"]}
        (known,) = library.evaluate(alone, resamples=9).scores
        assert {k: v["value"] for k, v in one["figures"].items()} == known.metrics
    mixed = library.evaluate(three, trained, trained, head="cosine", resamples=9)
    assert [one.modalities for one in mixed.scores] == [("text", "audio")] * 3
    assert [bool(one.differences) for one in mixed.scores] == [False, True, True]


def test_queries_are_those_of_each_pair(cimtool: Callable[..., Any], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = {name: rng.normal(size=(n, 4)) for name, n in (("text", 6), ("video", 6), ("audio", 5))}
    right = {f"{name}_to_audio": np.array([0, 1, 2, 3, 3, 3]) for name in ("text", "video")}
    file = tmp_path / "uneven.npz"
    np.savez(file, **rows, **right)
    arguments = ("evaluate", "--data", file, "--modalities", "text,video,audio", "--resamples", 9)
    ran = cimtool(*arguments)
    assert (
        "6 texts and 6 videos; 6 texts and 4 audio rows; 6 videos and 4 audio rows are queries of "
        "each other; the right items of a query are given by text_to_video, text_to_audio, "
        "video_to_audio."
    ) in ran.out
    assert "only 4 audio rows are queries" in ran.out
    counts = [list(one["queries"].values()) for one in cimtool(*arguments, "--json").json["scores"]]
    assert counts == [[6, 6], [6, 4], [6, 4]]


def test_what_is_missing_has_the_names_of_the_data(
    cimtool: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / "two.npz"
    np.savez(file, video=np.ones((3, 4)), audio=np.ones((2, 4)))
    for command in (("evaluate",), ("train", "-o", tmp_path / "run")):
        ran = cimtool(*command, "--data", file, "--modalities", "video,audio")
        assert ran.status == 2
        assert ran.sentence == (
            f"{file}: video has 3 rows and audio 2, and video_to_audio is missing, which says "
            "which row of audio is right for each row of video"
        )
    np.savez(file, video=np.ones((3, 4)), audio=np.ones((3, 5)))
    ran = cimtool("evaluate", "--data", file, "--modalities", "video,audio")
    assert f"{file}: video rows have 4 numbers and audio rows 5, so raw" in ran.sentence


@pytest.mark.parametrize("suffix", [".npz", ".pt"])
def test_inspect_says_the_modalities_of_data_without_videos(
    cimtool: Callable[..., Any], tmp_path: Path, suffix: str
) -> None:
    file = tmp_path / f"two{suffix}"
    arrays = {"text": np.ones((3, 4), "f4"), "audio": np.eye(3, dtype="f4"), "labels": np.arange(3)}
    if suffix == ".npz":
        np.savez(file, **arrays)
    else:
        torch.save({name: torch.from_numpy(array) for name, array in arrays.items()}, file)
    found = cimtool("inspect", file, "--json").json
    assert (found["kind"], found["other_arrays"]) == ("embeddings", ["labels"])
    assert [found[name]["shape"] for name in ("text", "audio")] == [[3, 4], [3, 3]]
    assert found["audio"]["unit_rows"]
    assert "2.0, 2.0" in str(found["text"]["norms"])


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            "text",
            "--modalities is text; expected two different names of arrays, such as text,audio",
        ),
        ("text,text", "--modalities is text,text; expected two different names"),
        ("text,smell", r"three\.npz: smell is missing; it holds text, video, audio, labels"),
        ("text,", "--modalities is text,; expected two different names"),
    ],
)
def test_modalities_amiss(
    cimtool: Callable[..., Any], three: Path, tmp_path: Path, given: str, sentence: str
) -> None:
    for command in (("evaluate",), ("train", "-o", tmp_path / "run")):
        ran = cimtool(*command, "--data", three, "--modalities", given)
        assert (ran.status, ran.out) == (2, "")
        assert re.search(sentence, ran.sentence)
    assert not (tmp_path / "run").exists()


def test_a_model_is_not_told_its_modalities(
    cimtool: Callable[..., Any], three: Path, trained: Path
) -> None:
    ran = cimtool("evaluate", trained, "--data", three, "--modalities", "text,video")
    assert ran.status == 2
    assert "--modalities names raw embeddings to compare" in ran.sentence
