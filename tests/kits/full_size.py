"""Layers of the size that the project is about, without weights that mean anything."""

from __future__ import annotations

import numpy as np

from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.settings import Settings, resolve
from cimtool.hardware.stored import StoredWeights
from cimtool.hardware.target import Target
from cimtool.ir.arithmetic import Add
from cimtool.ir.program import MODALITIES, Builder, Program, score_inputs
from cimtool.ir.types import integer

SHAPES = {"fc1": (1024, 2048), "fc2": (2048, 2048), "mu": (2048, 1024), "s": (2048, 1024)}


class FullSize:
    """Makes both 1024-2048-2048-1024 projectors for a target, each layer on arrays, once each."""

    def __init__(self) -> None:
        self._made: dict[str, Program] = {}

    def __call__(self, target: Target) -> Program:
        key = repr((target.array, target.input, target.weights, target.adc))
        if key not in self._made:
            self._made[key] = _program(resolve(target, None, {}))
        return self._made[key]


def _program(settings: Settings) -> Program:
    """Layers of zeros, equal ones the same operation, and a score that is a sum."""
    most = (1 << settings.input_bits) - 1
    types = {f"x{rows}": integer(("n", rows), 0, most, 1.0) for rows in (1024, 2048)}
    codes = {name: settings.input_code(known) for name, known in types.items()}
    ops = {
        shape: _layer(settings.crossbar(codes[f"x{shape[0]}"]), *shape)
        for shape in set(SHAPES.values())
    }
    graphs = []
    for name in MODALITIES:
        builder = Builder(name, types)
        for layer, shape in SHAPES.items():
            builder.add(layer, ops[shape], f"x{shape[0]}")
        graphs.append(builder.graph({layer: layer for layer in SHAPES}))
    score = Builder("score", score_inputs(*graphs))
    one = np.int64(1)
    score.add("logit", Add((one, one), np.int64(0), np.float64(1)), "text.mu", "text.mu")
    return Program(*graphs, score.graph({"logit": "logit"}))


def _layer(crossbar: Crossbar, rows: int, columns: int) -> CrossbarMvm:
    weight = np.zeros((rows, columns), np.int64)
    steps = crossbar.no_references
    return CrossbarMvm(StoredWeights(weight, crossbar), weight[0], np.ones(columns), steps)
