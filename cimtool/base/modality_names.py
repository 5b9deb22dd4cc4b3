"""Words for the two modalities, as a user's data name them: text and video, text and image."""

from __future__ import annotations

import re
from collections.abc import Collection
from fnmatch import fnmatchcase

from cimtool.base.escapes import clean_name

Modalities = tuple[str, str]
"""Names of the arrays that are taken as text and as video."""

TEXT_VIDEO: Modalities = ("text", "video")

NAMES = {"text": ("text",), "video": ("video", "image")}
"""The names that a user may give to what cimtool calls text and video."""

COUNTED = ("text", "video", "image")
"""Names of a single item, so that several items take an s."""


def spellings(modality: str, suffix: str = "") -> tuple[str, ...]:
    """The names of a thing of a modality, as a user may spell them: `video_mu`, `image_mu`."""
    return tuple(f"{name}{suffix}" for name in NAMES[modality])


def layer_matches(layer: str, pattern: str) -> bool:
    """Match a layer by a user's pattern, as a shell does: `image.*` matches `video.fc1`.

    The layer may be a pattern too, which matches itself.
    """
    name, wanted = (re.sub(r"^image\b", "video", one) for one in (layer, pattern))
    return fnmatchcase(name, wanted)


def clean_names(modalities: Modalities) -> Modalities:
    """The names by which a bundle calls two modalities."""
    first, second = modalities
    return clean_name(first), clean_name(second)


def names_held(modalities: Modalities | None, names: Collection[str]) -> Modalities | None:
    """The names of a bundle's two modalities as they are among the `names` of arrays."""
    if modalities is None:
        return None
    held = {clean_name(name): name for name in names}
    first, second = (one if one in names else held.get(one, one) for one in modalities)
    return first, second


def name_of(modality: str, called: Modalities = TEXT_VIDEO) -> str:
    """The user's name of `text` or `video`."""
    return called[TEXT_VIDEO.index(modality)]


def one_row(name: str) -> str:
    """A row of a modality in words: `a video row`, `an image row`."""
    return f"{'an' if name[:1] in 'aeiou' else 'a'} {name} row"


def way_names(called: Modalities = TEXT_VIDEO) -> dict[str, str]:
    """Both ways of retrieval by the keys of WAYS, in words: `text to image`, `image to text`."""
    first, second = called
    return {"text_to_video": f"{first} to {second}", "video_to_text": f"{second} to {first}"}


def way_marks(called: Modalities = TEXT_VIDEO) -> dict[str, str]:
    """Both ways in short, `t>i` and `i>t`; in words if both names have the same initial."""
    first, second = called
    if first[0] == second[0]:
        return way_names(called)
    marks = f"{first[0]}>{second[0]}", f"{second[0]}>{first[0]}"
    return dict(zip(way_names(called), marks, strict=True))


def item_names(called: Modalities = TEXT_VIDEO) -> tuple[str, str]:
    """The words for items of both sides: texts and videos or images, or rows of other kinds."""
    first, second = (f"{name}s" if name in COUNTED else f"{name} rows" for name in called)
    return first, second


def sizes_text(sizes: tuple[int, int], called: Modalities = TEXT_VIDEO, sign: str = "and") -> str:
    """Numbers of items of both sides: `1,500 texts and 300 images`."""
    return f" {sign} ".join(
        f"{size:,} {name}" for size, name in zip(sizes, item_names(called), strict=True)
    )
