"""The constants behind the arrays: biases, requantisation, and the settings of converters."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cimtool.base.files import place_in
from cimtool.handoff.hex_lines import NUMBER_BITS
from cimtool.handoff.layers import DrivenLayer, write_bus, write_numbers
from cimtool.hardware.converters import StaircaseLaw


def write_constants(layers: list[DrivenLayer], folder: Path) -> None:
    """Write `folder`/LAYER/ for each layer: a number a line, offsets of converters bus-wide."""
    for layer in layers:
        own = place_in(folder, layer.name)
        own.mkdir()
        write_numbers(own / "bias.hex", layer.op.layer.bias)
        for place, after in layer.requantisations.items():
            after_folder = place_in(folder, place)
            after_folder.mkdir()
            for name in ("multiplier", "shift", "lo", "hi"):
                write_numbers(after_folder / f"{name}.hex", getattr(after, name))
            if len(after.affine):
                write_numbers(after_folder / "affine.hex", after.affine)
        if layer.op.crossbar.law is not None:
            _write_converters(layer, own)


def _write_converters(layer: DrivenLayer, folder: Path) -> None:
    """Write the steps of a layer's references, its tables, and the offsets of its columns."""
    op, crossbar, columns = layer.op, layer.op.crossbar, layer.op.layer.columns
    write_numbers(folder / "steps.hex", np.array([one.step for one in columns]))
    tables = [crossbar.law] if isinstance(crossbar.law, StaircaseLaw) else []
    if crossbar.scope.levels:
        # Where a conversion is lossless, equal levels stand in its place.
        equal = crossbar.finest_references
        given = (equal if one is None else one for one in op.references)
        tables = [one.levels for one in given if one.levels is not None]
    if tables:
        write_numbers(folder / "thresholds.hex", np.stack([one.thresholds for one in tables]))
        write_numbers(folder / "levels.hex", np.stack([one.levels for one in tables]))
    if not crossbar.scope.set:
        return
    cycles = crossbar.reference_cycles
    for g, (row, within, _) in enumerate(layer.groups()):
        offsets = [one.offset[g] for one in columns]
        values = np.stack([np.concatenate(offsets[c::cycles]) for c in range(cycles)])
        for array, lanes in zip(layer.arrays(row), layer.of_arrays(values), strict=True):
            place = folder / array
            place.mkdir(exist_ok=True)
            write_bus(place / f"g{within}.offsets.hex", lanes, NUMBER_BITS)
