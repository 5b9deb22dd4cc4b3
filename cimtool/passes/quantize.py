"""Quantize: real numbers become integers; rounding happens where values are stored.

Between stores sums and products stay exact, in up to 46 bits; a value is narrowed only where a
product would leave the 62 bits of the digital unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from cimtool.base.arrays import Array, FloatArray
from cimtool.base.errors import CimError
from cimtool.ir.arithmetic import Add, Axis, Clip, MatMul, Mul, Mvm, Store, Sum, scalar
from cimtool.ir.calibration import UNCALIBRATED
from cimtool.ir.format import Ratio, integer_limits, ratio, round_half_up
from cimtool.ir.integer import Dequantize, Quantize, Requant
from cimtool.ir.op import Level
from cimtool.ir.program import Builder, Graph, Node, Program, Rule, keep, rewrite, score_inputs
from cimtool.ir.types import exact
from cimtool.passes.bias import correct_bias, layer_means
from cimtool.passes.formats import (
    Format,
    SharedScales,
    feature_format,
    layer_input_format,
    magnitude,
    next_power_of_two,
    shared_scales,
    value_format,
)
from cimtool.passes.rounding import least_error_weights
from cimtool.passes.step import Job, Pass
from cimtool.simulation.kernels.operations import prepare

EXACT_BITS = 45
"""Sums are kept exact up to so many bits; 2^46 times a 15-bit multiplier stays below 2^62."""

COLUMN_FLOOR = 2.0**-24
"""No column's unit is finer than this share of its layer's coarsest: less cannot be told apart."""

CLIP_LIMIT = 2.0**62
"""What stands for an infinite limit of a Clip: no value reaches it."""

BIAS_MARGIN = 4
"""Multipliers leave room for bounds a quarter wider: bias correction still moves them."""

FACTOR_BITS = 24
"""A factor of a product whose exact form would be wider than EXACT_BITS is narrowed to these."""


def quantize(program: Program, job: Job) -> Program:
    """Return the integer program; with bias correction, layer means match the float program's."""
    scales = shared_scales((program.text, program.video), job.settings.feature_bits)
    graphs = []
    for graph in (program.text, program.video):
        quantized = rewrite(graph, _Quantizer(graph, job, scales).rule)
        quantized = replace(quantized, calibration=UNCALIBRATED)
        if job.settings.bias_correction:
            rows = job.rows(graph.name)
            quantized = correct_bias(quantized, rows, layer_means(graph, rows))
        graphs.append(quantized)
    text, video = graphs
    rule = _Quantizer(program.score, job, scales).rule
    score = rewrite(program.score, rule, score_inputs(text, video))
    return Program(text, video, replace(score, calibration=UNCALIBRATED))


@dataclass(frozen=True)
class _Quantizer:
    """The rules for one graph; `source` is the lowered graph, whose types hold real bounds."""

    source: Graph
    job: Job
    scales: SharedScales
    narrowed: dict[tuple[str, str], str] = field(default_factory=dict)
    rows: dict[str, Array] = field(default_factory=dict)

    def rule(self, node: Node) -> Rule:
        """Pick the rule for a node of the lowered graph."""
        rules: dict[type, Rule] = {
            Store: self.store,
            Mvm: self.mvm,
            Add: self.add,
            Mul: self.mul,
            Sum: self.sum,
            Clip: self.clip,
            MatMul: keep,
            Axis: keep,
        }
        return rules[type(node.op)]

    def store(self, builder: Builder, node: Node, inputs: tuple[str, ...]) -> str:
        """Round into the format of the store's role."""
        op = node.op
        assert isinstance(op, Store)
        settings = self.job.settings
        known = self.source.types[node.inputs[0]]
        if op.role in ("input", "activation"):
            fmt = layer_input_format(self.source, node.name, op, settings)
        elif op.role in ("mu", "s", "s_self"):
            fmt = feature_format(op, settings.feature_bits, self.scales)
        else:
            fmt = value_format(known, op)
        if op.role == "input":
            return builder.add(node.name, Quantize(fmt.scale, fmt.lo, fmt.hi), inputs[0])
        value = requantized(builder, node.name, _before_clip(builder, inputs[0], fmt), fmt)
        if op.role == "logit":
            return builder.add("logit", Dequantize(fmt.scale), value)
        return value

    def mvm(self, builder: Builder, node: Node, inputs: tuple[str, ...]) -> str:
        """Round weights to integers, one scale an output channel; the input's scales go in."""
        op = node.op
        assert isinstance(op, Mvm)
        settings = self.job.settings.of_layer(self.source.layer(node))
        _, largest = integer_limits(settings.weight_bits, True)
        effective = op.weight * np.reshape(builder.types[inputs[0]].unit, (-1, 1))
        scale = np.abs(effective).max(axis=0) / largest
        # A column of zeros still has a bias, which must fit beside the products, and a unit that
        # a multiplier can bring to that of the other columns.
        room = np.abs(op.bias) / (1 << min(settings.accumulator_bits, 40) - 3)
        scale = np.maximum(scale, room)
        scale = np.maximum(scale, (scale.max() or 1.0) * COLUMN_FLOOR)
        target = effective / scale
        if settings.weight_rounding == "gptq":
            seen = self.seen(builder, inputs[0])
            weight = least_error_weights(target, seen, largest, settings.bias_correction)
        else:
            weight = np.clip(round_half_up(target), -largest, largest)
        return builder.add(node.name, Mvm(weight, round_half_up(op.bias / scale), scale), *inputs)

    def seen(self, builder: Builder, name: str) -> Array:
        """A value of the graph so far on the calibration rows, computed once for all readers."""
        if name not in self.rows:
            self.rows[name] = self._computed(builder, name)
        return self.rows[name]

    def _computed(self, builder: Builder, name: str) -> Array:
        if name == "x":
            return self.job.rows(self.source.name)
        if name in self.rows:
            return self.rows[name]
        node = builder.by_name[name]
        known = tuple(builder.types[i] for i in node.inputs)
        return prepare(node.op, known)(*(self._computed(builder, i) for i in node.inputs))

    def clip(self, builder: Builder, node: Node, inputs: tuple[str, ...]) -> str:
        """Limits in units of the value, per channel where its scale is."""
        op = node.op
        assert isinstance(op, Clip)
        unit = builder.types[inputs[0]].unit
        limits = Clip(_in_units(op.lo, unit), _in_units(op.hi, unit))
        return builder.add(node.name, limits, *inputs)

    def sum(self, builder: Builder, node: Node, inputs: tuple[str, ...]) -> str:
        """Accumulate exactly, after narrowing terms whose sum would be too wide."""
        known = builder.types[inputs[0]]
        spare = EXACT_BITS - known.bits - int(known.shape[-1]).bit_length()
        value = inputs[0]
        if spare < 0:
            value = self.narrow(builder, value, known.bits + spare)
        return builder.add(node.name, Sum(), value)

    def mul(self, builder: Builder, node: Node, inputs: tuple[str, ...]) -> str:
        """Multiply exactly, after narrowing factors whose product would be too wide."""
        if sum(builder.types[i].bits for i in inputs) > EXACT_BITS + 1:
            inputs = tuple(
                self.narrow(builder, i, FACTOR_BITS) if builder.types[i].bits > FACTOR_BITS else i
                for i in inputs
            )
        return builder.add(node.name, Mul(), *inputs)

    def add(self, builder: Builder, node: Node, inputs: tuple[str, ...]) -> str:
        """Bring all terms to one unit (exact shifts where scales allow) and add the constant."""
        op = node.op
        assert isinstance(op, Add)
        values = list(inputs)
        if len(values) > 1:
            values = [self._uniform(builder, value) for value in values]
        tops = [
            float(np.max(np.abs(factor) * magnitude(builder.types[value])))
            for factor, value in zip(op.factors, values, strict=True)
        ]
        top = float(np.max(np.abs(op.offset))) + sum(tops)
        # What stays below a unit of the sum adds nothing.
        live = [own > top / 2.0 ** (EXACT_BITS + 1) for own in tops]
        sizes = [np.where(factor == 0, 1.0, np.abs(factor)) for factor in op.factors]
        units = [
            size * builder.types[value].unit for size, value in zip(sizes, values, strict=True)
        ]
        unit = _common_unit([own for own, counts in zip(units, live, strict=True) if counts], top)
        factors: list[Array] = []
        for i, (factor, value) in enumerate(zip(op.factors, values, strict=True)):
            if not live[i]:
                factors.append(np.asarray(0))
                continue
            share = units[i] / unit
            if np.all(share >= 1) and np.all(np.frexp(share)[0] == 0.5):
                factors.append((np.sign(factor) * share).astype(np.int64))
                continue
            fmt = wide_format(unit / sizes[i])
            values[i] = requantized(builder, f"{value}.aligned", value, fmt)
            factors.append(np.sign(factor).astype(np.int64))
        offset = round_half_up(op.offset / unit)
        return builder.add(node.name, Add(tuple(factors), offset, unit), *values)

    def _uniform(self, builder: Builder, value: str) -> str:
        """A value with one scale, or with scales that are powers of two of one another."""
        unit = builder.types[value].unit
        if unit.ndim and not np.all(np.frexp(unit / unit.flat[0])[0] == 0.5):
            return self.narrow(builder, value, FACTOR_BITS)
        return value

    def narrow(self, builder: Builder, value: str, bits: int) -> str:
        """The value in so many bits (signed, power-of-two scale), rounded once for all uses."""
        key = (value, str(bits))
        if key not in self.narrowed:
            top = float(magnitude(builder.types[value]).max()) or 1.0
            lo, hi = integer_limits(bits, True)
            fmt = Format(lo, hi, scalar(next_power_of_two(top / hi)))
            self.narrowed[key] = requantized(builder, f"{value}.narrow", value, fmt)
        return self.narrowed[key]


def _in_units(limit: Array, unit: FloatArray) -> Array:
    """A limit in units of a value; one beyond all values is none, however many units it may be."""
    units = limit / unit if np.isfinite(limit).all() else limit
    return round_half_up(np.clip(units, -CLIP_LIMIT, CLIP_LIMIT))


def wide_format(scale: FloatArray) -> Format:
    """A format that no value of a program leaves: for changing the scale alone."""
    limit = 1 << EXACT_BITS + 2
    return Format(-limit, limit, np.asarray(scale))


def _common_unit(units: Sequence[FloatArray], top: float) -> FloatArray:
    """The finest unit of the terms, coarsened by a power of two until the sum fits EXACT_BITS.

    Without terms, that of a constant `top`.
    """
    if not units:
        return scalar(next_power_of_two(top or 1.0) / 2.0**EXACT_BITS)
    smallest = scalar(min(float(np.min(unit)) for unit in units))
    finest = units[0] if len(units) == 1 else smallest
    excess = top / float(np.min(finest)) / 2.0**EXACT_BITS
    return finest * next_power_of_two(excess) if excess > 1 else finest


def _before_clip(builder: Builder, value: str, fmt: Format) -> str:
    """The value before a Clip that the format's own limits make needless."""
    node = builder.by_name.get(value)
    if node is None or not isinstance(node.op, Clip) or builder.types[node.inputs[0]].bits > 32:
        return value
    clipped = builder.types[value]
    lo, hi = clipped.real_bounds()
    if np.all(fmt.lo * fmt.scale >= lo - fmt.scale / 2) and np.all(
        fmt.hi * fmt.scale <= hi + fmt.scale / 2
    ):
        return node.inputs[0]
    return value


def requantized(builder: Builder, name: str, value: str, fmt: Format) -> str:
    """Add the Requant from a value's own scale to a format's, with multipliers per channel."""
    known = builder.types[value]
    shape = np.broadcast_shapes(known.unit.shape, fmt.scale.shape)
    own, wanted = (np.broadcast_to(scale, shape).flat for scale in (known.unit, fmt.scale))
    magnitudes = np.maximum(np.abs(exact(known.lo)), np.abs(exact(known.hi)))
    tops = np.broadcast_to(magnitudes, shape).flat if shape else [magnitudes.max()]
    try:
        ratios = [_ratio(*channel) for channel in zip(own, wanted, tops, strict=True)]
    except ValueError as error:
        raise CimError(
            f"{builder.name}.{name}: {error} in 62 bits; its range differs too much from that of "
            "what it is added to or stored as"
        ) from None
    multiplier = np.array([found.multiplier for found in ratios], np.int64).reshape(shape)
    shift = np.array([found.shift for found in ratios], np.int64).reshape(shape)
    return builder.add(name, Requant(multiplier, shift, fmt.lo, fmt.hi, fmt.scale), value)


def _ratio(own: float, wanted: float, top: int) -> Ratio:
    """The factor from one scale to another for values up to `top`, with room for BIAS_MARGIN."""
    factor = Fraction(float(own)) / Fraction(float(wanted))
    largest = max(int(top), 1)
    largest += largest // BIAS_MARGIN
    if factor * largest < Fraction(1, 2):  # all values round to zero, by a shift as well
        factor = Fraction(1, 2 << largest.bit_length())
    return ratio(factor, largest)


QUANTIZE = Pass("quantized", "quantizing", quantize, Level.INTEGER)
