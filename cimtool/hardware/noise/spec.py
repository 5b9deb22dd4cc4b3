"""The [noise] table of a target: the non-idealities of its devices, wires and converters.

A corner is what process, supply and temperature make of the same devices and converters: a named
set of changes of the table, with its source.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import (
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    create_model,
    model_serializer,
    model_validator,
)

from cimtool.base.errors import ArgumentError, CimError, invalid_at
from cimtool.base.named import unknown
from cimtool.base.plugins import known_files
from cimtool.base.toml_files import (
    SourceText,
    TomlTable,
    is_path,
    known_file,
    read_toml,
    unknown_key,
    validated,
)
from cimtool.hardware.figures import Status
from cimtool.hardware.noise.mechanisms import NonIdeality, kinds
from cimtool.hardware.noise.model import (
    Celsius,
    PositiveNumber,
    ReadNoise,
    ageing,
    heat_of,
    parse_time,
)

NOMINAL = "nominal"
"""The name of no corner: the noise model as it stands."""


class Corner(TomlTable):
    """Conditions, where they are from, and `changes`: tables of mechanisms over the model's own.

    `supply` is said to readers. The `temperature` (C) acts on mechanisms that have an activation
    energy, after the changes; it is said to readers of others.
    """

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)

    source: SourceText
    status: Status
    process: str | None = None
    supply: PositiveNumber | None = Field(None, json_schema_extra={"unit": "V"})
    temperature: Celsius | None = Field(None, json_schema_extra={"unit": "C"})

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


Kind = TypeVar("Kind", bound=NonIdeality)


class Noise(TomlTable):
    """Everything that makes a die differ from the noise-free model.

    `g_max` (uS) is the conductance of a device that holds the largest digit, `devices` of which
    conduct in parallel in a cell; errors are those of one device. `t0` is the time in seconds after
    programming at which the programming error was measured: drift and 1/f noise count from it.
    `temperature` (C) is that of the figures; activation energies count from it. `corners` are
    changes of its tables by the name of a corner.
    """

    source: SourceText
    g_max: PositiveNumber = Field(json_schema_extra={"unit": "uS"})
    devices: int = Field(1, ge=1, le=64)
    t0: PositiveNumber | None = Field(None, json_schema_extra={"unit": "s"})
    temperature: Celsius | None = Field(None, json_schema_extra={"unit": "C"})
    corners: dict[str, Corner] = Field({}, description="a table of corners by name")
    _mechanisms: tuple[NonIdeality, ...] = PrivateAttr(())
    _at_corners: dict[str, Noise] = PrivateAttr({})
    _heat: float = PrivateAttr(0.0)

    @model_validator(mode="wrap")
    @classmethod
    def _read(cls, values: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Lay the values over those of the preset that they name, and look mechanisms up."""
        if not isinstance(values, Mapping):
            return handler(values)
        own = dict(values)
        if isinstance(values.get("preset"), str):
            with invalid_at("preset: "):
                own = _over(preset_values(own.pop("preset")), own)
        names = [key for key in own if key not in cls.model_fields and NonIdeality.knows(key)]
        tables = {name: own.pop(name) for name in names}
        noise = handler(own)
        given = sorted((NonIdeality.family[name] for name in tables), key=lambda one: one.order)
        fields: dict[str, Any] = {kind.name: (kind | None, None) for kind in given}
        # One table of all, so that an error of pydantic knows the key in its table.
        found = create_model("Mechanisms", __base__=TomlTable, **fields).model_validate(tables)
        noise._mechanisms = tuple(one for _, one in found if one is not None)
        noise._check()
        alone = {**noise.model_dump(by_alias=True, exclude_none=True), "corners": {}}
        for name, corner in noise.corners.items():
            with invalid_at():
                if name == NOMINAL:
                    raise CimError(
                        f"corners.{name}: is the name of the noise without a corner; "
                        "expected another name"
                    )
                own = _over(alone, corner.changes)
                found = validated(cls, own, f"corners.{name}")
                if corner.temperature is not None and found.temperature is not None:
                    found._heat = heat_of(corner.temperature, found.temperature)
                noise._at_corners[name] = found
        return noise

    @model_serializer(mode="wrap")
    def _flat(
        self, handler: SerializerFunctionWrapHandler, info: SerializationInfo
    ) -> dict[str, Any]:
        """Write every mechanism as a table by its name."""
        values: dict[str, Any] = handler(self)
        for one in self.mechanisms:
            values[one.name] = one.model_dump(
                mode=info.mode, by_alias=info.by_alias, exclude_none=info.exclude_none
            )
        if not self.corners:
            values.pop("corners", None)
        return values

    @classmethod
    def entries(cls) -> dict[str, Any]:
        return super().entries() | kinds()

    def _check(self) -> None:
        if self.t0 is None and self._ages:
            raise ValueError(f"t0 is missing: {' and '.join(ageing())} count time from it")
        heated = [one.name for one in self.mechanisms if one.energy is not None]
        if self.temperature is None and heated:
            raise ValueError(
                f"temperature is missing: {heated[0]}.activation_energy counts from it; expected "
                "the temperature of the figures, in C"
            )
        reads = self.of(ReadNoise)
        if len({one.shared for one in reads}) > 1:
            names = " and ".join(one.name for one in reads)
            raise ValueError(
                f"{names} are drawn anew at different times: expected all for each product, or all "
                "for each cycle"
            )
        for one in self.mechanisms:
            with invalid_at(f"{one.name}."):
                one.check(self.g_max, self.mechanisms)

    @property
    def mechanisms(self) -> tuple[NonIdeality, ...]:
        """The non-idealities that are given, in the order in which they act."""
        return self._mechanisms

    def of(self, kind: type[Kind]) -> tuple[Kind, ...]:
        """The non-idealities of one kind, in the order in which they act."""
        return tuple(one for one in self.mechanisms if isinstance(one, kind))

    @property
    def _ages(self) -> bool:
        return any(one.ages for one in self.mechanisms)

    @property
    def heat(self) -> float:
        """That of `heat_of` for the temperature of its corner; 0 without."""
        return self._heat

    def has_corner(self, name: str | None) -> bool:
        """True for a corner that it has; None and NOMINAL are itself."""
        return name is None or name == NOMINAL or name in self.corners

    def at_corner(self, name: str | None) -> Noise:
        """The noise of a corner by its name, itself for None and NOMINAL; CimError for others."""
        if name is None or name == NOMINAL:
            return self
        if not self.has_corner(name):
            raise unknown("corner", name, [NOMINAL, *self.corners])
        return self._at_corners[name]

    def seconds(self, time: str | None) -> float:
        """The time of reading in seconds after t0; None is the earliest that is known.

        Raises CimError for what is no time, or one that the fits do not cover.
        """
        known = next((one.times for one in self.mechanisms if one.times is not None), None)
        if time is None:
            return min(known) if known else 0.0
        seconds = parse_time(time)
        if known is not None and seconds not in known:
            raise ArgumentError(
                "{time} is {}; this noise was fitted after {} and for no other times",
                time,
                ", ".join(known.values()),
            )
        if known is None and seconds and not self._ages:
            raise ArgumentError(
                "{time} is {}; this noise has neither {}, so it does not change with time: leave "
                "{time} out",
                time,
                " nor ".join(ageing()),
            )
        return seconds


PRESETS = "noise"
"""The folder of noise models beside the targets."""


def preset_names() -> list[str]:
    """The names of the noise models of cimtool and of plug-ins, sorted."""
    return sorted(known_files(PRESETS))


def preset_values(name: str) -> dict[str, Any]:
    """The values in a noise model's file; CimError for an unknown name, with the nearest."""
    return read_toml(known_file(name, "noise model", PRESETS)[0])


def load_noise(name_or_path: str | Path) -> Noise:
    """Load a noise model by name, or a file by path (it has a separator or ends in .toml).

    CimError for an unknown name (with the nearest), a missing file, or a file that is not valid.
    """
    text = str(name_or_path)
    if is_path(text):
        return validated(Noise, read_toml(Path(text)), text)
    return validated(Noise, preset_values(text), f"noise model {text}")


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Lay one table over another, table by table; the choice within a curve is made as a whole."""
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = {**merged[key], **value} if both else value
    return merged
