"""The parts that are programmed: the cells of every array, with check sums, and constants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from cimtool.base.errors import CimError
from cimtool.base.files import place_in
from cimtool.bundle.bundle import Bundle
from cimtool.handoff.formats import NumberFile
from cimtool.handoff.layers import DrivenLayer, HandoffPart, empty_images, layer_image
from cimtool.hardware.image_file import (
    CELLS,
    FLIPPED,
    IMAGES,
    ArrayImage,
    ImagesFile,
    LayerImage,
    array_name,
)
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.placement import floorplan, placements
from cimtool.hardware.stored import StoredWeights, cell_digits


def write_images(bundle: Bundle, layers: Mapping[str, CrossbarMvm], folder: Path) -> ImagesFile:
    """Write `folder`/LAYER/rR.cC/ for each array of these layers, and `images.json`.

    A layer that shares the cells of another has no image. Raises CimError for a weight code whose
    digits do not fit their cells.
    """
    places = [one for one in placements(bundle.program, bundle.settings) if one.shares is None]
    plan = floorplan(places, bundle.target)
    pairs = bundle.settings.pairs
    images = empty_images(bundle)
    written, first = {}, 0
    for place in places:
        if place.layer in layers:
            numbers = range(first, first + place.arrays)
            cores = [n % plan.arrays // plan.chip.arrays_per_core for n in numbers]
            stored, own = layers[place.layer].stored, place_in(folder, place.layer)
            image = layer_image(stored, place, pairs)
            arrays = write_layer(stored, image, images, own, zip(numbers, cores, strict=True))
            written[place.layer] = image.model_copy(update={"arrays": tuple(arrays)})
        first += place.arrays
    found = images.model_copy(update={"layers": written})
    (folder / IMAGES).write_text(found.model_dump_json() + "\n", "utf-8")
    return found


def write_layer(
    stored: StoredWeights,
    image: LayerImage,
    images: ImagesFile,
    folder: Path,
    places: Iterator[tuple[int, int]],
) -> Iterator[ArrayImage]:
    """Write the arrays of a layer, a row of arrays at a time, and yield their descriptions.

    `places` gives the number and the core of each array.
    """
    layout, order = image.layout(images), images.order
    code = stored.crossbar.weights
    unit = [1 + code.baseline] * stored.crossbar.unit_column
    beside = np.array([*unit, *[code.baseline] * code.reference_column], np.uint8)
    for r, first in enumerate(range(0, image.rows, image.array_rows)):
        rows = slice(first, min(first + image.array_rows, image.rows))
        cells = layout.cells(cell_digits(stored, rows), beside)
        texts = order.text(order.in_rows(cells), image.cell_bits)
        flags = None
        if image.flips:
            starts = enumerate(group.start for group in stored.groups)
            groups = [g for g, start in starts if rows.start <= start < rows.stop]
            flips = np.stack([one.flipped[groups] for one in stored.slices], axis=2)
            flags = order.text(layout.lanes(layout.in_arrays(flips)), 1)
        row_sums = cells.sum(axis=2, dtype=np.int64).tolist()
        column_sums = cells.sum(axis=1, dtype=np.int64).tolist()
        for c, column in enumerate(range(0, image.columns, image.array_columns)):
            place = folder / array_name(r, c)
            place.mkdir(parents=True)
            (place / f"{CELLS}.{order.suffix}").write_bytes(texts[c].tobytes())
            if flags is not None:
                (place / f"{FLIPPED}.{order.suffix}").write_bytes(flags[c].tobytes())
            number, core = next(places)
            yield ArrayImage(
                name=array_name(r, c),
                number=number,
                core=core,
                rows=(rows.start, rows.stop),
                columns=(column, min(column + image.array_columns, image.columns)),
                row_sums=tuple(row_sums[c]),
                column_sums=tuple(column_sums[c]),
            )


def image_bytes(layer: DrivenLayer) -> int:
    """The bytes of a layer's images with their sums, unless it shares another's."""
    if layer.cells != layer.name:
        return 0
    layout, image, groups = layer.layout, layer.image, list(layer.groups())
    arrays = (groups[-1][0] + 1) * len(layer.arrays(0))
    cells = layout.rows * layout.order.line_bytes(layout.columns * image.cell_bits)
    flags = layout.order.line_bytes(layout.across * layout.slices) if image.flips else 0
    sums = SUM_LETTERS * (layout.rows + layout.columns)
    return arrays * (cells + sums) + len(groups) * len(layer.arrays(0)) * flags


SUM_LETTERS = 4
"""Letters of a sum in `images.json`, about, with its comma."""

CONSTANTS = {
    "bias": NumberFile("{layer}/bias.hex", "added to the sum of all row groups", ("column",)),
    "multiplier": NumberFile(
        "{requantisation}/multiplier.hex", "the factor of a requantisation", ("column",)
    ),
    "shift": NumberFile(
        "{requantisation}/shift.hex",
        "the binary places that are then dropped, rounding halves up",
        ("column",),
    ),
    "lo": NumberFile("{requantisation}/lo.hex", "the lowest result", ("column",)),
    "hi": NumberFile("{requantisation}/hi.hex", "the highest result", ("column",)),
    "affine": NumberFile(
        "{requantisation}/affine.hex",
        "factor, addend, lowest and highest value of each stage between a sum and the "
        "requantisation",
        ("stage", "column", "term"),
        where="stages",
    ),
    "steps": NumberFile(
        "{layer}/steps.hex",
        "the steps of the converters, in 2^-(sum_places + reference_places) of a digit; 0: the sum "
        "is taken as it is",
        ("converter", "reference"),
        where="converters",
    ),
    "thresholds": NumberFile(
        "{layer}/thresholds.hex",
        "`sum - offset` at which each code above the lowest begins, in 2^-threshold_places of a "
        "step",
        ("table", "threshold"),
        where="tables",
    ),
    "levels": NumberFile(
        "{layer}/levels.hex",
        "the value of each code, in steps from the offset on",
        ("table", "level"),
        where="tables",
    ),
    "offsets": NumberFile(
        "{array}/{group}.offsets.hex",
        "what a converter takes off its sum first, and the digital side adds to its value, in "
        "2^-(sum_places + reference_places) of a digit",
        ("reference",),
        "lane",
        where="references",
    ),
    "write_bounds": NumberFile(
        "{layer}/write_bounds.hex",
        "what a cell of each digit is to conduct by write-verify, in 2^-places uS",
        ("digit", "bound"),
        where="writes",
    ),
}
"""The files of `constants/`."""


def write_constants(layers: list[DrivenLayer], folder: Path) -> None:
    """Write the files of CONSTANTS that each layer has."""
    for layer in layers:
        CONSTANTS["bias"].write(folder, layer.op.layer.bias, layer=layer.name)
        for place, after in layer.requantisations.items():
            for name in ("multiplier", "shift", "lo", "hi"):
                CONSTANTS[name].write(folder, getattr(after, name), requantisation=place)
            if len(after.affine):
                CONSTANTS["affine"].write(folder, after.affine, requantisation=place)
        if "converters" in layer.facts:
            _write_converters(layer, folder)
        if layer.writes is not None:
            bounds = layer.writes.bounds
            CONSTANTS["write_bounds"].write(folder, bounds, layer=layer.name)


def _write_converters(layer: DrivenLayer, folder: Path) -> None:
    """Write the steps of a layer's references, its tables, and the offsets of its columns."""
    columns = layer.op.layer.columns
    cycles = layer.op.crossbar.reference_cycles
    steps = [one.one_step for one in columns]
    if None in steps:
        raise CimError(
            f'{layer.name}: references = "gain" sets a step for each column, and the macro of the '
            "hand-off has one for each slice; expected other references, or the format testvectors"
        )
    CONSTANTS["steps"].write(folder, np.array(steps).reshape(-1, cycles), layer=layer.name)
    for name in ("thresholds", "levels") if "tables" in layer.facts else ():
        values = np.stack([getattr(one, name) for one in layer.tables])
        CONSTANTS[name].write(folder, values, layer=layer.name)
    if "references" not in layer.facts:
        return
    for g, (row, within, _) in enumerate(layer.groups()):
        offsets = [one.offset[g] for one in columns]
        values = np.stack([np.concatenate(offsets[c::cycles]) for c in range(cycles)])
        layer.write_arrays(CONSTANTS["offsets"], folder, row, values, group=f"g{within}")


IMAGES_PART = HandoffPart(
    folder="images",
    title="The content of the cells of every array, in the order of the target's `[image]`",
    size=lambda source: sum(map(image_bytes, source.layers)),
    # Of layers with the same cells, the first is written.
    write=lambda source, folder: write_images(
        source.bundle, {one.cells: one.op for one in reversed(source.layers)}, folder
    ),
    files={
        "images.json": "layers and arrays, their places, and the sums of their rows and columns",
        "LAYER/rR.cC/cells.*": "the cells of the array in row R, column C of a layer's arrays, one "
        "word line per line",
        "LAYER/rR.cC/flipped.*": "which columns hold complements, one row group per line",
    },
)

CONSTANTS_PART = HandoffPart(
    folder="constants",
    title="The constants of the digital side, and the references of converters",
    write=lambda source, folder: write_constants(source.layers, folder),
    formats=CONSTANTS,
)
