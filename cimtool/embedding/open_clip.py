"""CLIP in open_clip's folders: its settings and weights by the names that transformers gives them.

`open_clip_config.json` has the settings of both towers (`model_cfg`) and of images
(`preprocess_cfg`); `open_clip_model.safetensors` the weights. Names and defaults are those of
open_clip 3.3 (model.py, transform.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cimtool.base.arrays import Array
from cimtool.base.errors import CimError
from cimtool.embedding.tokens import config_of
from cimtool.loading.checkpoint import read_checkpoint, single

CONFIG, WEIGHTS = "open_clip_config.json", "open_clip_model.safetensors"

SETTINGS: Mapping[str, Mapping[str, float | None]] = {
    "text": {
        "context_length": 77, "vocab_size": 49408, "width": 512, "heads": 8, "layers": 12,
        "mlp_ratio": 4.0,
    },
    "image": {
        "image_size": 224, "patch_size": 16, "width": 768, "head_width": 64, "layers": 12,
        "mlp_ratio": 4.0,
    },
}  # fmt: skip
"""Settings of a tower that are read, with open_clip's defaults."""

SECTIONS = {"text": "text_cfg", "image": "vision_cfg"}

UNUSED = (
    *("init_logit_scale", "init_logit_bias", "nonscalar_logit_scale", "text_cfg", "vision_cfg"),
    *("hf_tokenizer_name", "tokenizer_kwargs", "tokenizer_mode", "pad_id", "patch_dropout"),
)
"""Keys that change no row of a model in use."""

LARGEST_SETTING = 1 << 20

RESAMPLING = {"bicubic": 3, "bilinear": 2}
"""Pillow's number of a filter."""

CLIP_MEAN, CLIP_STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
"""Of images, if the file says none."""

BESIDE_BLOCKS = {
    "text_model.embeddings.token_embedding.weight": "token_embedding.weight",
    "text_model.embeddings.position_embedding.weight": "positional_embedding",
    "text_model.final_layer_norm.weight": "ln_final.weight",
    "text_model.final_layer_norm.bias": "ln_final.bias",
    "text_projection.weight": "text_projection",
    "vision_model.embeddings.class_embedding": "visual.class_embedding",
    "vision_model.embeddings.patch_embedding.weight": "visual.conv1.weight",
    "vision_model.embeddings.position_embedding.weight": "visual.positional_embedding",
    "vision_model.pre_layrnorm.weight": "visual.ln_pre.weight",
    "vision_model.pre_layrnorm.bias": "visual.ln_pre.bias",
    "vision_model.post_layernorm.weight": "visual.ln_post.weight",
    "vision_model.post_layernorm.bias": "visual.ln_post.bias",
    "visual_projection.weight": "visual.proj",
}
"""Weights beside the blocks, transformers' names first; projections are transposed."""

BLOCK = {
    "layer_norm1": "ln_1",
    "layer_norm2": "ln_2",
    "mlp.fc1": "mlp.c_fc",
    "mlp.fc2": "mlp.c_proj",
    "self_attn.out_proj": "attn.out_proj",
}
"""Layers of a block, transformers' names first."""

ATTENTION = ("q_proj", "k_proj", "v_proj")
"""The parts of `attn.in_proj_weight` and `attn.in_proj_bias`, in their order."""


def clip_settings(folder: Path, modality: str) -> dict[str, Any]:
    """The values of transformers' CLIPTextConfig or CLIPVisionConfig for a folder.

    Raises CimError for a setting of another network than the plain transformers of CLIP.
    """
    file = folder / CONFIG
    model = _section(config_of(folder, CONFIG), "model_cfg", file)
    name = SECTIONS[modality]
    side = _section(model, name, file)
    known = SETTINGS[modality]
    for place, values, read in (
        ("model_cfg", model, ("embed_dim", "quick_gelu")),
        (f"model_cfg.{name}", side, tuple(known)),
    ):
        for key, value in values.items():
            if key not in read and key not in UNUSED and value is not None and value is not False:
                raise CimError(
                    f"{file}: {place}.{key} asks for another network than CLIP's two transformers; "
                    f"expected {', '.join(read)} alone, or the encoder as ONNX"
                )
    found = {key: side.get(key, default) for key, default in known.items()}
    found["embed_dim"] = model.get("embed_dim")
    for key, value in found.items():
        whole = isinstance(value, int) or (key == "mlp_ratio" and isinstance(value, float))
        if isinstance(value, bool) or not whole or not 0 < value <= LARGEST_SETTING:
            expected = "a positive number" if key == "mlp_ratio" else "a positive integer"
            raise CimError(
                f"{file}: {key} of {name} is {value}; expected {expected}, at most "
                f"{LARGEST_SETTING:,}"
            )
    width, quick = found["width"], model.get("quick_gelu", False)
    common = {
        "hidden_size": width,
        "intermediate_size": int(width * found["mlp_ratio"]),
        "projection_dim": found["embed_dim"],
        "num_hidden_layers": found["layers"],
        "hidden_act": "quick_gelu" if quick is True else "gelu",
    }
    if modality == "image":
        heads = width // found["head_width"]
        sizes = {name: found[name] for name in ("image_size", "patch_size")}
        return {**common, **sizes, "num_attention_heads": heads}
    return {
        **common,
        "num_attention_heads": found["heads"],
        "vocab_size": found["vocab_size"],
        "max_position_embeddings": found["context_length"],
        "eos_token_id": 2,  # transformers then pools at the highest token, as open_clip does
    }


def clip_weights(folder: Path, modality: str, wanted: Mapping[str, Any]) -> dict[str, Array]:
    """The arrays of one tower by transformers' names; `wanted` has their shapes by name.

    No array of the other tower is read. Raises CimError for one that is missing or of another
    shape.
    """
    file = folder / WEIGHTS
    content, found = read_checkpoint(file).content, {}
    for name, shape in wanted.items():
        key, change = _place(name, modality)
        if not isinstance(content.get(key), np.ndarray):
            raise CimError(f"{file}: has no {key}; expected all weights of the encoder")
        array = change(single(content[key]))
        if array.shape != tuple(shape):
            raise CimError(
                f"{file}: {key} has shape {list(content[key].shape)}, which does not fit "
                f"{CONFIG}; expected the file of that model"
            )
        found[name] = np.ascontiguousarray(array, np.float32)
    return found


def image_settings(folder: Path) -> dict[str, Any]:
    """The values of a `preprocessor_config.json` that do what a folder's `preprocess_cfg` says.

    Raises CimError for images that are padded, or resized by another filter.
    """
    file, values = folder / CONFIG, config_of(folder, CONFIG)
    given = values.get("preprocess_cfg") or {}
    if not isinstance(given, dict):
        raise CimError(f"{file}: preprocess_cfg is no object; expected one")
    known = {key: value for key, value in given.items() if value is not None}
    mode, resample = known.get("resize_mode", "shortest"), known.get("interpolation", "bicubic")
    if mode not in ("shortest", "squash") or resample not in RESAMPLING:
        raise CimError(
            f"{file}: preprocess_cfg resizes by {mode} and {resample}; expected shortest or "
            f"squash, and {' or '.join(RESAMPLING)}"
        )
    size = clip_settings(folder, "image")["image_size"]
    both = {"height": size, "width": size}
    return {
        "size": both if mode == "squash" else {"shortest_edge": size},
        "resample": RESAMPLING[resample],
        "do_center_crop": mode == "shortest",
        "crop_size": both,
        "image_mean": known.get("mean", CLIP_MEAN),
        "image_std": known.get("std", CLIP_STD),
    }


def _section(values: Mapping[str, Any], name: str, file: Path) -> Mapping[str, Any]:
    section = values.get(name)
    if not isinstance(section, dict):
        raise CimError(f"{file}: {name} is missing; expected an object, as open_clip writes it")
    return section


def _place(name: str, modality: str) -> tuple[str, Callable[[Array], Array]]:
    """The key of open_clip that holds a weight of transformers, and what is done to its array."""
    if name in BESIDE_BLOCKS:
        key, transposed = BESIDE_BLOCKS[name], name.endswith("_projection.weight")
        return key, np.transpose if transposed else _same
    tower = {"text": "", "image": "visual."}[modality]
    _, _, rest = name.partition(".encoder.layers.")
    number, _, inner = rest.partition(".")
    layer, _, kind = inner.rpartition(".")
    block = f"{tower}transformer.resblocks.{number}"
    part = layer.removeprefix("self_attn.")
    if part in ATTENTION:
        place = ATTENTION.index(part)
        return f"{block}.attn.in_proj_{kind}", lambda array: np.split(array, 3)[place]
    return f"{block}.{BLOCK[layer]}.{kind}", _same


def _same(array: Array) -> Array:
    return array
