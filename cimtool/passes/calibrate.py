"""Calibrate: ranges and energies of every value of the folded program on calibration rows.

Computed in float64 and rounded outward to 10 significant bits, so that builds do not hang on the
last bits of a CPU's sums.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace

import numpy as np

from cimtool.base.arrays import Array, FloatArray
from cimtool.base.errors import CimError
from cimtool.hardware.settings import Settings
from cimtool.ir.arithmetic import Mvm
from cimtool.ir.format import integer_limits
from cimtool.ir.program import Graph, Program, Range
from cimtool.ir.source import L2Normalize, LayerNorm
from cimtool.passes.fold import FLOAT_OPS
from cimtool.passes.step import Job, Pass
from cimtool.simulation.simulator import Simulator

SIGNIFICANT_BITS = 10
SMALLEST_EXPONENT = -1074
"""float64 holds multiples of 2 to this."""

PERCENTILE = 99.99

INPUT_MARGIN = 1.25
"""Inputs may leave their calibrated range by a quarter, as ed and vd may, before they are clipped.

A few hundred rows do not show a channel's largest value. On real embeddings clipping what unseen
rows add cost more than finer steps gained. Where clipping is weighed, inputs are taken to be larger
by as much.
"""

PROFILE = np.arange(-10, 33) / 4
"""log2 of what the largest code stands for, by the largest magnitude that a channel was seen with:
below 0 values are clipped."""

PROFILE_ROWS = 512
"""Calibration rows that a profile of errors is made from."""


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def calibrate(program: Program, job: Job) -> Program:
    """Return the program with `ranges` of every value in every graph.

    Raises CimError naming the first value that is not finite on the calibration rows.
    """
    simulator = Simulator(program)
    graphs: list[Graph] = []
    features: list[dict[str, Array]] = []
    for graph in (program.text, program.video):
        taps = [node.name for node in graph.nodes]
        values = simulator.values(graph.name, job.rows(graph.name), taps)
        _require_finite(graph, values)
        values["x"] = job.rows(graph.name).astype(np.float64)
        graphs.append(replace(graph, ranges=_ranges(graph, values, job)))
        features.append({name: values[value] for name, value in graph.outputs.items()})
    taps = [name for name in ("ed", "vd") if name in program.score.types]
    ends: dict[str, list[tuple[float, float]]] = {}
    for _, block in simulator.iter_score(features[0], features[1], taps):
        for name, value in block.items():
            ends.setdefault(name, []).append((float(value.min()), float(value.max())))
    score = {
        name: _span(np.array([e[0] for e in v]), np.array([e[1] for e in v]))
        for name, v in ends.items()
    }
    text, video = graphs
    for graph in graphs:
        for name, output in graph.outputs.items():
            score[f"{graph.name}.{name}"] = graph.ranges[output]
    return Program(text, video, replace(program.score, ranges=score))


def _require_finite(graph: Graph, values: Mapping[str, Array]) -> None:
    for node in graph.nodes:
        if not np.isfinite(values[node.name]).all():
            raise CimError(
                f"{graph.layer(node)} ({node.op.name}): is not finite on the calibration data; "
                "expected embeddings and weights for which float64 does not overflow and no row "
                "that is normalised is zero"
            )


def _span(lows: FloatArray, highs: FloatArray) -> Range:
    lo, hi = outward(lows.min(), highs.max())
    return Range(lo, hi, np.maximum(lo * lo, hi * hi))


def _ranges(graph: Graph, values: dict[str, Array], job: Job) -> dict[str, Range]:
    ranges = {}
    for name, value in values.items():
        lo, hi = value.min(axis=0), value.max(axis=0)
        energy = outward(np.zeros(1), np.square(value).mean(axis=0))[1]
        ranges[name] = Range(*outward(lo, hi), energy)
    if job.settings.calibrator == "percentile":
        _narrowed(graph, values, ranges)
    if job.settings.calibrator == "mse":
        ranges |= _profiles(graph, values, ranges, job.settings)
    for node in graph.nodes:
        if isinstance(node.op, L2Normalize | LayerNorm):
            energy = node.op.energy(values[node.inputs[0]])
            ranges[norm_energy(node.name)] = _span(energy, energy)
    return ranges


def norm_energy(name: str) -> str:
    """Under which name the square of what a normalisation divides rows by is calibrated."""
    return f"{name}.energy"


def stored_error(name: str, bits: int) -> str:
    """Under which name `energy` [steps of PROFILE, channels] is what storing a value errs.

    Only the calibrator `mse` measures it, of what layers read.
    """
    return f"{name}.{bits}-bit"


def calibration_key(settings: Settings) -> Hashable:
    """What of the settings decides the ranges: equal keys calibrate alike."""
    if settings.calibrator != "mse":
        return settings.calibrator
    own = tuple((layer.pattern, layer.activation_bits) for layer in settings.layers)
    return (settings.calibrator, settings.input_bits, settings.activation_bits, own)


def outward(lo: Array, hi: Array) -> tuple[FloatArray, FloatArray]:
    """Round bounds outward to 10 significant bits; zero stays zero."""
    bounds = []
    for value, direction in ((lo, np.floor), (hi, np.ceil)):
        value = np.asarray(value, np.float64)
        step = np.ldexp(1.0, np.maximum(np.frexp(value)[1] - SIGNIFICANT_BITS, SMALLEST_EXPONENT))
        bounds.append(np.asarray(direction(value / step) * step))
    return bounds[0], bounds[1]


def _narrowed(graph: Graph, values: Mapping[str, Array], ranges: dict[str, Range]) -> None:
    """Leave the rarest out of the ranges of what layers alone read: nothing else may be clipped."""
    for name in {node.inputs[0] for node in graph.nodes if isinstance(node.op, Mvm)}:
        if all(isinstance(node.op, Mvm) for node in graph.nodes if name in node.inputs):
            clip = float(np.percentile(np.abs(values[name]), PERCENTILE))
            seen = ranges[name]
            bounds = outward(np.clip(seen.lo, -clip, clip), np.clip(seen.hi, -clip, clip))
            ranges[name] = Range(*bounds, seen.energy)


def _profiles(
    graph: Graph, values: Mapping[str, Array], ranges: Mapping[str, Range], settings: Settings
) -> dict[str, Range]:
    """What storing each layer's input in that layer's bits errs, at every step of PROFILE."""
    found: dict[str, Range] = {}
    for node in graph.nodes:
        if isinstance(node.op, Mvm):
            (name,) = node.inputs
            own = settings.of_layer(graph.layer(node))
            bits = own.input_bits if name == "x" else own.activation_bits
            if stored_error(name, bits) not in found:
                margin = INPUT_MARGIN if name == "x" else 1.0
                rows = margin * values[name][:PROFILE_ROWS]
                found[stored_error(name, bits)] = _profile(rows, ranges[name], bits)
    return found


def _profile(value: Array, seen: Range, bits: int) -> Range:
    """Mean square error [steps, channels] of rounding and clipping a value [n, channels]."""
    _, largest = integer_limits(bits, bool(seen.lo.min() < 0))
    top = np.maximum(np.abs(seen.lo), np.abs(seen.hi))
    errors = []
    for exponent in PROFILE:
        step = np.where(top > 0, top, 1.0) * 2.0**exponent / largest
        codes = np.clip(np.rint(value / step), -largest, largest)
        errors.append(np.square(codes * step - value).mean(axis=0))
    return Range(seen.lo, seen.hi, outward(np.zeros(1), np.array(errors))[1])


CALIBRATE = Pass("calibrated", "calibrating ranges", calibrate, FLOAT_OPS)
