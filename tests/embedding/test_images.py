from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tiny_encoders import IMAGES, SIDE, write_json

from cimtool.base.errors import CimError
from cimtool.embedding.images import MOST_PIXELS, Preprocessing, read_image


def steps(folder: Path, **changes: Any) -> Preprocessing:
    values = {key: one for key, one in (IMAGES | changes).items() if one is not ...}
    write_json(folder / "preprocessor_config.json", values)
    return Preprocessing.read(folder)


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    """An image of 20 x 10 pixels, of which no two are equal."""
    values = np.arange(600, dtype=np.uint16).reshape(10, 20, 3) * 3 % 251
    file = tmp_path / "picture.png"
    Image.fromarray(values.astype(np.uint8)).save(file)
    return file


def test_the_middle_is_normalised_by_channel(picture: Path, tmp_path: Path) -> None:
    found = steps(tmp_path, do_resize=False).pixels(picture)
    assert (found.shape, found.dtype) == ((3, SIDE, SIDE), np.float32)
    middle = np.asarray(Image.open(picture))[1:9, 6:14] / 255
    np.testing.assert_allclose(
        found.transpose(1, 2, 0),
        (middle - [0.5, 0.4, 0.3]) / [0.2, 0.25, 0.5],
        rtol=1e-5,
        atol=1e-6,
    )


def test_the_shorter_side_is_resized(picture: Path, tmp_path: Path) -> None:
    found = steps(tmp_path, do_normalize=False, do_rescale=False).pixels(picture)
    resized = np.asarray(Image.open(picture).resize((16, 8), 3))
    np.testing.assert_array_equal(found.transpose(1, 2, 0), resized[:, 4:12])


def test_both_sides_are_resized(picture: Path, tmp_path: Path) -> None:
    size = {"height": 6, "width": 7}
    plain = {"do_normalize": False, "do_rescale": False, "do_center_crop": False}
    found = steps(tmp_path, size=size, resample=2, **plain).pixels(picture)
    expected = np.asarray(Image.open(picture).resize((7, 6), 2))
    np.testing.assert_array_equal(found.transpose(1, 2, 0), expected)


def test_an_image_that_is_smaller_than_the_middle_stands_on_black(
    picture: Path, tmp_path: Path
) -> None:
    plain = {"do_normalize": False, "do_rescale": False, "do_resize": False}
    found = steps(tmp_path, crop_size={"height": 13, "width": 20}, **plain).pixels(picture)
    assert found.shape == (3, 13, 20)
    assert (found[:, :2].max(), found[:, 12:].max()) == (0, 0)
    np.testing.assert_array_equal(found[:, 2:12].transpose(1, 2, 0), Image.open(picture))


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no size": ({"size": ...}, "size is None; expected an integer, or height and width"),
    "a huge size": ({"size": 1 << 20}, r"size is 1048576; expected an integer from 1 to 4096"),
    "a size that is none": ({"crop_size": {"height": 0, "width": 3}}, r"crop_size\.height is 0"),
    "no filter": ({"resample": ...}, "resample is -1; expected an integer from 0 to 5"),
    "shapes of their own": ({"do_center_crop": False}, "expected crop_size, or size of both"),
    "two means": ({"image_mean": [0.5, 0.5]}, "a number and two lists of 3"),
    "a deviation of zero": ({"image_std": [1, 0, 1]}, "a number and two lists of 3"),
    "a huge number": ({"image_mean": [10**400, 0, 0]}, "a number and two lists of 3"),
    "no list": ({"image_mean": 1.5}, "a number and two lists of 3"),
    "a text for a list": ({"image_std": "abc"}, "a number and two lists of 3"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_value_of_the_processor_is_named(kind: str, tmp_path: Path) -> None:
    changes, said = WRONG[kind]
    with pytest.raises(CimError, match=said) as caught:
        steps(tmp_path, **changes)
    assert str(caught.value).startswith(f"{tmp_path / 'preprocessor_config.json'}: ")


def png(width: int, height: int, rows: bytes) -> bytes:
    """A PNG in grey whose header claims a size."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        whole = kind + content
        return struct.pack(">I", len(content)) + whole + struct.pack(">I", zlib.crc32(whole))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    marks = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(marks)


@pytest.mark.parametrize("side", [9_000, 30_000, 1 << 30])
def test_an_image_of_too_many_pixels_is_not_decoded(side: int, tmp_path: Path) -> None:
    file = tmp_path / "bomb.png"
    file.write_bytes(png(side, side, b"\0" * 100))
    assert side * side > MOST_PIXELS
    with pytest.raises(CimError, match=r"bomb\.png: (has .* pixels; expected|cannot be decoded)"):
        read_image(file)


def test_an_image_that_would_become_huge_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "line.png"
    file.write_bytes(png(1, 3_000_000, b"\0\0" * 3_000_000))
    with pytest.raises(CimError, match="would become 8 x 24,000,000; expected a shape"):
        steps(tmp_path).pixels(file)


@pytest.mark.parametrize("content", [b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", b""])
def test_other_formats_are_not_opened(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "image.png"
    file.write_bytes(content)
    with pytest.raises(CimError, match=r"image\.png: is no image; expected JPEG, PNG"):
        read_image(file)


def test_a_palette_and_grey_become_colours(tmp_path: Path) -> None:
    for mode in ("P", "L", "RGBA", "1", "I;16"):
        file = tmp_path / "image.png"
        Image.new(mode, (3, 2)).save(file)
        assert np.asarray(read_image(file)).shape == (2, 3, 3)
