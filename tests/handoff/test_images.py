"""Images of layers on every target and in every order: what is read back is the weights."""

from __future__ import annotations

from itertools import count, product
from pathlib import Path

import numpy as np
import pytest

from cimtool.base.arrays import IntArray
from cimtool.base.errors import CimError
from cimtool.bundle.bundle import Bundle, read_bundle
from cimtool.handoff.images import write_images, write_layer
from cimtool.handoff.layers import layer_image
from cimtool.handoff.written import read_weights
from cimtool.hardware.image import ImageSpec
from cimtool.hardware.image_file import ImagesFile, LayerImage
from cimtool.hardware.input_codes import InputCode
from cimtool.hardware.placement import crossbar_layers, placed
from cimtool.hardware.settings import Settings, resolve
from cimtool.hardware.stored import StoredWeights
from cimtool.hardware.target import load_target, target_names

ROWS, COLUMNS = 141, 70
"""More than one array of most targets."""


def settings_of(target: str, **flags: object) -> Settings:
    return resolve(load_target(target), None, flags)


def written(
    settings: Settings, folder: Path, order: ImageSpec, shape: tuple[int, int] = (ROWS, COLUMNS)
) -> tuple[IntArray, LayerImage, ImagesFile]:
    """Random weights with their extremes, written to `folder`/layer."""
    rng = np.random.default_rng(7)
    most = (1 << settings.weight_bits - 1) - 1
    weight = rng.integers(-most, most, shape, endpoint=True)
    weight[0, 0], weight[-1, -1] = most, -most
    code = InputCode.named(settings.input_encoding, "encoding")(settings.input_bits, 1)
    stored = StoredWeights(weight, settings.crossbar(code))
    place = placed("text", "layer", shape, stored.crossbar, settings)
    image = layer_image(stored, place, settings.pairs)
    images = ImagesFile(
        order=order,
        array_rows=settings.rows or 2 * shape[0],
        array_columns=settings.columns or 100 * shape[1],
        layers={},
    )
    places = zip(count(), count())
    arrays = tuple(write_layer(stored, image, images, folder / "layer", places))
    assert len(arrays) == place.arrays
    return weight, image.model_copy(update={"arrays": arrays}), images


@pytest.mark.thorough(
    "more circuits and faults; each simulator has one in the first tier",
    quick=("isaac", "dcim-28nm-isscc23"),
)
def weights_read(folder: Path, name: str, layer: LayerImage, images: ImagesFile) -> np.ndarray:
    """The weights [rows, columns] of a layer, from its images in a folder."""
    blocks = list(read_weights(folder, name, layer, images))
    return np.concatenate(blocks).reshape(layer.rows, layer.columns)


@pytest.mark.parametrize("target", target_names())
def test_weights_are_read_back_on_every_target(target: str, tmp_path: Path) -> None:
    weight, layer, images = written(settings_of(target), tmp_path, ImageSpec())
    np.testing.assert_array_equal(weights_read(tmp_path, "layer", layer, images), weight)


ENCODINGS = {
    "offset": {"offset_sum": "unit-column", "array": "128x129"},
    "centred": {"array": "128x129"},
    "offset-flip": {"rows_active": 50},
    "differential": {"adc_on": "polarity"},
    "ternary": {"cell_bits": 1},
    "twos-complement": {"adc_bits": "lossless", "rows_active": 128},
}


@pytest.mark.thorough(
    "more circuits and faults; each simulator has one in the first tier", quick=("all",)
)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_weights_are_read_back_in_every_order(encoding: str, tmp_path: Path) -> None:
    orders = product(
        ("weight-major", "slice-major"),
        ("positive-first", "negative-first"),
        ("ascending", "descending"),
        ((None, "hex", "lsb-first"), (32, "binary", "msb-first")),
    )
    settings = settings_of("isaac-rram-128", encoding=encoding, **ENCODINGS[encoding])
    for index, (columns, pair, rows, (word, digits, bits)) in enumerate(orders):
        values = {"columns": columns, "pair": pair, "rows": rows, "word_bits": word}
        order = ImageSpec.model_validate(values | {"digits": digits, "bit_order": bits})
        folder = tmp_path / str(index)
        weight, layer, images = written(settings, folder, order)
        np.testing.assert_array_equal(weights_read(folder, "layer", layer, images), weight)
        suffix = "hex" if digits == "hex" else "bin"
        names = {file.name for file in folder.rglob("*.*") if file.is_file()}
        flags = {f"flipped.{suffix}"} if layer.flips else set()
        assert names == {f"cells.{suffix}"} | flags


def test_pairs_lie_in_two_rows(tmp_path: Path) -> None:
    settings = settings_of("neurram-rram-130nm")
    weight, _, images = written(settings, tmp_path, ImageSpec(), (3, 2))
    cells = (tmp_path / "layer" / "r0.c0" / "cells.hex").read_text().split()
    assert len(cells) == images.array_rows == 256
    pairs = [[int(line[-1 - column], 16) for column in range(2)] for line in cells[:6]]
    assert np.array_equal(np.array(pairs[0::2]) - np.array(pairs[1::2]), weight)
    assert set("".join(cells[6:])) == {"0"}


def test_sums_are_those_of_the_cells(tmp_path: Path) -> None:
    """Of the lines as they are written, and of the auxiliary columns too."""
    settings = settings_of("isaac-rram-128", encoding="centred", array="128x129")
    _, layer, _ = written(settings, tmp_path, ImageSpec())
    for array in layer.arrays:
        lines = (tmp_path / "layer" / array.name / "cells.hex").read_text().split()
        cells = [[int(line, 16) >> 2 * column & 3 for column in range(129)] for line in lines]
        assert tuple(map(sum, cells)) == array.row_sums
        assert tuple(map(sum, zip(*cells, strict=True))) == array.column_sums
        rows = array.rows[1] - array.rows[0]
        assert array.column_sums[-1] == rows * layer.baseline == rows


@pytest.fixture(scope="module")
def bundle(small_bundle: Path) -> Bundle:
    return read_bundle(small_bundle)


def test_a_bundle_has_an_image_of_every_array(bundle: Bundle, tmp_path: Path) -> None:
    layers = {n: op for g in bundle.program.graphs for n, op in crossbar_layers(g).items()}
    images = write_images(bundle, layers, tmp_path)
    assert {"text.logvar", "video.logvar"} < set(images.layers) == set(layers)
    numbers = [array.number for layer in images.layers.values() for array in layer.arrays]
    assert numbers == list(range(len(numbers)))
    for name, layer in images.layers.items():
        read = weights_read(tmp_path, name, layer, images)
        np.testing.assert_array_equal(read, layers[name].weight)


def test_digits_that_no_cell_holds_are_refused(bundle: Bundle) -> None:
    op = next(iter(crossbar_layers(bundle.program.text).values()))
    place = placed("text", "text.fc1", op.stored.shape, op.crossbar, bundle.settings)
    stored = StoredWeights(op.weight, op.crossbar)
    digits = stored.slices[0].digits
    digits[0, 0], digits[0, 1] = -1, 3
    with pytest.raises(CimError, match=r"^text.fc1: slice 0 has digits from -1 to 3, .* -2 to 1"):
        layer_image(stored, place, "columns")
