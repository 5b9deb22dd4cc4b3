"""Settings of a build: what the target says, overridden by a file, overridden by flags."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import new_class
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from cimtool.base.errors import Argument, CimError, invalid_at, naming
from cimtool.base.modality_names import NAMES, Modalities, layer_matches
from cimtool.base.named import nearest
from cimtool.base.options import OnOrOff, PlainValue, Record, RecordT, Topic, optional
from cimtool.base.toml_files import Location, TomlTable, dotted, read_toml, validated
from cimtool.hardware.converters import check_given
from cimtool.hardware.figures import SettableReference
from cimtool.hardware.geometry import check_array, check_meaning
from cimtool.hardware.keys import (
    CONVERTER_KEYS,
    KEYS,
    Bits,
    Key,
    Keys,
    decided,
    key,
    key_of,
    optional_keys,
)
from cimtool.hardware.references import SCOPES
from cimtool.hardware.target import Target, check_converter
from cimtool.hardware.weight_codes import WeightCode

LEFT_OUT = 0
"""Bits of a product of a score in the memory that no array computes."""


@dataclass(frozen=True)
class ProductBits:
    """Bits of one product of a score in the memory; None: as many as its values need.

    `item` are those of what an item stores (LEFT_OUT: nothing), `query` those of what drives it.
    """

    item: int | None = None
    query: int | None = None


@optional_keys(lambda key: key.per_layer)
class LayerBits(TomlTable):
    """The keys that a layer may have of its own; `activation_bits` are those of its input."""

    weight_bits: Bits | Literal[0] | None = key(
        "Bits of a weight, or of an item's stored values for a product of a score in the memory; 0 "
        "leaves such a product out.",
        default=None,
    )

    def given(self) -> dict[str, Any]:
        """Return what is given, by the names of `Settings`."""
        return decided(self.model_dump(exclude_none=True, exclude={"pattern"}))


class LayerSettings(LayerBits):
    """The bits of every layer whose name matches `pattern` (as in a shell: `text.*`).

    A pattern may say `image` for `video`.
    """

    pattern: str


@optional_keys(lambda key: key.setting is None)
class Overrides(TomlTable):
    """The keys of a settings file or of flags; None is not given, "lossless" is no converter."""

    array: Annotated[
        str | None,
        Field(
            pattern=r"^[1-9][0-9]{0,8}x[1-9][0-9]{0,8}$",
            description="ROWSxCOLUMNS of physical cells, such as 128x128",
        ),
    ] = key("Cells of an array, such as 128x128.", default=None, metavar="ROWSxCOLS")
    layers: dict[str, LayerBits] = Field(default_factory=dict)

    def given(self) -> dict[str, Any]:
        """Return what is given, by the names of `Settings`, without the layers."""
        values = decided(self.model_dump(exclude_none=True, exclude={"layers", "array"}))
        if self.array is not None:
            values["rows"], values["columns"] = map(int, self.array.split("x"))
        if "rounding" in values:
            values["transfer"] = None  # a formula in place of the target's measured table
        return values

    @property
    def give_bits(self) -> bool:
        """True if CHOSEN_BITS are given, or a table of layers."""
        return not self.model_fields_set.isdisjoint({*CHOSEN_BITS, "layers"})


CHOSEN_BITS = ("weight_bits", "input_bits", "activation_bits", "feature_bits", "variance_bits")
"""Settings that are chosen by calibration rows where nobody gives them."""


def setting_keys() -> dict[str, Key]:
    """The keys that a settings file or an option may give, by the names of settings."""
    names = (name if key.setting is None else key.setting for name, key in KEYS.items())
    return {name: key_of(Overrides.model_fields[name]) for name in names if name}


def _with_settings(record: type[RecordT]) -> type[RecordT]:
    """The record with an option for each setting after its own fields."""
    schemas = Overrides.model_json_schema()["properties"]
    annotations, body = {}, dict[str, Any]()
    for name, one in setting_keys().items():
        forms = list(_written_forms(schemas[name]))
        metavar = one.metavar or "|".join(shown for shown, _ in forms if shown)
        annotations[name] = " | ".join(dict.fromkeys([*(kind for _, kind in forms), "None"]))
        body[name] = optional(one.help, PlainValue(metavar) if metavar else OnOrOff())
    names = {name: getattr(record, name) for name in ("__module__", "__qualname__", "__doc__")}
    body |= names | {"__annotations__": annotations}
    topic = {"topic": Topic.SETTINGS}
    return new_class(record.__name__, (record,), topic, lambda made: made.update(body))


def _written_forms(schema: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """A stand-in for each kind of value that a JSON schema allows, none for a switch; its type."""
    if "anyOf" in schema:
        for kind in schema["anyOf"]:
            yield from _written_forms(kind)
    elif "const" in schema:
        yield schema["const"], f'Literal["{schema["const"]}"]'
    elif (kind := schema["type"]) != "null":
        stand_ins = {"integer": "N", "number": "X", "string": "NAME", "boolean": ""}
        types = {"integer": "int", "number": "float", "string": "str", "boolean": "bool"}
        yield stand_ins[kind], types[kind]


@_with_settings
class SettingOptions(Record):
    """The settings by name, each of which may be given."""

    layers: Mapping[str, Mapping[str, Any]] | None = optional(
        "Settings of the layers that a pattern names, by pattern.", None
    )


class Settings(Keys):
    """Everything a build has to decide, decided: the target's values with all overrides applied.

    Of `layers` the last match wins.
    """

    layers: tuple[LayerSettings, ...] = Field((), strict=False)
    settable: tuple[SettableReference, ...] = Field((), strict=False, exclude=True)
    """The target's, which bind references that are fitted."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.shortlist is not None and self.score_mapping != "hybrid":
            raise ValueError(
                f'shortlist = {self.shortlist}: score_mapping = "{self.score_mapping}" uses none; '
                'expected score_mapping = "hybrid" with it'
            )
        if not self.weight_code.holds_digits and self.score_mapping != "digital":
            raise ValueError(
                f'score_mapping = "{self.score_mapping}": items are stored as the digits of cells, '
                f'which encoding = "{self.encoding}" has none of; expected score_mapping = '
                '"digital", or encoding = "twos-complement"'
            )
        views: list[tuple[str, Settings]] = [("", self)]
        for own in self.layers:
            views.append((f"{dotted(('layers', own.pattern))}: ", self._seen([own])))
        for where, view in views:
            if view.adc_bits is not None and not view.weight_code.analog:
                raise ValueError(
                    f"{where}adc_bits = {view.adc_bits}: encoding = "
                    f'"{view.encoding}" adds digitally and has no converter; '
                    'say adc_bits = "lossless", or choose another encoding'
                )
            with invalid_at(where):
                view.check_hardware()
        return self

    def check_hardware(self) -> None:
        """Raise ValueError if no array can be as these settings say."""
        check_array(self)
        check_meaning(self)
        check_converter(self)
        across = self.columns_per_weight + self.auxiliary_columns
        if self.columns is not None and self.columns < across:
            raise ValueError(
                f"an array of {self.columns} columns is too narrow: one {self.weight_bits}-bit "
                f"weight takes {across} columns"
            )

    def of_layer(self, name: str) -> Settings:
        """Return the settings that hold for one layer.

        If the layer has `activation_bits` of its own, they are `input_bits` too: a layer that
        reads the model's input and one that reads an activation are told the same way.
        """
        return self._seen(self._matching(name))

    def stored_bits(self, role: str) -> int:
        """The bits of a stored feature: of mu, or of a variance."""
        if role == "mu" or self.variance_bits is None:
            return self.feature_bits
        return self.variance_bits

    def product_bits(self, name: str) -> ProductBits:
        """The bits that are given for a product of a score in the memory, by its layer's name."""
        own: dict[str, Any] = {}
        for layer in self._matching(name):
            own |= layer.given()
        return ProductBits(own.get("weight_bits"), own.get("activation_bits"))

    def with_weights(self, bits: int) -> Settings:
        """Return the settings for weights of this many bits: as a gallery needs, or a die holds."""
        return self.model_copy(update={"weight_bits": bits})

    def to_json(self) -> dict[str, Any]:
        """Plain values for a manifest; layers are a list, as their order has a meaning."""
        values = self.model_dump(mode="json", exclude={"layers"})
        layers = [layer.model_dump(mode="json", exclude_none=True) for layer in self.layers]
        return values | {"layers": layers}

    def without_converters(self) -> str:
        """Everything that decides the integers of layers, as JSON: all but CONVERTER_KEYS."""
        own = (one.model_dump(exclude_none=True, exclude={*CONVERTER_KEYS}) for one in self.layers)
        layers = [one for one in own if one.keys() != {"pattern"}]
        return json.dumps(
            [self.model_dump(mode="json", exclude={*CONVERTER_KEYS, "layers"}), layers]
        )

    def _matching(self, name: str) -> list[LayerSettings]:
        return [own for own in self.layers if layer_matches(name, own.pattern)]

    def _seen(self, layers: list[LayerSettings]) -> Settings:
        own: dict[str, Any] = {}
        for layer in layers:
            own |= layer.given()
        if own.get("weight_bits") == LEFT_OUT:
            del own["weight_bits"]
        if "activation_bits" in own:
            own["input_bits"] = own["activation_bits"]
        return self.model_copy(update=own | {"layers": ()})


def resolve(target: Target, file: Path | None, flags: Mapping[str, object]) -> Settings:
    """Decide every setting: flags override the file, the file overrides the target.

    A flag that is None is not given. CimError for a value or key that is not allowed, and for
    settings that contradict each other.
    """
    return resolve_given(target, file, given_settings(file, flags))


def given_settings(file: Path | None, flags: Mapping[str, object]) -> Sequence[Overrides]:
    """The settings of a file, and of flags, of which None is not given.

    CimError for a value or key that is not allowed.
    """
    given = []
    if file is not None:
        given.append(overrides_in(file))
    present = {name: value for name, value in flags.items() if value is not None}
    return *given, validated(Overrides, present, "", _argument)


SETTINGS = "settings"
"""The table of settings in a project file."""


def read_settings(file: Path) -> dict[str, Any]:
    """The values of a settings file, or of the table [settings] of a project file.

    Raises CimError if the file cannot be read.
    """
    values = read_toml(file)
    return values[SETTINGS] if isinstance(values.get(SETTINGS), dict) else values


def overrides_in(file: Path) -> Overrides:
    """The settings of a file, as `read_settings` finds them.

    Raises CimError for a value or key that is not allowed.
    """
    values = read_toml(file)
    if isinstance(inner := values.get(SETTINGS), dict):
        return validated(Overrides, inner, str(file), lambda key: dotted((SETTINGS, *key)))
    return validated(Overrides, values, str(file))


def resolve_given(target: Target, file: Path | None, given: Sequence[Overrides]) -> Settings:
    """Decide as `resolve` does, by settings of which the later override; `file` is for messages."""
    values = dict(target.keys)
    layers: list[LayerSettings] = []
    for overrides in given:
        values |= overrides.given()
        layers += [
            LayerSettings(pattern=pattern, **bits.model_dump())
            for pattern, bits in overrides.layers.items()
        ]
    if values["adc_kind"] != target.keys.adc_kind:
        values["adc_parameters"] = None  # those of the target's own kind
    sources = f'target "{target.name}"' + (f" with {file}" if file else "")
    where = f"settings for {sources}"
    code = WeightCode.named(values["encoding"], "encoding")
    if target.keys.adc_bits is not None and not code.holds_digits:
        analog = (name for name, one in WeightCode.family.items() if one.analog)
        raise CimError(
            f'{where}: encoding = "{code.name}": its arrays convert sums of what cells conduct, '
            f"and this code is for digital adders; expected {', '.join(analog)}"
        )
    settings = validated(Settings, values | {"layers": layers, "settable": target.settable}, where)
    with naming(where):
        for overrides in given:
            check_given(settings.adc_kind, overrides.given())
        _check_gains(settings)
    return settings


def _check_gains(settings: Settings) -> None:
    """Raise CimError if steps of each column are to be set, of which only a number is known."""
    steps = [one for one in settings.settable if one.reference == "step"]
    if SCOPES[settings.references].gains and any(s.settings and not s.bounds for s in steps):
        raise CimError(
            f'references = "{settings.references}": the target has {steps[0].settings} settings of '
            "a step, and no range of numbers that says which they are; expected other references"
        )


def check_patterns(
    settings: Settings, layer_names: Iterable[str], modalities: Modalities | None = None
) -> None:
    """Refuse with a CimError a layer pattern that matches no layer of the model.

    Of a model whose `modalities` have others' names in other places, one by these names too.
    """
    names, first = list(layer_names), "text" if modalities is None else modalities[0]
    for pattern in (layer.pattern for layer in settings.layers):
        if first in NAMES["video"] and re.match(rf"{first}\b", pattern):
            raise CimError(
                f"settings: {dotted(('layers', pattern))}: {first} is the model's first modality, "
                "whose layers are named text.*, and the other's video.*; expected one of these"
            )
        if not any(layer_matches(name, pattern) for name in names):
            raise CimError(
                f"settings: {dotted(('layers', pattern))} matches no layer of the model, which has "
                f"{', '.join(names)}{nearest(pattern, names)}"
            )


def check_layer_bits(
    settings: Settings, layer_names: Iterable[str], score_layers: Iterable[str]
) -> None:
    """Refuse bits of the layers of a shortlist, and to leave out a layer of the model.

    `layer_names` are the model's own, `score_layers` those of the score in the memory. Raises
    CimError.
    """
    names, products = list(layer_names), list(score_layers)
    if settings.score_mapping != "in-memory":
        products = []
    for layer in settings.layers:
        own = layer.given()
        given = [key for key in ("weight_bits", "activation_bits") if key in own]
        where = f"settings: {dotted(('layers', layer.pattern))}"
        matched = [name for name in names if layer_matches(name, layer.pattern)]
        if matched and own.get("weight_bits") == LEFT_OUT:
            raise CimError(
                f"{where}.weight_bits = 0: {matched[0]} is a layer of the model, which cannot be "
                "left out; expected 2 to 16"
            )
        if given and not matched and not any(layer_matches(n, layer.pattern) for n in products):
            raise CimError(
                f"{where}.{given[0]} = {own[given[0]]}: the width of a shortlist's values is set "
                "when it is programmed; expected only adc_bits"
            )


def _argument(location: Location) -> str:
    """A setting as an argument; what lies inside a layer is none."""
    return dotted(location) if len(location) > 1 else Argument(location[0])
