"""`--noise` on the command line: what it prints, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cimtool import api
from cimtool.demo.data import DemoFiles
from cimtool.loading import embeddings

Cimtool = Callable[..., Any]


@pytest.fixture(scope="session")
def analog(small_trunk: DemoFiles, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundles") / "small@hermes"
    api.compile(
        small_trunk.projectors, small_trunk.poly, calibration=small_trunk.calibration,
        drift="given", target="hermes-pcm-14nm", output=folder,
    )  # fmt: skip
    return folder


def test_simulate_says_what_dies_keep(
    cimtool: Cimtool, analog: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    place = tmp_path / "s.npz"
    ran = cimtool(
        "simulate", analog, "--inputs", small_trunk.eval, "-o", place, "--noise", "--trials", 3,
        "--time", "1h", "--seed", 4,
    )  # fmt: skip
    assert (ran.status, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0] == "3 dies:"
    assert lines[1].startswith("RMSE from the noise-free scores: median ")
    assert ", 95th percentile " in lines[1]
    assert lines[2].startswith("R@1 text to video: median ")
    assert ", 5th percentile " in lines[2]
    with np.load(place) as found:
        assert found["trial_scores"].shape == (3, *found["scores"].shape)


def test_one_die_is_no_dies(
    cimtool: Cimtool, analog: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    ran = cimtool(
        "simulate", analog, "--inputs", small_trunk.eval, "-o", tmp_path / "s.npz",
        "--noise", "--trials", 1,
    )  # fmt: skip
    assert ran.out.startswith("1 die:\nRMSE from the noise-free scores: ")


def test_the_inputs_of_dies_are_read_once(
    cimtool: Cimtool,
    analog: Path,
    small_trunk: DemoFiles,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data, read, once = tmp_path / "images.npz", [], embeddings.read_embeddings
    with np.load(small_trunk.eval) as rows:
        np.savez(data, text=rows["text"], image=rows["video"])

    def reading(path: Path, *more: Any) -> Any:
        read.append(path)
        return once(path, *more)

    monkeypatch.setattr(embeddings, "read_embeddings", reading)
    words = ("simulate", analog, "--inputs", data, "-o", tmp_path / "s.npz", "--noise")
    assert "R@1 image to text: median" in cimtool(*words, "--trials", 1).out
    assert read == [data]


def test_a_script_gets_numbers_of_dies(
    cimtool: Cimtool, analog: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    place = tmp_path / "s.npz"
    ran = cimtool(
        "simulate", analog, "--inputs", small_trunk.eval, "-o", place, "--noise", "--trials", 4,
        "--json",
    )  # fmt: skip
    of_dies = ran.json["dies"]
    with np.load(place) as found:
        rmse, r1 = found["trial_rmse"], found["trial_r1"]
    assert of_dies["rmse"] == {
        "median": np.median(rmse), "percentile_95": np.percentile(rmse, 95)
    }  # fmt: skip
    assert of_dies["r1_video_to_text"]["percentile_5"] == np.percentile(r1[:, 1], 5)


@pytest.mark.thorough("the same by another command or kind of data")
def test_verify_takes_the_same_options(
    cimtool: Cimtool, analog: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    ran = cimtool(
        "verify", analog, "--data", small_trunk.eval, "--samples", 2, "--report", tmp_path,
        "--noise", "--trials", 2, "--time", "1d", "--compensation", "column", "--json",
    )  # fmt: skip
    first, noisy = ran.json["noisy"]
    assert (noisy["trials"], noisy["seconds"]) == (2, 86400.0)
    assert first["seconds"] < noisy["seconds"]
    assert noisy["readout"]["products"] == 512


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--trials", "3"], "--trials applies only to dies; expected --noise with it"),
        (
            ["--noise-model", "neurram"],
            "--noise-model applies only to dies; expected --noise with it",
        ),
        (["--noise", "--trials", "0"], "--trials is 0; expected 1 to"),
        (["--noise", "--time", "1w"], "--time is 1w; expected a time"),
        (["--noise", "--time", ""], "--time is empty; expected a time"),
        (["--noise", "--seed", "-1"], "--seed is -1; expected an integer of at least 0 (see"),
        (["--noise", "--seed", "1.5"], "--seed is 1.5; expected an integer of at least 0 (see"),
        (["--noise", "--compensation", "globl"], 'did you mean "global"?'),
        (["--noise", "--noise-model", "no.toml"], "no.toml: there is no such file"),
        (["--noise", "--top", "2"], "--top keeps the best of noise-free scores"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(
    cimtool: Cimtool, analog: Path, small_trunk: DemoFiles, tmp_path: Path,
    options: list[str], said: str,
) -> None:  # fmt: skip
    place = tmp_path / "s.npz"
    ran = cimtool("simulate", analog, "--inputs", small_trunk.eval, "-o", place, *options)
    assert (ran.status, ran.out) == (2, "")
    assert said in ran.sentence
    assert not place.exists()


def test_a_negative_sigma_of_ones_own_model_is_named(
    cimtool: Cimtool, analog: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('source = "mine"\ng_max = 20.0\n[read]\nsigma = -0.1\n')
    ran = cimtool(
        "simulate", analog, "--inputs", small_trunk.eval, "--noise", "--noise-model", file
    )
    assert ran.status == 2
    assert ran.sentence == f"{file}: read.sigma = -0.1: must be a number of at least 0"
