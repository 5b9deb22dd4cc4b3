"""The learned scale and bias of a logit, in a checkpoint of CLIP's kind.

CLIP, SigLIP and ProLIP store the logarithm L of the scale as `logit_scale`; SigLIP and ProLIP add
`logit_bias`. The logit of two unit means is exp(logit_scale) mu_t.mu_v + logit_bias, in
https://github.com/mlfoundations/open_clip (`model.py`, `loss.py`) and in transformers' SigLIP.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cimtool.base.arrays import Array
from cimtool.base.errors import ArgumentError
from cimtool.loading.weights import flat, unwrapped

LOGIT_SCALE, LOGIT_BIAS = "logit_scale", "logit_bias"


def _array(content: Mapping[str, Any], key: str) -> Array | None:
    """The tensor of a key, whatever wraps it; None if there is none."""
    return next((one for name, one in flat(content).items() if unwrapped(name) == key), None)


def read_number(content: Mapping[str, Any], key: str) -> float | None:
    """The number of a tensor of size 1, whatever wraps its key; None if there is none."""
    array = _array(content, key)
    return None if array is None or array.size != 1 else float(array.reshape(())[()])


def require_number(
    file: str, content: Mapping[str, Any], key: str, expected: ArgumentError
) -> None:
    """Raise CimError, which says what is `expected`, unless the key has a tensor of size 1."""
    array = _array(content, key)
    if array is None:
        raise ArgumentError("{}: {} is missing; expected {}", file, key, expected)
    if array.size != 1:
        shape = list(array.shape)
        raise ArgumentError("{}: {} has shape {}; expected {}", file, key, shape, expected)


def cosine_score(content: Mapping[str, Any]) -> dict[str, Any]:
    """Head `cosine` if there is a scale, as the scale and the bias of its logit if there is a bias.

    Without a bias the logits are those of a softmax over items, which keeps their order.
    """
    log_scale, bias = (read_number(content, key) for key in (LOGIT_SCALE, LOGIT_BIAS))
    if log_scale is None:
        return {}
    return {"head": "cosine"} | ({} if bias is None else {"a": _exp(log_scale), "b": bias})


def distance_constants(content: Mapping[str, Any]) -> dict[str, float]:
    """a and b for which b - a |mu_t - mu_v|^2 is the logit of unit means; empty if not known.

    As |mu_t - mu_v|^2 = 2 - 2 mu_t.mu_v, a is half the scale, and b the scale plus the bias.
    """
    log_scale, bias = (read_number(content, key) for key in (LOGIT_SCALE, LOGIT_BIAS))
    if log_scale is None or bias is None:
        return {}
    scale = _exp(log_scale)
    return {"a": scale / 2, "b": scale + bias}


def _exp(log_scale: float) -> float:
    with np.errstate(over="ignore"):  # an infinite scale is refused as a and b are
        return float(np.exp(log_scale))
