"""A trunk of random weights, as a training starts from it, read as a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cimtool.base.plugins import needing
from cimtool.loading.checkpoint import Checkpoint
from cimtool.loading.embeddings import Embeddings, require_vectors
from cimtool.loading.model import Model, build_model
from cimtool.loading.score import DEFAULT_HEAD, ScoreOptions
from cimtool.loading.source import STAND_IN

NAME = "a trunk of random weights"


def random_trunk(rows: Embeddings, logvar: float, seed: int) -> tuple[Model, Mapping[str, Any]]:
    """Return the model that `train` with this seed starts from on `rows`, and its options.

    Its log-variances lie around `logvar`. Widths that nobody gives follow the data, as in `train`.
    """
    with needing("training"):
        import torch

        from cimtool.training.models.trunk import TrunkModel
        from cimtool.training.trainer import CPU, seeded

    require_vectors(rows)
    widths = rows.text.shape[1], rows.video.shape[1]
    sizes = TrunkModel.sizes(rows.text.size + rows.video.size, *widths)
    trunk = TrunkModel(**sizes, logvar_start=logvar)
    with seeded(seed, CPU), torch.no_grad():
        towers = trunk.build(*widths)
    content = {
        name: {key: tensor.numpy() for key, tensor in getattr(towers, name).state_dict().items()}
        for name in ("text_proj", "video_proj")
    }
    checkpoint = Checkpoint(NAME, {**content, **trunk.deployed()})
    options = trunk.model_dump(include={"hidden", "width", "logvar_start", "linear"})
    return build_model(checkpoint, ScoreOptions(DEFAULT_HEAD, STAND_IN)), options
