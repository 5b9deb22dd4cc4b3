"""Calibrate: ranges and energies of every value of the folded program on calibration rows.

Computed in float64 and rounded outward to 10 significant bits, so that builds do not hang on the
last bits of a CPU's sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from cimtool.arrays import Array, FloatArray
from cimtool.errors import CimError
from cimtool.ir.format import integer_limits
from cimtool.ir.program import Graph, Program, Range
from cimtool.ir.source import L2Normalize
from cimtool.passes.fold import FLOAT_OPS
from cimtool.passes.step import Job, Pass
from cimtool.settings import Calibrator
from cimtool.simulator import Simulator

SIGNIFICANT_BITS = 10
SMALLEST_EXPONENT = -1074
"""float64 holds multiples of 2 to this."""

PERCENTILE = 99.99
MSE_CANDIDATES = 40


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
    limit = LIMITS[job.settings.calibrator]
    ranges = {}
    for name, value in values.items():
        lo, hi = value.min(axis=0), value.max(axis=0)
        clip = limit(value, job.settings.activation_bits)
        ranges[name] = Range(
            *outward(np.clip(lo, -clip, clip), np.clip(hi, -clip, clip)),
            outward(np.zeros(1), np.square(value).mean(axis=0))[1],
        )
    for node in graph.nodes:
        if isinstance(node.op, L2Normalize):
            energy = np.square(values[node.inputs[0]]).sum(axis=-1)
            ranges[norm_energy(node.name)] = _span(energy, energy)
    return ranges


def norm_energy(name: str) -> str:
    """Under which name the squared row norm before an L2 normalisation is calibrated."""
    return f"{name}.energy"


def outward(lo: Array, hi: Array) -> tuple[FloatArray, FloatArray]:
    """Round bounds outward to 10 significant bits; zero stays zero."""
    bounds = []
    for value, direction in ((lo, np.floor), (hi, np.ceil)):
        value = np.asarray(value, np.float64)
        step = np.ldexp(1.0, np.maximum(np.frexp(value)[1] - SIGNIFICANT_BITS, SMALLEST_EXPONENT))
        bounds.append(np.asarray(direction(value / step) * step))
    return bounds[0], bounds[1]


def _no_limit(value: Array, bits: int) -> float:
    return np.inf


def _percentile_limit(value: Array, bits: int) -> float:
    return float(np.percentile(np.abs(value), PERCENTILE))


def _mse_limit(value: Array, bits: int) -> float:
    """The clipping magnitude whose rounding and clipping error at `bits` bits is least."""
    magnitude = np.abs(value).ravel()
    top = float(magnitude.max())
    if top == 0:
        return 0.0
    _, largest = integer_limits(bits, bool(value.min() < 0))
    best, least = top, np.inf
    for share in np.linspace(1.0, 0.2, MSE_CANDIDATES):
        step = share * top / largest
        error = np.square(np.minimum(np.rint(magnitude / step), largest) * step - magnitude).sum()
        if error < least:
            best, least = share * top, float(error)
    return best


LIMITS: dict[Calibrator, Callable[[Array, int], float]] = {
    "minmax": _no_limit,
    "percentile": _percentile_limit,
    "mse": _mse_limit,
}

CALIBRATE = Pass("calibrated", "calibrating ranges", calibrate, FLOAT_OPS)
