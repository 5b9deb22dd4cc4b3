"""Baselines of a run: raw rows beside the trained ones, and what a start has seen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cimtool
from cimtool.cli import run as command
from cimtool.loading.embeddings import embeddings_of
from cimtool.training.history import (
    RetrievalEpoch,
    below_raw,
    last_is_best,
    raw_recalls,
    recalls_of,
    sample,
    start_is_best,
    suspicion,
)
from cimtool.training.model import widest
from cimtool.training.models.cross_attention import CrossAttentionModel
from cimtool.training.models.perceptron import Autoencoder, TanhProjectors
from cimtool.training.models.trunk import TrunkModel
from cimtool.training.models.two_branch import TwoBranchModel
from cimtool.training.pairs import Pairs, split

SMALL: Any = {"batch": 16, "learning_rate": 3e-3, "epochs": 2}
SIZES = {"model.hidden": 32, "model.width": 8, "model.linear": False}


def recalls(share: float, **more: float) -> dict[str, float]:
    ways = ("text_to_video", "video_to_text")
    return {f"r{k}_{way}": share for k in (1, 5, 10) for way in ways} | more


def epochs(*shares: float) -> list[RetrievalEpoch]:
    return [RetrievalEpoch(i, None, {}, {}, recalls(share)) for i, share in enumerate(shares)]


def near(rows: int, noise: float, seed: int = 0) -> dict[str, np.ndarray]:
    """Rows that their cosine finds nearly all, and that a small model of few steps does not."""
    rng = np.random.default_rng(seed)
    text = rng.standard_normal((rows, 12)).astype(np.float32)
    return {"text": text, "video": (text + noise * rng.standard_normal(text.shape)).astype("f4")}


def test_raw_rows_are_ranked_by_their_cosine() -> None:
    rows = near(30, 0.5)
    text, video = (torch.from_numpy(3 * rows[name]) for name in ("text", "video"))
    held = Pairs(text, video, torch.arange(30))
    unit = [side / np.linalg.norm(side, axis=1)[:, None] for side in (rows["text"], rows["video"])]
    assert raw_recalls(held, False) == recalls_of(unit[0] @ unit[1].T, held)
    assert raw_recalls(Pairs(text, video[:, :5], torch.arange(30)), False) is None


def test_equal_rows_count_against_a_query_as_everywhere(tmp_path: Path) -> None:
    """The last bits of a matrix product do not choose among videos that are the same."""
    rows = {name: np.repeat(value, 5, axis=0) for name, value in near(20, 0.5).items()}
    text, video = (torch.from_numpy(rows[name]) for name in ("text", "video"))
    found = raw_recalls(Pairs(text, video, torch.arange(100)), False)
    assert found is not None
    raw = cimtool.evaluate(rows, resamples=2).scores[0].metrics
    assert {name: raw[name] for name in found} == found
    assert found["r1_text_to_video"] == 0


def test_a_run_that_learnt_nothing_says_so_first(tmp_path: Path) -> None:
    said = start_is_best(epochs(0.3, 0.2, 0.3), "random weights")
    assert said is not None
    assert "none of 2 epochs is better than the start, so the kept model is random" in said
    assert "the kept model is a.pth" in (start_is_best(epochs(0.3, 0.2), "a.pth") or "")
    assert start_is_best(epochs(0.3, 0.4), "a.pth") is None
    rows = dict.fromkeys(("text", "video"), np.ones((80, 6), np.float32))
    run = cimtool.train(rows, tmp_path / "run", **SMALL, options=SIZES)
    assert any(one.startswith("warning: nothing was learnt") for one in run.remarks)


def test_the_warnings() -> None:
    said = below_raw(epochs(0.1, 0.6, 0.5), recalls(0.9), TrunkModel())
    assert said is not None
    assert said.startswith("warning: the trained model is worse than raw embeddings by cosine: ")
    assert "held-out R@1 60.0% against 90.0%; model two-branch starts from" in said
    assert said.endswith("as they are, model.linear=true from linear maps of them")
    linear = below_raw(epochs(0.1, 0.6), recalls(0.9), TrunkModel(linear=True))
    assert linear is not None
    assert linear.endswith("model two-branch starts from the rows as they are")
    assert below_raw(epochs(0.1, 0.9), recalls(0.9), TrunkModel()) is None
    assert below_raw(epochs(0.1), None, TrunkModel()) is None
    for kind in (TanhProjectors, Autoencoder, CrossAttentionModel):
        plain = below_raw(epochs(0.1, 0.6), recalls(0.9), kind())
        assert plain is not None
        assert plain.endswith("held-out R@1 60.0% against 90.0%")
    assert last_is_best(epochs(0.1, 0.2, 0.3)) is not None
    assert last_is_best(epochs(0.1, 0.3, 0.2)) is None
    assert last_is_best(epochs(0.1)) is None


@pytest.mark.parametrize(
    ("held", "trains", "said"),
    [(0.97, 0.96, True), (0.27, 0.96, False), (0.27, 0.28, True), (0.01, 0.01, False)],
)
def test_a_start_that_does_as_well_on_what_is_held_out(
    held: float, trains: float, said: bool
) -> None:
    found = suspicion("s.pth", recalls(held), recalls(trains), 200)
    assert (found is not None) == said
    if found is not None:
        assert f"before any training its held-out R@1 is {held:.1%}, {trains:.1%} on as" in found


def test_the_sample_is_not_what_the_same_seed_holds_out() -> None:
    rows = np.arange(400, dtype=np.float32)[:, None]
    _, held = split(embeddings_of({"text": rows, "video": rows}), 0.25, 0)
    every = Pairs(torch.from_numpy(rows), torch.from_numpy(rows), torch.arange(400))
    drawn = sample(every, 100, 0)
    assert len(drawn) == 100
    assert torch.equal(drawn.video[drawn.right], drawn.text)
    assert len(set(drawn.text.flatten().tolist()) & set(held.text.flatten().tolist())) < 50


def test_classes_lead_by_their_map() -> None:
    maps = {"map_text_to_video": 0.3, "map_video_to_text": 0.3}
    history = [RetrievalEpoch(0, None, {}, {}, recalls(0.9, **maps))]
    raw = recalls(0.1, map_text_to_video=0.5, map_video_to_text=0.6)
    said = below_raw(history, raw, TwoBranchModel())
    assert said is not None
    assert said.endswith("held-out mAP 30.0% against 55.0%")


def test_the_first_line_says_that_raw_rows_are_better(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "rows.npz", **near(200, 0.3))
    options = [f"--set={name}={value}" for name, value in SIZES.items()]
    arguments = ["--data", str(tmp_path / "rows.npz"), *options, "--batch", "16", "--epochs", "1"]
    assert command(["train", *arguments, "-o", str(tmp_path / "a")]) == 0
    first, linear, second, *_ = capsys.readouterr().out.splitlines()
    assert linear.startswith("warning: the trained model is worse than linear maps of the rows: ")
    assert linear.endswith("linear is these maps, and model.linear=true starts from them")
    assert first.startswith("warning: the trained model is worse than raw embeddings by cosine")
    assert "Best of 1 epochs is " in second
    assert "Raw embeddings by cosine, on the same pairs: R@1 " in second
    assert command(["train", *arguments, "--json", "-o", str(tmp_path / "b")]) == 0
    found = json.loads(capsys.readouterr().out)
    history = json.loads((tmp_path / "b" / "history.json").read_text())
    assert found["raw"] == history["raw"]
    assert found["raw"]["r1_text_to_video"] > 0.8
    assert len(found["warnings"]) == 2
    assert "raw R@1 ends at" in (tmp_path / "b" / "training.html").read_text()


@pytest.mark.thorough("more of the same kind")
def test_a_start_of_unknown_rows_is_suspected(tmp_path: Path) -> None:
    rows = near(200, 2.0)
    rows["video"] = rows["video"][:, ::-1].copy()
    run = cimtool.train(
        rows, tmp_path / "all", validation=near(40, 2.0, 1), **{**SMALL, "epochs": 60},
        options={"model.hidden": 128, "model.width": 16},
    )  # fmt: skip
    bare = torch.load(run.folder / "last.pth", weights_only=True)
    del bare["provenance"], bare["config"]
    torch.save(bare, tmp_path / "bare.pth")
    # Trained on all, held-out pairs included: nothing in the file says so.
    seen = cimtool.train(rows, tmp_path / "seen", start=tmp_path / "bare.pth", **SMALL)
    assert seen.history[0].means["R@1"] > 0.8
    assert any("bare.pth keeps no provenance" in one for one in seen.warnings)
    fresh = cimtool.train(
        rows, tmp_path / "fresh", start=tmp_path / "bare.pth", validation=near(40, 2.0, 2), **SMALL
    )
    assert not any("keeps no provenance" in one for one in fresh.warnings)


def test_widths_follow_the_data() -> None:
    assert widest(lambda h: h, 10**9) == 2048
    assert widest(lambda h: h, 0) == 64
    # 7,050 pairs of 1,024 numbers carry the document's model, 700 of 512 numbers a small one.
    assert TrunkModel.sizes(7050 * 2048, 1024, 1024) == {"hidden": 2048, "width": 1024}
    assert TrunkModel.sizes(700 * 1024, 512, 512) == {"hidden": 256, "width": 128}
    assert TwoBranchModel.sizes(700 * 1024, 512, 512) == {"hidden": 256}


def test_widths_that_are_given_stay(tmp_path: Path) -> None:
    rows = near(80, 0.3)
    plain = cimtool.train(rows, tmp_path / "a", batch=16, epochs=1)
    config = torch.load(plain.folder / "model.pth", weights_only=True)["config"]
    assert (config["model.hidden"], config["model.width"]) == (64, 32)
    given = {"model.hidden": 96, "model.width": 8}
    named = cimtool.train(rows, tmp_path / "b", batch=16, epochs=1, options=given)
    config = torch.load(named.folder / "model.pth", weights_only=True)["config"]
    assert (config["model.hidden"], config["model.width"]) == (96, 8)


def test_two_branch_starts_from_the_rows(tmp_path: Path) -> None:
    """Before any training it ranks as raw cosine does, so that the best epoch is no worse."""
    settings: Any = {"model": "two-branch", "batch": 16, "epochs": 1}
    options = {"model.linear": False}
    run = cimtool.train(near(200, 0.3), tmp_path / "a", options=options, **settings)
    assert run.history[0].recalls == pytest.approx(run.raw)
    assert run.best.merit >= run.history[0].merit
    assert not any("worse than raw" in one for one in run.warnings)


def test_the_first_line_says_that_raw_rows_have_no_cosine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = near(60, 0.3)
    np.savez(tmp_path / "rows.npz", text=rows["text"], video=rows["video"][:, :-1])
    options = [f"--set={name}={value}" for name, value in SIZES.items()]
    arguments = ["--data", str(tmp_path / "rows.npz"), *options, "--batch", "16", "--epochs", "1"]
    assert command(["train", *arguments, "-o", str(tmp_path / "a")]) == 0
    _, first, *_ = capsys.readouterr().out.splitlines()
    assert first.endswith("Raw embeddings have no cosine: text and video rows differ in width.")
