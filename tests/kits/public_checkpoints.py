"""State dicts of the forms that public code saves, and rows that their projections match.

Keys and shapes are those of https://github.com/naver-ai/prolip, of
https://github.com/mlfoundations/open_clip and of transformers; numbers are made here. Rows have
structure: item i of both modalities has one latent vector, seen through the projections with noise
that grows with the item's ambiguity.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from cimtool.base.arrays import FloatArray

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Shape:
    """Widths of both encoders, dimensions of the joint space, and blocks of an encoder."""

    text: int
    image: int
    d: int
    blocks: int = 1
    vocabulary: int = 50
    patches: int = 4


VIT_B_16 = Shape(768, 768, 768, blocks=12, vocabulary=32_100, patches=196)
"""ViT-B/16 with ProLIP's or SigLIP's text encoder."""


def blocks_of(prefix: str, width: int, count: int) -> Tensors:
    """The residual blocks of an encoder of open_clip; all zeros, as no layout reads them."""
    shapes = {
        "ln_1.weight": (width,),
        "ln_1.bias": (width,),
        "attn.in_proj_weight": (3 * width, width),
        "attn.in_proj_bias": (3 * width,),
        "attn.out_proj.weight": (width, width),
        "attn.out_proj.bias": (width,),
        "ln_2.weight": (width,),
        "ln_2.bias": (width,),
        "mlp.c_fc.weight": (4 * width, width),
        "mlp.c_fc.bias": (4 * width,),
        "mlp.c_proj.weight": (width, 4 * width),
        "mlp.c_proj.bias": (width,),
    }
    return {
        f"{prefix}transformer.resblocks.{block}.{name}": torch.zeros(shape)
        for block in range(count)
        for name, shape in shapes.items()
    }


def image_encoder(s: Shape, tokens: int) -> Tensors:
    """`visual.` of open_clip's VisionTransformer, before its projection."""
    return {
        "visual.class_embedding": torch.zeros(s.image),
        "visual.positional_embedding": torch.zeros(s.patches + tokens, s.image),
        "visual.conv1.weight": torch.zeros(s.image, 3, 16, 16),
        "visual.ln_pre.weight": torch.ones(s.image),
        "visual.ln_pre.bias": torch.zeros(s.image),
        **blocks_of("visual.", s.image, s.blocks),
        "visual.ln_post.weight": torch.ones(s.image),
        "visual.ln_post.bias": torch.zeros(s.image),
    }


def text_encoder(s: Shape, prefix: str) -> Tensors:
    """open_clip's TextTransformer, before its projection."""
    return {
        f"{prefix}positional_embedding": torch.zeros(66, s.text),
        f"{prefix}token_embedding.weight": torch.zeros(s.vocabulary, s.text),
        **blocks_of(prefix, s.text, s.blocks),
        f"{prefix}ln_final.weight": torch.ones(s.text),
        f"{prefix}ln_final.bias": torch.zeros(s.text),
    }


@dataclass(frozen=True)
class Side:
    """A projection [width, d] with a bias, and an uncertainty projection of the same shape."""

    projection: FloatArray
    bias: FloatArray
    uncertainty: FloatArray
    uncertainty_bias: FloatArray


@dataclass(frozen=True)
class Matched:
    """Both projections, and rows of CLS and of UNC that they match; item i of both is a pair."""

    text: Side
    image: Side
    text_tokens: tuple[FloatArray, FloatArray]
    image_tokens: tuple[FloatArray, FloatArray]

    def rows(self) -> dict[str, np.ndarray]:
        """Rows [CLS | UNC] in float32."""
        return {
            "text": np.hstack(self.text_tokens).astype(np.float32),
            "video": np.hstack(self.image_tokens).astype(np.float32),
        }

    def rows_of_cls(self) -> dict[str, np.ndarray]:
        """Rows of CLS alone in float32."""
        return {
            "text": self.text_tokens[0].astype(np.float32),
            "video": self.image_tokens[0].astype(np.float32),
        }


def matched(s: Shape, items: int, seed: int = 0, noise: float = 0.3) -> Matched:
    """Projections and `items` pairs of rows whose latent vectors have min(d, width) / 4 numbers."""
    rng = np.random.default_rng(seed)
    latent = max(min(s.d, s.text, s.image) // 4, 2)
    joint = np.linalg.qr(rng.normal(size=(s.d, latent)))[0].T  # [latent, d]
    items_latent = rng.normal(size=(items, latent))
    ambiguity = rng.normal(size=(items, 1))

    def side(width: int) -> tuple[Side, tuple[FloatArray, FloatArray]]:
        seen = np.linalg.qr(rng.normal(size=(width, latent)))[0].T  # [latent, width]
        spread = np.exp(0.3 * ambiguity) * noise
        cls = (items_latent + spread * rng.normal(size=items_latent.shape)) @ seen
        cls += 0.02 * rng.normal(size=cls.shape)
        unc = 0.4 * ambiguity * np.sign(rng.normal(size=width)) + 0.1 * rng.normal(
            size=(items, width)
        )
        heads = Side(
            seen.T @ joint + 0.01 * rng.normal(size=(width, s.d)) / np.sqrt(width),
            0.001 * rng.normal(size=s.d),
            rng.normal(size=(width, s.d)) / np.sqrt(width),
            np.full(s.d, np.log(0.3 / s.d)),
        )
        return heads, (cls, unc)

    (text, text_tokens), (image, image_tokens) = side(s.text), side(s.image)
    return Matched(text, image, text_tokens, image_tokens)


def linear(name: str, weight: FloatArray, bias: FloatArray | None) -> Tensors:
    """torch's Linear of a weight [in, out]."""
    found = {f"{name}.weight": torch.tensor(np.ascontiguousarray(weight.T), dtype=torch.float32)}
    if bias is not None:
        found[f"{name}.bias"] = torch.tensor(bias, dtype=torch.float32)
    return found


def scalar(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float32)


def prolip(s: Shape, m: Matched, log_scale: float = 4.0, bias: float = -12.0) -> Tensors:
    """ProLIP's `state_dict()`."""
    return {
        "logit_scale": scalar(log_scale),
        "logit_bias": scalar(bias),
        **image_encoder(s, 2),
        "visual.unc_embedding": torch.zeros(s.image),
        "visual.proj": torch.tensor(m.image.projection, dtype=torch.float32),
        **linear("visual.uncertainty_proj", m.image.uncertainty, m.image.uncertainty_bias),
        **text_encoder(s, "text."),
        "text.cls_emb": torch.zeros(s.text),
        "text.unc_emb": torch.zeros(s.text),
        **linear("text.text_projection", m.text.projection, m.text.bias),
        **linear("text.text_uncertainty_projection", m.text.uncertainty, m.text.uncertainty_bias),
    }


def open_clip(s: Shape, m: Matched, log_scale: float = 4.0) -> Tensors:
    """open_clip's `state_dict()` of a model whose text encoder stands at the top."""
    return {
        "text_projection": torch.tensor(m.text.projection, dtype=torch.float32),
        "logit_scale": scalar(log_scale),
        **image_encoder(s, 1),
        "visual.proj": torch.tensor(m.image.projection, dtype=torch.float32),
        **text_encoder(s, ""),
    }


def pcmepp_clip(m: Matched, negative_scale: float = 5.0, shift: float = 4.0) -> Tensors:
    """PCME++'s four matrices and the numbers of its criterion, for the rows of `pcmepp_rows`."""
    sides = {
        ("text_projection", "uncertainty_text_projection"): m.text,
        ("visual.proj", "visual.uncertainty_proj"): m.image,
    }
    matrices = {
        name: torch.tensor(matrix, dtype=torch.float32)
        for names, side in sides.items()
        for name, matrix in zip(
            names,
            (side.projection, np.vstack([side.uncertainty, side.uncertainty_bias])),
            strict=True,
        )
    }
    return {
        **matrices,
        "negative_scale": scalar(negative_scale)[None],
        "shift": scalar(shift)[None],
    }


def pcmepp_rows(m: Matched) -> dict[str, np.ndarray]:
    """Rows [CLS | UNC | 1] in float32: matrices have no bias, and the 1 stands for it."""
    return {
        name: np.hstack([one, np.ones((len(one), 1), np.float32)]) for name, one in m.rows().items()
    }


def first_right(scores: FloatArray) -> float:
    """R@1 of queries in rows, each of which has the item of its place."""
    return float((scores.argmax(axis=1) == np.arange(len(scores))).mean())


def pooling_head(s: Shape, prefix: str) -> Tensors:
    """The end of SigLIP's image encoder: one query attends to its tokens, then a perceptron."""
    return {
        f"{prefix}layernorm.weight": torch.ones(s.image),
        f"{prefix}mlp.fc1.weight": torch.zeros(4 * s.image, s.image),
        f"{prefix}mlp.fc1.bias": torch.zeros(4 * s.image),
        f"{prefix}mlp.fc2.weight": torch.zeros(s.image, 4 * s.image),
        f"{prefix}mlp.fc2.bias": torch.zeros(s.image),
    }


def siglip(s: Shape, m: Matched, library: str, log_scale: float, bias: float) -> Tensors:
    """SigLIP's `state_dict()` in open_clip or in transformers, where both numbers are [1]."""
    numbers = {"logit_scale": scalar(log_scale)[None], "logit_bias": scalar(bias)[None]}
    if library == "open_clip":
        return {
            **numbers,
            "visual.trunk.pos_embed": torch.zeros(1, s.patches, s.image),
            "visual.trunk.attn_pool.latent": torch.zeros(1, 1, s.image),
            **pooling_head(s, "visual.trunk.attn_pool."),
            **text_encoder(s, "text."),
            **linear("text.text_projection", m.text.projection, m.text.bias),
        }
    return {
        **numbers,
        "text_model.embeddings.token_embedding.weight": torch.zeros(s.vocabulary, s.text),
        "text_model.final_layer_norm.weight": torch.ones(s.text),
        **linear("text_model.head", m.text.projection, m.text.bias),
        "vision_model.embeddings.position_embedding.weight": torch.zeros(s.patches, s.image),
        "vision_model.head.probe": torch.zeros(1, 1, s.image),
        **pooling_head(s, "vision_model.head."),
    }


def probvlm(d: int, hidden: int, image_norm: float = 100.0) -> Tensors:
    """`state_dict()` of ProbVLM's BayesCap_for_CLIP, which keeps what `paired` makes apart.

    mu is near the embedding. 1 / alpha falls with the embedding's last number, an item's ambiguity,
    by another factor in each dimension; beta is from 0.5 to 1.5. Both are above 0: a ReLU lets them
    through.
    """
    rng = np.random.default_rng(0)

    def noise(*shape: int) -> FloatArray:
        return 0.02 * rng.normal(size=shape) / np.sqrt(shape[0])

    def adapter(name: str, scale: float) -> Tensors:
        last = np.zeros((d, d))
        last[-1] = np.abs(rng.normal(size=d)) / scale
        turned = np.linalg.qr(rng.normal(size=(d, d)))[0]
        lift = np.full(d, 0.6 * scale)  # a ReLU then lets nearly all of an embedding through
        widths = 100 / scale * np.exp(rng.uniform(-1.0, 1.0, d))
        shapes = rng.uniform(0.5, 1.5, d)
        parts = {
            "mod.0": (noise(d, hidden), noise(hidden)),
            "mod.2": (noise(hidden, hidden), noise(hidden)),
            "mod.5": (noise(hidden, d), noise(d)),
            "block_mu.0": (turned, lift),
            "block_mu.2": (turned.T, -lift @ turned.T),
            "block_alpha.0": (last + noise(d, d) / scale, np.full(d, 1.0)),
            "block_alpha.2": (np.diag(-0.2 * widths), 1.2 * widths),
            "block_beta.0": (last + noise(d, d) / scale, np.full(d, 1.0)),
            "block_beta.2": (np.diag(0.1 * shapes), 0.8 * shapes),
        }
        return {
            key: tensor
            for part, (weight, bias) in parts.items()
            for key, tensor in linear(f"{name}_BayesCap.{part}", weight, bias).items()
        }

    return {**adapter("img", image_norm), **adapter("txt", 1.0)}


def paired(
    d: int, items: int, noise: float = 0.5, image_norm: float = 100.0
) -> dict[str, np.ndarray]:
    """Pairs of embeddings [items, d], texts at unit norm and images at theirs.

    The last number is an item's ambiguity, with which its distance from its pair grows.
    """
    rng = np.random.default_rng(0)
    latent = rng.normal(size=(items, d))
    ambiguity = rng.normal(size=items)

    def side(norm: float) -> np.ndarray:
        x = latent + noise * np.exp(0.4 * ambiguity)[:, None] * rng.normal(size=latent.shape)
        x[:, -1] = ambiguity
        x *= norm / np.linalg.norm(x, axis=1, keepdims=True)
        return np.asarray(x, dtype=np.float32)

    return {"text": side(1.0), "video": side(image_norm)}
