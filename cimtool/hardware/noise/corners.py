"""Corners of a noise model: named sets of changes of its tables, each with its source.

A corner is what process, supply and temperature make of the same devices and converters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import ConfigDict, Field, model_validator

from cimtool.base.toml_files import TomlTable, unknown_key
from cimtool.hardware.figures import Status
from cimtool.hardware.noise.mechanisms import NonIdeality, kinds
from cimtool.hardware.noise.model import Coefficient, PositiveNumber

NOMINAL = "nominal"
"""The name of no corner: the noise model as it stands."""


class Corner(TomlTable):
    """Conditions, where they are from, and `changes`: tables of mechanisms over the model's own.

    `supply` and `temperature` are said to readers; only the changes act.
    """

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)

    source: str = Field(description="a text that says where the changes come from")
    status: Status
    process: str | None = None
    supply: PositiveNumber | None = Field(None, json_schema_extra={"unit": "V"})
    temperature: Coefficient | None = Field(None, json_schema_extra={"unit": "C"})

    @model_validator(mode="after")
    def _known(self) -> Self:
        for name, table in self.changes.items():
            if not NonIdeality.knows(name):
                known = [*type(self).model_fields, *kinds()]
                raise ValueError(unknown_key(name, name, table, known))
            if not isinstance(table, Mapping):
                raise ValueError(f"{name} = {table!r}: must be a table")
        return self

    @property
    def changes(self) -> dict[str, Any]:
        """The tables that it changes, by name."""
        return dict(self.model_extra or {})

    @property
    def conditions(self) -> str:
        """Its conditions for a reader: `ss, 0.72 V, 125 C`; empty without any."""
        volts = None if self.supply is None else f"{self.supply:g} V"
        degrees = None if self.temperature is None else f"{self.temperature:g} C"
        return ", ".join(one for one in (self.process, volts, degrees) if one is not None)

    @property
    def text(self) -> str:
        """Conditions, status and source for a reader."""
        said = f"{self.status}, {self.source}"
        return f"{self.conditions} ({said})" if self.conditions else said
