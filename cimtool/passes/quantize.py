"""Quantize: real numbers become integers; rounding happens where values are stored.

Between stores sums and products stay exact: a sum has up to 45 bits and a sign. A value is narrowed
only if a product would leave the 62 bits of the digital unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cimtool.base.arrays import Array, FloatArray
from cimtool.hardware.keys import WeightRounding
from cimtool.ir.arithmetic import (
    Add,
    Arrange,
    Axis,
    BatchMatMul,
    Clip,
    MatMul,
    Mul,
    Mvm,
    Store,
    Sum,
    SumOfMaxima,
    scalar,
)
from cimtool.ir.backends import QUANTIZE
from cimtool.ir.format import integer_limits, round_half_up
from cimtool.ir.integer import Dequantize, Quantize
from cimtool.ir.op import Level
from cimtool.ir.program import Builder, Graph, Node, Program, keep, rewrite, score_inputs
from cimtool.ir.quantized import (
    BIAS_FRACTION_BITS,
    FractionalBias,
    QuantizedMvm,
    QuantizedStore,
)
from cimtool.ir.types import Type
from cimtool.passes.base import Job, Pass, both_projectors, room_for, rows_with_room
from cimtool.passes.bias_correction import correct_bias, layer_means
from cimtool.passes.calibrate import layer_inputs
from cimtool.passes.formats import (
    Format,
    feature_format,
    layer_input_format,
    magnitude,
    next_power_of_two,
    requantize,
    require_float32,
    shared_scales,
    value_format,
)
from cimtool.passes.gradients import LayerGradients, logit_gradients
from cimtool.passes.mixtures import with_mixtures
from cimtool.passes.rounding import LayerRows, least_error_weights
from cimtool.passes.weight_grids import weight_gain, weight_grid
from cimtool.simulation.kernels.operations import fast_kernel

EXACT_BITS = 45
"""Bits up to which sums are kept exact; 2^46 times a 15-bit multiplier stays below 2^62."""

WIDE_LIMIT = 1 << EXACT_BITS + 2
"""No value of a program reaches it."""

RESCALE_BITS = 29
"""Bits by which a multiplier makes a unit finer: it has 31, and is shifted by 1 at least."""

COLUMN_FLOOR = 2.0**-24
"""No column's unit is finer than this share of its layer's coarsest: less cannot be told apart."""

CLIP_LIMIT = 2.0**62
"""Stands for an infinite limit of a Clip: no value reaches it."""

FACTOR_BITS = 24
"""A factor of a product whose exact form would be wider than EXACT_BITS is narrowed to these."""


@dataclass(frozen=True)
class QuantizePass(Pass):
    """Make all values integers; with `bias_correction` layers keep the means of the float program.

    `weight_rounding` is the method for weights, and with `equalise` channels get scales that
    balance what is stored against the weights that read it. Without `gradients` of logits by the
    outputs of layers, rounding that reads them derives them.
    """

    weight_rounding: WeightRounding = "nearest"
    bias_correction: bool = True
    equalise: bool = True
    gradients: Mapping[str, LayerGradients] | None = field(default=None, repr=False, compare=False)

    name = "quantized"
    doing = "quantizing"
    requires = Level.MAC
    requires_calibration = True
    leaves = Level.INTEGER

    def apply(self, program: Program, job: Job) -> Program:
        scales = shared_scales((program.text, program.video), job.settings)
        gradients = self.gradients
        if gradients is None:
            gradients = logit_gradients(program, job) if self.weight_rounding == "gptq" else {}

        def quantized(graph: Graph, inputs: Mapping[str, Type], job: Job) -> Graph:
            builder = Quantizing(graph, inputs, job, self, scales, gradients)
            return rewrite(graph, QUANTIZE.of, builder)

        def projector(graph: Graph, job: Job) -> Graph:
            made = quantized(graph, graph.inputs, job)
            if not self.bias_correction:
                return made
            rows = rows_with_room(made, job, "biases are corrected")
            means = layer_means(graph, rows)
            rounded = {k: v for k, v in means.items() if k not in graph.operations(QuantizedMvm)}
            return correct_bias(made, rows, rounded)

        text, video = both_projectors(program, job, projector)
        return Program(text, video, quantized(program.score, score_inputs(text, video), job))


class Quantizing(Builder):
    """Builds the integer form of the lowered graph `source`, whose types hold real bounds."""

    def __init__(
        self,
        source: Graph,
        inputs: Mapping[str, Type],
        job: Job,
        options: QuantizePass,
        scales: Mapping[str, float],
        gradients: Mapping[str, LayerGradients],
    ):
        super().__init__(source.name, inputs)
        self.source, self.job, self.options, self.scales = source, job, options, scales
        self._narrowed: dict[tuple[str, int], str] = {}
        self.gradients = gradients
        self._rows: dict[str, Array] = {}
        self._own = 0
        self._trained = bool(source.operations(QuantizedMvm) or source.operations(QuantizedStore))

    def fraction_bits(self, constant: Array, unit: FloatArray, top: float) -> int:
        """Bits by which a constant must count finer than the unit of values up to `top`.

        Zero, unless the model is already quantized and the constant is not whole: codes have few
        bits, and the model's runtime computes with them in float32. Then as many as make
        FACTOR_BITS.
        """
        coarse, fine = (int(top / one).bit_length() for one in (np.max(unit), np.min(unit)))
        bits = max(min(FACTOR_BITS - coarse, EXACT_BITS - fine), 0) if self._trained else 0
        steps = round_half_up(np.ldexp(constant / unit, bits))
        return bits if (steps % (1 << bits)).any() else 0

    def narrow(self, value: str, bits: int) -> str:
        """The value in this many bits (signed, power-of-two scale), rounded once for all uses."""
        if (value, bits) not in self._narrowed:
            top = float(magnitude(self.types[value]).max()) or 1.0
            lo, hi = integer_limits(bits, True)
            fmt = Format(lo, hi, scalar(next_power_of_two(top / hi)))
            self._narrowed[value, bits] = requantize(self, f"{value}.narrow", value, fmt)
        return self._narrowed[value, bits]

    def layer_rows(self, node: Node, value: str) -> LayerRows:
        """The rows that round the weights of a layer which reads a value of the graph so far."""
        rows, read = self._values(value), value
        of_item = len(rows) // len(self._rows["x"])
        while isinstance(self.by_name[read].op, Quantize | Arrange):
            (read,) = self.by_name[read].inputs
            if read == "x":  # mixtures tell nothing of embeddings
                rows = rows[: self._own * of_item]
                break
        # They are of the first rows, which the rows are not if there is no room for all.
        whole = self._own >= len(self.job.rows(self.name)) - 1
        gradients = self.gradients.get(self.source.layer(node)) if whole else None
        return LayerRows(rows, gradients, self.options.bias_correction, of_item)

    def _values(self, name: str) -> Array:
        """A value on the calibration rows and mixtures of them, computed once for all readers."""
        if name == "x" and name not in self._rows:
            read = replace(self.source, outputs={i: i for i in layer_inputs(self.source)}).pruned()
            kept = [*read.by_name]
            rows = rows_with_room(read, self.job, "weights are rounded", kept)
            self._own, self._rows[name] = with_mixtures(rows, room_for(read, self.job, kept))
        if name not in self._rows:
            node = self.by_name[name]
            known = tuple(self.types[i] for i in node.inputs)
            self._rows[name] = fast_kernel(node.op, known)(*map(self._values, node.inputs))
        return self._rows[name]


QUANTIZE.rule(MatMul, BatchMatMul, SumOfMaxima, Axis)(keep)


@QUANTIZE.rule(Arrange)
def arrange(builder: Quantizing, op: Arrange, node: Node, inputs: tuple[str, ...]) -> str:
    """The same integers, after narrowing if numbers of several units come into one column."""
    (value,), known = inputs, builder.types[inputs[0]]
    if known.is_integer and known.unit.ndim:
        width = int(known.shape[1])
        unit = np.broadcast_to(known.unit, (width,))[op.places % width]
        if not np.array_equal(unit.min(axis=0), unit.max(axis=0)):
            value = builder.narrow(value, FACTOR_BITS)
    return builder.add(node.name, op, value)


@QUANTIZE.rule(Store)
def store(builder: Quantizing, op: Store, node: Node, inputs: tuple[str, ...]) -> str:
    """Round into the format of the store's role."""
    source, settings = builder.source, builder.job.settings
    if isinstance(op, QuantizedStore):
        fmt = Format(op.lo, op.hi, scalar(op.scale))
    elif op.role in ("input", "activation"):
        # Scales of single channels would go into the weights.
        whole = any(node.name in source.by_name[n].inputs for n in source.operations(QuantizedMvm))
        equalise = builder.options.equalise and not whole
        fmt = layer_input_format(source, node.name, op, builder.job, equalise)
    elif op.role in ("mu", "s", "s_self"):
        fmt = feature_format(op, settings, builder.scales)
    else:
        fmt = value_format(source.types[node.inputs[0]], op)
    if op.role == "input":
        require_float32(fmt, builder.name)
        return builder.add(node.name, Quantize(fmt.scale, fmt.lo, fmt.hi), inputs[0])
    value = requantize(builder, node.name, _before_clip(builder, inputs[0], fmt), fmt)
    if op.role == "logit":
        require_float32(fmt, "score: the logit")
        return builder.add("logit", Dequantize(fmt.scale), value)
    return value


@QUANTIZE.rule(Mvm)
def mvm(builder: Quantizing, op: Mvm, node: Node, inputs: tuple[str, ...]) -> str:
    """Round weights to integers of their code, one scale an output channel; the input's go in."""
    settings = builder.job.settings.of_layer(builder.source.layer(node))
    code = settings.weight_code
    effective = op.weight * np.reshape(builder.types[inputs[0]].unit, (-1, 1))
    scale = np.abs(effective).max(axis=0) / code.largest
    # A column of zeros still has a bias, which must fit beside the products, and a unit that
    # a multiplier can bring to that of the other columns.
    least = np.abs(op.bias) / (1 << min(settings.accumulator_bits, 40) - 3)
    least = np.maximum(least, (np.maximum(scale, least).max() or 1.0) * COLUMN_FLOOR)
    scale, grid = weight_grid(effective, code, np.maximum(scale, least), least)
    target = effective / scale
    if builder.options.weight_rounding == "gptq":
        rows = builder.layer_rows(node, inputs[0])
        weight, units = least_error_weights(target, scale, rows, grid, least / scale)
        scale = scale * units
    else:
        weight = grid.nearest(target).astype(np.int64)
        if grid.shared:
            scale = scale * weight_gain(target, weight)
    return builder.add(node.name, Mvm(weight, round_half_up(op.bias / scale), scale), *inputs)


@QUANTIZE.rule(QuantizedMvm)
def whole_weights(
    builder: Quantizing, op: QuantizedMvm, node: Node, inputs: tuple[str, ...]
) -> str:
    """Keep the weights; the scale of the input, one for all channels, goes into their unit."""
    scale = builder.types[inputs[0]].unit.flat[0] * op.weight_scale
    return builder.add(node.name, Mvm(op.codes, round_half_up(op.bias / scale), scale), *inputs)


@QUANTIZE.rule(FractionalBias)
def fractional_bias(
    builder: Quantizing, op: FractionalBias, node: Node, inputs: tuple[str, ...]
) -> str:
    """Count in finer units, of which the layer's is a whole number, and add the bias in these."""
    unit = np.ldexp(builder.types[inputs[0]].unit, -BIAS_FRACTION_BITS)
    factor = np.asarray(1 << BIAS_FRACTION_BITS)
    return builder.add(node.name, Add((factor,), round_half_up(op.offset / unit), unit), *inputs)


@QUANTIZE.rule(Clip)
def clip(builder: Quantizing, op: Clip, node: Node, inputs: tuple[str, ...]) -> str:
    """Limits in units of the value, per channel where its scale is."""
    (value,), known = inputs, builder.types[inputs[0]]
    bounds = known.real_bounds()
    limits = [np.clip(limit, *bounds) for limit in (op.lo, op.hi)]
    top = float(np.max(magnitude(known)))
    bits = max(builder.fraction_bits(limit, known.unit, top) for limit in limits)
    unit = np.ldexp(known.unit, -bits)
    if bits:
        finer = Add((np.asarray(1 << bits),), np.asarray(0), unit)
        value = builder.add(f"{node.name}.finer", finer, value)
    limited = Clip(_in_units(op.lo, unit), _in_units(op.hi, unit))
    return builder.add(node.name, limited, value)


@QUANTIZE.rule(Sum)
def accumulate(builder: Quantizing, op: Sum, node: Node, inputs: tuple[str, ...]) -> str:
    """Accumulate exactly; terms of several units, or whose sum would be too wide, are narrowed."""
    known, value = builder.types[inputs[0]], inputs[0]
    if known.is_integer and np.min(known.unit) != np.max(known.unit):
        value = builder.narrow(value, FACTOR_BITS)
        known = builder.types[value]
    spare = EXACT_BITS - known.bits - int(known.shape[-1]).bit_length()
    if spare < 0:
        value = builder.narrow(value, known.bits + spare)
    return builder.add(node.name, Sum(), value)


@QUANTIZE.rule(Mul)
def multiply(builder: Quantizing, op: Mul, node: Node, inputs: tuple[str, ...]) -> str:
    """Multiply exactly, after narrowing factors whose product would be too wide."""
    known = [builder.types[i] for i in inputs]
    if sum(one.bits for one in known) > EXACT_BITS + 1:
        # Two of all these bits without a sign make a product that cannot be narrowed again.
        full = all(one.bits == FACTOR_BITS and not one.signed for one in known)
        most = FACTOR_BITS - full
        inputs = tuple(
            builder.narrow(i, FACTOR_BITS) if one.bits > most else i
            for i, one in zip(inputs, known, strict=True)
        )
    return builder.add(node.name, Mul(), *inputs)


@QUANTIZE.rule(Add)
def aligned_sum(builder: Quantizing, op: Add, node: Node, inputs: tuple[str, ...]) -> str:
    """Bring all terms to one unit (exact shifts if scales allow) and add the constant."""
    values = list(inputs)
    for i, value in enumerate(values if len(values) > 1 else ()):
        own_unit = builder.types[value].unit
        # Terms have one scale each, or scales that are powers of two of one another.
        if own_unit.ndim and not np.all(np.frexp(own_unit / own_unit.flat[0])[0] == 0.5):
            values[i] = builder.narrow(value, FACTOR_BITS)
    tops = [
        float(np.max(np.abs(factor) * magnitude(builder.types[value])))
        for factor, value in zip(op.factors, values, strict=True)
    ]
    top = float(np.max(np.abs(op.offset))) + sum(tops)
    # What stays below a unit of the sum adds nothing.
    live = [own > top / 2.0 ** (EXACT_BITS + 1) for own in tops]
    sizes = [np.where(factor == 0, 1.0, np.abs(factor)) for factor in op.factors]
    units = [size * builder.types[value].unit for size, value in zip(sizes, values, strict=True)]
    unit = _common_unit([own for own, counts in zip(units, live, strict=True) if counts], top)
    unit = np.ldexp(unit, -builder.fraction_bits(op.offset, unit, top))
    unit = _within_reach(unit, units)
    factors: list[Array] = []
    for i, (factor, value) in enumerate(zip(op.factors, values, strict=True)):
        if not live[i]:
            factors.append(np.asarray(0))
            continue
        share = units[i] / unit
        if np.all(share >= 1) and np.all(np.frexp(share)[0] == 0.5):
            factors.append((np.sign(factor) * share).astype(np.int64))
            continue
        # The limit is beyond every value: the requantisation changes the scale alone.
        fmt = Format(-WIDE_LIMIT, WIDE_LIMIT, np.asarray(unit / sizes[i]))
        values[i] = requantize(builder, f"{value}.aligned", value, fmt)
        factors.append(np.sign(factor).astype(np.int64))
    offset = round_half_up(op.offset / unit)
    return builder.add(node.name, Add(tuple(factors), offset, unit), *values)


def _in_units(limit: Array, unit: FloatArray) -> Array:
    """A limit in units of a value. A limit that no value can reach is cut to CLIP_LIMIT."""
    units = limit / unit if np.isfinite(limit).all() else limit
    return round_half_up(np.clip(units, -CLIP_LIMIT, CLIP_LIMIT))


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


def _within_reach(unit: FloatArray, terms: Sequence[FloatArray]) -> FloatArray:
    """The unit of a sum, coarsened by a power of two until multipliers bring each term to it.

    A value of few bits is many times coarser than a product that is exact in 45.
    """
    shares = [own / unit for own in terms]
    rescaled = [float(share.max()) for share in shares if np.any(np.frexp(share)[0] != 0.5)]
    excess = max(rescaled, default=0.0) / 2.0**RESCALE_BITS
    return unit * next_power_of_two(excess) if excess > 1 else unit


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
