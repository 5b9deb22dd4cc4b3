"""Programming images: the contents of every cell of every array, and how to check them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from cimtool.base.errors import CimError
from cimtool.base.files import place_in
from cimtool.bundle.bundle import Bundle
from cimtool.hardware.image_file import (
    CELLS,
    FLIPPED,
    IMAGES,
    ArrayImage,
    ImagesFile,
    ImageSlice,
    LayerImage,
    array_name,
    weights_digest,
)
from cimtool.hardware.keys import PairAxis
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.placement import Placement, floorplan, placements
from cimtool.hardware.stored import StoredWeights, cell_digits


def write_images(bundle: Bundle, layers: Mapping[str, CrossbarMvm], folder: Path) -> ImagesFile:
    """Write `folder`/LAYER/rR.cC/ of each array of these layers, and `images.json`.

    A layer that shares the cells of another has no image of its own. Raises CimError for a weight
    code whose digits do not fit their cells.
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


def empty_images(bundle: Bundle) -> ImagesFile:
    """The order and the extents of a bundle's arrays.

    If a target does not give the size of an array, the largest layer fits.
    """
    places, high = placements(bundle.program, bundle.settings), 1
    if bundle.settings.pairs == "rows":
        high = 2
    columns = (
        one.array_columns * one.cells_per_weight // high + one.unit_columns + one.reference_columns
        for one in places
    )
    return ImagesFile(
        order=bundle.target.cell_order,
        array_rows=bundle.settings.rows or max(one.array_rows * high for one in places),
        array_columns=bundle.settings.columns or max(columns),
        layers={},
    )


def layer_image(stored: StoredWeights, place: Placement, pairs: PairAxis) -> LayerImage:
    """The image of a layer, before its arrays are known.

    Raises CimError for digits that do not fit their cells.
    """
    crossbar, code = stored.crossbar, stored.crossbar.weights
    slices = []
    for number, one in enumerate(stored.slices[:: 1 + crossbar.columns_by_polarity]):
        lo, hi = int(one.digits.min()) + code.baseline, int(one.digits.max()) + code.baseline
        signed = lo < 0 and not code.paired
        half = 1 << code.cell_bits - 1
        if signed and not -half <= lo <= hi < half:
            raise CimError(
                f"{place.layer}: slice {number} has digits from {lo} to {hi}, which a cell of "
                f"{code.cell_bits} bits does not hold; expected {-half} to {half - 1}"
            )
        slices.append(ImageSlice(shift=one.shift, sign=1 if one.sign > 0 else -1, signed=signed))
    return LayerImage(
        rows=place.rows,
        columns=place.columns,
        array_rows=place.array_rows,
        array_columns=place.array_columns,
        encoding=code.name,
        weight_bits=code.bits,
        cell_bits=code.cell_bits,
        slices=tuple(slices),
        polarities=2 if code.paired else 1,
        pairs=pairs,
        baseline=code.baseline,
        complement=code.complement,
        offset=code.offset,
        flips=code.complements,
        unit_column=crossbar.unit_column,
        reference_column=code.reference_column,
        row_groups=tuple((group.start, group.stop) for group in stored.groups),
        weights_sha256=weights_digest([stored.weight]),
        arrays=(),
    )


def write_layer(
    stored: StoredWeights,
    image: LayerImage,
    images: ImagesFile,
    folder: Path,
    places: Iterator[tuple[int, int]],
) -> Iterator[ArrayImage]:
    """Write the arrays of a layer, one row of them after the other, and yield what they are.

    `places` are the number and the core of each.
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
