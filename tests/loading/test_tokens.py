"""Projectors of tokens: any layout of single rows, applied to each token."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from cimtool.base.errors import CimError
from cimtool.loading.model import Model
from cimtool.loading.source import ModelSource

WIDTH, D = 6, 4
WEIGHT = np.random.default_rng(0).normal(size=(D, WIDTH)).astype(np.float32)


def source(folder: Path) -> ModelSource:
    """ColBERT's layer without its encoder, which both modalities share."""
    save_file({"linear.weight": WEIGHT}, folder / "colbert.safetensors")
    layer_map = folder / "map.toml"
    layer_map.write_text('[text]\nprefix = "linear"\n[video]\nprefix = "linear"\n')
    return ModelSource(folder / "colbert.safetensors", head="maxsim", layer_map=layer_map)


def loaded(folder: Path, text: int, video: int) -> Model:
    rng = np.random.default_rng(1)
    rows = {"text": rng.normal(size=(5, text)), "video": rng.normal(size=(5, video))}
    return source(folder).for_rows(rows).load()


def test_rows_of_data_say_how_many_tokens_an_item_has(tmp_path: Path) -> None:
    model = loaded(tmp_path, 3 * WIDTH, 2 * WIDTH)
    assert (model.head.tokens, model.dimension) == ((3, 2), D)
    assert (model.text_width, model.video_width) == (3 * WIDTH, 2 * WIDTH)
    x = np.random.default_rng(2).normal(size=(7, 3, WIDTH))
    mu = model.towers[0].run({"x": x.reshape(7, -1)})["mu"]
    np.testing.assert_allclose(mu, x.reshape(-1, WIDTH) @ WEIGHT.T, rtol=1e-5, atol=1e-6)


def test_one_token_is_a_cosine(tmp_path: Path) -> None:
    assert loaded(tmp_path, WIDTH, WIDTH).head.tokens == (1, 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (3 * WIDTH + 1, "takes rows of 6 a token; the data have rows of 19 numbers"),
        (33 * WIDTH, "takes 6 numbers a token, so that a row has 33 tokens; expected at most 32"),
    ],
)
def test_rows_that_are_no_tokens_are_one_sentence(tmp_path: Path, text: int, said: str) -> None:
    with pytest.raises(CimError, match=f"^{tmp_path}/colbert.safetensors: .*{said}"):
        loaded(tmp_path, text, 2 * WIDTH)


def test_without_data_the_number_of_tokens_is_not_known(tmp_path: Path) -> None:
    with pytest.raises(CimError, match="for any number of tokens; expected data with such rows"):
        source(tmp_path).load()


def test_a_layout_that_normalises_rows_is_refused(tmp_path: Path) -> None:
    sides = {f"{m}_proj.logvar": np.ones((1, WIDTH), np.float32) for m in ("text", "video")}
    tensors = {f"{name}.weight": one for name, one in sides.items()}
    tensors |= {f"{name}.bias": one[0, :1] for name, one in sides.items()}
    save_file(tensors, tmp_path / "frozen.safetensors")
    rows = {"text": np.ones((5, WIDTH)), "video": np.ones((5, WIDTH))}
    with pytest.raises(CimError, match=r'layout "frozen" takes rows of unit norm; expected a proj'):
        ModelSource(tmp_path / "frozen.safetensors", head="maxsim").for_rows(rows).load()


def test_modules_and_onnx_files_are_refused() -> None:
    pair = torch.nn.Linear(WIDTH, D), torch.nn.Linear(WIDTH, D)
    rows = {"text": np.ones((5, WIDTH)), "video": np.ones((5, WIDTH))}
    with pytest.raises(CimError, match='head is "maxsim", which applies projectors to each token'):
        ModelSource(pair, head="maxsim").for_rows(rows).load()
