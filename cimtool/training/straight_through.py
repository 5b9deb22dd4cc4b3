"""The model as it is compiled, in torch: its plan, and a rule per operation.

Values are rounded where the compiled program rounds, and gradients pass straight through. The
integers are those of the contract, in float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from cimtool.base.arrays import Array, FloatArray
from cimtool.base.errors import CimError
from cimtool.base.progress import silent
from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.noise.die import Devices, Die
from cimtool.hardware.settings import Settings
from cimtool.hardware.stored import StoredWeights
from cimtool.ir.arithmetic import (
    Add,
    Axis,
    Clip,
    Mvm,
    Store,
    SumOfMaxima,
)
from cimtool.ir.backends import STRAIGHT_THROUGH
from cimtool.ir.integer import Quantize, Requant
from cimtool.ir.op import Arithmetic, Op
from cimtool.ir.program import MODALITIES, Graph, Node, Program
from cimtool.ir.source import BatchNorm
from cimtool.passes.base import Job
from cimtool.passes.lower import LowerPass
from cimtool.passes.pipeline import Stage, compile_program, stage_of
from cimtool.passes.quantize import QuantizePass
from cimtool.reference.metrics import centred_rmse
from cimtool.simulation.die_program import Conditions, on_die
from cimtool.simulation.simulator import Simulator


def tensor(x: Array) -> Tensor:
    """A float32 tensor of its own."""
    return torch.tensor(np.asarray(x), dtype=torch.float32)


def round_ste(x: Tensor, half_even: bool = False) -> Tensor:
    """Round to integers, halves up (or to even); the derivative is 1."""
    whole = torch.round(x) if half_even else torch.floor(x + 0.5)
    return x + (whole - x).detach()


@dataclass(frozen=True, eq=False)
class StoredFormat:
    """The format of a stored value: integers from `lo` to `hi` of `scale` (one, or one a channel).

    A value beyond the limits is clipped and has no gradient.
    """

    lo: int
    hi: int
    scale: Tensor
    half_even: bool

    def __call__(self, x: Tensor) -> Tensor:
        """Return the real numbers [n, K] that the stored integers stand for."""
        return round_ste((x / self.scale).clamp(self.lo, self.hi), self.half_even) * self.scale


def column_integers(effective: Tensor, largest: int) -> tuple[Tensor, Tensor]:
    """Round weights [N, K] to integers up to `largest`; return them and each output's unit [N, 1].

    The unit is the largest weight's share, as in compilation; it has no gradient of its own.
    """
    top = effective.detach().abs().amax(dim=1, keepdim=True)
    unit = torch.where(top > 0, top, 1.0) / largest
    return round_ste(effective / unit), unit


@dataclass(frozen=True, eq=False)
class LayerErrors:
    """Errors of a layer's arrays, in units of integer weights and of their sums.

    `weights` are the mean and the deviation [N, K] of each weight's error, None on perfect arrays;
    `sums` is the deviation of each sum's.
    """

    weights: tuple[Tensor, Tensor] | None
    sums: float


PERFECT = LayerErrors(None, 0.0)


@dataclass(frozen=True, eq=False)
class LayerPlan:
    """A layer as deployed: trained weights times `gain` [N, 1], biases times it plus `offset`.

    That is batch normalisation, the common mean and bias correction; `largest` is the largest
    integer weight.
    """

    gain: Tensor
    offset: Tensor
    largest: int
    errors: LayerErrors


@dataclass(frozen=True, eq=False)
class GraphPlan:
    """A lowered graph, the format of each stored value and the plan of each layer."""

    graph: Graph
    stores: Mapping[str, StoredFormat]
    layers: Mapping[str, LayerPlan]


LayerParameters = Mapping[str, tuple[Tensor, Tensor]]
"""Trained weights [N, K] and biases [N] of a graph's layers, by node."""


@dataclass(frozen=True)
class Site:
    """An operation's place in a graph, with what all layers of the graph share."""

    node: Node
    plan: GraphPlan
    parameters: LayerParameters
    draws: torch.Generator | None


def forward(
    plan: GraphPlan,
    inputs: Mapping[str, Tensor],
    parameters: LayerParameters,
    draws: torch.Generator | None = None,
) -> dict[str, Tensor]:
    """Compute a graph's outputs as its compiled form would, differentiable in `parameters`.

    With `draws` the layers err as their plans say, drawn anew for each call.
    """
    values = dict(inputs)
    for node in plan.graph.nodes:
        rule, site = STRAIGHT_THROUGH.of(node.op), Site(node, plan, parameters, draws)
        values[node.name] = rule(node.op, site, *(values[name] for name in node.inputs))
    return {name: values[value] for name, value in plan.graph.outputs.items()}


@STRAIGHT_THROUGH.rule(Store)
def _store(op: Store, site: Site, x: Tensor) -> Tensor:
    return site.plan.stores[site.node.name](x)


@STRAIGHT_THROUGH.rule(Mvm)
def _mvm(op: Mvm, site: Site, x: Tensor) -> Tensor:
    """A layer on integer inputs and weights: `x` [n, K] holds multiples of its store's scale."""
    name, draws = site.node.name, site.draws
    layer, (weight, bias) = site.plan.layers[name], site.parameters[name]
    step = site.plan.stores[site.node.inputs[0]].scale
    whole, unit = column_integers(weight * layer.gain * step, layer.largest)
    errors = layer.errors
    if draws is not None and errors.weights is not None:
        mean, deviation = errors.weights
        whole = whole + mean + deviation * _normal(deviation, draws)
    sums = functional.linear(x / step, whole)
    if draws is not None and errors.sums:
        sums = sums + errors.sums * _normal(sums, draws)
    return sums * unit[:, 0] + bias * layer.gain[:, 0] + layer.offset


def _normal(like: Tensor, draws: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=draws)


@STRAIGHT_THROUGH.rule(Arithmetic)
def _as_defined(op: Op, site: Site, *inputs: Any) -> Any:
    """The operation itself, whose definition takes tensors as it takes arrays."""
    return op.run(*inputs)


@STRAIGHT_THROUGH.rule(Add)
def _add(op: Add, site: Site, *inputs: Tensor) -> Tensor:
    total = tensor(op.offset)
    for factor, x in zip(op.factors, inputs, strict=True):
        total = total + tensor(factor) * x
    return total


@STRAIGHT_THROUGH.rule(Clip)
def _clip(op: Clip, site: Site, x: Tensor) -> Tensor:
    return torch.clamp(x, tensor(op.lo), tensor(op.hi))


@STRAIGHT_THROUGH.rule(SumOfMaxima)
def _sum_of_maxima(op: SumOfMaxima, site: Site, x: Tensor) -> Tensor:
    largest = x.reshape(len(x), -1, op.columns).amax(2)
    return largest.reshape(-1, op.rows, largest.shape[1]).sum(1)


@STRAIGHT_THROUGH.rule(Axis)
def _axis(op: Axis, site: Site, x: Tensor) -> Tensor:
    return x.unsqueeze(op.axis)


SAMPLES = 4096
"""Devices that are drawn for each digit to know their mean error and its variance."""


def layer_errors(
    op: CrossbarMvm, conditions: Conditions | None, on_off_ratio: float | None
) -> LayerErrors:
    """Errors of a layer: of its converters alone, or on dies of the conditions of its cells too.

    Programming, drift, 1/f and read noise are drawn as independent normal errors of each weight;
    stuck cells, wires and converters' own errors are not. A conversion rounds by an error of
    variance step^2 / 12.
    """
    steps = op.steps
    if conditions is None:
        return PERFECT if op.exact else LayerErrors(None, _rounding(op, steps))
    if op.crossbar.law is not None:
        finest = 1 / (1 << op.crossbar.fraction_bits)  # a lossless converter rounds noise
        steps = tuple(step or finest for step in steps)
    mean, variance = _digit_errors(conditions, op.crossbar, on_off_ratio)
    off, spread = _weight_errors(op.stored, mean, variance)
    return LayerErrors((tensor(off.T), tensor(spread.T)), _rounding(op, steps))


def _digit_errors(
    conditions: Conditions, crossbar: Crossbar, on_off_ratio: float | None
) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of a cell's error by the digit that it holds, in digits."""
    noise, top = conditions.noise, crossbar.weights.cell_maximum
    devices = Devices(noise, top, on_off_ratio, Die(conditions.seed, 0, conditions.seconds))
    digits = np.repeat(np.arange(top + 1)[:, None], SAMPLES, axis=1)
    conducting = devices.conductances(digits, "fine-tuning")
    off = conducting / devices.unit - devices.asked(digits) / devices.unit
    variance = off.var(axis=1) + devices.read_variance(conducting).mean(axis=1)
    return off.mean(axis=1), variance


def _weight_errors(
    stored: StoredWeights, mean: FloatArray, variance: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Mean and deviation [K, N] of the errors of integer weights, in their unit."""
    off, spread = np.zeros(stored.shape), np.zeros(stored.shape)
    code, common = stored.crossbar.weights, np.zeros(stored.shape)
    counts, heights = stored.cells.counts.astype(np.float64), stored.cells.heights
    for k, cells in enumerate(stored.slices):
        worth = np.repeat(counts[:, k], heights, axis=0)
        for sign in (1, -1) if stored.crossbar.by_difference else (1,):
            held = np.maximum(sign * cells.digits.astype(np.int64) + code.baseline, 0)
            off += sign * worth * mean[held]
            spread += worth**2 * variance[held]
        common += worth
    if code.reference_column:
        off -= common * mean[code.baseline]
        spread += common**2 * variance[code.baseline]
    return off, np.sqrt(spread)


def _rounding(op: CrossbarMvm, steps: tuple[float | None, ...]) -> float:
    """The deviation of a layer's integer sums that comes from rounding in its converters."""
    conversions, total = len(op.stored.groups), 0.0
    for k, cells in enumerate(op.stored.slices):
        for c, cycle in enumerate(op.crossbar.cycles):
            step = steps[op.crossbar.reference_of(k, c)]
            total += 0.0 if step is None else (step * cells.worth * cycle.factor) ** 2
    return float(np.sqrt(conversions * total / 12))


TRIAL_DIES = 2
"""Dies on which weights are judged if there is noise."""


@dataclass(frozen=True)
class Compiled:
    """The program as deployed, and the plan of each graph (`text`, `video`, `score`)."""

    program: Program
    plans: Mapping[str, GraphPlan]


@dataclass(frozen=True)
class Compiler:
    """Compiles a trained program with other weights; `conditions` are those of its dies, if any."""

    program: Program
    job: Job
    conditions: Conditions | None

    def compile(self, parameters: Mapping[str, LayerParameters]) -> Compiled:
        """Run all passes on the program with these weights and biases, by modality."""
        towers = {m: with_parameters(getattr(self.program, m), parameters[m]) for m in MODALITIES}
        stages = compile_program(replace(self.program, **towers), self.job, silent)
        plans = {
            name: plan_graph(stages, name, self.job.settings, self.conditions)
            for name in (*MODALITIES, "score")
        }
        return Compiled(stages[-1].program, plans)

    def errors(
        self, compiled: Compiled, text: Array, video: Array, wanted: Array
    ) -> tuple[float, float]:
        """Centred RMSE and RMSE of the logits [n, m] of all pairs of rows from those wanted.

        They are those of the compiled program, or of all trial dies.
        """
        programs = [compiled.program]
        if self.conditions is not None:
            settings, conditions = self.job.settings, self.conditions
            dies = (on_die(compiled.program, settings, conditions, i) for i in range(TRIAL_DIES))
            programs = [die.program for die in dies]
        logits = [Simulator(program).scores(text, video) for program in programs]
        centred = np.mean([centred_rmse(one, wanted) ** 2 for one in logits])
        whole = np.mean([np.square(one - wanted).mean() for one in logits])
        return float(np.sqrt(centred)), float(np.sqrt(whole))


def with_parameters(graph: Graph, parameters: LayerParameters) -> Graph:
    """The graph with the layers' weights and biases replaced."""

    def changed(node: Node) -> Node:
        if not isinstance(node.op, Mvm):
            return node
        weight, bias = (part.detach().double().numpy() for part in parameters[node.name])
        return replace(node, op=Mvm(np.ascontiguousarray(weight.T), bias))

    return replace(graph, nodes=tuple(changed(node) for node in graph.nodes))


def plan_graph(
    stages: Sequence[Stage], name: str, settings: Settings, conditions: Conditions | None
) -> GraphPlan:
    """The plan of one graph (`text`, `video` or `score`) from the stages of a compilation."""
    of_passes = (stage_of(stages, one) for one in (LowerPass, QuantizePass))
    trained, lowered, quantized, last = (
        getattr(stage.program, name) for stage in (stages[0], *of_passes, stages[-1])
    )
    stores, layers = {}, {}
    for node in lowered.nodes:
        if isinstance(node.op, Store):
            rounded = quantized.by_name[node.name].op
            assert isinstance(rounded, Quantize | Requant)
            limits = rounded.lo, rounded.hi, tensor(rounded.scale)
            stores[node.name] = StoredFormat(*limits, half_even=isinstance(rounded, Quantize))
        if isinstance(node.op, Mvm):
            own = settings.of_layer(lowered.layer(node))
            code = own.weight_code
            if code.shared_rows is not None:
                raise CimError(
                    f'settings: encoding = "{code.name}": training rounds weights to one unit a '
                    'column; expected encoding = "twos-complement" or another without exponents'
                )
            errors = layer_errors(last.by_name[node.name].op, conditions, own.on_off_ratio)
            before, deployed = (one.by_name[node.name].op for one in (trained, quantized))
            assert isinstance(before, Mvm)
            # Folding multiplies each output by the factor of the layer's BatchNorm.
            readers = [one.op for one in trained.nodes if node.name in one.inputs]
            folded = len(readers) == 1 and isinstance(readers[0], BatchNorm)
            gain = readers[0].factor if folded else np.ones(before.bias.shape)
            # Not the deployed bias: it also takes off converters' mean error, which is not here.
            offset = deployed.bias * deployed.scale - before.bias * gain
            layers[node.name] = LayerPlan(
                tensor(np.reshape(gain, (-1, 1))), tensor(offset), code.largest, errors
            )
    return GraphPlan(lowered, stores, layers)
