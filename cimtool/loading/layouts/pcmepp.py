"""Layout `pcmepp`: the heads of PCME++'s encoders, which sort and pool the tokens of a row.

    pooled(fc, gpool) = per channel, sum over l of weight[l] times the l-th largest of fc(token)
    mu     = normalize(pooled(image_encoder.fc, image_encoder.gpool))
    logvar = image_std_ln(pooled(image_std_encoder.fc, image_std_encoder.gpool))

Captions have `linear`, `gpool`, `std_linear`, `std_gpool`, `text_std_ln`; the norms may be left
out. The weights of a generalised pooling (GPO: Chen et al., CVPR 2021) depend only on the number of
tokens: a recurrent network computes them from positions, while the file is read. A row holds the
tokens of the mean, then equally many tokens of the log-variance. Keys and arithmetic follow
https://github.com/naver-ai/pcmepp.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cimtool.base.arrays import Array, FloatArray
from cimtool.base.errors import ArgumentError
from cimtool.ir.arithmetic import Add, Axis, Sum, scalar
from cimtool.ir.heads import TowerBuilder
from cimtool.ir.program import Graph
from cimtool.ir.source import L2Normalize, Sorted
from cimtool.loading.layout import Layout, arranged, count_tokens, linear, read_layer_norm
from cimtool.loading.weights import PARAMETERS, Weights, flat, unwrapped

IMAGE = ("image_encoder.fc", "image_encoder.gpool")
IMAGE_STD = ("image_std_encoder.fc", "image_std_encoder.gpool", "image_std_ln")
TEXT = ("linear", "gpool")
TEXT_STD = ("std_linear", "std_gpool", "text_std_ln")

GRU = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
"""Parameters of one direction of torch's `GRU`."""

SCALE, SHIFT = "negative_scale", "shift"
"""Keys of the criterion's learned numbers."""

CSD_KEYS = tuple(f"{owner}{key}" for owner in ("", "criterion.") for key in (SCALE, SHIFT))
"""The same keys, in a checkpoint of the model or of its training."""

TEMPERATURE = 0.1
"""The divisor of the pooling's scores before the softmax."""

WAVELENGTH = 10_000.0
"""The base of the positions' rates: their longest period is below 2 pi times it."""


class Pcmepp(Layout, name="pcmepp"):
    """Keys of the poolings and of the layers before them; all others belong to the encoder."""

    description = "PCME++'s linear layers and gpool, in its img_enc and txt_enc"
    layers = (*IMAGE[:1], *IMAGE_STD[::2], *TEXT[:1], *TEXT_STD[::2])
    reads_tokens = True
    score_keys = CSD_KEYS

    @classmethod
    def recognises(cls, weights: Weights) -> bool:
        """True if a pooling has weights."""
        return any(weights.has(f"{pool}.linear", "weight") for _, pool in (IMAGE, TEXT))

    @classmethod
    def tower(cls, weights: Weights) -> Graph:
        """Read the head; CimError if a key is missing or a shape does not fit."""
        mean, spread = _roles(weights)
        _refuse_others(weights, (*mean, *spread))
        layer, pool = weights.layer(mean[0]), mean[1]
        width, d = linear(weights, layer).weight.shape
        has_variance = weights.layer(spread[0]) in weights.layers
        sets = 2 if has_variance else 1
        count = count_tokens(weights, sets * width)
        b = TowerBuilder(sets * count * width)
        places = np.arange(sets * count * width).reshape(sets, count, width)
        tokens = [arranged(b, "x", own) for own in places]
        pooled = b.add("mu_layer", linear(weights, layer, width, d), tokens[0])
        pooled = _pooled(b, "mu", pooled, pool_weights(weights, pool, count))
        mu = b.add("mu", L2Normalize(), pooled)
        if not has_variance:
            return b.tower(mu)
        layer, pool, norm = weights.layer(spread[0]), spread[1], weights.layer(spread[2])
        logvar = b.add("logvar_layer", linear(weights, layer, width, d), tokens[1])
        logvar = _pooled(b, "logvar", logvar, pool_weights(weights, pool, count))
        if norm in weights.layers:
            logvar = b.add("logvar", read_layer_norm(weights, norm, d), logvar)
        return b.tower(mu, logvar)

    @classmethod
    def score(cls, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """The closed form of the distance, head `csd`."""
        return csd_score(content)

    @classmethod
    def require_score(cls, file: str, content: Mapping[str, Any]) -> None:
        """Raise CimError if the scale or the shift is there without the other."""
        require_both(file, content)

    @classmethod
    def assumptions(cls, weights: Weights) -> tuple[str, ...]:
        """A remark on the contents of a row."""
        return (
            f"{weights.file}: {weights.prefix} is compiled from its tokens on: a row is the tokens "
            "of the mean, then those of the log-variance, without the encoder before them; all "
            "tokens of a row count, as no other number of them is known",
        )


def _roles(weights: Weights) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return (TEXT, TEXT_STD) if weights.has(f"{TEXT[1]}.linear", "weight") else (IMAGE, IMAGE_STD)


def _refuse_others(weights: Weights, roles: Sequence[str]) -> None:
    """Raise CimError for a key of the head that is not read; the encoder's keys are left out."""
    used = [weights.layer(role) for role in roles]
    used += [f"{role}.{name}" for role in roles for name in ("gru", "linear")]
    tops = {role.partition(".")[0] for role in roles}
    own = weights.among(lambda name: name.partition(".")[0] in tops)
    gru = {f"{name}{end}" for name in GRU for end in ("", "_reverse")}
    own.refuse_others(used, Pcmepp.name, PARAMETERS | gru)


def _pooled(b: TowerBuilder, name: str, tokens: str, shares: FloatArray) -> str:
    """Per channel [n, d], the sum of sorted numbers, largest first, times `shares` [tokens]."""
    count, d = len(shares), b.extent(tokens)
    channels = arranged(b, tokens, np.arange(count * d).reshape(count, d).T)
    ordered = b.add(f"{name}_ordered", Sorted(), channels)
    weighed = b.add(f"{name}_weighed", Add((shares,), scalar(0.0)), ordered)
    column = b.add(f"{name}_column", Axis(1), b.add(f"{name}_pooled", Sum(), weighed))
    return arranged(b, column, np.arange(d)[None])


def pool_weights(weights: Weights, pool: str, count: int) -> FloatArray:
    """The pooling's weights [count] for this number of tokens; CimError if a key is missing."""
    gru = f"{pool}.gru"
    size = weights.shape(gru, "weight_ih_l0")[-1]
    places = positions(count, size)
    forward = _recurrent(weights, gru, "", places)
    backward = _recurrent(weights, gru, "_reverse", places[::-1])[::-1]
    hidden = (forward + backward) / 2
    scores = hidden @ weights.get(f"{pool}.linear", "weight", (1, hidden.shape[1]))[0]
    powers = np.exp((scores - scores.max()) / TEMPERATURE)
    return np.asarray(powers / powers.sum())


def positions(count: int, size: int) -> FloatArray:
    """Sines and cosines [count, size] of positions, alternating (Vaswani et al. 2017, 3.5)."""
    rates = WAVELENGTH ** (-np.arange(0, size, 2) / size)
    angles = np.arange(count)[:, None] * rates
    return np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(count, -1)[:, :size]


def _recurrent(weights: Weights, gru: str, end: str, x: FloatArray) -> FloatArray:
    """The states [count, hidden] of one direction of torch's `GRU` over rows [count, size]."""
    size = weights.shape(gru, f"weight_hh_l0{end}")[-1]
    shapes = (3 * size, x.shape[1]), (3 * size, size), (3 * size,), (3 * size,)
    inner, own, inner_bias, own_bias = (
        weights.get(gru, f"{name}{end}", shape) for name, shape in zip(GRU, shapes, strict=True)
    )
    state, states = np.zeros(size), []
    for row in x:
        given, kept = inner @ row + inner_bias, own @ state + own_bias
        reset, update = 0.5 + 0.5 * np.tanh(0.5 * (given + kept)[: 2 * size].reshape(2, size))
        new = np.tanh(given[2 * size :] + reset * kept[2 * size :])
        state = (1 - update) * new + update * state
        states.append(state)
    return np.stack(states)


def csd_score(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """The head `csd` with the learned scale and shift of a PCME++ checkpoint; empty without."""
    found = _criterion(content)
    return {"head": "csd", "a": found[SCALE], "b": found[SHIFT]} if len(found) == 2 else {}


def require_both(file: str, content: Mapping[str, Any]) -> None:
    """Raise CimError if one of the scale and the shift is missing."""
    found = _criterion(content)
    for key, other in ((SCALE, SHIFT), (SHIFT, SCALE)):
        if key not in found and other in found:
            raise ArgumentError(
                "{}: {} is missing; expected one number beside {}, as a = negative_scale and "
                "b = shift, or {a} and {b}, or {head} cosine, which leaves out the variance",
                file, key, other,
            )  # fmt: skip


def _criterion(content: Mapping[str, Any]) -> dict[str, Array]:
    """The scale and the shift by their keys, with or without the criterion's prefix."""
    named = {unwrapped(key).removeprefix("criterion."): one for key, one in flat(content).items()}
    return {key: named[key] for key in (SCALE, SHIFT) if key in named}
