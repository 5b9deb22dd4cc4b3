"""What a layout is: a class that knows one architecture from its keys and builds its graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from cimtool.base.errors import CimError
from cimtool.base.named import Named, nearest
from cimtool.ir.heads import Tower
from cimtool.loading.weights import Weights


class Projector(Tower, Protocol):
    """A tower as a layout reads it."""

    @property
    def dimension(self) -> int:
        """Extent d of mu and s."""
        ...


class Layout(Named):
    """Base of the layouts; a subclass in `cimtool/loading/layouts/` is found by itself."""

    description: ClassVar[str]
    """What the layout is recognised by, for the error where none fits."""
    layers: ClassVar[tuple[str, ...]]
    """The layers that a layer map can name."""
    unit_rows: ClassVar[bool] = False
    """Whether embeddings are expected at unit norm."""

    @classmethod
    def recognises(cls, weights: Weights) -> bool:
        """Whether these weights are of this layout, complete or not."""
        raise NotImplementedError

    @classmethod
    def tower(cls, weights: Weights) -> Projector:
        """Read the projector; CimError naming file and key where something is missing or odd."""
        raise NotImplementedError

    @classmethod
    def statistics(cls, width: int) -> tuple[float, float]:
        """What the layout divides ed and vd by before the polynomial, at `width` dimensions."""
        return 1.0, 1.0

    @classmethod
    def warnings(cls, content: Mapping[str, Any]) -> tuple[str, ...]:
        """What a reader of the figures should know, from a checkpoint's plain values."""
        return ()


def recognise(text: Weights, video: Weights) -> type[Layout]:
    """Return the layout of both projectors.

    Raises CimError where none fits or the two differ, and for a layer that the map names and the
    layout does not have.
    """
    found = [_recognised(weights) for weights in (text, video)]
    if found[0] is not found[1]:
        raise CimError(
            f'{text.file}: {text.prefix} is of layout "{found[0].name}" and {video.prefix} of '
            f'"{found[1].name}"; expected one layout'
        )
    layout = found[0]
    for modality, weights in (("text", text), ("video", video)):
        for role in weights.named.layers:
            if role not in layout.layers:
                raise CimError(
                    f"{weights.named.file}: {modality}.{role} is no layer of layout "
                    f'"{layout.name}": {", ".join(layout.layers)}{nearest(role, layout.layers)}'
                )
    return layout


def _recognised(weights: Weights) -> type[Layout]:
    from cimtool.loading import layouts  # noqa: F401  (importing the folder registers its classes)

    found: list[type[Layout]] = [
        layout for layout in Layout.family.values() if layout.recognises(weights)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        names = " and ".join(sorted(layout.name for layout in found))
        raise CimError(f"{weights.file}: {weights.prefix} looks like layouts {names} at once")
    known = "; ".join(f"{name}: {Layout.family[name].description}" for name in Layout.family)
    raise CimError(
        f"{weights.file}: {weights.prefix} is of no known layout (its layers: "
        f"{', '.join(weights.layers[:8])}); expected {known}"
    )
