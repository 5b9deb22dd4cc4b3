"""From a bound that `verify` states to certain ranks of `simulate` and `search`."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cimtool import api, cli
from cimtool.demo.data import DemoFiles

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def report(
    small_bundle: Path, small_trunk: DemoFiles, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A report with bounds at 90%, of 40 pairs."""
    folder, out = tmp_path_factory.mktemp("bounds") / "report", io.StringIO()
    words = ("verify", small_bundle, "--data", small_trunk.eval, "--bound", "0.9")
    with redirect_stdout(out):
        assert cli.run([*map(str, words), "--report", str(folder)]) == 0
    assert "90% of the pairs of a new text and a new video err at most" in out.getvalue()
    return folder / "report.json"


def test_scores_come_with_their_bound_and_certain_ranks(
    report: Path, cimtool: Run, small_bundle: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    told = cimtool("inspect", small_bundle).status, api.load(small_bundle)
    scores = np.asarray(told[1].scores(small_trunk.eval), np.float64)
    file = tmp_path / "scores.npz"
    common = ("simulate", small_bundle, "--inputs", small_trunk.eval, "--bounds", report)
    found = cimtool(*common, "-o", file)
    assert "a score is within" in found.out
    with np.load(file) as held:
        assert sorted(held) == ["bound", "scores"]
        bound = float(held["bound"])
    values = cimtool(*common, "--top", 3, "-o", file)
    with np.load(file) as held:
        assert sorted(held) == ["bound", "certain", "top_index", "top_score"]
        certain, index = held["certain"], held["top_index"]
    assert certain.shape == index.shape == (40, 3)
    assert f"certain: rank 1 of {certain[:, 0].sum()} of 40 texts, {certain.sum()} of" in values.out
    margin = margin_of(report)
    ordered = -np.sort(-scores, axis=1)
    assert np.array_equal(certain, (ordered[:, :3] - ordered[:, 1:4]) > margin)
    assert 0 < bound < np.ptp(scores)


@pytest.mark.thorough("a report with bounds, then a search")
def test_search_says_which_ranks_are_certain(
    report: Path, cimtool: Run, small_bundle: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    shards, file = tmp_path / "shards", tmp_path / "best.npz"
    api.encode(small_bundle, small_trunk.eval, output=shards, items_per_shard=7)
    common = ("search", small_bundle, "--gallery", shards, "--queries", small_trunk.eval)
    for top in (1, 10, 40):
        found = cimtool(*common, "--top", top, "--bounds", report, "-o", file)
        expected = api.simulate(small_bundle, small_trunk.eval, top=top, bounds=report)
        assert "certain: rank 1 of" in found.out
        with np.load(file) as held:
            for name in ("top_index", "top_score", "certain"):
                assert np.array_equal(held[name], expected[name])
    assert expected["certain"][:, -1].all()  # of all items there is none behind the last
    assert not expected["certain"][:, 10:-1].any()


def test_a_gallery_beyond_the_items_of_the_margin_is_refused(
    report: Path, cimtool: Run, small_bundle: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    with np.load(small_trunk.eval) as held:
        np.save(tmp_path / "items.npy", np.concatenate([held["video"], held["video"]]))
    api.encode(small_bundle, tmp_path / "items.npy", output=tmp_path / "shards")
    said = cimtool(
        "search", small_bundle, "--gallery", tmp_path / "shards", "--queries", small_trunk.eval,
        "--bounds", report, "-o", tmp_path / "best.npz",
    )  # fmt: skip
    assert said.status == 2
    assert said.sentence == (
        f"{report}: its margin of ranks is for 40 items or fewer, and there are 80; expected a "
        "report measured among as many"
    )
    assert not (tmp_path / "best.npz").exists()


def test_mistakes_are_one_sentence(
    report: Path, cimtool: Run, small_bundle: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    few = cimtool("verify", small_bundle, "--data", small_trunk.eval, "--bound", "0.99")
    assert few.status == 2
    assert few.sentence == (
        f"--bound 0.99 takes 99 pairs that share no row; {small_trunk.eval} has 20: expected 198 "
        "right pairs or more, or a lower --bound"
    )
    common = ("simulate", small_bundle, "--inputs", small_trunk.eval, "--bounds", report)
    noisy = cimtool(*common, "--noise", "-o", tmp_path / "scores.npz")
    assert noisy.status == 2
    assert noisy.sentence == "--bounds are of noise-free scores; expected it without --noise"
    beyond = cimtool(*common, "--top", 41, "-o", tmp_path / "scores.npz")
    assert beyond.sentence.startswith("--top is 41; expected 1 to 40")


def margin_of(report: Path) -> float:
    import json

    return float(json.loads(report.read_text())["sections"]["bounds"]["ranks"]["bound"])
