"""Layouts: classes that each recognise an architecture by its keys and build its graph.

They share functions that read a trained layer as an operation.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.base.errors import CimError
from cimtool.base.named import Named, unknown
from cimtool.ir.arithmetic import Arrange, Clip, Mvm, TensorKeys, scalar
from cimtool.ir.op import Op
from cimtool.ir.program import Builder, Graph
from cimtool.ir.source import BatchNorm, LayerNorm, LeakyRelu, Tanh
from cimtool.ir.types import rows_of_item
from cimtool.loading.weights import MATRIX, PROJECTION, Weights

ACTIVATION = "activation"
"""The plain value, in a checkpoint or a layer map, that names the activation."""

LARGEST_ITEM = 1 << 22
"""Numbers at most in an item of tokens."""

TOKENS = "tokens"
"""The plain value, in a checkpoint or a layer map, with the number of tokens in a row."""


class Layout(Named):
    """Base of the layouts; a subclass in `cimtool/loading/layouts/` registers itself."""

    description: ClassVar[str]
    """The marks by which the layout is recognised, for the error if no layout fits."""
    layers: ClassVar[tuple[str, ...]]
    """The layers that a layer map can name."""
    assumed: ClassVar[str | None] = None
    """The activation if nothing names one; None for a layout that assumes none."""
    any_names: ClassVar[bool] = False
    """True if layers may have any names; other layouts are then tried first."""
    unit_rows: ClassVar[bool] = False
    """True if embeddings are expected at unit norm."""
    reads_tokens: ClassVar[bool] = False
    """True if a row holds tokens; the width of the data's rows then gives their number."""
    depends_on_width: ClassVar[bool] = False
    """True if the width of the data's rows says what a row holds."""
    encoders: ClassVar[tuple[str, ...]] = ()
    """Beginnings of the keys of the encoders before the rows, which it leaves out."""
    score_keys: ClassVar[tuple[str, ...]] = ()
    """Keys that its score reads beside `logit_scale` and `logit_bias`."""

    @classmethod
    def recognises(cls, weights: Weights) -> bool:
        """True for weights of this layout, complete or not, by the names of layers."""
        return any(weights.layer(role) in weights.layers for role in cls.layers)

    @classmethod
    @abstractmethod
    def tower(cls, weights: Weights) -> Graph:
        """Read the projector, as `TowerBuilder` builds it.

        Raises CimError, which names file and key, if something is missing or malformed.
        """

    @classmethod
    def statistics(cls, width: int) -> tuple[float, float]:
        """Divisors of ed and vd before the polynomial, at `width` dimensions."""
        return 1.0, 1.0

    @classmethod
    def score(cls, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """The `head`, `a` and `b` that follow from a checkpoint's keys; empty if none do."""
        return {}

    @classmethod
    def require_score(cls, file: str, content: Mapping[str, Any]) -> None:
        """Raise CimError if keys are missing that its score needs, if the caller gives none."""

    @classmethod
    def warnings(cls, content: Mapping[str, Any]) -> tuple[str, ...]:
        """Remarks, from a checkpoint's plain values, for a reader of the figures."""
        return ()

    @classmethod
    def activation(cls, weights: Weights) -> Op | None:
        """The activation that a plain value names, else the assumed activation; None for `none`."""
        return read_activation(weights, ACTIVATION, cls.assumed or "none")

    @classmethod
    def assumptions(cls, weights: Weights) -> tuple[str, ...]:
        """Remarks on facts that are assumed: neither checkpoint, map nor weights show them."""
        if cls.assumed is None or ACTIVATION in weights.values:
            return ()
        return (
            f"{weights.file} does not say its {ACTIVATION}, and weights do not show it: layout "
            f"{cls.name} takes {cls.assumed}. Say it beside the weights or in a layer map "
            f'({ACTIVATION} = "{cls.assumed}"), or export a model with another one to ONNX',
        )


def remarks(
    layout: type[Layout], content: Mapping[str, Any], weights: Sequence[Weights]
) -> tuple[str, ...]:
    """Remarks for a reader of the figures, on a checkpoint and its layout; no repeats."""
    assumed = (text for one in weights for text in (*one.assumptions, *layout.assumptions(one)))
    return (*layout.warnings(content), *dict.fromkeys(assumed))


def linear(
    weights: Weights,
    layer: str,
    width: int | None = None,
    out: int | None = None,
    has_bias: bool = True,
) -> Mvm:
    """Read torch's `Linear` (weight [out, width]) as a product with weight [width, out].

    An extent of None may be any number. The layer knows its tensors, so that it can be trained
    further, unless its weight was made of several tensors.
    """
    weight = weights.get(layer, "weight", (out, width))
    outputs = weight.shape[0]
    bias, bias_key = np.zeros(outputs), None
    if has_bias:
        bias, bias_key = weights.get(layer, "bias", (outputs,)), weights.key(layer, "bias")
    whole = f"{layer}.weight" not in weights.made
    keys = TensorKeys(weights.key(layer, "weight"), bias_key) if whole else None
    return Mvm(np.ascontiguousarray(weight.T), bias, keys=keys)


def read_projection(weights: Weights) -> Mvm:
    """Read the layer of a projection, a matrix [in, out] or a Linear with or without a bias."""
    if weights.has(PROJECTION, MATRIX):
        matrix = weights.get(PROJECTION, MATRIX, (None, None))
        return Mvm(matrix, np.zeros(matrix.shape[1]))
    return linear(weights, PROJECTION, has_bias=weights.has(PROJECTION, "bias"))


def read_batch_norm(weights: Weights, layer: str, width: int) -> BatchNorm:
    """Read torch's `BatchNorm1d` over `width` channels; CimError if a variance is negative."""
    gamma, beta, mean, var = (
        weights.get(layer, parameter, (width,))
        for parameter in ("weight", "bias", "running_mean", "running_var")
    )
    if var.min() < 0:
        raise CimError(
            f"{weights.file}: {weights.key(layer, 'running_var')} holds {var.min()}; "
            "expected variances of at least 0"
        )
    return BatchNorm(gamma, beta, mean, var, _eps(weights, layer))


def read_layer_norm(weights: Weights, layer: str, width: int) -> LayerNorm:
    """Read torch's `LayerNorm` over rows of `width` numbers."""
    gamma, beta = (weights.get(layer, parameter, (width,)) for parameter in ("weight", "bias"))
    return LayerNorm(gamma, beta, _eps(weights, layer))


def _eps(weights: Weights, layer: str) -> float:
    """The file's epsilon, else the map's, else torch's default."""
    if weights.has(layer, "eps"):
        return float(weights.get(layer, "eps", ()))
    return weights.named.eps


def count_tokens(weights: Weights, width: int, before: int = 0) -> int:
    """The number of tokens, of `width` numbers each, that follow `before` other numbers in a row.

    It comes from a plain value, else from the width of the data's rows. Raises CimError if neither
    is known, the tokens do not fill the rows, or an item would be too large.
    """
    count, own = weights.values.get(TOKENS), weights.row_width
    form = f"{before} numbers and then {width} for each token" if before else f"{width} a token"
    if count is None:
        if own is None:
            raise CimError(
                f"{weights.file}: {weights.prefix} takes rows of {form}, for any number of tokens; "
                f"expected data with such rows, or {TOKENS} = N in a layer map"
            )
        count, left = divmod(own - before, width)
        if count < 1 or left:
            raise CimError(
                f"{weights.file}: {weights.prefix} takes rows of {form}; the data have rows of "
                f"{own} numbers"
            )
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise CimError(
            f"{weights.place(TOKENS)}: {TOKENS} is {count}; expected a whole number of at least 1"
        )
    if count * width > LARGEST_ITEM:
        raise CimError(
            f"{weights.file}: {weights.prefix} takes rows of {form}, and {count:,} tokens are too "
            f"many numbers; expected at most {LARGEST_ITEM:,}"
        )
    return count


def arranged(builder: Builder, source: str, places: IntArray) -> str:
    """The value with an item's numbers at `places` [rows, width]; equal values are shared."""
    node = builder.by_name.get(source)
    if node is not None and isinstance(node.op, Arrange):
        source, places = node.inputs[0], node.op.places.reshape(-1)[places]
    rows, _ = rows_of_item(builder.types[source].shape[0])
    op = Arrange(rows, places)
    if len(places) == rows and op.in_order(builder.extent(source)):
        return source
    readers = (one for one in builder.by_name.values() if one.inputs == (source,))
    for one in readers:
        if isinstance(one.op, Arrange) and np.array_equal(one.op.places, places):
            return one.name
    return builder.add(f"{source}_arranged", op, source)


RELU = Clip(scalar(0.0), scalar(np.inf))
"""`max(x, 0)`."""

ACTIVATIONS: dict[Any, Op | None] = {"none": None, "relu": RELU, "tanh": Tanh()}
LEAKY_RELU = "leaky-relu"
NEGATIVE_SLOPE = 0.01


def read_activation(weights: Weights, key: str, default: str) -> Op | None:
    """The activation that the plain value `key` names; None for `none`.

    Raises CimError, which names the file, for an unknown activation.
    """
    name = weights.values.get(key, default)
    if name == LEAKY_RELU:
        return LeakyRelu(_slope(weights))
    said = [weights.values.get(one) for one in ("activation", "output_activation")]
    if "negative_slope" in weights.named.values and LEAKY_RELU not in said:
        raise CimError(
            f"{weights.named.file}: negative_slope = {weights.named.values['negative_slope']}: no "
            f'activation of {weights.prefix} is leaky-relu; expected activation = "{LEAKY_RELU}", '
            "or no negative_slope"
        )
    if name not in ACTIVATIONS:
        known = (*ACTIVATIONS, LEAKY_RELU)
        raise unknown(f"{weights.place(key)}: {key}", str(name), known)
    return ACTIVATIONS[name]


def _slope(weights: Weights) -> float:
    slope = weights.values.get("negative_slope", NEGATIVE_SLOPE)
    if isinstance(slope, bool) or not isinstance(slope, int | float) or not 0 < slope < 1:
        raise CimError(
            f"{weights.place('negative_slope')}: negative_slope is {slope}; expected a number "
            "between 0 and 1"
        )
    return float(slope)
