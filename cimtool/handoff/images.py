"""The parts that are programmed: the cells of every array, with check sums, and constants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from cimtool.base.errors import CimError
from cimtool.base.files import place_in
from cimtool.bundle.bundle import Bundle
from cimtool.handoff.layers import (
    NUMBER_BITS,
    DrivenLayer,
    HandoffPart,
    empty_images,
    layer_image,
    write_numbers,
)
from cimtool.hardware.converters import StaircaseLaw
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


def write_constants(layers: list[DrivenLayer], folder: Path) -> None:
    """Write `folder`/LAYER/ for each layer: a number per line; offsets of converters bus-wide."""
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
    steps = [one.one_step for one in columns]
    if None in steps:
        raise CimError(
            f'{layer.name}: references = "gain" sets a step for each column, and the macro of the '
            "hand-off has one for each slice; expected other references, or the format testvectors"
        )
    write_numbers(folder / "steps.hex", np.array(steps))
    tables = [crossbar.law] if isinstance(crossbar.law, StaircaseLaw) else []
    if crossbar.scope.levels:
        # A lossless conversion gets equal levels instead.
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
    title="The content of the cells of every array, in the order of the target's `[image]`",
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
    files={
        "LAYER/bias.hex": "for each column, one number of 64 bits per line",
        "LAYER/qN/multiplier.hex, shift.hex, lo.hex, hi.hex": "the same for requantisation N",
        "LAYER/qN/affine.hex": "factor, offset, lowest and highest value of each stage between a "
        "sum and this requantisation",
        "LAYER/steps.hex, thresholds.hex, levels.hex": "steps and tables of the converters, slice "
        "by slice and cycle by cycle; a step of 0 is lossless",
        "LAYER/rR.cC/gG.offsets.hex": "the offsets of an array's lanes in a row group, one cycle "
        "per line",
    },
)
