"""Layout `dense`: the Dense module of sentence-transformers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from cimtool import api
from cimtool.base.errors import CimError
from cimtool.bundle.inspect import inspect
from cimtool.ir.heads.points import Cosine
from cimtool.loading.source import ModelSource
from cimtool.simulation.simulator import Simulator
from cimtool.training.fine_tune import tensor_keys
from tests.kits.agreement import require_one_result

RNG = np.random.default_rng(0)
WIDTH, D = 12, 8
WEIGHT = (RNG.normal(size=(D, WIDTH)) / 4).astype(np.float32)
BIAS = (0.1 * RNG.normal(size=D)).astype(np.float32)
LATENT = RNG.normal(size=(64, WIDTH))
ROWS = {
    m: (LATENT + 0.2 * RNG.normal(size=LATENT.shape)).astype(np.float32) for m in ("text", "video")
}
TANH = "torch.nn.modules.activation.Tanh"
IDENTITY = "torch.nn.modules.linear.Identity"


def module(folder: Path, function: object = TANH, has_bias: bool = True) -> Path:
    """A module's folder, as `SentenceTransformer.save` writes it."""
    (folder / "2_Dense").mkdir()
    tensors = {"linear.weight": torch.tensor(WEIGHT)}
    if has_bias:
        tensors["linear.bias"] = torch.tensor(BIAS)
    save_file(tensors, folder / "2_Dense" / "model.safetensors")
    sizes = {"in_features": WIDTH, "out_features": D, "bias": has_bias}
    config = {**sizes, "activation_function": function}
    (folder / "2_Dense" / "config.json").write_text(json.dumps(config))
    return folder / "2_Dense" / "model.safetensors"


def projected(x: np.ndarray, function: str, has_bias: bool) -> np.ndarray:
    y = x.astype(np.float64) @ WEIGHT.T.astype(np.float64) + (BIAS if has_bias else 0)
    return {TANH: np.tanh, IDENTITY: np.asarray}[function](y)


def cosines(text: np.ndarray, other: np.ndarray) -> np.ndarray:
    text, other = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (text, other))
    return text @ other.T


@pytest.mark.parametrize(("function", "has_bias"), [(TANH, True), (IDENTITY, False)])
def test_both_modalities_pass_the_module(tmp_path: Path, function: str, has_bias: bool) -> None:
    file = module(tmp_path, function, has_bias)
    compiled = api.prepare(file, calibration=ROWS, drift="given", target="ideal")
    assert (compiled.model.layout, compiled.model.head) == ("dense", Cosine())
    assert [name for name, _ in compiled.model.files] == [
        str(file), str(file.with_name("config.json"))
    ]  # fmt: skip
    wanted = cosines(*(projected(ROWS[m], function, has_bias) for m in ("text", "video")))
    found = Simulator(compiled.model.program).scores(ROWS["text"], ROWS["video"])
    assert np.abs(found - wanted).max() <= 1e-5 * np.ptp(wanted)
    require_one_result(compiled, ROWS)


def test_rows_of_the_output_width_are_taken_as_outputs(tmp_path: Path) -> None:
    rows = {**ROWS, "video": ROWS["video"][:, :D]}
    model = ModelSource(module(tmp_path)).for_rows(rows).load()
    assert (model.text_width, model.video_width) == (WIDTH, D)
    wanted = cosines(projected(rows["text"], TANH, True), rows["video"].astype(np.float64))
    found = Simulator(model.program).scores(rows["text"], rows["video"])
    assert np.abs(found - wanted).max() <= 1e-5 * np.ptp(wanted)
    assert any(f"rows of {D} numbers are taken as the outputs" in one for one in model.warnings)


def test_a_module_that_torch_saved_is_the_same(tmp_path: Path) -> None:
    file = module(tmp_path).with_name("pytorch_model.bin")
    torch.save({"linear.weight": torch.tensor(WEIGHT), "linear.bias": torch.tensor(BIAS)}, file)
    found = ModelSource(file).load().towers[0].run({"x": ROWS["text"]})["mu"]
    np.testing.assert_allclose(found, projected(ROWS["text"], TANH, True), rtol=1e-5, atol=1e-6)


def test_a_layer_map_names_the_activation_without_a_config(tmp_path: Path) -> None:
    file = module(tmp_path)
    file.with_name("config.json").unlink()
    with pytest.raises(CimError, match=rf"^{file}: the activation after linear\.weight is not"):
        ModelSource(file).load()
    layer_map = tmp_path / "map.toml"
    layer_map.write_text("".join(f'[{m}]\noutput_activation = "tanh"\n' for m in ROWS))
    model = ModelSource(file, layer_map=layer_map).load()
    found = model.towers[0].run({"x": ROWS["text"]})["mu"]
    np.testing.assert_allclose(found, projected(ROWS["text"], TANH, True), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("torch.nn.modules.activation.GELU", 'activation_function "torch.*GELU" is not known: '),
        (None, "activation_function is None; expected the class of a Dense module's activation"),
    ],
)
def test_an_activation_that_is_not_known_is_refused(
    tmp_path: Path, function: str | None, said: str
) -> None:
    file = module(tmp_path, function)
    with pytest.raises(CimError, match=f"^{file.with_name('config.json')}: {said}"):
        ModelSource(file).load()


def test_a_module_is_inspected(tmp_path: Path) -> None:
    facts = inspect(module(tmp_path))
    assert (facts["layout"], facts["head"]) == ("dense", "cosine")
    assert (facts["text"]["input"], facts["text"]["dimensions"]) == (WIDTH, D)


def test_a_layer_of_both_modalities_cannot_be_fine_tuned(tmp_path: Path) -> None:
    file = module(tmp_path)
    model = ModelSource(file).for_rows(ROWS).load()
    with pytest.raises(
        CimError,
        match=r"^f: layout dense: text\.mu_sum and video\.mu_sum are both linear\.weight; only",
    ):
        tensor_keys(model, "f")
