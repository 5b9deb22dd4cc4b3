"""Layout `prolip`: ProLIP's projections, and its logit as head `csd`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from cimtool import api, cli
from cimtool.base.arrays import FloatArray
from cimtool.base.errors import CimError
from cimtool.bundle.inspect import inspect
from cimtool.ir.heads.csd import Csd
from cimtool.loading.source import ModelSource
from cimtool.simulation.simulator import Simulator
from tests.kits.agreement import require_one_result
from tests.kits.public_checkpoints import (
    Shape,
    Tensors,
    first_right,
    matched,
    prolip,
)

SMALL = Shape(text=24, image=20, d=24)
DATA = matched(SMALL, 64)
LOG_SCALE, BIAS = 4.0, -12.0
UNCERTAINTIES = ("visual.uncertainty_proj", "text.text_uncertainty_projection")


def saved(folder: Path, tensors: Tensors | None = None, **other: torch.Tensor) -> Path:
    file = folder / "prolip.safetensors"
    save_file((tensors or prolip(SMALL, DATA, LOG_SCALE, BIAS)) | other, file)
    return file


def logits(tensors: Tensors, rows: Mapping[str, np.ndarray]) -> FloatArray:
    """`get_prolip_logits` of ProLIP's loss.py, for rows that `forward` of both encoders makes."""
    t = {name: one.double().numpy() for name, one in tensors.items()}
    x = {modality: one.astype(np.float64) for modality, one in rows.items()}
    width = len(t["visual.proj"])
    image = x["video"][:, :width] @ t["visual.proj"]
    image_std = x["video"][:, width:] @ t["visual.uncertainty_proj.weight"].T
    image_std += t["visual.uncertainty_proj.bias"]
    width = t["text.text_projection.weight"].shape[1]
    text = x["text"][:, :width] @ t["text.text_projection.weight"].T
    text += t["text.text_projection.bias"]
    unc = x["text"][:, width:] if x["text"].shape[1] > width else text
    text_std = unc @ t["text.text_uncertainty_projection.weight"].T
    text_std += t["text.text_uncertainty_projection.bias"]
    text, image = (one / np.linalg.norm(one, axis=1, keepdims=True) for one in (text, image))
    sigma = np.exp(text_std).sum(1)[:, None] + np.exp(image_std).sum(1)
    return np.asarray(np.exp(t["logit_scale"]) * (text @ image.T - sigma / 2) + t["logit_bias"])


def texts_of(rows: dict[str, np.ndarray], form: str) -> dict[str, np.ndarray]:
    return rows if form == "CLS and UNC" else {**rows, "text": DATA.rows_of_cls()["text"]}


@pytest.mark.parametrize("form", ["CLS and UNC", "CLS alone"])
def test_the_score_is_the_published_logit(tmp_path: Path, form: str) -> None:
    rows = texts_of(DATA.rows(), form)
    model = ModelSource(saved(tmp_path)).for_rows(rows).load()
    assert (model.layout, model.text_width, model.video_width) == (
        "prolip",
        rows["text"].shape[1],
        40,
    )
    scale = np.exp(np.float64(LOG_SCALE))
    assert model.head == Csd(a=scale / 2, b=scale + BIAS)
    wanted = logits(prolip(SMALL, DATA, LOG_SCALE, BIAS), rows)
    found = Simulator(model.program).scores(rows["text"], rows["video"])
    assert np.abs(found - wanted).max() <= 1e-5 * np.ptp(wanted)
    taken = "UNC, where ProLIP's public code" if form == "CLS and UNC" else "the projected CLS, as"
    assert sum(f"the log-variance is taken of {taken}" in one for one in model.warnings) == 1


@pytest.mark.parametrize("form", ["CLS and UNC", "CLS alone"])
def test_what_is_compiled_is_the_same_to_the_last_bit(tmp_path: Path, form: str) -> None:
    rows = texts_of(DATA.rows(), form)
    require_one_result(
        api.prepare(saved(tmp_path), calibration=rows, drift="given", target="ideal"), rows
    )


def test_a_training_checkpoint_is_the_same_model(tmp_path: Path) -> None:
    tensors = prolip(SMALL, DATA, LOG_SCALE, BIAS)
    wrapped = {"epoch": 3, "state_dict": {f"module.{name}": one for name, one in tensors.items()}}
    torch.save(wrapped, tmp_path / "epoch_3.pt")
    rows = DATA.rows()
    model = ModelSource(tmp_path / "epoch_3.pt").for_rows(rows).load()
    found = Simulator(model.program).scores(rows["text"], rows["video"])
    wanted = logits(tensors, rows)
    assert np.abs(found - wanted).max() <= 1e-5 * np.ptp(wanted)


def test_a_projection_of_texts_may_be_a_matrix(tmp_path: Path) -> None:
    tensors = prolip(SMALL, DATA)
    weight = tensors.pop("text.text_projection.weight")
    bias = tensors.pop("text.text_projection.bias")
    file = saved(tmp_path, tensors, **{"text.text_projection": weight.T.contiguous()})
    rows = DATA.rows()
    found = ModelSource(file).for_rows(rows).load().towers[0].run({"x": rows["text"]})["mu"]
    assert bias.any()
    mu = rows["text"][:, : SMALL.text] @ weight.T.numpy()
    np.testing.assert_allclose(found, mu / np.linalg.norm(mu, axis=1, keepdims=True), atol=1e-5)


def test_a_checkpoint_is_inspected_without_rows(tmp_path: Path) -> None:
    facts = inspect(saved(tmp_path))
    assert (facts["layout"], facts["head"]) == ("prolip", "csd")
    assert (facts["text"]["input"], facts["video"]["input"]) == (48, 40)


@pytest.mark.parametrize(
    ("name", "shape", "said"),
    [
        (
            "visual.uncertainty_proj.weight",
            (24, 21),
            r"visual\.uncertainty_proj\.weight has shape \[24, 21\]; expected \[24, 20\]",
        ),
        (
            "text.text_uncertainty_projection.weight",
            (23, 24),
            r"text\.text_uncertainty_projection\.weight has shape \[23, 24\]; expected \[24, 24\]",
        ),
        (
            "visual.uncertainty_proj.bias",
            (5,),
            r"visual\.uncertainty_proj\.bias has shape \[5\]; expected \[24\]",
        ),
    ],
)
def test_an_uncertainty_of_another_width_is_refused(
    tmp_path: Path, name: str, shape: tuple[int, ...], said: str
) -> None:
    file = saved(tmp_path, **{name: torch.ones(shape)})
    with pytest.raises(CimError, match=rf"^{file}: {said}$"):
        ModelSource(file).for_rows(DATA.rows()).load()


def test_a_missing_bias_is_named_by_its_key(tmp_path: Path) -> None:
    tensors = prolip(SMALL, DATA)
    del tensors["text.text_uncertainty_projection.bias"]
    file = saved(tmp_path, tensors)
    said = rf"^{file}: text\.text_uncertainty_projection\.bias is missing \(expected shape \[24\]\)"
    with pytest.raises(CimError, match=said):
        ModelSource(file).for_rows(DATA.rows()).load()


def test_an_uncertainty_of_one_side_alone_is_refused(tmp_path: Path) -> None:
    tensors = prolip(SMALL, DATA)
    left = {name: one for name, one in tensors.items() if "visual.uncertainty" not in name}
    said = 'text.text_projection has layout "prolip" and visual.proj has "projection"; expected one'
    with pytest.raises(CimError, match=said):
        ModelSource(saved(tmp_path, left)).for_rows(DATA.rows()).load()


@pytest.mark.parametrize("name", ["logit_scale", "logit_bias"])
def test_a_missing_scale_or_bias_is_named_unless_a_and_b_are_given(
    tmp_path: Path, name: str
) -> None:
    tensors = prolip(SMALL, DATA)
    del tensors[name]
    file = saved(tmp_path, tensors)
    with pytest.raises(CimError, match=rf"^{file}: {name} is missing; expected .* or a and b$"):
        ModelSource(file).for_rows(DATA.rows()).load()
    assert ModelSource(file, a=3.0, b=2.0).for_rows(DATA.rows()).load().head == Csd(3.0, 2.0)


def test_a_scale_of_two_numbers_is_refused(tmp_path: Path) -> None:
    file = saved(tmp_path, logit_scale=torch.zeros(2))
    with pytest.raises(
        CimError, match=rf"^{file}: logit_scale has shape \[2\]; expected one number"
    ):
        ModelSource(file).for_rows(DATA.rows()).load()


@pytest.mark.parametrize(
    ("modality", "width", "said"),
    [
        ("text", 30, r"\[CLS \| UNC\] of 48 numbers, or of CLS alone, 24; the data .* 30 numbers"),
        ("video", 20, r"\[CLS \| UNC\] of 40 numbers; the data have rows of 20 numbers"),
    ],
)
def test_rows_of_another_width_are_refused(
    tmp_path: Path, modality: str, width: int, said: str
) -> None:
    rows = {**DATA.rows(), modality: np.ones((64, width), dtype=np.float32)}
    file = saved(tmp_path)
    with pytest.raises(CimError, match=rf"^{file}: .* takes rows {said}$"):
        ModelSource(file).for_rows(rows).load()


def test_a_scale_beyond_float64_is_refused(tmp_path: Path) -> None:
    file = saved(tmp_path, logit_scale=torch.tensor(1e6))
    with pytest.raises(CimError, match=rf"^{file}: a is inf; expected a number above 0$"):
        ModelSource(file).for_rows(DATA.rows()).load()


@pytest.mark.thorough("projections of 768 x 768, and rows of 1,536 numbers")
def test_vit_b_16_keeps_its_retrieval_in_integers(tmp_path: Path) -> None:
    shape = Shape(768, 768, 768)
    data = matched(shape, 900, noise=1.2)
    file = saved(tmp_path, prolip(shape, data))
    rows = data.rows()
    calibration = {m: x[:300] for m, x in rows.items()}
    held_out = {m: x[300:] for m, x in rows.items()}
    compiled = api.prepare(file, calibration=calibration, target="ideal")
    exact = logits(prolip(shape, data), held_out)
    found = Simulator(compiled.stages[-1].program).scores(held_out["text"], held_out["video"])
    assert 0.5 < first_right(exact) < 0.99
    for one, other in ((exact, found), (exact.T, found.T)):
        assert first_right(other) >= first_right(one) - 0.003
    assert np.sqrt(np.square(found - exact).mean()) < 0.03 * exact.std(axis=1).mean()
    require_one_result(compiled, {m: x[:48] for m, x in held_out.items()})


def test_the_command_needs_no_other_option_and_refuses_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, rows = saved(tmp_path), tmp_path / "rows.npz"
    np.savez(rows, **DATA.rows())
    given = ["compile", "--projectors", str(file), "--calibration", str(rows), "--target", "ideal"]
    assert cli.run([*given, "-o", str(tmp_path / "bundle")]) == 0
    assert "prolip (layout prolip, head csd) on ideal" in capsys.readouterr().out
    np.savez(rows, **{**DATA.rows(), "video": DATA.rows()["video"][:, :-1]})
    assert cli.run([*given, "-o", str(tmp_path / "other")]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert "visual.uncertainty_proj.weight takes rows [CLS | UNC] of 40 numbers" in said[0]
    assert not (tmp_path / "other").exists()


BAD = {
    "another width": ({"visual.uncertainty_proj.weight": torch.ones(24, 21)}, "has shape [24, 21]"),
    "no scale": ({"logit_scale": None}, "logit_scale is missing"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_checkpoint_is_one_sentence_and_status_2(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed, said = BAD[kind]
    tensors = {**prolip(SMALL, DATA), **changed}
    file = saved(tmp_path, {name: one for name, one in tensors.items() if one is not None})
    np.savez(tmp_path / "rows.npz", **DATA.rows())
    given = ["compile", "--projectors", str(file), "--calibration", str(tmp_path / "rows.npz")]
    assert cli.run([*given, "--target", "ideal", "-o", str(tmp_path / "bundle")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"cimtool: error: {file}: ")
    assert said in line
    assert not (tmp_path / "bundle").exists()
