"""Late interaction through the command line: from a checkpoint and rows of tokens to a cost."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from cimtool import api
from cimtool.emit.runtime import Session
from cimtool.hardware.mvm import CrossbarMvm

WIDTH, D, ITEMS, HELD = 10, 8, 40, 24
TEXT, VIDEO = 3, 4
"""Tokens of a text and of a video."""


@dataclass(frozen=True)
class Files:
    """A checkpoint of ColBERT's layer, its map, and rows of tokens."""

    folder: Path
    weight: np.ndarray

    @property
    def held(self) -> Path:
        return self.folder / "held.npz"

    @property
    def bundle(self) -> Path:
        return self.folder / "bundle"

    def compile(self, output: Path, **changed: object) -> list[object]:
        options: dict[str, object] = {
            "projectors": self.folder / "colbert.safetensors",
            "map": self.folder / "map.toml",
            "head": "maxsim",
            "calibration": self.folder / "calibration.npz",
            "target": "isaac-rram-128",
            "output": output,
        }
        given = ((f"--{key}", value) for key, value in (options | changed).items())
        return ["compile", *(part for one in given for part in one)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("tokens")
    common = rng.normal(size=(ITEMS + HELD, VIDEO, WIDTH))
    rows = {
        name: (common[:, :count] + 0.4 * rng.normal(size=(ITEMS + HELD, count, WIDTH)))
        for name, count in (("text", TEXT), ("video", VIDEO))
    }
    rows = {name: x.astype(np.float32) for name, x in rows.items()}
    np.savez(folder / "calibration.npz", **{name: x[:ITEMS] for name, x in rows.items()})
    np.savez(folder / "held.npz", **{name: x[ITEMS:] for name, x in rows.items()})
    weight = rng.normal(size=(D, WIDTH)).astype(np.float32)
    save_file({"linear.weight": weight}, folder / "colbert.safetensors")
    (folder / "map.toml").write_text("".join(f'[{m}]\nprefix = "linear"\n' for m in rows))
    return Files(folder, weight)


@pytest.fixture
def bundle(files: Files, cimtool: Callable[..., Any]) -> Path:
    if not files.bundle.exists():
        assert cimtool(*files.compile(files.bundle)).status == 0
    return files.bundle


def maxsim(text: np.ndarray, video: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """FILIP's score [n, m] of tokens [n, T, width] and [m, U, width], by its formula."""
    sides = (x.astype(np.float64) @ weight.T.astype(np.float64) for x in (text, video))
    t, v = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in sides)
    found: np.ndarray = np.einsum("nid,mjd->nmij", t, v).max(axis=3).mean(axis=2)
    return found


def test_verify_finds_no_difference_and_drift_from_its_own_score(
    files: Files, bundle: Path, cimtool: Callable[..., Any]
) -> None:
    ran = cimtool("verify", bundle, "--data", files.held, "-v")
    assert ran.status == 0
    report = json.loads((bundle / "report.json").read_text())
    counts = [one["differing"] for one in report["bits"]]
    assert len(counts) >= 6
    assert sum(counts) == 0
    assert "centred score RMSE) from the float MaxSim" in ran.out
    assert "raw embeddings have no cosine: an item is several tokens" in ran.out
    assert "Monte Carlo" not in ran.out.split("Cost and placement")[1]


def test_what_is_simulated_is_the_formula_to_its_rounding_and_the_onnx_files_exactly(
    files: Files, bundle: Path, cimtool: Callable[..., Any], tmp_path: Path
) -> None:
    scores = tmp_path / "scores.npz"
    assert cimtool("simulate", bundle, "--inputs", files.held, "-o", scores).status == 0
    assert cimtool("export", bundle, "--format", "onnx", "-o", tmp_path / "onnx").status == 0
    with np.load(files.held) as rows, np.load(scores) as found:
        simulated = found["scores"]
        wanted = maxsim(rows["text"], rows["video"], files.weight)
        flat = {m: rows[m].reshape(HELD, -1) for m in ("text", "video")}
    assert np.sqrt(np.square(simulated - wanted).mean()) < 0.05 * wanted.std()
    plain = Session(tmp_path / "onnx" / "float.onnx").run(flat)["logit"]
    np.testing.assert_allclose(plain, wanted, atol=1e-6)
    encoded = [Session(tmp_path / "onnx" / f"{m}.onnx").encode(x) for m, x in flat.items()]
    in_blocks = Session(tmp_path / "onnx" / "score.onnx").score(*encoded, most=HELD)
    np.testing.assert_array_equal(in_blocks, simulated)


def test_a_query_counts_its_products_comparisons_and_sums(
    bundle: Path, cimtool: Callable[..., Any]
) -> None:
    assert cimtool("cost", bundle, "--gallery", 50).status == 0
    score = api.cost(bundle, gallery=50).score
    assert score is not None
    # The mean's factor is in the unit. One multiplication and one limit store the score, and one
    # limit holds it in its domain.
    assert score.digital.multiplications == 50 * (TEXT * VIDEO * D + 1)
    assert score.digital.count("limits") == 50 * (TEXT * (VIDEO - 1) + 2)


@pytest.mark.thorough("the same graphs on crossbars of items")
def test_a_gallery_of_tokens_goes_into_the_memory(
    files: Files, cimtool: Callable[..., Any], tmp_path: Path
) -> None:
    mapped = {"score-mapping": "in-memory"}
    assert cimtool(*files.compile(tmp_path / "b", **mapped)).status == 0
    done = cimtool(
        "program", tmp_path / "b", "--gallery", files.held, "-o", tmp_path / "held", "-v"
    )
    assert done.status == 0
    assert f"{D} x {HELD} x {VIDEO}" in done.out
    assert cimtool("verify", tmp_path / "held", "--data", files.held).status == 0
    query = api.cost(tmp_path / "held").query
    text, own = api.cost(tmp_path / "held").text, api.load(tmp_path / "held").bundle.program
    (product,) = own.score.operations(CrossbarMvm).values()
    cycles, slices = len(product.crossbar.cycles), product.crossbar.slices
    # Each of a text's tokens drives all columns, one for each token of an item.
    assert query is not None
    assert query.conversions - text.conversions == TEXT * cycles * HELD * VIDEO * slices


def test_a_shortlist_of_tokens_and_an_estimate_of_their_columns_are_refused(
    files: Files, bundle: Path, cimtool: Callable[..., Any], tmp_path: Path
) -> None:
    ran = cimtool(*files.compile(tmp_path / "b", **{"score-mapping": "hybrid"}))
    assert (ran.status, "the score does not use ed" in ran.sentence) == (2, True)
    (way,) = (one for one in api.cost(bundle, gallery=50).ways if one.kind == "in the memory")
    assert str(way.refused).startswith("an item of several tokens has a column for each")


def test_tokens_encoded_in_python_may_be_an_axis(files: Files, bundle: Path) -> None:
    matcher = api.load(bundle)
    with np.load(files.held) as rows:
        own = matcher.encode_text(rows["text"])["mu"]
        flat = matcher.encode_text(rows["text"].reshape(HELD, -1))["mu"]
    np.testing.assert_array_equal(own, flat)
    assert own.shape == (HELD, TEXT * D)


def test_bad_input_is_one_sentence(
    files: Files, bundle: Path, cimtool: Callable[..., Any], tmp_path: Path
) -> None:
    with np.load(files.held) as rows:
        text, video = rows["text"], rows["video"]
    other, many, none = (tmp_path / f"{name}.npz" for name in ("other", "many", "none"))
    np.savez(other, text=text[:, :2], video=video)
    np.savez(many, text=np.repeat(text, 11, axis=1), video=video)
    padded = text.copy()
    padded[3, 1:] = 0
    np.savez(none, text=padded, video=video)
    made = tmp_path / "made"
    for arguments, said in (
        (
            ("verify", bundle, "--data", other),
            f"{other}: text has 2 tokens for each item; colbert expects 3 tokens",
        ),
        (
            ("simulate", bundle, "--inputs", other, "-o", tmp_path / "s.npz"),
            f"{other}: text has 2 tokens for each item; colbert expects 3 tokens",
        ),
        (files.compile(made, calibration=many), "expected at most 32"),
        (files.compile(made, calibration=none), "no zero row that is normalised"),
        (files.compile(made, head="cosine"), "text has 3 tokens for each item; colbert expects"),
        (files.compile(made, a=2.0), "expected none"),
        (("export", bundle, "--format", "handoff", "-o", made), "expected one row per item"),
        (("train", "--data", files.held, "-o", made), "text has 3 tokens for each item"),
    ):
        ran = cimtool(*arguments)
        assert (ran.status, ran.out) == (2, "")
        assert said in ran.sentence, ran.sentence
        assert not made.exists()
