"""A bundle as it shows itself: its files by what they are for, and their sizes."""

from __future__ import annotations

from typing import Any

from cimtool.bundle.bundle import Bundle
from cimtool.bundle.matcher import Matcher
from cimtool.report.formats import SIZES, scaled
from cimtool.report.result import View, view


@view.register
def _(bundle: Bundle) -> View:
    return _view(bundle)


@view.register
def _(matcher: Matcher) -> View:
    return _view(matcher.bundle)


def _view(bundle: Bundle) -> View:
    """The model, the target, the size and the notes of a bundle."""
    sizes = {name: (bundle.folder / name).stat().st_size for name in bundle.manifest["files"]}
    values: dict[str, Any] = {**bundle.manifest, "bytes": sizes}
    model, held = bundle.model, bundle.gallery
    gallery = [] if held is None else [f"It holds {held.items:,} items of {held.file}."]
    title = f"{bundle.folder}, {model.name} on {bundle.target.name}, head {model.head.name}"
    said = [f"{scaled(sum(sizes.values()), SIZES)} in {len(sizes)} files.", *gallery]
    return View(title, [*said, *bundle.manifest["notes"]], lambda: values)
