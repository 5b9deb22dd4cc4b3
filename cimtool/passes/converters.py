"""Fit converters: the range of each ADC, from column sums of calibration rows.

A slice whose column sums can be proved to fit at step 1 needs no converter model. Elsewhere the
step is the power of two whose clipping and rounding error at the layer's output is least, and the
mean error that remains is taken off in the digital bias.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cimtool.arrays import Array, IntArray
from cimtool.hardware.crossbar import (
    column_bounds,
    encode_inputs,
    encode_weights,
    input_cycles,
    lossless,
)
from cimtool.hardware.kernels import product_kind, step_errors
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.format import Ratio, shortened
from cimtool.ir.integer import Requant
from cimtool.ir.program import Builder, Graph, Node, Program, keep, rewrite
from cimtool.ir.types import exact
from cimtool.passes.bias import Layer, adjust_layers, centred, layer_means, outputs
from cimtool.passes.step import Job, Pass
from cimtool.passes.tile import CROSSBAR_OPS

FIT_ROWS = 64
"""Calibration rows whose column sums decide a converter's step."""


def fit_converters(program: Program, job: Job) -> Program:
    """Return the program with a step for every converter that is not provably lossless."""
    text, video = (_fit_graph(graph, job) for graph in (program.text, program.video))
    return replace(program, text=text, video=video)


def _fit_graph(graph: Graph, job: Job) -> Graph:
    means = layer_means(graph, job.rows(graph.name)) if _has_converters(graph) else {}

    def adjust(name: str, layer: Layer, x: Array) -> tuple[Layer, Array]:
        if not isinstance(layer, CrossbarMvm) or layer.crossbar.adc_bits is None:
            return layer, outputs(graph, name, layer, x)
        steps = fit_steps(layer, x[:FIT_ROWS])
        if all(step is None for step in steps):
            return layer, outputs(graph, name, layer, x)
        return centred(replace(layer, steps=steps), graph, name, x, means[name])

    if not means:
        return graph
    adjusted = adjust_layers(graph, job.rows(graph.name), adjust)
    return rewrite(adjusted, lambda node: _refit if isinstance(node.op, Requant) else keep)


def _refit(builder: Builder, node: Node, inputs: tuple[str, ...]) -> str:
    """Take bits off multipliers whose products no longer fit, now that converters err as well."""
    op = node.op
    assert isinstance(op, Requant)
    known = builder.types[inputs[0]]
    tops = np.maximum(np.abs(exact(known.lo)), np.abs(exact(known.hi)))
    shape = op.multiplier.shape
    largest = np.broadcast_to(tops, shape).flat if shape else [tops.max()]
    ratios = [
        shortened(Ratio(int(m), int(sh)), int(top))
        for m, sh, top in zip(op.multiplier.flat, op.shift.flat, largest, strict=True)
    ]
    fitted = replace(
        op,
        multiplier=np.array([r.multiplier for r in ratios], np.int64).reshape(shape),
        shift=np.array([r.shift for r in ratios], np.int64).reshape(shape),
    )
    return builder.add(node.name, fitted, *inputs)


def _has_converters(graph: Graph) -> bool:
    return any(
        isinstance(node.op, CrossbarMvm) and node.op.crossbar.adc_bits is not None
        for node in graph.nodes
    )


def fit_steps(op: CrossbarMvm, x: IntArray) -> tuple[int | None, ...]:
    """The step exponent of each slice for inputs like `x` [n, K]; None where provably lossless."""
    crossbar = op.crossbar
    cycles = input_cycles(crossbar)
    weights = np.array([sign << shift for shift, _, sign in cycles], np.int64)
    steps: list[int | None] = []
    for cells in encode_weights(op.weight, crossbar):
        if lossless(cells, crossbar):
            steps.append(None)
            continue
        bounds = column_bounds(cells, crossbar)
        top = max(int(np.abs(edge).max()) for edge in bounds)
        candidates = max(1, top.bit_length() - crossbar.adc_limits[1].bit_length() + 1) + 1
        kind = product_kind(top)
        digits = np.stack([cycle.digits for cycle in encode_inputs(x, crossbar)]).astype(kind)
        packed = cells.digits.astype(kind)
        energy = np.zeros(candidates)
        for group in crossbar.groups(op.weight.shape[0]):
            driven = np.ascontiguousarray(digits[:, :, group])
            sums = np.matmul(driven.reshape(-1, driven.shape[2]), packed[group])
            sums = sums.reshape(*driven.shape[:2], -1)
            energy += step_errors(sums, candidates, crossbar, weights)
        steps.append(int(np.argmin(energy)))
    return tuple(steps)


FIT_CONVERTERS = Pass("converters fitted", "fitting converters", fit_converters, CROSSBAR_OPS)
