"""The parts of a hand-off that say of each array what it holds, what drives it, what it shows."""

from __future__ import annotations

from pathlib import Path

from cimtool.handoff.constants import write_constants
from cimtool.handoff.hex_lines import NUMBER_BITS
from cimtool.handoff.images import write_images
from cimtool.handoff.layers import DrivenLayer, Lanes
from cimtool.handoff.part import HandoffPart, HandoffSource
from cimtool.handoff.steps import STEPS_FILE, steps_text
from cimtool.handoff.taps import TAPS_FILE, write_ends, write_taps

BITS_OF_A_LETTER = 4
"""Of the hexadecimal digits of taps."""


def _write_images(source: HandoffSource, folder: Path) -> None:
    # Of those with the same cells the first.
    stored = {one.cells: one.op for one in reversed(source.layers)}
    write_images(source.bundle, stored, folder)


def _write_constants(source: HandoffSource, folder: Path) -> None:
    write_constants(source.layers, folder)


def _write_taps(source: HandoffSource, folder: Path) -> None:
    """Write the taps, and beside their folder the steps that they are shown in."""
    write_taps(source.layers_told("taps"), source.lanes, folder)
    write_ends(source.bundle.program, source.layers, source.request.inputs, folder)
    (folder.parent / STEPS_FILE).write_text(steps_text(source.layers, source.lanes), "utf-8")


def array_bytes(layer: DrivenLayer, lanes: Lanes) -> int:
    """The bytes of the images of a layer's own arrays, and of the taps of their reads."""
    layout, groups = layer.layout, list(layer.groups())
    across = len(layer.arrays(0))
    images = layout.rows * layout.order.line_bytes(layout.columns * layer.image.cell_bits)
    vectors, cycles = len(layer.x), len(layer.op.crossbar.cycles)
    of_row = vectors * layer.image.array_rows * (lanes.inputs + cycles * lanes.digits)
    of_array = vectors * (2 * cycles * layer.lanes * lanes.sums + layer.layout.across * NUMBER_BITS)
    rows_of_arrays = groups[-1][0] + 1
    taps = len(groups) * (of_row + across * of_array) // BITS_OF_A_LETTER
    return rows_of_arrays * across * images * (layer.cells == layer.name) + taps


IMAGES_PART = HandoffPart(
    folder="images",
    title="What to write into the cells of every array, in the order of the target's `[image]`",
    write=_write_images,
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
    write=_write_constants,
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

TAPS_PART = HandoffPart(
    folder="taps",
    title="What every read of every array must show, and what layers and the score must, in the "
    "order of `steps.txt` beside this folder",
    write=_write_taps,
    files={
        TAPS_FILE: "shapes and widths of the values of encoders and score",
        "LAYER/rR/gG.*.hex": "inputs and digits of a row group, a vector (and cycle) a line",
        "LAYER/rR.cC/gG.*.hex": "sums, codes and shift_add of its lanes",
        "LAYER/layer_sum.hex": "all row groups and bias",
        "LAYER/qN/requantised.hex": "what each requantisation of these sums makes of them",
    },
)
