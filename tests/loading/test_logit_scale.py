"""Learned scales and biases: SigLIP's and CLIP's state dicts come in whole, scored as published."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from cimtool import api, cli
from cimtool.base.arrays import FloatArray
from cimtool.base.errors import CimError
from cimtool.ir.heads.points import Cosine
from cimtool.loading.layouts.projection import NO_BIAS
from cimtool.loading.logit_scale import cosine_score, distance_constants, read_number
from cimtool.loading.source import ModelSource
from cimtool.simulation.simulator import Simulator
from tests.kits.agreement import require_one_result
from tests.kits.public_checkpoints import (
    Shape,
    Tensors,
    first_right,
    matched,
    open_clip,
    siglip,
)

SMALL = Shape(text=24, image=20, d=20)
DATA = matched(SMALL, 64)
LOG_SCALE, BIAS = 4.7, -12.9
ROWS = DATA.rows_of_cls()
FEATURES = {**ROWS, "video": (ROWS["video"] @ DATA.image.projection).astype(np.float32)}
"""Rows for SigLIP, whose pooled features of images nothing projects."""


def saved(folder: Path, tensors: Tensors) -> Path:
    save_file(tensors, folder / "model.safetensors")
    return folder / "model.safetensors"


def unit(x: FloatArray) -> FloatArray:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def single(x: FloatArray) -> FloatArray:
    """The numbers that float32 keeps, in float64."""
    return np.asarray(x, dtype=np.float32).astype(np.float64)


def cosines(text: FloatArray, image: FloatArray) -> FloatArray:
    return unit(text) @ unit(image).T


def siglip_logits() -> FloatArray:
    """`get_logits` of open_clip's SigLipLoss; `logits_per_text` of transformers' SiglipModel."""
    text = single(ROWS["text"]) @ single(DATA.text.projection) + single(DATA.text.bias)
    scale = np.exp(np.float64(np.float32(LOG_SCALE)))
    return scale * cosines(text, single(FEATURES["video"])) + np.float64(np.float32(BIAS))


@pytest.mark.parametrize("library", ["open_clip", "transformers"])
def test_siglip_is_scored_by_its_sigmoids_logit(tmp_path: Path, library: str) -> None:
    file = saved(tmp_path, siglip(SMALL, DATA, library, LOG_SCALE, BIAS))
    compiled = api.prepare(file, calibration=FEATURES, drift="given", target="ideal")
    model, wanted = compiled.model, siglip_logits()
    scale = np.exp(np.float64(np.float32(LOG_SCALE)))
    assert (model.layout, model.head) == ("projection", Cosine(scale, float(np.float32(BIAS))))
    assert model.head.measure == "logit"
    found = Simulator(model.program).scores(FEATURES["text"], FEATURES["video"])
    assert np.abs(found - wanted).max() <= 1e-5 * np.ptp(wanted)
    require_one_result(compiled, FEATURES)


def test_open_clip_is_scored_by_its_cosines(tmp_path: Path) -> None:
    file = saved(tmp_path, open_clip(SMALL, DATA, LOG_SCALE))
    compiled = api.prepare(file, calibration=ROWS, drift="given", target="ideal")
    assert (compiled.model.layout, compiled.model.head) == ("projection", Cosine())
    text, image = (single(ROWS[m]) for m in ("text", "video"))
    wanted = cosines(text @ single(DATA.text.projection), image @ single(DATA.image.projection))
    found = Simulator(compiled.model.program).scores(ROWS["text"], ROWS["video"])
    assert np.abs(found - wanted).max() <= 1e-5 * np.ptp(wanted)
    require_one_result(compiled, ROWS)


FORMS: dict[str, tuple[Tensors, dict[str, np.ndarray]]] = {
    "open_clip": (open_clip(SMALL, DATA), ROWS),
    "SigLIP, open_clip": (siglip(SMALL, DATA, "open_clip", LOG_SCALE, BIAS), FEATURES),
    "SigLIP, transformers": (siglip(SMALL, DATA, "transformers", LOG_SCALE, BIAS), FEATURES),
}
TWO = torch.zeros(2)


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        ("logit_scale", None, "is missing"),
        ("logit_scale", TWO, "has shape [2]"),
        ("logit_bias", TWO, "has shape [2]"),
    ],
)
@pytest.mark.parametrize("form", FORMS)
def test_the_command_names_a_number_that_is_missing_or_is_none(
    form: str,
    key: str,
    value: torch.Tensor | None,
    fault: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tensors, rows = FORMS[form]
    tensors = {name: one for name, one in tensors.items() if name != key}
    file = saved(tmp_path, tensors if value is None else tensors | {key: value})
    np.savez(tmp_path / "rows.npz", **rows)
    given = ["compile", "--projectors", str(file), "--calibration", str(tmp_path / "rows.npz")]
    given += ["--target", "ideal", "-o", str(tmp_path / "bundle")]
    assert cli.run(given) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"cimtool: error: {file}: {key} {fault}; expected one number beside")
    assert line.endswith(
        "--head cosine (with --a and --b for the logit of a sigmoid) or --head euclidean"
    )
    assert {one.name for one in tmp_path.iterdir()} == {file.name, "rows.npz"}
    assert cli.run([*given, "--head", "cosine", "--a", "9", "--b", "-3"]) == 0


def test_a_checkpoint_that_names_its_head_needs_no_scale(tmp_path: Path) -> None:
    tensors = {name: one for name, one in open_clip(SMALL, DATA).items() if name != "logit_scale"}
    torch.save(tensors | {"head": "euclidean"}, tmp_path / "model.pth")
    assert ModelSource(tmp_path / "model.pth").load().head.name == "euclidean"


@pytest.mark.parametrize("library", ["open_clip", "transformers"])
def test_siglip_without_a_bias_is_a_cosine_and_says_so(tmp_path: Path, library: str) -> None:
    tensors = siglip(SMALL, DATA, library, LOG_SCALE, BIAS)
    assert NO_BIAS not in ModelSource(saved(tmp_path, tensors)).load().warnings
    del tensors["logit_bias"]
    model = ModelSource(saved(tmp_path, tensors)).load()
    assert model.head == Cosine()
    assert NO_BIAS in model.warnings
    clip = ModelSource(saved(tmp_path, open_clip(SMALL, DATA))).load()
    assert NO_BIAS not in clip.warnings


def test_half_of_a_scale_and_an_offset_is_refused(tmp_path: Path) -> None:
    file = saved(tmp_path, open_clip(SMALL, DATA))
    with pytest.raises(CimError, match=rf'^{file}: gives one of a and b for head "cosine"'):
        ModelSource(file, a=100.0).load()
    assert ModelSource(file, a=100.0, b=-10.0).load().head == Cosine(100.0, -10.0)


def test_numbers_are_found_behind_wrappers() -> None:
    content = {"state_dict": {"module.logit_scale": np.array([0.0]), "logit_bias": np.ones(())}}
    assert read_number(content, "logit_scale") == 0.0
    assert cosine_score(content) == {"head": "cosine", "a": 1.0, "b": 1.0}
    assert distance_constants(content) == {"a": 0.5, "b": 2.0}
    assert cosine_score({"logit_scale": np.zeros(2)}) == {}
    assert distance_constants({"logit_scale": np.zeros(1)}) == {}
    assert distance_constants({"logit_scale": np.array(1e6), "logit_bias": np.ones(1)}) == {
        "a": np.inf, "b": np.inf
    }  # fmt: skip


@pytest.mark.thorough("projections of 768 x 768 for two forms")
@pytest.mark.parametrize("form", ["siglip", "open_clip"])
def test_vit_b_16_keeps_its_retrieval_in_integers(tmp_path: Path, form: str) -> None:
    shape = Shape(768, 768, 512)
    data = matched(shape, 900, noise=1.0)
    rows = data.rows_of_cls()
    if form == "siglip":
        tensors = siglip(shape, data, "open_clip", LOG_SCALE, BIAS)
        tensors["visual.trunk.attn_pool.mlp.fc2.weight"] = torch.zeros(512, 3072)
        rows["video"] = (rows["video"] @ data.image.projection).astype(np.float32)
    else:
        tensors = open_clip(shape, data)
    calibration = {m: x[:300] for m, x in rows.items()}
    held_out = {m: x[300:] for m, x in rows.items()}
    compiled = api.prepare(
        saved(tmp_path, tensors), calibration=calibration, drift="given", target="ideal"
    )
    exact, found = (
        Simulator(compiled.stages[at].program).scores(held_out["text"], held_out["video"])
        for at in (0, -1)
    )
    assert 0.5 < first_right(exact) < 0.99
    for one, other in ((exact, found), (exact.T, found.T)):
        assert first_right(other) >= first_right(one) - 0.003
    assert np.sqrt(np.square(found - exact).mean()) < 0.03 * exact.std(axis=1).mean()
    require_one_result(compiled, {m: x[:48] for m, x in held_out.items()})
