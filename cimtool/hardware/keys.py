"""The keys of a build, each declared once: type, limits, help, place in a target's file, scope.

From the declaration follow the tables of a target's file, a settings file with its tables of
layers, the options of the command line, the names that a sweep knows, and the tables and schemas
in docs/.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import NoneType, new_class
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_type_hints

from pydantic import Field, create_model
from pydantic.fields import FieldInfo

from cimtool.base.toml_files import TomlTable
from cimtool.hardware.converters import LOSSLESS, Converter, ConverterKind, Formula, Measured
from cimtool.hardware.crossbar import (
    AdcOn,
    Crossbar,
    OffsetSum,
    RowTiling,
    ShiftAdd,
    UnusedRows,
    leak_of,
)
from cimtool.hardware.input_codes import InputCode, InputEncoding, UnsignedEncoding
from cimtool.hardware.references import AdcReferenceKind
from cimtool.hardware.skipping import Skip
from cimtool.hardware.weight_codes import Encoding, WeightCode
from cimtool.ir.format import Rounding
from cimtool.ir.types import Type

WIDEST = 16
"""The most bits of a weight, an input, an activation or a feature."""

Bits = Annotated[int, Field(ge=2, le=WIDEST)]
FeatureBits = Annotated[int, Field(ge=2, le=WIDEST)]
ConverterBits = Annotated[int, Field(ge=1, le=16)]
CellBits = Annotated[int, Field(ge=1, le=8)]
AccumulatorBits = Annotated[int, Field(ge=8, le=63)]
AtLeastOne = Annotated[int, Field(ge=1)]
Redundant = Annotated[int, Field(ge=0)]
OrUnlimited = Field(description="an integer of at least 1 (leave the key out for unlimited)")
OnOffRatio = Annotated[float, Field(gt=1, allow_inf_nan=False)]
Threshold = Annotated[float, Field(ge=-(1 << 20), le=1 << 20, allow_inf_nan=False)]
Thresholds = Annotated[tuple[Threshold, ...] | None, Field(strict=False)]
ConverterParameters = Annotated[
    dict[str, int | float | str] | None,
    Field(strict=False, description="a table of numbers and texts"),
]
PairAxis = Literal["columns", "rows"]
Skips = Annotated[tuple[Skip, ...], Field(strict=False)]
Calibrator = Literal["tails", "minmax", "percentile"]
WeightRounding = Literal["nearest", "gptq"]
ScoreMapping = Literal["digital", "in-memory", "hybrid"]


@dataclass(frozen=True)
class Key:
    """The facts of a key in addition to its name, type and default.

    `help` is a sentence for users. `place` is the table and name of the key in a target's file, ""
    for a key of no target. `setting` is its name in settings files and options: None for the same
    name, "" for a key that only a target gives. `none` is their word for None. `metavar` stands for
    a value in the help, if the type does not say it.
    """

    help: str
    place: str = ""
    setting: str | None = None
    per_layer: bool = False
    none: str | None = None
    metavar: str | None = None

    def field(self, default: Any) -> Any:
        """The field of a table that is this key."""
        return Field(default, json_schema_extra=self)

    def __call__(self, schema: dict[str, Any]) -> None:
        """Complete the field's JSON schema."""
        schema["title"] = self.help


def key(help_: str, place: str = "", *, default: Any = ..., **more: Any) -> Any:
    """Declare a key; without a default it is required. The rest is as `Key` has it."""
    return Key(help_, place, **more).field(default)


class Keys(TomlTable):
    """Every key of a build with its value, decided.

    `rows` and `columns` count physical cells (None: unlimited), `adc_bits` None is lossless, a
    cycle drives at most `dac_bits` bits of an input. Only a hybrid score has a `shortlist`; None
    leaves its length to whoever programs the gallery.
    """

    weight_bits: Bits = key("Bits of a weight.", "weights.bits", per_layer=True)
    input_bits: Bits = key("Bits of the embeddings.", "input.bits")
    most_weight_bits: Bits | None = key(
        "Most bits of a weight that the hardware takes; if left out, as many as its cells hold.",
        "weights.most_bits",
        default=None,
        setting="",
    )
    most_input_bits: Bits | None = key(
        "Most bits of an input that the hardware takes; if left out, any, in more cycles.",
        "input.most_bits",
        default=None,
        setting="",
    )
    activation_bits: Bits = key("Bits of hidden activations.", "activations.bits", per_layer=True)
    feature_bits: FeatureBits = key(
        "Bits of mu, and of the variance in cross terms.", "activations.feature_bits"
    )
    variance_bits: FeatureBits | None = key(
        "Bits of the variance in cross terms; if left out, as many as mu has.",
        "activations.variance_bits",
        default=None,
    )
    adc_bits: ConverterBits | None = key(
        "Bits of a converter.", "adc.bits", per_layer=True, none="lossless"
    )
    cell_bits: CellBits = key("Bits of a memory cell.", "array.cell_bits")
    dac_bits: ConverterBits = key("Bits of an input that one cycle drives.", "input.dac_bits")
    rows: Annotated[AtLeastOne | None, OrUnlimited] = key(
        "Rows of physical cells in an array.", "array.rows", setting="array"
    )
    columns: Annotated[AtLeastOne | None, OrUnlimited] = key(
        "Columns of physical cells in an array.", "array.columns", setting="array"
    )
    encoding: Encoding = key("Code of signed weights in the cells.", "array.encoding")
    input_encoding: InputEncoding = key("Code of signed inputs on the rows.", "input.encoding")
    rounding: Rounding | None = key("Rounding of a converter.", "adc.rounding")
    transfer: Thresholds = key(
        "Rising thresholds of a measured converter, in codes above its lowest code; those of an "
        "ideal converter are 0.5, 1.5, ..., for signed and for unsigned codes.",
        "adc.transfer",
        default=None,
        setting="",
    )
    adc_kind: ConverterKind | None = key(
        "Kind of converter; if left out, it follows from the bits and the rounding or transfer.",
        "adc.kind",
        default=None,
    )
    adc_parameters: ConverterParameters = key(
        "Parameters of this kind of converter beside its bits.",
        "adc.parameters",
        default=None,
        setting="",
    )
    unsigned_encoding: UnsignedEncoding = key(
        "Code of inputs that are never negative.", "input.unsigned_encoding", default="unsigned"
    )
    adc_on: AdcOn = key(
        "Convert the difference of a pair, or each polarity.",
        "adc.on",
        default="difference",
    )
    references: AdcReferenceKind = key(
        "Converter references that can be set when weights are loaded. full-scale: none (one step "
        "covers all that an array can sum); fixed: a step of 2^e per slice, from 0, that suits the "
        "layer; slice: a step and an offset per slice; column: a step per slice, an offset per "
        "column; gain: a step and an offset per column; cycle: a step per slice and an offset per "
        "column for each cycle (no published chip); levels: thresholds and their values per slice, "
        "an offset per column.",
        "adc.references",
        default="fixed",
    )
    shift_add: ShiftAdd = key(
        "Addition of cycles: digital, or analog before the converter.",
        "adc.shift_add",
        default="digital",
    )
    offset_sum: OffsetSum = key(
        "Sum of the inputs that offset weights need: digital or unit-column.",
        "array.offset_sum",
        default="digital",
    )
    pairs: PairAxis = key(
        "Direction in which the cells of a differential pair lie side by side.",
        "array.pairs",
        default="columns",
        setting="",
    )
    rows_active: AtLeastOne | None = key(
        "Rows of weights that are read at the same time.", "array.rows_active", default=None
    )
    on_off_ratio: OnOffRatio | None = key(
        "Ratio of conductances, full cell to erased cell.",
        "array.on_off_ratio",
        default=None,
    )
    unused_rows: UnusedRows = key(
        "State of rows without weights: off or driven.", "array.unused_rows", default="off"
    )
    redundant_columns: Redundant | None = key(
        "Spare columns of an array: they hold no weights and stand in for columns with faults.",
        "array.redundant_columns",
        default=None,
    )
    skips: Skips = key(
        "Work that the array leaves out, which energy and latency count: zero-inputs (cycles of a "
        "row group whose digits are all 0), zero-slices (columns whose cells all hold the digit "
        "0).",
        "array.skips",
        default=(),
        setting="",
    )
    accumulator_bits: AccumulatorBits = key(
        "Bits of the accumulator; every sum is proved to fit.", "accumulator.bits", default=32
    )
    calibrator: Calibrator = key("Choice of ranges: tails, minmax or percentile.", default="tails")
    weight_rounding: WeightRounding = key(
        "Rounding of weights to integers: nearest or gptq.", default="nearest"
    )
    equalise: bool = key("Balance the ranges of channels between layers.", default=True)
    bias_correction: bool = key(
        "Correct the mean error of quantisation in the biases, and that of ed.", default=True
    )
    score_mapping: ScoreMapping = key(
        "Scoring of a gallery: digital, in-memory or hybrid.", default="digital"
    )
    shortlist: AtLeastOne | None = key(
        "Items per query that a hybrid score takes from the memory and scores exactly.",
        default=None,
        metavar="L",
    )

    @property
    def most_bits(self) -> dict[str, int]:
        """The most bits that the hardware takes, by the name of each setting that it limits."""
        limits = {
            "weight_bits": self.most_weight_bits,
            "activation_bits": self.most_input_bits,
            "input_bits": self.most_input_bits,
        }
        return {name: most for name, most in limits.items() if most is not None}

    @property
    def weight_code(self) -> WeightCode:
        """The code of the weights in the cells."""
        return WeightCode.named(self.encoding, "encoding")(self.weight_bits, self.cell_bits)

    @property
    def converter(self) -> Converter:
        """The converter of a column sum: none, of a kind, a measured one, or one with a formula."""
        if self.adc_bits is None:
            return LOSSLESS
        kind: type[Converter] = Formula if self.transfer is None else Measured
        if self.adc_kind is not None:
            kind = Converter.named(self.adc_kind, "converter")
        return kind.of(self.adc_bits, self)

    def input_code(self, x: Type) -> InputCode:
        """The code of inputs of a type, by their range: with negative inputs or without."""
        name = "input_encoding" if x.signed else "unsigned_encoding"
        code = InputCode.named(getattr(self, name), name)
        return code(code.bits_for(int(x.lo.min()), int(x.hi.max())), self.dac_bits)

    def crossbar(self, inputs: InputCode) -> Crossbar:
        """The arrays of a layer with these values, driven by inputs in a code."""
        return Crossbar(
            weights=self.weight_code,
            inputs=inputs,
            accumulator_bits=self.accumulator_bits,
            converter=self.converter,
            tiling=RowTiling(self.weight_rows, self.rows_active, self.unused_rows),
            adc_on=self.adc_on,
            shift_add=self.shift_add,
            offset_sum=self.offset_sum,
            references=self.references,
            leak=leak_of(self.on_off_ratio, self.cell_bits),
        )

    @property
    def cells_per_weight(self) -> int:
        """Physical cells of one weight: its slices, twice that if cells come in pairs."""
        return self.weight_code.cells_per_weight

    @property
    def weight_rows(self) -> int | None:
        """Rows of weights in an array: half its rows of cells if pairs lie in two rows."""
        return self.rows // 2 if self.rows is not None and self.pairs == "rows" else self.rows

    @property
    def columns_per_weight(self) -> int:
        """Columns that the cells of one weight take: half of them if pairs lie in two rows."""
        return self.cells_per_weight // 2 if self.pairs == "rows" else self.cells_per_weight

    @property
    def unit_columns(self) -> int:
        """Columns of an array that hold no weights: one for the inputs' sum, or none."""
        return int(self.weight_code.is_offset and self.offset_sum == "unit-column")

    @property
    def auxiliary_columns(self) -> int:
        """Columns of an array for the inputs' sum and for reference."""
        return self.unit_columns + self.weight_code.reference_column

    @property
    def weights_across(self) -> int | None:
        """Weights that lie side by side in one array; None if columns are unlimited."""
        if self.columns is None:
            return None
        free = self.columns - self.auxiliary_columns - (self.redundant_columns or 0)
        return free // self.columns_per_weight


def key_of(field: FieldInfo) -> Key:
    """The key that a field of a table is declared to be."""
    assert isinstance(field.json_schema_extra, Key)
    return field.json_schema_extra


KEYS: Mapping[str, Key] = {name: key_of(field) for name, field in Keys.model_fields.items()}
"""Every key by its name in `Keys`."""

CONVERTER_KEYS = frozenset(name for name, key in KEYS.items() if key.place.startswith("adc."))
"""Keys of converters: they decide how column sums are read, and no weight or stored value."""

_TYPES = get_type_hints(Keys, include_extras=True)

TomlTableT = TypeVar("TomlTableT", bound=TomlTable)


def in_table(name: str, first: str = "") -> Callable[[type[TomlTableT]], type[TomlTableT]]:
    """Give a class the keys that lie in table `name` of a target's file, before its own fields.

    A key that may be None, or has a default, may be left out. `first` names keys and fields that
    come before all others, in their order.
    """
    inside = {
        key.place.removeprefix(f"{name}."): one
        for one, key in KEYS.items()
        if key.place.startswith(f"{name}.")
    }
    fields = {
        entry: _of_target(inside[entry]) if entry in inside else (Any, ...)
        for entry in dict.fromkeys((*first.split(), *inside))
    }
    return lambda table: _with_fields(table, fields)


def optional_keys(wanted: Callable[[Key], bool]) -> Callable[[type[TomlTableT]], type[TomlTableT]]:
    """Give a class the `wanted` keys, before its own fields; None is not given."""
    fields = {
        name: (_written(name) | None, key.field(None)) for name, key in KEYS.items() if wanted(key)
    }
    return lambda table: _with_fields(table, fields)


def flag(setting: str) -> str:
    """The option of a setting on the command line."""
    return "--" + setting.replace("_", "-")


def decided(given: Mapping[str, Any]) -> dict[str, Any]:
    """The values of keys as `Keys` has them, from the values in a file and its word for None."""
    return {name: None if value == KEYS[name].none else value for name, value in given.items()}


def _written(name: str) -> Any:
    """The type of a key in a file, in which a word may stand for None."""
    word, field = KEYS[name].none, Keys.model_fields[name]
    if word is None:
        return _TYPES[name]
    kinds = (kind for kind in get_args(field.annotation) if kind is not NoneType)
    return Union[*kinds, Literal[word]]


def _of_target(name: str) -> tuple[Any, Any]:
    """The type and the field of a key in a target's file."""
    field, key = Keys.model_fields[name], KEYS[name]
    left_out = key.none is None and NoneType in get_args(field.annotation)
    default = (None if left_out else ...) if field.is_required() else field.default
    return _written(name), key.field(default)


def _with_fields(table: type[TomlTableT], fields: Mapping[str, Any]) -> type[TomlTableT]:
    """The class with these fields before its own; what both have, keeps its place and own type."""
    before = create_model(table.__name__, __base__=TomlTable, **fields)
    names = {one: getattr(table, one) for one in ("__module__", "__qualname__", "__doc__")}
    return new_class(table.__name__, (table, before), exec_body=lambda body: body.update(names))
