"""Sections of a report that others bring: measured on a bundle and its data, shown, and compared.

A section is a class, which the module `plugin` of its room imports.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from cimtool.base.arrays import FloatArray
from cimtool.base.json_files import six_digits
from cimtool.base.named import Named
from cimtool.base.typed_fields import fits
from cimtool.bundle.bundle import Bundle
from cimtool.loading.embeddings import Embeddings
from cimtool.report.document import Block, Sentence
from cimtool.report.table import Content

if TYPE_CHECKING:  # loading these takes longer than a cost, which has a section but no drift
    from cimtool.verification.headline import DriftFindings
    from cimtool.verification.references import References


@dataclass(frozen=True, eq=False)
class SectionInputs:
    """The bundle, the data, the references and the drift that a section is measured on.

    `compiled` are the scores [n, m]; `confidence` is that of the bounds asked for, or None.
    """

    bundle: Bundle
    data: Embeddings
    references: References
    drift: DriftFindings
    compiled: FloatArray
    confidence: float | None


@dataclass(frozen=True)
class ComparedFigure:
    """A figure that is told beside that of an earlier report.

    `path` are the keys that lead to it in the section's values.
    """

    label: str
    unit: str
    path: tuple[str, ...]


class ReportSection(Named):
    """Base of a section of the report, by its name in `report.json`."""

    figures: ClassVar[tuple[ComparedFigure, ...]] = ()

    @classmethod
    @abstractmethod
    def measure(cls, measured: SectionInputs) -> Any | None:
        """Measure what the section says; None if it has nothing to say."""

    @classmethod
    @abstractmethod
    def blocks(cls, found: Any, bundle: str) -> Sequence[Block]:
        """Return its cards and sections; `bundle` is the name of what was verified."""

    @classmethod
    def verdict(cls, found: Any) -> Sequence[Sentence]:
        """Return what it adds to the verdict; nothing unless a section says otherwise."""
        return ()

    @classmethod
    def compared(cls, found: Any) -> Mapping[str, Content]:
        """Return its rows in the table of `compare`; nothing unless a section says otherwise."""
        return {}

    @classmethod
    @abstractmethod
    def values(cls, found: Any) -> Mapping[str, Any]:
        """Return its part of `report.json`, as plain values."""

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of its values."""
        return {"type": "object"}


def measure_sections(measured: SectionInputs) -> dict[str, Any]:
    """Measure every known section, by name; those that have nothing to say are not there."""
    found = {name: kind.measure(measured) for name, kind in sorted(ReportSection.every().items())}
    return {name: one for name, one in found.items() if one is not None}


def section_values(found: Mapping[str, Any]) -> dict[str, Any]:
    """The plain values of sections by name."""
    return {name: dict(ReportSection.every()[name].values(one)) for name, one in found.items()}


def sections_schema() -> dict[str, Any]:
    """The JSON Schema of all sections; those of plug-ins may stand beside them."""
    return {
        "type": "object",
        "properties": {name: one.schema() for name, one in sorted(ReportSection.every().items())},
        "additionalProperties": {"type": "object"},
    }


@dataclass(frozen=True)
class FigureChange:
    """A figure of a section in two runs, None if it is not known; it never fails."""

    label: str
    unit: str
    now: float | None
    before: float | None


def figure_changes(now: Mapping[str, Any], before: Mapping[str, Any]) -> tuple[FigureChange, ...]:
    """The figures of the sections of two reports, by their values; `before` is a file of others."""
    return tuple(
        FigureChange(
            one.label, one.unit, *(number_at(values, (name, *one.path)) for values in (now, before))
        )
        for name, section in ReportSection.every().items()
        if name in now
        for one in section.figures
    )


def number_at(values: Any, path: Sequence[str]) -> float | None:
    """The number at the end of a path of keys, at 6 digits; None if there is none."""
    for key in path:
        values = values.get(key) if isinstance(values, Mapping) else None
    if isinstance(values, float):
        return six_digits(values)
    return float(values) if fits(values, int) else None
