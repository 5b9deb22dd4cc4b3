"""Hardware as data: one TOML file a chip or simulated design, validated into a frozen `Target`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from cimtool.base.errors import CimError, invalid_at, naming
from cimtool.base.files import without_links
from cimtool.base.named import nearest
from cimtool.base.plugins import known_files, targets_folder
from cimtool.base.toml_files import (
    TomlTable,
    is_file_name,
    is_path,
    known_file,
    read_toml,
    validated,
)
from cimtool.hardware.converters import Converter, StaircaseLaw, check_given, law_of
from cimtool.hardware.figures import (
    Figure,
    OperatingPoint,
    Retrieval,
    SettableReference,
    check_conditions,
)
from cimtool.hardware.geometry import (
    ArraySpec,
    ChipSpec,
    check_cells,
    check_geometry,
    check_meaning,
)
from cimtool.hardware.image import ImageSpec
from cimtool.hardware.input_codes import InputCode
from cimtool.hardware.keys import KEYS, Keys, decided, in_table
from cimtool.hardware.noise.spec import Noise
from cimtool.hardware.references import SCOPES
from cimtool.hardware.technology import DigitalFile, DigitalSpec, ProcessSpec
from cimtool.hardware.write_verify import WriteVerify


@in_table("input")
class InputSpec(TomlTable):
    """The array's inputs: bits, at most `dac_bits` of them a cycle, and their input codes."""


@in_table("weights")
class WeightSpec(TomlTable):
    """The bits of a signed weight."""


@in_table("activations")
class ActivationSpec(TomlTable):
    """The bits of hidden activations, and of the features mu and s."""


@in_table("adc")
class AdcSpec(TomlTable):
    """The converter of a column sum: its formula (`rounding`) or its measured `transfer`."""

    settable: tuple[SettableReference, ...] = Field(
        default=(),
        strict=False,
        title="Steps and offsets that can be set, according to a source.",
    )


@in_table("accumulator")
class AccumulatorSpec(TomlTable):
    """The signed width within which every sum's proved range must lie."""


def check_converter(keys: Keys) -> None:
    """Raise ValueError if no converter is as the keys say."""
    if keys.adc_bits is None and keys.transfer:
        raise ValueError(
            f"transfer has {len(keys.transfer)} thresholds: a lossless converter has none"
        )
    if keys.adc_parameters is not None and keys.adc_kind is None:
        raise ValueError("adc_parameters belong to a kind of converter: expected adc_kind too")
    known = Converter.named(keys.adc_kind, "converter").parameters() if keys.adc_kind else []
    for name in keys.adc_parameters or {}:
        if name not in known:
            raise ValueError(
                f'adc_parameters.{name}: a converter of adc_kind = "{keys.adc_kind}" has '
                f"{' and '.join(known) or 'no parameters'}{nearest(name, known)}"
            )
    for signed in (False, True):
        law = law_of(keys.converter, signed)
        if SCOPES[keys.references].levels and isinstance(law, StaircaseLaw):
            raise ValueError(
                f'references = "{keys.references}": thresholds can be set only on a converter of '
                "equal steps; this one has a transfer of its own"
            )


class Target(TomlTable):
    """A chip or simulated design: geometry, converters, precisions, and its sourced figures."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
        description="a name of letters, digits, dots, dashes and underscores, at most 100",
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
    image: ImageSpec | None = None
    write_verify: WriteVerify | None = None
    process: ProcessSpec = ProcessSpec()
    digital: DigitalSpec = DigitalSpec()
    operating_points: tuple[OperatingPoint, ...] = Field((), strict=False)
    figures: tuple[Figure, ...] = Field((), strict=False)
    retrievals: tuple[Retrieval, ...] = Field((), strict=False)
    unconfirmed: tuple[str, ...] = Field((), strict=False)
    unmodelled: tuple[str, ...] = Field((), strict=False)

    @property
    def settable(self) -> tuple[SettableReference, ...]:
        """The references of its converters that a source says can be set."""
        return () if self.adc is None else self.adc.settable

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        keys = self.keys
        by_formula = self.adc is not None and keys.adc_kind is None
        if by_formula and (keys.rounding is None) == (keys.transfer is None):
            raise ValueError(
                "adc: expected either rounding or transfer (a measured table), one of them"
            )
        with invalid_at("adc: "):
            check_converter(keys)
            if self.base is None:  # else it may be inherited
                check_given(keys.adc_kind, dict(self.adc or ()))
        if self.write_verify is not None:
            self.write_verify.check(self.noise, keys.on_off_ratio)
        check_cells(self.array, keys)
        check_geometry(self.array, keys)
        check_meaning(keys)
        check_conditions(self.operating_points, self.figures)
        self._check_points(keys)
        if self.chip and self.chip.arrays and self.array.arrays not in (None, self.chip.arrays):
            raise ValueError(
                f"array.arrays = {self.array.arrays}: must be {self.chip.arrays}, the arrays of "
                "chip.cores x chip.macros_per_core x chip.arrays_per_macro"
            )
        if keys.adc_bits is not None and not keys.weight_code.analog:
            raise ValueError(
                f"adc.bits = {keys.adc_bits}: an array with array.encoding = "
                f'"{keys.encoding}" adds digitally and has no converter; leave [adc] out'
            )
        return self

    def _check_points(self, keys: Keys) -> None:
        """Refuse points of one-bit products where that one bit would be the sign."""
        weights, inputs = keys.encoding, keys.input_encoding
        for index, point in enumerate(self.operating_points):
            held = keys.weight_code.stored_bits(point.weight_bits)
            limits = InputCode.named(inputs, "input.encoding").limits(point.input_bits)
            for key, bits, place, nothing in (
                ("weight_bits", point.weight_bits, f'array.encoding = "{weights}"', held == 0),
                ("input_bits", point.input_bits, f'input.encoding = "{inputs}"', not any(limits)),
            ):
                if nothing:
                    raise ValueError(
                        f"operating_points[{index}].{key} = {bits}: must be at least 2, as one bit "
                        f"is the sign with {place}"
                    )

    @property
    def keys(self) -> Keys:
        """The target's keys, with the values of a build where the target says nothing."""
        # A target without a converter may still be tried with one: --adc-bits.
        values: dict[str, Any] = {"adc_bits": None, "rounding": "half-up"}
        for name, key in KEYS.items():
            table, _, entry = key.place.partition(".")
            if table and getattr(self, table) is not None:
                values[name] = getattr(getattr(self, table), entry)
        return Keys(**decided(values))

    @property
    def hierarchy(self) -> ChipSpec:
        """The hierarchy of a chip; where nothing is said of it, every array is a core."""
        return self.chip or ChipSpec(cores=self.array.arrays)

    @property
    def cell_order(self) -> ImageSpec:
        """The order of cells in images of arrays; the usual one where nothing is said of it."""
        return self.image or ImageSpec()

    @property
    def sha256(self) -> str:
        """The SHA-256 of the target's values, the same wherever and however its file is written."""
        text = json.dumps(self.to_json(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """Plain values, keys as in a file, for a manifest; `validated` reads them."""
        values = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        for name in ("adc", "process", "digital"):
            given = values.get(name, {})
            values[name] = {key: value for key, value in given.items() if value != []}
        return {name: value for name, value in values.items() if value != {}}


def with_digital(target: Target, file: Path) -> Target:
    """The target with a file's tables `process` and `digital` over its own.

    Raises CimError for a file that is not valid.
    """
    own = read_toml(file)
    validated(DigitalFile, own, str(file))
    return validated(Target, _over(target.to_json(), own), str(file))


CAM_FOLDER = "cam"
"""The folder of content-addressable memories, beside targets."""


def names_cam(name: str) -> bool:
    """True for the name of a content-addressable memory; plug-ins are asked last."""
    own = targets_folder()
    if not is_file_name(name) or (own / f"{name}.toml").is_file():
        return False
    return (own / CAM_FOLDER / f"{name}.toml").is_file() or name in known_files(CAM_FOLDER)


def target_origins() -> dict[str, str]:
    """The origin of each target, by name: `cimtool`, or a plug-in's package and version."""
    return {name: origin for name, (_, origin) in sorted(known_files().items())}


def target_names() -> list[str]:
    """The names of the targets of cimtool and of plug-ins, sorted."""
    return list(target_origins())


def origin_of(name_or_path: str) -> str:
    """The origin of a target that is given by name; of a file, its path."""
    return name_or_path if is_path(name_or_path) else known_file(name_or_path, "target")[1]


def load_target(name_or_path: str | Path) -> Target:
    """Load a target by name, or a file by path (it has a separator or ends in .toml).

    CimError for an unknown name (with the nearest), a missing file, or a file that is not valid.
    """
    file = _target_file(str(name_or_path), Path(), "target")
    target, _ = _load(file, ())
    # Not asked of the target in a bundle, whose levels are one table whatever it lists.
    for index, one in enumerate(target.settable):
        if one.reference == "levels" and one.each == "column":
            raise CimError(
                f'{file}: adc.settable[{index}]: levels with each = "column": the columns of a '
                'slice share one table of levels; expected each = "slice"'
            )
    return target


def _target_file(name_or_path: str, folder: Path, what: str) -> Path:
    if not is_path(name_or_path) and names_cam(name_or_path):
        raise _of_words(f'{what} "{name_or_path}"')
    return folder / name_or_path if is_path(name_or_path) else known_file(name_or_path, what)[0]


def _of_words(where: str) -> CimError:
    return CimError(
        f"{where}: is a content-addressable memory, which holds no weights; expected it in "
        "`cimtool program --gallery NPZ --cam`, beside the target of a hybrid score"
    )


def _load(file: Path, above: tuple[Path, ...]) -> tuple[Target, dict[str, Any]]:
    """Load one file over its base, return it with its values; `above` are the files based on it."""
    if without_links(file) in above:
        names = [path.name for path in (*above, file)]
        raise CimError(f"{above[-1]}: base comes back to itself: {' -> '.join(names)}")
    own = read_toml(file)
    if own.get("class") == "match":
        raise _of_words(str(file))
    base = own.get("base")
    if isinstance(base, str):
        base_file = _target_file(base, file.parent, f"{file}: base")
        base_target, inherited = _load(base_file, (*above, without_links(file)))
        # A derived design is another design: it never goes by its base's name.
        below = {key: inherited[key] for key in inherited if key not in ("name", "title")}
        return _derived(base_target, below, own, str(file))
    return validated(Target, own, str(file)), own


def derived(base: Target, own: Mapping[str, Any]) -> Target:
    """The target whose file names `base` and holds the keys `own`; CimError if it is not valid."""
    return _derived(base, base.to_json(), dict(own), f'target "{own.get("name", base.name)}"')[0]


def _derived(
    base: Target, inherited: dict[str, Any], own: dict[str, Any], where: str
) -> tuple[Target, dict[str, Any]]:
    values = _over(inherited, own) | {"base": base.name}
    target = validated(Target, values, where)
    with naming(f"{where}: adc"):
        check_given(target.keys.adc_kind, own.get("adc", {}))
    return target, values


REPLACED = {"rounding": "transfer", "transfer": "rounding", "kind": "parameters"}
"""Keys of a converter, each with the one whose inherited value it takes away."""


def _over(inherited: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Lay a file's values over its base's: tables key by key, anything else as a whole.

    A converter's formula replaces an inherited table, and a table replaces a formula. A different
    kind drops the inherited parameters.
    """
    replaced = {REPLACED.get(key) for key, value in own.items() if value != inherited.get(key)}
    merged = {key: value for key, value in inherited.items() if key not in replaced}
    for key, value in own.items():
        both_tables = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _over(merged[key], value) if both_tables else value
    return merged
