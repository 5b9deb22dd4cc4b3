"""A loaded model against outputs that a user has: agreement is told, a difference is a sentence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import cimtool.api as api
from cimtool.base.errors import CimError
from cimtool.bundle.outputs_check import check_outputs
from cimtool.ir.surrogate import Polynomial
from cimtool.loading.onnx.modules import model_from_modules
from cimtool.loading.score import ScoreOptions
from cimtool.training.towers import TwoTower

Arrays = dict[str, np.ndarray]


@pytest.fixture
def given(trunks: TwoTower) -> Arrays:
    """Rows of both modalities with what torch computes of them."""
    rng, arrays = np.random.default_rng(2), {}
    for modality, module in (("text", trunks.text_proj), ("video", trunks.video_proj)):
        width = next(module.parameters()).shape[1]
        rows = rng.normal(size=(40, width)).astype(np.float32)
        with torch.no_grad():
            mu, logvar = module(torch.from_numpy(rows))
        arrays |= {modality: rows, f"{modality}_mu": mu.numpy()}
        arrays[f"{modality}_logvar"] = logvar.numpy()
    return arrays


def test_what_agrees_is_told(trunks: TwoTower, polynomial: Polynomial, given: Arrays) -> None:
    modules, score = (trunks.text_proj, trunks.video_proj), ScoreOptions(polynomial=polynomial)
    model = model_from_modules(*modules, score)
    notes = check_outputs(model, given)
    assert [note.split(":")[0] for note in notes] == [
        "text_mu of check", "text_logvar of check", "video_mu of check", "video_logvar of check"
    ]  # fmt: skip
    alone = check_outputs(model, {key: given[key] for key in ("video", "video_mu")})
    assert len(alone) == 1
    rows = {modality: given[modality] for modality in ("text", "video")}
    compiled = api.prepare(
        modules, polynomial, calibration=rows, drift="given", target="ideal", check=given
    )
    assert set(notes) <= set(compiled.notes)


@pytest.mark.parametrize(
    "modalities", [("image", "text"), ("video", "text"), ("text", "audio"), ("image", "video")]
)
def test_a_model_has_its_own_names(
    trunks: TwoTower, polynomial: Polynomial, given: Arrays, modalities: tuple[str, str]
) -> None:
    score = ScoreOptions(polynomial=polynomial)
    model = model_from_modules(trunks.text_proj, trunks.video_proj, score)
    model, first, second = replace(model, modalities=modalities), *modalities
    of_first = {first: given["text"], f"{first}_mu": given["text_mu"]}
    of_second = {second: given["video"], f"{second}_logvar": given["video_logvar"]}
    for arrays in (of_first, of_second, of_first | of_second):
        told = [note.split(" of ")[0] for note in check_outputs(model, arrays)]
        assert told == [name for name in arrays if "_" in name]
    with pytest.raises(CimError, match=f"holds odd; expected {first}, {second} and {first}_mu, "):
        check_outputs(model, {**of_first, "odd": given["text"]})


def test_a_difference_is_found_before_anything_is_compiled(
    trunks: TwoTower, polynomial: Polynomial, given: Arrays, tmp_path: Path
) -> None:
    rows = {modality: given[modality] for modality in ("text", "video")}
    given["text_logvar"][7, 3] += 0.5
    np.savez(tmp_path / "outputs.npz", **given)
    with pytest.raises(
        CimError,
        match=r"outputs\.npz: text_logvar holds \S+ in row 7, dimension 3, but the model that was "
        r"read gives \S+; expected differences of at most 0\.0001 of the largest value",
    ):
        api.prepare(
            (trunks.text_proj, trunks.video_proj),
            polynomial,
            calibration=rows,
            drift="given",
            target="ideal",
            check=tmp_path / "outputs.npz",
        )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_outputs_of_half_precision_are_told_as_such(
    trunks: TwoTower, polynomial: Polynomial, given: Arrays, dtype: torch.dtype
) -> None:
    score = ScoreOptions(polynomial=polynomial)
    model = model_from_modules(trunks.text_proj, trunks.video_proj, score)
    half = torch.from_numpy(given["text_mu"]).to(dtype).float().numpy()
    with pytest.raises(CimError, match=r"those of half precision; expected the outputs of float32"):
        check_outputs(model, {"text": given["text"], "text_mu": half})
    with pytest.raises(CimError, match=r"other weights, another activation"):
        check_outputs(model, {"text": given["text"], "text_mu": 1.5 * half})


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"text_sigma": np.ones((4, 5))},
            r"check: holds text_sigma; expected text, video and text_mu",
        ),
        ({"text_mu": np.ones((4, 5))}, r"check: text_mu has shape \[4, 5\]; expected \[40, 5\]"),
        ({"text": np.ones((40, 3))}, r"check: .*text"),
        ({"text": None}, r"check: has no rows text; expected them beside their outputs"),
        ({"text_mu": np.full((40, 5), np.nan)}, r"check: row 0 of text_mu holds nan; expected"),
        (
            {f"{m}_{name}": None for m in ("text", "video") for name in ("mu", "logvar")},
            r"check: holds no outputs; expected one of text_mu, text_logvar, video_mu",
        ),
    ],
)
def test_arrays_that_cannot_be_compared(
    trunks: TwoTower,
    polynomial: Polynomial,
    given: Arrays,
    change: dict[str, np.ndarray | None],
    sentence: str,
) -> None:
    score = ScoreOptions(polynomial=polynomial)
    model = model_from_modules(trunks.text_proj, trunks.video_proj, score)
    changed = {key: value for key, value in (given | change).items() if value is not None}
    with pytest.raises(CimError, match=sentence):
        check_outputs(model, changed)
