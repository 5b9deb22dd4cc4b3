"""Integer formats: the scale of each stored value, from calibrated ranges and settings.

Requantisation takes values from one to another, by an integer multiplier and a shift a channel.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cimtool.base.arrays import FloatArray, IntArray
from cimtool.base.errors import CimError, RowsError
from cimtool.hardware.settings import Settings
from cimtool.ir.arithmetic import Mvm, Store, scalar
from cimtool.ir.format import Ratio, integer_limits, ratio_of, with_fewer_bits
from cimtool.ir.integer import Requant
from cimtool.ir.program import Builder, Graph, Node
from cimtool.ir.tails import Tails
from cimtool.ir.types import Type, exact_bounds
from cimtool.passes.base import Job
from cimtool.passes.calibrate import SIGNIFICANT_BITS, gains_of, significant

EQUALISE_LIMIT = 8
"""Channels are equalised over at most 2^8 between the finest and the coarsest."""

EQUALISE_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Shares of a channel's range to try in its scale, the rest going into the weights."""

CLIP_SHARES = tuple(2.0 ** (-k / 8) for k in range(25))
"""Shares of the range to try in a scale that channels share, where tails tell what is clipped."""

SCALE_BITS = 10
"""Significant bits of the scale of mu: its fourth power is exact, so units divide."""

BIAS_MARGIN = 4
"""Multipliers leave room for bounds a quarter wider: bias correction still moves them."""


CACHED_ROWS = 32
"""Rows of weights that are multiplied at a time."""


@dataclass(frozen=True)
class Format:
    """A stored integer: its limits, and the real value of one unit (scalar or per channel)."""

    lo: int
    hi: int
    scale: FloatArray


def next_power_of_two(x: float) -> float:
    """The smallest power of two that is not below a positive number."""
    mantissa, exponent = np.frexp(x)
    return float(np.ldexp(1.0, exponent - (mantissa == 0.5)))


def magnitude(known: Type) -> FloatArray:
    """Largest absolute real value per channel (or scalar)."""
    lo, hi = known.real_bounds()
    return np.maximum(np.abs(lo), np.abs(hi))


def covering(top: float, bits: int, signed: bool, exact_scale: bool) -> Format:
    """The format whose largest integer stands for `top`, or for just above it by a power of two."""
    lo, hi = integer_limits(bits, signed)
    scale = (top or 1.0) / hi
    return Format(lo, hi, scalar(next_power_of_two(scale) if exact_scale else scale))


def shared_scales(graphs: tuple[Graph, Graph], settings: Settings) -> dict[str, float]:
    """Scales by role that both modalities share: of mu, and of s for cross terms and for sums.

    Chosen from the calibrated ranges of both lowered graphs. The variance's scales are mu's squared
    times a power of two, so that ed and vd are sums of integers and shifts.
    """
    tops = {"mu": 0.0, "s": 0.0, "s_self": 0.0}
    bits = {role: settings.stored_bits(role) for role in tops}
    tails: list[Tails] = []
    for graph in graphs:
        for name, op in graph.operations(Store).items():
            if op.role in tops:
                (source,) = graph.by_name[name].inputs
                top = float(magnitude(graph.types[source]).max())
                tops[op.role] = max(tops[op.role], top)
                bits[op.role] = op.bits or bits[op.role]
                if op.role == "mu" and source in graph.calibration.tails:
                    tails.append(graph.calibration.tails[source])
    _, largest = integer_limits(bits["mu"], True)
    mu = float(covering(_limit_of_all(tails, largest) or tops["mu"], bits["mu"], True, False).scale)
    scales = {"mu": float(significant(mu, np.ceil, SCALE_BITS))}
    square = scales["mu"] ** 2
    for role in ("s", "s_self"):
        largest = (1 << bits[role]) - 1
        scales[role] = square * next_power_of_two((tops[role] or square) / largest / square)
    return scales


def _limit_of_all(tails: Sequence[Tails], largest: int) -> float:
    """The limit of least expected error in one scale for all channels; 0 if nothing is known."""
    top = max((float(one.limits(largest).max()) for one in tails), default=0.0)
    channels = sum(one.excess.size for one in tails)

    def error(limit: float) -> float:
        clipped = sum(float(one.clipped(np.asarray(limit)).sum()) for one in tails)
        return channels * (limit / largest) ** 2 / 12 + clipped

    return float(min((share * top for share in CLIP_SHARES), key=error))


def layer_input_format(
    graph: Graph, node_name: str, store: Store, job: Job, equalise: bool
) -> Format:
    """Format of a value that layers read: one scale, or one a channel if equalised.

    Among the candidates the one whose expected noise at the readers' outputs is least. It comes
    from rounding each reader's weights, and from rounding and clipping the value.
    """
    known, source = graph.types[node_name], graph.by_name[node_name].inputs[0]
    lo, hi = integer_limits(store.bits, known.signed)
    top = np.array(magnitude(known), ndmin=1)
    tails = graph.calibration.tails.get(source)
    limits = top if tails is None else tails.limits(hi)
    users = [node for node in graph.nodes if node_name in node.inputs]
    readers = []
    for node in users:
        if isinstance(node.op, Mvm):
            bits = job.settings.of_layer(graph.layer(node)).weight_bits
            readers.append((np.abs(node.op.weight), integer_limits(bits, True)[1]))
    relatives = [np.ones(top.shape)]
    if readers and equalise and top.size > 1:
        relatives += _equalising(limits, [weight for weight, _ in readers])
    if len(readers) < len(users):  # sums and products count in units that shifts bring together
        relatives = [np.exp2(np.ceil(np.log2(one))) for one in relatives]
    mean_square = graph.calibration.mean_squares.get(source, top**2 / 3)
    gains = gains_of(graph, node_name)
    best, least = None, (np.inf, 0)
    for turn, relative in enumerate(relatives):
        covered = float((limits / relative).max()) or 1.0
        tried: list[tuple[float, int, Format]] = []
        for place, share in enumerate((1.0,) if tails is None else CLIP_SHARES):
            unit = significant(covered * share / hi, np.ceil)
            fmt = Format(lo, hi, significant(unit * relative, np.ceil))
            errors = np.square(fmt.scale) / 12
            if tails is not None:
                errors = errors + tails.clipped(fmt.scale * hi)
            tried.append((float((gains * errors).sum()), turn * len(CLIP_SHARES) + place, fmt))
        of_weights = 0.0
        for noise, order, fmt in sorted(tried, key=lambda one: one[0]):
            if noise + of_weights * LEAST_OF_WEIGHTS > least[0]:
                break
            of_weights = _weight_noise(fmt, mean_square, readers)  # takes longest to compute
            if best is None or (noise + of_weights, order) < least:  # of equal ones the first
                best, least = fmt, (noise + of_weights, order)
    assert best is not None
    return best


LEAST_OF_WEIGHTS = 1 - 2.0 ** (3 - SIGNIFICANT_BITS)
"""The least noise of weights in one scale, as a share of that in another of the same shape.

It would be the same but for the significant bits to which each channel's scale is rounded.
"""


def _weight_noise(
    fmt: Format, mean_square: FloatArray, readers: Sequence[tuple[FloatArray, int]]
) -> float:
    """Expected squared error at the readers' outputs from rounding weights, scaled a column.

    `readers` are the magnitudes of the weights of each, and the largest integer they round to.
    """
    total = 0.0
    for size, levels in readers:
        steps = _largest_product(size, fmt.scale) / levels
        total += float(np.square(steps).sum() / 12 * (mean_square / fmt.scale**2).sum())
    return total


def _largest_product(size: FloatArray, scale: FloatArray) -> FloatArray:
    """The largest product [N] of a column of `size` [K, N] with `scale` [K] or [1], blockwise."""
    scale = np.broadcast_to(scale, len(size))
    found = np.zeros(size.shape[1])
    room = np.empty((CACHED_ROWS, size.shape[1]))
    for start in range(0, len(size), CACHED_ROWS):
        rows = size[start : start + CACHED_ROWS]
        product = np.multiply(rows, scale[start : start + CACHED_ROWS, None], out=room[: len(rows)])
        np.maximum(found, product.max(axis=0), out=found)
    return found


def _equalising(limits: FloatArray, weights: Sequence[FloatArray]) -> list[FloatArray]:
    """Scales a channel, at most 1, that balance ranges against weights, from little to full.

    `weights` are the magnitudes of those of each layer that reads the channels.
    """
    strength = np.zeros(limits.shape)
    for weight in weights:
        column = weight.max(axis=0)
        relative = weight / np.where(column > 0, column, 1.0)
        strength = np.maximum(strength, relative.max(axis=1))
    live = (limits > 0) & (strength > 0)
    if not live.any():
        return []
    ranges, strengths = (np.log2(np.where(live, x, 1.0)) for x in (limits, strength))
    found = []
    for share in EQUALISE_SHARES:
        balance = share * ranges - (1 - share) * strengths
        balance = np.maximum(balance - balance[live].max(), -EQUALISE_LIMIT)
        found.append(significant(np.exp2(np.where(live, balance, 0.0)), np.ceil))
    return found


def feature_format(store: Store, settings: Settings, scales: Mapping[str, float]) -> Format:
    """Format of a stored mu or s."""
    lo, hi = integer_limits(store.bits or settings.stored_bits(store.role), store.role == "mu")
    return Format(lo, hi, scalar(scales[store.role]))


def value_format(known: Type, store: Store) -> Format:
    """Format with a power-of-two scale that covers a value's bounds."""
    top = float(magnitude(known).max())
    if store.role == "normal":  # [-1, 1] in steps of a power of two
        limit = 1 << (store.bits - 1)
        return Format(-limit, limit, scalar(1.0 / limit))
    return covering(top, store.bits, True, True)


def require_float32(fmt: Format, what: str) -> None:
    """Raise RowsError, naming `what` it is of, for a format whose values float32 does not hold.

    The edge of a program is float32: its steps are normal numbers, its largest value is finite.
    """
    limits = np.finfo(np.float32)
    finest, largest = float(limits.smallest_normal), float(limits.max)
    step, reach = float(np.min(fmt.scale)), float(np.max(fmt.scale)) * fmt.hi
    if step < finest or reach > largest:
        raise RowsError(
            f"{what} reaches {reach:.3g} in steps of {step:.3g}; expected float32 numbers, steps "
            f"of at least {finest:.3g} and values to {largest:.3g}"
        )


def requantize(builder: Builder, name: str, value: str, fmt: Format) -> str:
    """Add the Requant from a value's scale to a format's, with multipliers per channel."""
    known = builder.types[value]
    shape = np.broadcast_shapes(known.unit.shape, fmt.scale.shape)
    own, wanted = (np.broadcast_to(scale, shape).flat for scale in (known.unit, fmt.scale))
    channels = zip(own, wanted, _largest(known, shape), strict=True)
    try:
        ratios = [_ratio(*channel) for channel in channels]
    except ValueError as error:
        raise CimError(
            f"{builder.name}.{name}: {error} in 62 bits; its range differs too much from the value "
            "that it is added to or stored as"
        ) from None
    op = Requant(*_arrays(ratios, shape), fmt.lo, fmt.hi, fmt.scale)
    return builder.add(name, op, value)


def refit(builder: Builder, op: Requant, node: Node, inputs: tuple[str, ...]) -> str:
    """Reduce the bits of multipliers whose products no longer fit with the errors of converters."""
    shape = op.multiplier.shape
    channels = zip(
        op.multiplier.flat, op.shift.flat, _largest(builder.types[inputs[0]], shape), strict=True
    )
    ratios = [with_fewer_bits(Ratio(int(m), int(shift)), int(top)) for m, shift, top in channels]
    multiplier, shift = _arrays(ratios, shape)
    return builder.add(node.name, replace(op, multiplier=multiplier, shift=shift), *inputs)


def _largest(known: Type, shape: tuple[int, ...]) -> Iterable[int]:
    """The largest magnitude of each channel; of all if there is one scale."""
    magnitudes = np.maximum(np.abs(exact_bounds(known.lo)), np.abs(exact_bounds(known.hi)))
    return np.broadcast_to(magnitudes, shape).flat if shape else [magnitudes.max()]


def _arrays(ratios: Sequence[Ratio], shape: tuple[int, ...]) -> tuple[IntArray, IntArray]:
    """Multipliers and shifts of this shape."""
    multiplier = np.array([ratio.multiplier for ratio in ratios], np.int64).reshape(shape)
    return multiplier, np.array([ratio.shift for ratio in ratios], np.int64).reshape(shape)


def _ratio(own: float, wanted: float, top: int) -> Ratio:
    """The factor from one scale to another for values up to `top`, with room for BIAS_MARGIN."""
    (up, under), (down, over) = float(own).as_integer_ratio(), float(wanted).as_integer_ratio()
    numerator, denominator = up * over, under * down
    largest = max(int(top), 1)
    largest += largest // BIAS_MARGIN
    if 2 * numerator * largest < denominator:  # all values round to zero, by a shift as well
        numerator, denominator = 1, 2 << largest.bit_length()
    common = math.gcd(numerator, denominator)
    return ratio_of(numerator // common, denominator // common, largest)
