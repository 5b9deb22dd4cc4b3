"""A folder of open_clip, whose features are those of open_clip 3.3.0 itself.

`tests/golden/open_clip` is a CLIP of random weights that it made (`encode_text` on numbers padded
to the full length, `encode_image`), with float16 weights and QuickGELU.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tiny_encoders import IMAGES, MOST, SIDE, write_image, write_json, write_tokenizer

import cimtool
from cimtool import cli
from cimtool.embedding.images import Preprocessing
from cimtool.embedding.open_clip import CONFIG, WEIGHTS

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "open_clip"
TEXTS = ("a dog runs", "a cat", "a red dog sleeps")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder with a tokenizer, beside a file of texts and an image."""
    shutil.copytree(GOLDEN, tmp_path / "clip")
    write_tokenizer(tmp_path / "clip")
    (tmp_path / "lines.txt").write_text("\n".join(TEXTS))
    write_image(tmp_path / "images" / "a.png", (200, 30, 90), (SIDE, SIDE))
    return tmp_path / "clip"


def changed(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    values = json.loads((folder / CONFIG).read_text())
    change(values)
    write_json(folder / CONFIG, values)


def test_texts_and_images_have_the_features_of_open_clip(folder: Path) -> None:
    features = json.loads((GOLDEN / "features.json").read_text())
    for modality, items in (("text", "lines.txt"), ("image", "images")):
        output = folder.parent / f"{modality}.npy"
        made = cimtool.embed(folder.parent / items, encoder=str(folder), output=output)
        np.testing.assert_allclose(np.load(made.file), features[modality], rtol=1e-5, atol=1e-5)
        encoder = made.provenance["rows"][modality]["encoder"]
        assert {CONFIG, WEIGHTS} <= set(encoder["files"])


def test_texts_are_cut_at_the_length_of_the_model(folder: Path) -> None:
    write_json(folder / "tokenizer_config.json", {"model_max_length": 1000})
    (folder.parent / "lines.txt").write_text("dog " * 30)
    output = folder.parent / "text.npy"
    made = cimtool.embed(folder.parent / "lines.txt", encoder=str(folder), output=output)
    assert made.provenance["rows"]["text"]["encoder"]["tokens_at_most"] == MOST
    assert made.provenance["rows"]["text"]["cut"] == 1


def test_images_are_resized_as_open_clip_says(folder: Path) -> None:
    shortest = Preprocessing.read(folder)
    assert (shortest.size, shortest.crop, shortest.resample) == (SIDE, (SIDE, SIDE), 3)
    assert list(shortest.mean) == IMAGES["image_mean"]
    changed(folder, lambda values: values["preprocess_cfg"].update(resize_mode="squash"))
    squashed = Preprocessing.read(folder)
    assert (squashed.size, squashed.crop) == ((SIDE, SIDE), None)


def of_timm(folder: Path) -> None:
    changed(folder, lambda v: v["model_cfg"]["vision_cfg"].update(timm_model_name="vit_base"))


def of_many_layers(folder: Path) -> None:
    changed(folder, lambda values: values["model_cfg"]["vision_cfg"].update(layers=10**9))


def of_four_stages(folder: Path) -> None:
    changed(folder, lambda values: values["model_cfg"]["vision_cfg"].update(layers=[3, 4, 6, 3]))


def too_large(folder: Path) -> None:
    changed(folder, lambda values: values["model_cfg"]["vision_cfg"].update(width=1 << 16))


def of_another_width(folder: Path) -> None:
    changed(folder, lambda values: values["model_cfg"].update(embed_dim=5))


def padded(folder: Path) -> None:
    changed(folder, lambda values: values["preprocess_cfg"].update(resize_mode="longest"))


def without_a_weight(folder: Path) -> None:
    weights = load_file(folder / WEIGHTS)
    del weights["visual.ln_post.bias"]
    save_file(weights, folder / WEIGHTS)


def pickled(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "open_clip_pytorch_model.bin")


WRONG: dict[str, tuple[Callable[[Path], None], str]] = {
    "timm": (
        of_timm,
        "model_cfg.vision_cfg.timm_model_name asks for another network than CLIP's two "
        "transformers; expected image_size, patch_size, width, head_width, layers, mlp_ratio",
    ),
    "many layers": (of_many_layers, "layers is 1,000,000,000; expected at most 256"),
    "stages": (of_four_stages, "layers of vision_cfg is [3, 4, 6, 3]; expected a positive integer"),
    "too large": (too_large, "numbers, more than the file holds"),
    "width": (of_another_width, "visual.proj has shape [16, 6], which does not fit open_clip_conf"),
    "padded": (padded, "preprocess_cfg resizes by longest and bicubic; expected shortest or squa"),
    "a weight": (without_a_weight, "has no visual.ln_post.bias; expected all weights"),
    "pickled": (pickled, "is never loaded, as a pickled file can run code; expected open_clip_m"),
}


@pytest.mark.thorough("each fault of a folder", quick=("timm", "a weight"))
@pytest.mark.parametrize("kind", WRONG)
def test_a_folder_that_is_wrong_is_one_sentence(
    kind: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, said = WRONG[kind]
    change(folder)
    output = folder.parent / "rows.npy"
    given = [str(folder.parent / "images"), "--encoder", str(folder), "-o", str(output)]
    assert cli.run(["embed", *given]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not output.exists()
