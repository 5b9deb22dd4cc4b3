"""What a layout is: a class that knows one architecture from its keys and builds its graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from cimtool.base.named import Named
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
