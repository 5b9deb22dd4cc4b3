"""Hardware as data: one TOML file a chip or simulated design, validated into a frozen `Target`."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from cimtool.errors import CimError
from cimtool.hardware.crossbar import Encoding, slice_count
from cimtool.ir.format import Rounding
from cimtool.named import unknown
from cimtool.toml_files import Table, read_toml, validated, value_text

InputEncoding = Literal["twos-complement", "offset", "bipolar"]
Lossless = Literal["lossless"]

WeightBits = Annotated[int, Field(ge=2, le=16)]
InputBits = Annotated[int, Field(ge=2, le=16)]
ActivationBits = Annotated[int, Field(ge=2, le=16)]
FeatureBits = Annotated[int, Field(ge=4, le=16)]
AdcBits = Annotated[int, Field(ge=1, le=16)]
CellBits = Annotated[int, Field(ge=1, le=8)]
DacBits = Annotated[int, Field(ge=1, le=16)]
AccumulatorBits = Annotated[int, Field(ge=8, le=63)]
Count = Annotated[int, Field(ge=1)]

# Fixed, so that figures of one quantity can be compared and a misspelt one is found.
UNITS = {
    "throughput": "TOPS",
    "efficiency": "TOPS/W",
    "mvm_latency": "ns",
    "mvm_energy": "nJ",
    "mac_energy": "pJ",
    "read_latency": "ns",
    "adc_energy": "pJ",
    "adc_area": "um2",
    "adc_rate": "GS/s",
    "adc_count": "1",
    "shift_add_energy": "pJ",
    "array_count": "1",
    "area": "mm2",
}


class ArraySpec(Table):
    """One array: its physical cells (no `rows` or `columns`: unlimited) and what a cell holds."""

    rows: Count | None = Field(
        None, description="an integer of at least 1 (leave the key out for unlimited)"
    )
    columns: Count | None = Field(
        None, description="an integer of at least 1 (leave the key out for unlimited)"
    )
    cell_bits: CellBits
    cells_per_weight: Count
    encoding: Encoding
    signed_rows: Count | None = None
    signed_cols: Count | None = None
    weight_sets: Count = 1
    arrays: Count | None = None
    weights_total: Count | None = None


class InputSpec(Table):
    """The array's inputs: bits, at most `dac_bits` of them a cycle, and how a sign is sent."""

    bits: InputBits
    dac_bits: DacBits
    encoding: InputEncoding


class WeightSpec(Table):
    """The bits of a signed weight."""

    bits: WeightBits


class ActivationSpec(Table):
    """The bits of hidden activations, and of the features mu and s."""

    bits: ActivationBits
    feature_bits: FeatureBits


class AdcSpec(Table):
    """The converter of a column sum."""

    bits: AdcBits | Lossless
    rounding: Rounding


class AccumulatorSpec(Table):
    """The signed width within which every sum's proved range must lie."""

    bits: AccumulatorBits = 32


class Figure(Table):
    """One published or derived figure, with its source and the conditions that it holds under."""

    quantity: str
    value: float = Field(gt=0, allow_inf_nan=False)
    unit: str
    source: str
    scope: Literal["array", "macro", "core", "chip"]
    status: Literal["confirmed", "derived", "unconfirmed"]
    precision: str | None = None
    mode: str | None = None
    voltage: float | None = Field(None, gt=0, allow_inf_nan=False)
    activity: str | None = None

    @model_validator(mode="after")
    def _comparable(self) -> Self:
        if self.quantity not in UNITS:
            raise ValueError(str(unknown("quantity", self.quantity, UNITS)))
        unit = UNITS[self.quantity]
        if self.unit != unit:
            raise ValueError(f'unit = "{self.unit}": {self.quantity} is given in "{unit}"')
        if self.quantity in ("throughput", "efficiency") and self.precision is None:
            raise ValueError(f"precision is missing: a {self.quantity} means nothing without it")
        return self


class Target(Table):
    """A chip or simulated design: geometry, converters, precisions, and its sourced figures."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description="a name of letters, digits, dots, dashes and underscores",
    )
    title: str
    base: str | None = None
    class_: Literal["bit-exact", "nominal"] = Field(alias="class")
    technology: str
    rewritable: Literal["per-inference", "field", "factory"]
    simulated: bool
    array: ArraySpec
    input: InputSpec
    weights: WeightSpec
    activations: ActivationSpec
    adc: AdcSpec | None = None
    accumulator: AccumulatorSpec = AccumulatorSpec()
    figures: tuple[Figure, ...] = Field((), strict=False)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        _check_cells(self)
        _check_geometry(self.array)
        if self.array.encoding == "twos-complement" and self.adc_bits is not None:
            raise ValueError(
                f"adc.bits = {self.adc_bits}: an array with array.encoding = "
                '"twos-complement" adds digitally and has no converter; leave [adc] out'
            )
        return self

    @property
    def adc_bits(self) -> int | None:
        """The converter's bits; None where it is lossless."""
        return self.adc.bits if self.adc and self.adc.bits != "lossless" else None

    @property
    def sha256(self) -> str:
        """The SHA-256 of the target's values, the same wherever and however its file is written."""
        text = json.dumps(self.to_json(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """Return the target as plain values, keys as in its file, for a manifest."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    @classmethod
    def from_json(cls, values: Mapping[str, Any], where: str) -> Target:
        """Read what `to_json` returned; CimError starting with `where` if it is not valid."""
        return validated(cls, values, where)


def cells_per_weight(encoding: Encoding, weight_bits: int, cell_bits: int) -> int:
    """Count the cells of one signed weight: its slices, twice that where cells come in pairs."""
    polarities = 2 if encoding == "differential" else 1
    return polarities * slice_count(encoding, weight_bits, cell_bits)


def _check_cells(target: Target) -> None:
    array, bits = target.array, target.weights.bits
    needed = cells_per_weight(array.encoding, bits, array.cell_bits)
    if array.cells_per_weight != needed:
        raise ValueError(
            f"array.cells_per_weight = {array.cells_per_weight}: must be {needed}, what encoding "
            f'"{array.encoding}" needs for {bits}-bit weights in {array.cell_bits}-bit cells'
        )
    if array.columns is not None and array.columns < needed:
        raise ValueError(
            f"array.columns = {array.columns}: must be at least {needed}, the cells of one weight"
        )


def _check_geometry(array: ArraySpec) -> None:
    """Hold the stated geometry against the cells; a weight's cells are columns of one row."""
    derived = {
        "signed_rows": array.rows,
        "signed_cols": array.columns and array.columns // array.cells_per_weight,
    }
    for key, value in derived.items():
        stated = getattr(array, key)
        if stated is not None and stated != value:
            raise ValueError(
                f"array.{key} = {stated}: must be {value or 'left out'}, by the array's rows and "
                "columns and its cells_per_weight (a weight's cells lie in one row)"
            )
    if array.weights_total is None:
        return
    parts = (array.signed_rows, array.signed_cols, array.weight_sets, array.arrays)
    rows, cols, sets, arrays = (part or 0 for part in parts)
    if array.weights_total != rows * cols * sets * arrays:
        raise ValueError(
            f"array.weights_total = {array.weights_total}: must be signed_rows x signed_cols x "
            f"weight_sets x arrays = {' x '.join(map(value_text, parts))}"
        )


def targets_folder() -> Path:
    """Return the folder of shipped targets: in an installed package, else in the checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "targets", package.parent / "targets"):
        if folder.is_dir():
            return folder
    raise CimError(f"{package / 'targets'}: there is no such folder; reinstall cimtool")


def target_names() -> list[str]:
    """Return the names of the shipped targets, sorted."""
    return sorted(file.stem for file in targets_folder().glob("*.toml"))


def load_target(name_or_path: str | Path) -> Target:
    """Load a shipped target by name, or a file by path (it has a separator or ends in .toml).

    CimError for an unknown name (with the nearest), a missing file, or a file that is not valid.
    """
    return _load(_target_file(str(name_or_path), Path(), "target"), ())[0]


def _target_file(name_or_path: str, folder: Path, what: str) -> Path:
    if name_or_path.endswith(".toml") or "/" in name_or_path or os.sep in name_or_path:
        return folder / name_or_path
    if name_or_path not in target_names():
        raise unknown(what, name_or_path, target_names())
    return targets_folder() / f"{name_or_path}.toml"


def _load(file: Path, above: tuple[Path, ...]) -> tuple[Target, dict[str, Any]]:
    """Load one file over its base, return it with its values; `above` are the files based on it."""
    if file.resolve() in above:
        names = [path.name for path in (*above, file)]
        raise CimError(f"{above[-1]}: base comes back to itself: {' -> '.join(names)}")
    values = read_toml(file)
    base = values.get("base")
    if isinstance(base, str):
        base_file = _target_file(base, file.parent, f"{file}: base")
        base_target, inherited = _load(base_file, (*above, file.resolve()))
        # A derived design is another design: it never goes by its base's name.
        own_only = {key: inherited[key] for key in inherited if key not in ("name", "title")}
        values = _over(own_only, values) | {"base": base_target.name}
    return validated(Target, values, str(file)), values


def _over(inherited: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Lay a file's values over its base's: tables key by key, anything else as a whole."""
    merged = dict(inherited)
    for key, value in own.items():
        both_tables = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _over(merged[key], value) if both_tables else value
    return merged


def describe(target: Target) -> str:
    """Describe a target for a reader: every value with its key, every figure with its source."""
    values: dict[str, Any] = {}
    for key, value in target.to_json().items():
        inside = value.items() if isinstance(value, dict) else ()
        values |= {f"{key}.{inner}": inner_value for inner, inner_value in inside} or {key: value}
    for key in ("name", "title", "figures"):
        values.pop(key)
    absent = {"array.rows": "unlimited", "array.columns": "unlimited", "adc.bits": "lossless"}
    lines = [f"{target.name}: {target.title}"]
    lines += [f"  {key:<24} {value}" for key, value in (values | absent | values).items()]
    lines.append("figures" if target.figures else "figures: not given")
    lines += [f"  {_figure_text(figure)}" for figure in target.figures]
    return "\n".join(lines)


def _figure_text(figure: Figure) -> str:
    unit = "" if figure.unit == "1" else f" {figure.unit}"
    voltage = f"{figure.voltage:g} V" if figure.voltage else None
    conditions = (figure.precision, figure.mode, figure.activity, voltage)
    return (
        f"{figure.quantity} {figure.value:g}{unit}, {figure.scope}: "
        f"{', '.join(filter(None, conditions)) or 'conditions not given'} "
        f"[{figure.status}: {figure.source}]"
    )
