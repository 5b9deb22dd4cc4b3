"""Layout `projection`: one matrix or Linear a modality."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch

from cimtool.base.errors import CimError
from cimtool.loading.checkpoint import read_checkpoint
from cimtool.loading.layer_map import NO_MAP, read_layer_map
from cimtool.loading.model import read_towers

RNG = np.random.default_rng(0)
TEXT, IMAGE = RNG.normal(size=(6, 4)), RNG.normal(size=(5, 4))
ROWS = {6: RNG.normal(size=(3, 6)), 5: RNG.normal(size=(3, 5))}
NORM = {"visual.ln_post.weight": torch.ones(5)}


def tensor(values: np.ndarray) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


OPEN_CLIP = {"text_projection": tensor(TEXT), "visual.proj": tensor(IMAGE), **NORM}
OF_TIMM = {"text_projection": tensor(TEXT), "visual.head.proj.weight": tensor(IMAGE.T), **NORM}
LINEAR = {
    "text_projection.weight": tensor(TEXT.T), "visual_projection.weight": tensor(IMAGE.T), **NORM
}  # fmt: skip
BLIP = {"text_proj.weight": tensor(TEXT.T), "vision_proj.weight": tensor(IMAGE.T), **NORM}


def outputs(content: Mapping[str, object], folder: Path, layer_map: str = "") -> list[np.ndarray]:
    torch.save(content, folder / "clip.pth")
    (folder / "map.toml").write_text(layer_map)
    named = read_layer_map(folder / "map.toml") if layer_map else NO_MAP
    layout, towers = read_towers(read_checkpoint(folder / "clip.pth"), named)
    assert layout.name == "projection"
    return [one.run({"x": ROWS[one.extent("x")]})["mu"] for one in towers]


@pytest.mark.parametrize("content", [OPEN_CLIP, OF_TIMM, LINEAR, {"state_dict": OPEN_CLIP}, BLIP])
def test_projections_of_clip_are_known_by_their_names(
    content: Mapping[str, object], tmp_path: Path
) -> None:
    text, image = outputs(content, tmp_path)
    np.testing.assert_allclose(text, ROWS[6] @ TEXT, rtol=1e-12)
    np.testing.assert_allclose(image, ROWS[5] @ IMAGE, rtol=1e-12)


def test_a_prefix_names_a_linear_or_a_matrix_behind_a_wrapper(tmp_path: Path) -> None:
    content = {
        "model": {
            "txt": {"out": {"weight": tensor(TEXT.T), "bias": tensor(np.arange(4.0))}},
            "img": {"out": tensor(IMAGE)},
            "other.weight": tensor(TEXT),
        }
    }
    own = '[text]\nprefix = "txt.out"\noutput_activation = "tanh"\n[video]\nprefix = "img.out"\n'
    text, image = outputs(content, tmp_path, own)
    np.testing.assert_allclose(text, np.tanh(ROWS[6] @ TEXT + np.arange(4.0)), rtol=1e-12)
    np.testing.assert_allclose(image, ROWS[5] @ IMAGE, rtol=1e-12)


def test_a_projection_has_two_axes(tmp_path: Path) -> None:
    with pytest.raises(CimError, match=r"visual\.proj has shape \[4\]; expected \[any, any\]"):
        outputs({**OPEN_CLIP, "visual.proj": torch.ones(4)}, tmp_path)


def test_a_copy_behind_another_wrapper_is_asked_about_and_may_be_named(tmp_path: Path) -> None:
    twice = {"model": OPEN_CLIP, "model_state_dict": {**OPEN_CLIP, "visual.proj": tensor(-IMAGE)}}
    asked = (
        r"weights of text are found under model\.text_projection and under "
        r"model_state_dict\.text_projection; say which with"
    )
    with pytest.raises(CimError, match=asked):
        outputs(twice, tmp_path)
    named = "\n".join(
        f'[{side}]\nprefix = "model.{place}"'
        for side, place in (("text", "text_projection"), ("video", "visual.proj"))
    )
    _, image = outputs(twice, tmp_path, named)
    np.testing.assert_allclose(image, ROWS[5] @ IMAGE, rtol=1e-12)
