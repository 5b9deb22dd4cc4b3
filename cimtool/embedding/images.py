"""Images as an encoder takes them: decoded by Pillow, resized, cropped and normalised.

The steps and their order are those of the image processors of Hugging Face's transformers, by the
keys of `preprocessor_config.json`, or else of open_clip's settings.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from cimtool.base.arrays import Array
from cimtool.base.errors import CimError
from cimtool.base.json_files import read_json
from cimtool.base.plugins import needing
from cimtool.base.untrusted import read_bounded
from cimtool.embedding import open_clip

if TYPE_CHECKING:
    from PIL.Image import Image

CONFIG = "preprocessor_config.json"

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")
"""Formats that are decoded; others of Pillow start programs or are seldom tested."""

LARGEST_IMAGE = 1 << 26
"""Most bytes of a file of an image."""

MOST_PIXELS = 1 << 26
"""Most pixels of an image, before and after it is resized: 200 MB in colours."""

LARGEST_SIDE = 4096
"""Most pixels of a side of what an encoder takes."""

LARGEST_NUMBER = 1e6
"""Numbers that normalise are less than this."""

SIDE = f"an integer from 1 to {LARGEST_SIDE}"


def read_image(file: Path) -> Image:
    """The first frame of an image in red, green and blue; CimError if it cannot be decoded."""
    with needing("an image"):
        from PIL import Image, UnidentifiedImageError
    content = read_bounded(file, LARGEST_IMAGE)
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as opened:
            width, height = opened.size
            if width * height > MOST_PIXELS:
                raise CimError(
                    f"{file}: has {width:,} x {height:,} pixels; expected at most {MOST_PIXELS:,}"
                )
            return opened.convert("RGB")
    except UnidentifiedImageError:
        raise CimError(f"{file}: is no image; expected {', '.join(FORMATS)}") from None
    except (
        *(OSError, SyntaxError, ValueError, EOFError, struct.error, zlib.error),
        Image.DecompressionBombError,
    ) as error:
        raise CimError(f"{file}: cannot be decoded as an image ({error})") from None


@dataclass(frozen=True)
class Preprocessing:
    """Steps from an image to numbers [3, height, width]; None leaves a step out.

    `size` is what the shorter side becomes, or height and width. `resample` is Pillow's number of
    a filter, `crop` the height and width of the middle that is kept. Values are multiplied by
    `scale`; `mean` and `std` normalise each channel then.
    """

    size: int | tuple[int, int] | None
    resample: int
    crop: tuple[int, int] | None
    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The steps of an encoder's folder; CimError for a missing file or a wrong value."""
        file = folder / CONFIG
        if not file.is_file() and (folder / open_clip.CONFIG).is_file():
            file, values = folder / open_clip.CONFIG, open_clip.image_settings(folder)
        elif file.is_file():
            values = read_json(file)
        else:
            raise CimError(
                f"{folder}: has no {CONFIG}, which says how images are resized and normalised; "
                "expected one"
            )
        if not isinstance(values, dict):
            raise CimError(f"{file}: holds no object; expected the keys of an image processor")
        try:
            return cls._of(values)
        except ValueError as error:
            raise CimError(f"{file}: {error}") from None

    @classmethod
    def _of(cls, values: Mapping[str, Any]) -> Self:
        size: int | tuple[int, int] | None = None
        resample = 0
        if values.get("do_resize", True):
            given = values.get("size")
            if isinstance(given, dict) and set(given) == {"shortest_edge"}:
                given = given["shortest_edge"]
            size = _side(given, "size") if isinstance(given, int) else _sides(given, "size")
            resample = values.get("resample", -1)
            if resample not in range(6):
                raise ValueError(f"resample is {resample}; expected an integer from 0 to 5")
        crop = (
            _sides(values.get("crop_size"), "crop_size") if values.get("do_center_crop") else None
        )
        if crop is None and not isinstance(size, tuple):
            raise ValueError("images keep their own shapes; expected crop_size, or size of both")
        scale = values.get("rescale_factor", 1 / 255) if values.get("do_rescale", True) else 1.0
        mean, std = [0.0] * 3, [1.0] * 3
        if values.get("do_normalize", True):
            mean, std = values.get("image_mean", []), values.get("image_std", [])
        lists = isinstance(mean, list) and isinstance(std, list) and len(mean) == len(std) == 3
        numbers = [scale, *mean, *std] if lists else []
        plain = all(type(one) in (int, float) and abs(one) < LARGEST_NUMBER for one in numbers)
        if not lists or not plain or min(scale, *std) <= 0:
            raise ValueError(
                "rescale_factor, image_mean and image_std are not a number and two lists of 3; "
                "expected these"
            )
        return cls(size, resample, crop, float(scale), tuple(mean), tuple(std))

    def pixels(self, file: Path) -> Array:
        """The numbers of an image, float32 [3, height, width]; CimError as `read_image`."""
        image = read_image(file)
        if self.size is not None:
            width, height = _resized(image.size, self.size)
            if width * height > MOST_PIXELS:
                raise CimError(
                    f"{file}: is {image.size[0]:,} x {image.size[1]:,} pixels and would become "
                    f"{width:,} x {height:,}; expected a shape that is less long"
                )
            image = image.resize((width, height), self.resample)
        colours = np.asarray(image).transpose(2, 0, 1)
        if self.crop is not None:
            colours = _middle(colours, self.crop)
        scaled = colours.astype(np.float32) * np.float32(self.scale)
        mean, std = (np.array(one, np.float32)[:, None, None] for one in (self.mean, self.std))
        normal: Array = (scaled - mean) / std
        return normal


def _resized(image: tuple[int, int], size: int | tuple[int, int]) -> tuple[int, int]:
    """Width and height of an image after resizing to a `size`."""
    if isinstance(size, tuple):
        return size[1], size[0]
    longer = int(size * max(image) / min(image))
    return (size, longer) if image[0] <= image[1] else (longer, size)


def _middle(colours: Array, crop: tuple[int, int]) -> Array:
    """The middle of colours [3, h, w], with black around it if they are smaller."""
    lacking = [max(want - have, 0) for want, have in zip(crop, colours.shape[1:], strict=True)]
    around = [(-(-one // 2), one // 2) for one in lacking]
    whole = np.pad(colours, [(0, 0), *around])
    top, left = ((have - want) // 2 for want, have in zip(crop, whole.shape[1:], strict=True))
    return whole[:, top : top + crop[0], left : left + crop[1]]


def _sides(value: Any, key: str) -> tuple[int, int]:
    """Height and width; ValueError for anything else."""
    if isinstance(value, dict) and set(value) == {"height", "width"}:
        return _side(value["height"], f"{key}.height"), _side(value["width"], f"{key}.width")
    if isinstance(value, int):
        return _side(value, key), _side(value, key)
    raise ValueError(f"{key} is {value}; expected an integer, or height and width")


def _side(value: Any, key: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST_SIDE:
        raise ValueError(f"{key} is {value}; expected {SIDE}")
    return value
