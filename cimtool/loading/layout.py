"""Layouts: classes that know one architecture each by its keys and build its graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from cimtool.base.named import Named
from cimtool.ir.program import Graph
from cimtool.loading.weights import Weights


class Layout(Named):
    """Base of the layouts; a subclass in `cimtool/loading/layouts/` is found by itself."""

    description: ClassVar[str]
    """The marks by which the layout is recognised, for the error where none fits."""
    layers: ClassVar[tuple[str, ...]]
    """The layers that a layer map can name."""
    unit_rows: ClassVar[bool] = False
    """True where embeddings are expected at unit norm."""

    @classmethod
    def recognises(cls, weights: Weights) -> bool:
        """True for weights of this layout, complete or not: by the names of its layers."""
        return any(weights.layer(role) in weights.layers for role in cls.layers)

    @classmethod
    def tower(cls, weights: Weights) -> Graph:
        """Read the projector, as `TowerBuilder` builds it.

        Raises CimError naming file and key where something is missing or odd.
        """
        raise NotImplementedError

    @classmethod
    def statistics(cls, width: int) -> tuple[float, float]:
        """Divisors of ed and vd before the polynomial, at `width` dimensions."""
        return 1.0, 1.0

    @classmethod
    def warnings(cls, content: Mapping[str, Any]) -> tuple[str, ...]:
        """Remarks for a reader of the figures, from a checkpoint's plain values."""
        return ()
