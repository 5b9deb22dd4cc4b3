"""The parts of a hand-off that are programmed: cells of arrays, and the constants beside them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cimtool.base.files import place_in
from cimtool.handoff.hex_lines import NUMBER_BITS, write_numbers
from cimtool.handoff.images import write_images
from cimtool.handoff.layers import DrivenLayer, HandoffPart
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
        layer.write_arrays(folder, row, f"g{within}.offsets", values, NUMBER_BITS)


IMAGES_PART = HandoffPart(
    folder="images",
    title="What to write into the cells of every array, in the order of the target's `[image]`",
    # The first of those with the same cells.
    write=lambda source, folder: write_images(
        source.bundle, {one.cells: one.op for one in reversed(source.layers)}, folder
    ),
    files={
        "images.json": "layers and arrays, their places, and the sums of their rows and columns",
        "LAYER/rR.cC/cells.*": "the cells of the array in row R, column C of a layer's arrays, a "
        "word line a line",
        "LAYER/rR.cC/flipped.*": "which columns hold complements, a row group a line",
    },
)

CONSTANTS_PART = HandoffPart(
    folder="constants",
    title="What the digital side adds, multiplies and limits, and the references of converters",
    write=lambda source, folder: write_constants(source.layers, folder),
    files={
        "LAYER/bias.hex": "of each column, a number of 64 bits a line",
        "LAYER/qN/multiplier.hex, shift.hex, lo.hex, hi.hex": "the same of requantisation N",
        "LAYER/qN/affine.hex": "factor, offset, lowest and highest value of each stage between a "
        "sum and this requantisation",
        "LAYER/steps.hex, thresholds.hex, levels.hex": "steps and tables of the converters, a "
        "slice after the other, each of its cycles; a step of 0 is lossless",
        "LAYER/rR.cC/gG.offsets.hex": "the offsets of an array's lanes in a row group, a cycle a "
        "line",
    },
)
