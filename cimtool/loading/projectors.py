"""Pairs of projectors that are not a checkpoint; leaves and plug-ins read them."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cimtool.base.named import Named

if TYPE_CHECKING:
    from cimtool.base.arrays import Array
    from cimtool.loading.layer_map import LayerMap
    from cimtool.loading.model import Model, RowWidths
    from cimtool.loading.score import ScoreOptions


class ProjectorPair(Named):
    """Base of the kinds of projectors that are given in pairs, text first."""

    @classmethod
    @abstractmethod
    def takes(cls, given: object) -> bool:
        """True for a projector of this kind; must not load a library."""

    @classmethod
    @abstractmethod
    def read(
        cls,
        pair: tuple[Any, Any],
        score: ScoreOptions,
        layer_map: LayerMap,
        widths: RowWidths,
        rows: tuple[Array, Array] | None,
    ) -> Model:
        """The model of two projectors, for `rows` of data if there are any.

        Raises CimError, which names the part that is missing, broken or unfit.
        """

    @classmethod
    def of(cls, pair: tuple[object, object]) -> type[ProjectorPair] | None:
        """The kind that takes both projectors; None if none does."""
        kinds = cls.every().values()
        return next((kind for kind in kinds if all(map(kind.takes, pair))), None)


class ProjectorFile(Named):
    """Base of the kinds of files that hold one projector; a kind's name is its suffix."""

    @classmethod
    @abstractmethod
    def describe(cls, file: Path) -> dict[str, Any]:
        """The contents of a file as plain data; CimError if it is broken."""
