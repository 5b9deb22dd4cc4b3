"""Hardware as data: one TOML file a chip or simulated design, validated into a frozen `Target`."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from cimtool.base.errors import CimError
from cimtool.base.named import unknown
from cimtool.base.toml_files import Table, read_toml, validated
from cimtool.hardware.converter import measured_thresholds
from cimtool.hardware.crossbar import AdcOn, ShiftAdd
from cimtool.hardware.figures import Figure, OperatingPoint, check_conditions
from cimtool.hardware.geometry import (
    ArraySpec,
    ChipSpec,
    check_cells,
    check_geometry,
    check_meaning,
)
from cimtool.hardware.noise.spec import Noise
from cimtool.ir.format import Rounding

InputEncoding = Literal["twos-complement", "offset", "bipolar"]
Lossless = Literal["lossless"]

WeightBits = Annotated[int, Field(ge=2, le=16)]
InputBits = Annotated[int, Field(ge=2, le=16)]
ActivationBits = Annotated[int, Field(ge=2, le=16)]
FeatureBits = Annotated[int, Field(ge=4, le=16)]
AdcBits = Annotated[int, Field(ge=1, le=16)]
DacBits = Annotated[int, Field(ge=1, le=16)]
AccumulatorBits = Annotated[int, Field(ge=8, le=63)]
Threshold = Annotated[float, Field(ge=-(1 << 20), le=1 << 20, allow_inf_nan=False)]


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
    """The converter of a column sum: its formula (`rounding`) or its measured `transfer`.

    `transfer` are the 2^bits - 1 thresholds between codes, rising, in codes above the lowest one:
    of an ideal converter 0.5, 1.5, ..., whether its codes are signed or not.
    """

    bits: AdcBits | Lossless
    rounding: Rounding | None = None
    transfer: tuple[Threshold, ...] | None = Field(None, strict=False)
    on: AdcOn = "difference"
    shift_add: ShiftAdd = "digital"

    @model_validator(mode="after")
    def _one_law(self) -> Self:
        if (self.rounding is None) == (self.transfer is None):
            raise ValueError("expected either rounding or transfer (a measured table), one of them")
        check_transfer(self.transfer, None if self.bits == "lossless" else self.bits)
        return self


def check_transfer(transfer: Sequence[float] | None, adc_bits: int | None) -> None:
    """Raise ValueError for a table that is not of such a converter, or whose thresholds fall."""
    if transfer is None:
        return
    count = 0 if adc_bits is None else (1 << adc_bits) - 1
    if len(transfer) != count:
        bits = "a lossless converter" if adc_bits is None else f"adc bits = {adc_bits}"
        raise ValueError(
            f"transfer has {len(transfer)} thresholds: {bits} has {count}, one between two codes"
        )
    thresholds = measured_thresholds(transfer)
    for index, (one, after) in enumerate(pairwise(thresholds)):
        if after < one:
            raise ValueError(
                f"transfer falls from {transfer[index]} to {transfer[index + 1]} at threshold "
                f"{index + 1}: thresholds must not fall"
            )


class AccumulatorSpec(Table):
    """The signed width within which every sum's proved range must lie."""

    bits: AccumulatorBits = 32


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
    noise: Noise | None = None
    chip: ChipSpec | None = None
    operating_points: tuple[OperatingPoint, ...] = Field((), strict=False)
    figures: tuple[Figure, ...] = Field((), strict=False)
    unconfirmed: tuple[str, ...] = Field((), strict=False)
    unmodelled: tuple[str, ...] = Field((), strict=False)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_cells(self.array, self.weights.bits)
        check_geometry(self.array)
        adc = self.adc
        check_meaning(
            self.array.encoding,
            adc.on if adc else "difference",
            adc.shift_add if adc else "digital",
            self.array.offset_sum,
        )
        check_conditions(self.operating_points, self.figures)
        self._check_points()
        if self.chip and self.chip.arrays and self.array.arrays not in (None, self.chip.arrays):
            raise ValueError(
                f"array.arrays = {self.array.arrays}: must be {self.chip.arrays}, the arrays of "
                "chip.cores x chip.macros_per_core x chip.arrays_per_macro"
            )
        if self.array.encoding == "twos-complement" and self.adc_bits is not None:
            raise ValueError(
                f"adc.bits = {self.adc_bits}: an array with array.encoding = "
                '"twos-complement" adds digitally and has no converter; leave [adc] out'
            )
        return self

    def _check_points(self) -> None:
        """Refuse points of one-bit products where that one bit would be the sign."""
        for index, point in enumerate(self.operating_points):
            for key, bits, table, encoding, signed in (
                ("weight_bits", point.weight_bits, "array", self.array.encoding, "differential"),
                ("input_bits", point.input_bits, "input", self.input.encoding, "bipolar"),
            ):
                if bits < 2 and encoding == signed:
                    raise ValueError(
                        f"operating_points[{index}].{key} = {bits}: must be at least 2, as one bit "
                        f'is the sign with {table}.encoding = "{signed}"'
                    )

    @property
    def adc_bits(self) -> int | None:
        """The converter's bits; None where it is lossless."""
        return self.adc.bits if self.adc and self.adc.bits != "lossless" else None

    @property
    def hierarchy(self) -> ChipSpec:
        """How arrays make a chip; where nothing is said of it, every array is a core."""
        return self.chip or ChipSpec(cores=self.array.arrays)

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


def derived(base: Target, own: Mapping[str, Any]) -> Target:
    """The target whose file names `base` and holds the keys `own`; CimError if it is not valid."""
    values = _over(base.to_json(), dict(own)) | {"base": base.name}
    return validated(Target, values, f'target "{values["name"]}"')


LAWS = {"rounding": "transfer", "transfer": "rounding"}
"""Keys of which a converter has one."""


def _over(inherited: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Lay a file's values over its base's: tables key by key, anything else as a whole.

    A converter's formula takes the place of a measured table, and a table that of a formula.
    """
    merged = dict(inherited)
    for key, value in own.items():
        if key in LAWS:
            merged.pop(LAWS[key], None)
        both_tables = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _over(merged[key], value) if both_tables else value
    return merged
