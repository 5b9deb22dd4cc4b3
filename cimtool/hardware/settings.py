"""Settings of a build: what the target says, overridden by a file, overridden by flags."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from cimtool.base.errors import CimError
from cimtool.base.named import nearest
from cimtool.base.toml_files import Location, Table, dotted, read_toml, validated
from cimtool.hardware.crossbar import (
    AdcOn,
    Encoding,
    OffsetSum,
    ShiftAdd,
    UnusedRows,
    slice_count,
)
from cimtool.hardware.geometry import (
    CellBits,
    Count,
    OnOffRatio,
    Pairs,
    cells_per_weight,
    check_array,
    check_meaning,
    columns_per_weight,
    rows_of_weights,
    unit_columns,
)
from cimtool.hardware.target import (
    AccumulatorBits,
    ActivationBits,
    AdcBits,
    DacBits,
    FeatureBits,
    InputBits,
    InputEncoding,
    Lossless,
    Target,
    Threshold,
    WeightBits,
    check_transfer,
)
from cimtool.ir.format import Rounding

Calibrator = Literal["minmax", "percentile", "mse"]
WeightRounding = Literal["nearest", "gptq"]
ScoreMapping = Literal["digital", "in-memory", "hybrid"]


class LayerBits(Table):
    """What a layer may have of its own; `activation_bits` are the bits of that layer's input."""

    weight_bits: WeightBits | None = None
    activation_bits: ActivationBits | None = None
    adc_bits: AdcBits | Lossless | None = None


class LayerSettings(LayerBits):
    """The bits of every layer whose name matches `pattern` (as in a shell: `text.*`)."""

    pattern: str


class Overrides(Table):
    """What a settings file or the flags may give; None is not given, "lossless" is no converter."""

    weight_bits: WeightBits | None = None
    input_bits: InputBits | None = None
    activation_bits: ActivationBits | None = None
    feature_bits: FeatureBits | None = None
    adc_bits: AdcBits | Lossless | None = None
    cell_bits: CellBits | None = None
    dac_bits: DacBits | None = None
    array: str | None = Field(
        None,
        pattern=r"^[1-9][0-9]{0,8}x[1-9][0-9]{0,8}$",
        description="ROWSxCOLUMNS of physical cells, such as 128x128",
    )
    encoding: Encoding | None = None
    input_encoding: InputEncoding | None = None
    rounding: Rounding | None = None
    adc_on: AdcOn | None = None
    shift_add: ShiftAdd | None = None
    offset_sum: OffsetSum | None = None
    rows_active: Count | None = None
    on_off_ratio: OnOffRatio | None = None
    unused_rows: UnusedRows | None = None
    accumulator_bits: AccumulatorBits | None = None
    calibrator: Calibrator | None = None
    weight_rounding: WeightRounding | None = None
    equalise: bool | None = None
    bias_correction: bool | None = None
    score_mapping: ScoreMapping | None = None
    shortlist: Count | None = None
    layers: dict[str, LayerBits] = Field(default_factory=dict)

    def given(self) -> dict[str, Any]:
        """Return what is given, by the names of `Settings`, without the layers."""
        values = self.model_dump(exclude_none=True, exclude={"layers", "array"})
        if values.get("adc_bits") == "lossless":
            values["adc_bits"] = None
        if self.array is not None:
            values["rows"], values["columns"] = map(int, self.array.split("x"))
        if "rounding" in values:
            values["transfer"] = None  # a formula in place of the target's measured table
        return values


class Settings(Table):
    """Everything a build has to decide, decided: the target's values with all overrides applied.

    `rows` and `columns` count physical cells (None: unlimited), `adc_bits` None is lossless, a
    cycle drives at most `dac_bits` bits of an input, and of `layers` the last match wins. Only a
    hybrid score has a `shortlist`; None leaves its length to `program`.
    """

    weight_bits: WeightBits
    input_bits: InputBits
    activation_bits: ActivationBits
    feature_bits: FeatureBits
    adc_bits: AdcBits | None
    cell_bits: CellBits
    dac_bits: DacBits
    rows: Count | None
    columns: Count | None
    encoding: Encoding
    input_encoding: InputEncoding
    rounding: Rounding | None
    transfer: tuple[Threshold, ...] | None = Field(None, strict=False)
    adc_on: AdcOn = "difference"
    shift_add: ShiftAdd = "digital"
    offset_sum: OffsetSum = "digital"
    pairs: Pairs = "columns"
    rows_active: Count | None = None
    on_off_ratio: OnOffRatio | None = None
    unused_rows: UnusedRows = "off"
    accumulator_bits: AccumulatorBits
    calibrator: Calibrator = "minmax"
    weight_rounding: WeightRounding = "nearest"
    equalise: bool = True
    bias_correction: bool = True
    score_mapping: ScoreMapping = "digital"
    shortlist: Count | None = None
    layers: tuple[LayerSettings, ...] = Field((), strict=False)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.shortlist is not None and self.score_mapping != "hybrid":
            raise ValueError(
                f'shortlist = {self.shortlist}: score_mapping = "{self.score_mapping}" draws up '
                'none; expected score_mapping = "hybrid" with it'
            )
        views: list[tuple[str, Settings]] = [("", self)]
        for own in self.layers:
            views.append((f"{dotted(('layers', own.pattern))}: ", self._seen([own])))
        for where, view in views:
            if view.encoding == "twos-complement" and view.adc_bits is not None:
                raise ValueError(
                    f"{where}adc_bits = {view.adc_bits}: encoding = "
                    '"twos-complement" adds digitally and has no converter; '
                    'say adc_bits = "lossless", or choose another encoding'
                )
            try:
                view.check_hardware()
            except ValueError as error:
                raise ValueError(f"{where}{error}") from None
        return self

    def check_hardware(self) -> None:
        """Raise ValueError where no array can be as these settings say."""
        check_array(
            self.encoding,
            self.cell_bits,
            self.pairs,
            self.rows,
            self.rows_active,
            self.offset_sum,
            self.on_off_ratio,
        )
        check_meaning(self.encoding, self.adc_on, self.shift_add, self.offset_sum)
        check_transfer(self.transfer, self.adc_bits)
        across = self.columns_per_weight + self.unit_columns
        if self.columns is not None and self.columns < across:
            raise ValueError(
                f"an array of {self.columns} columns is too narrow: one {self.weight_bits}-bit "
                f"weight takes {across} columns"
            )

    @property
    def slices(self) -> int:
        """The number of weight slices, one conversion each."""
        return slice_count(self.encoding, self.weight_bits, self.cell_bits)

    @property
    def weight_rows(self) -> int | None:
        """Rows of weights in an array: half its rows of cells where pairs lie in two rows."""
        return rows_of_weights(self.rows, self.pairs)

    @property
    def columns_per_weight(self) -> int:
        """Columns that the cells of one weight take."""
        return columns_per_weight(self.cells_per_weight, self.pairs)

    @property
    def unit_columns(self) -> int:
        """Columns of an array that hold no weights: one for the inputs' sum, or none."""
        return unit_columns(self.encoding, self.offset_sum)

    @property
    def weights_across(self) -> int | None:
        """Weights that lie side by side in one array; None where columns are unlimited."""
        if self.columns is None:
            return None
        return (self.columns - self.unit_columns) // self.columns_per_weight

    @property
    def cells_per_weight(self) -> int:
        """The physical cells of one weight: its slices, twice that for differential pairs."""
        return cells_per_weight(self.encoding, self.weight_bits, self.cell_bits)

    def of_layer(self, name: str) -> Settings:
        """Return the settings that hold for one layer.

        Where the layer has `activation_bits` of its own, they are `input_bits` too: a layer that
        reads the model's input and one that reads an activation are told the same way.
        """
        return self._seen([own for own in self.layers if fnmatchcase(name, own.pattern)])

    def with_weights(self, bits: int) -> Settings:
        """Return the settings for weights of so many bits: what a gallery needs, or a die holds."""
        return self.model_copy(update={"weight_bits": bits})

    def to_json(self) -> dict[str, Any]:
        """Return plain values for a manifest; layers are a list, as their order has a meaning."""
        values = self.model_dump(mode="json", exclude={"layers"})
        layers = [layer.model_dump(mode="json", exclude_none=True) for layer in self.layers]
        return values | {"layers": layers}

    @classmethod
    def from_json(cls, values: Mapping[str, Any], where: str) -> Settings:
        """Read what `to_json` returned; CimError starting with `where` if it is not valid."""
        return validated(cls, values, where)

    def _seen(self, layers: list[LayerSettings]) -> Settings:
        own: dict[str, Any] = {}
        for layer in layers:
            own |= layer.model_dump(exclude_none=True, exclude={"pattern"})
        if own.get("adc_bits") == "lossless":
            own["adc_bits"] = None
        if "activation_bits" in own:
            own["input_bits"] = own["activation_bits"]
        return self.model_copy(update=own | {"layers": ()})


def resolve(target: Target, file: Path | None, flags: Mapping[str, object]) -> Settings:
    """Decide every setting: flags override the file, the file overrides the target.

    A flag that is None is not given. CimError for a value or key that is not allowed, and for
    settings that contradict each other.
    """
    given = []
    if file is not None:
        given.append(validated(Overrides, read_toml(file), str(file)))
    present = {name: value for name, value in flags.items() if value is not None}
    given.append(validated(Overrides, present, "options", _flag_text))
    values = _target_values(target)
    layers: list[LayerSettings] = []
    for overrides in given:
        values |= overrides.given()
        layers += [
            LayerSettings(pattern=pattern, **bits.model_dump())
            for pattern, bits in overrides.layers.items()
        ]
    sources = f'target "{target.name}"' + (f" with {file}" if file else "")
    return validated(Settings, values | {"layers": layers}, f"settings for {sources}")


def unmatched_patterns(settings: Settings, layer_names: Iterable[str]) -> tuple[str, ...]:
    """Return the layer patterns that match none of `layer_names`."""
    names = list(layer_names)
    patterns = (layer.pattern for layer in settings.layers)
    return tuple(
        pattern for pattern in patterns if not any(fnmatchcase(name, pattern) for name in names)
    )


def check_patterns(settings: Settings, layer_names: Iterable[str]) -> None:
    """Refuse with a CimError a layer pattern that matches no layer of the model."""
    names = list(layer_names)
    for pattern in unmatched_patterns(settings, names):
        raise CimError(
            f"settings: {dotted(('layers', pattern))} matches no layer of the model, which has "
            f"{', '.join(names)}{nearest(pattern, names)}"
        )


def check_score_bits(settings: Settings, layer_names: Iterable[str]) -> None:
    """Refuse bits of weights or inputs that are given for products of a score in the memory alone.

    `layer_names` are the model's own. Raises CimError.
    """
    names = list(layer_names)
    for layer in settings.layers:
        given = [key for key in ("weight_bits", "activation_bits") if getattr(layer, key)]
        if given and not any(fnmatchcase(name, layer.pattern) for name in names):
            key = f"{dotted(('layers', layer.pattern))}.{given[0]}"
            raise CimError(
                f"settings: {key} = {getattr(layer, given[0])}: how wide the values of a score in "
                "the memory are, the gallery decides; expected adc_bits alone"
            )


def _target_values(target: Target) -> dict[str, Any]:
    return {
        "weight_bits": target.weights.bits,
        "input_bits": target.input.bits,
        "activation_bits": target.activations.bits,
        "feature_bits": target.activations.feature_bits,
        "adc_bits": target.adc_bits,
        "cell_bits": target.array.cell_bits,
        "dac_bits": target.input.dac_bits,
        "rows": target.array.rows,
        "columns": target.array.columns,
        "encoding": target.array.encoding,
        "input_encoding": target.input.encoding,
        # A target without a converter may still be tried with one: --adc-bits.
        "rounding": target.adc.rounding if target.adc else "half-up",
        "transfer": target.adc.transfer if target.adc else None,
        "adc_on": target.adc.on if target.adc else "difference",
        "shift_add": target.adc.shift_add if target.adc else "digital",
        "offset_sum": target.array.offset_sum,
        "pairs": target.array.pairs,
        "rows_active": target.array.rows_active,
        "on_off_ratio": target.array.on_off_ratio,
        "unused_rows": target.array.unused_rows,
        "accumulator_bits": target.accumulator.bits,
    }


def _flag_text(location: Location) -> str:
    """Write a setting's name as its flag; what lies inside a layer has no flag."""
    name = str(location[0])
    if len(location) > 1 or name == "layers":
        return dotted(location)
    return f"--{name.replace('_', '-')}"
