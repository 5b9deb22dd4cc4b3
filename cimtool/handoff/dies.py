"""Taps of drawn dies: what cells came to, and what they show of the inputs of `taps/`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from cimtool.base.files import place_in
from cimtool.base.progress import Countdown
from cimtool.bundle.dies import NoiseOptions, conditions_of, dies
from cimtool.bundle.exporter import Request
from cimtool.handoff.hex_lines import write_numbers
from cimtool.handoff.layers import DrivenLayer, HandoffPart, HandoffSource, lane_bits
from cimtool.handoff.taps import taps
from cimtool.hardware.noise.mvm import NoisyMvm

DIES_FILE = "dies.json"
STATISTICS = (
    "statistics of a noise model, never bit-exact: a chip differs from each of these dies, and no "
    "goal of the Makefile compares them"
)


def dies_described(request: Request) -> dict[str, Any]:
    """The entry of `handoff.json` about the dies that are asked for; none without any."""
    if request.noise is None:
        return {}
    return {"dies": {"bit_exact": False, "what": STATISTICS, **_asked(request.noise)}}


def write_dies(source: HandoffSource, folder: Path) -> None:
    """Draw the dies of the request, and write `folder`/dD/LAYER/ for each layer of each.

    Raises CimError for a bundle of which no die can be drawn.
    """
    options = source.request.noise
    assert options is not None
    conditions = conditions_of(source.bundle, options)
    layers: dict[str, dict[str, Any]] = {}
    countdown, total = Countdown(source.request.say), options.trials
    for index, die in enumerate(dies(source.bundle, conditions, total)):
        graphs = {graph.name: graph for graph in die.program.graphs}
        for layer in source.layers:
            name = f"d{index}/{layer.name}"
            own = place_in(folder, name)
            own.mkdir(parents=True)
            op = graphs[layer.graph.name].operations(NoisyMvm)[layer.node.name]
            layers[name] = _write_layer(layer, op, own)
        countdown.tell(f"die {index + 1} of {total}: written", index + 1, total)
    described = {
        "what": STATISTICS,
        **_asked(options),
        "read": conditions.when,
        "layers": layers,
    }
    (folder / DIES_FILE).write_text(json.dumps(described, indent=1) + "\n", "utf-8")


def _asked(options: NoiseOptions) -> dict[str, Any]:
    """The options by which dies were drawn."""
    return {**vars(options), "model": options.model and str(options.model)}


def _write_layer(layer: DrivenLayer, op: NoisyMvm, folder: Path) -> dict[str, Any]:
    """Write what a layer's cells came to and what its arrays show; how the lines count."""
    cells = np.concatenate([one.digits for one in op.cells.slices], axis=1).astype(np.int64)
    seen, image = taps(op, layer.x), layer.image
    bits = {
        name: lane_bits(int(values.min()), int(values.max()))
        for name, values in (("cells", cells), ("sums", seen.sums), ("codes", seen.codes))
    }
    for row in range(-(-image.rows // image.array_rows)):
        of_row = cells[row * image.array_rows : (row + 1) * image.array_rows]
        layer.write_arrays(folder, row, "cells", of_row, bits["cells"])
    for g, (row, within, _) in enumerate(layer.groups()):
        layer.write_arrays(folder, row, f"g{within}.sums", seen.sums[:, g], bits["sums"])
        layer.write_arrays(folder, row, f"g{within}.codes", seen.codes[:, g], bits["codes"])
    write_numbers(folder / "layer_sum.hex", op.run(layer.x))
    return {"lane_bits": bits, "fraction_bits": op.cells.fraction_bits, "leak": op.cells.leak}


DIES_PART = HandoffPart(
    folder="dies",
    title="Dies drawn from a noise model: what their cells came to, and what they show of the "
    f"inputs of `taps/`: {STATISTICS}",
    write=write_dies,
    asked=lambda request: request.noise is not None,
    files={
        DIES_FILE: "the noise, the time of reading, and of each layer of each die the bits of a "
        "lane, and the binary places of a digit in which cells and sums count",
        "dD/LAYER/rR.cC/cells.hex": "what the cells of die D came to, a row of weights a line, in "
        "the lanes of sums: of a pair its difference",
        "dD/LAYER/rR.cC/gG.*.hex": "sums, with the noise of reads, and codes of its lanes",
        "dD/LAYER/layer_sum.hex": "all row groups and bias, as this die has them",
    },
)
