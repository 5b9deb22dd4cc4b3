"""Targets from the parameters of other simulators: CrossSim's JSON, part of aihwkit's `rpu_config`.

A key that is here is read, or has a value that changes nothing; any other key or value is refused
by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from cimtool.base.errors import CimError
from cimtool.base.json_files import read_json
from cimtool.base.named import nearest
from cimtool.base.toml_files import validated, value_text
from cimtool.hardware.target import Target

Values = dict[str, Any]
"""A target's values, as its file has them."""


@dataclass
class Parameters:
    """The parameters in a file by dotted names; names that are never read are refused at the end.

    `places` are the names of each key and of the tables around it.
    """

    file: Path
    values: Values
    places: Mapping[str, frozenset[str]]
    known: set[str] = field(default_factory=set)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, which is known from here on."""
        self.known.add(key)
        return self.values.get(key, default)

    def refuse(self, key: str, expected: str) -> NoReturn:
        """Raise CimError for the value of a key."""
        shown = value_text(self.get(key))
        raise CimError(f"{self.file}: {key} = {shown}: expected {expected}")

    def only(self, key: str, *allowed: Any) -> Any:
        """The value of a key, one of `allowed`; the first if the file does not have the key."""
        value = self.get(key, allowed[0])
        if value not in allowed or isinstance(value, bool) != isinstance(allowed[0], bool):
            texts = dict.fromkeys(value_text(one) for one in allowed)
            self.refuse(key, f"{' or '.join(texts)}, nothing else is modelled")
        return value

    def number(
        self, key: str, lo: float, hi: float, whole: bool = True, default: Any = None
    ) -> Any:
        """A number from `lo` to `hi`; a whole one unless said otherwise."""
        value = self.get(key, default)
        kinds = int if whole else int | float
        if isinstance(value, bool) or not isinstance(value, kinds) or not lo <= value <= hi:
            kind = "an integer" if whole else "a number"
            self.refuse(key, f"{kind} from {lo:.10g} to {hi:.10g}")
        return value

    def ignored(self, *places: str) -> None:
        """Take these keys, and all keys of these tables, as changing nothing."""
        self.known |= {key for key, own in self.places.items() if not own.isdisjoint(places)}

    def check_all_known(self) -> None:
        """Raise CimError for the first key that nothing asked for."""
        for key in self.values:
            if key not in self.known:
                raise CimError(
                    f"{self.file}: unknown key {key} = {value_text(self.values[key])}"
                    f"{nearest(key, sorted(self.known))}; expected those that docs/targets.md lists"
                )


def import_target(file: Path, name: str) -> tuple[Values, Target]:
    """Read CrossSim's or aihwkit's parameters as a target of this name: its values, and itself.

    Raises CimError naming the key whose value has no counterpart here.
    """
    content = _object(file)
    leaves = list(_leaves(content))
    values = {key: value for key, _, value in leaves}
    found = Parameters(file, values, {key: places for key, places, _ in leaves})
    for kind, reader in READERS.items():
        if content.keys() & set(kind):
            target = {"name": name, **reader(found)}
            found.check_all_known()
            return target, validated(Target, target, str(file))
    kinds = " or ".join(", ".join(kind) for kind in READERS)
    raise CimError(f"{file}: has no known parameters; expected tables {kinds}")


def _object(file: Path) -> Values:
    found = read_json(file)
    if not isinstance(found, dict):
        raise CimError(f"{file}: is not a JSON object; expected parameters by name")
    return found


def _leaves(
    table: Mapping[str, Any], above: tuple[str, ...] = ()
) -> Iterator[tuple[str, frozenset[str], Any]]:
    """Yield dotted keys with the names of the tables around them, their own, and their values."""
    for name, value in table.items():
        key = f"{above[-1]}.{name}" if above else name
        if isinstance(value, dict):
            yield from _leaves(value, (*above, key))
        else:
            yield key, frozenset((*above, key)), value


CONVERTERS = ("IdealADC", "QuantizerADC", "SignMagnitudeADC", "RampADC", "SarADC")
BALANCED, BITSLICED, SLICED_BALANCED, SLICED_OFFSET = 1, 2, 1, 3
SYMMETRIC_CODES = "signed converters have 2^bits codes; CrossSim's have 2^bits - 1, about 0"
OWN_SCALES = "ranges of weights, inputs and converters are cimtool's own, from calibration rows"


def crosssim(given: Parameters) -> Values:
    """A target of CrossSim's parameters of `mvm`."""
    given.ignored("simulation", "core.mapping", "xbar.adc.vmm", "xbar.dac.vmm")
    for key in ("core.complex_matrix", "core.complex_input"):
        given.only(key, False)
    for key in ("xbar.adc._match", "xbar.dac._match"):
        given.only(key, True, False)
    given.only("core.output_dtype", None, "FLOAT32", "FLOAT64")
    given.number("xbar.device.Vread", -100, 100, whole=False, default=0)
    values: Values = {
        "title": "Imported from CrossSim's parameters",
        "class": "nominal",
        "technology": "not given",
        "rewritable": "field",
        "simulated": True,
        "array": _crosssim_array(given),
        "weights": {"bits": given.get("core.weight_bits")},
        "input": _crosssim_inputs(given),
        "activations": {"bits": 8, "feature_bits": 8},
        "unmodelled": [OWN_SCALES, "rows are split at rows_max, not into equal parts"],
        "unconfirmed": ["activations.bits, activations.feature_bits: CrossSim has no such keys"],
    }
    if adc := _crosssim_converter(given):
        values["adc"] = adc
        if values["array"]["encoding"] == "differential":
            values["unmodelled"].append(SYMMETRIC_CODES)
    if noise := _crosssim_noise(given):
        values["noise"] = noise
    return values


def _crosssim_array(given: Parameters) -> Values:
    style = given.only("core.style", BALANCED, BITSLICED)
    bits = given.number("core.weight_bits", 2, 16)
    sliced = given.only("core.bit_sliced.style", SLICED_BALANCED, SLICED_OFFSET)
    slices = 1 if style == BALANCED else given.number("core.bit_sliced.num_slices", 1, 16)
    given.get("core.bit_sliced.num_slices")
    pairs = style == BALANCED or sliced == SLICED_BALANCED
    whole = slices > 1 and bits % slices == 0
    cell_bits = bits // slices if whole else -(-(bits - pairs) // slices)
    given.only("xbar.device.cell_bits", 0, cell_bits)
    given.only("core.balanced.style", 1)
    unit = given.only("core.offset.style", 1, 2) == 2 and not pairs
    cells = -(-(bits - pairs) // cell_bits) * (1 + pairs)
    array: Values = {
        "rows": given.number("core.rows_max", 1, 1 << 20),
        "columns": given.number("core.cols_max", 1, 1 << 20) * cells + unit,
        "cell_bits": cell_bits,
        "cells_per_weight": cells,
        "encoding": "differential" if pairs else "offset",
    }
    if unit:
        array["offset_sum"] = "unit-column"
    interleaved = given.only("core.balanced.interleaved_posneg", False, True)
    if pairs and interleaved:
        array |= {"pairs": "rows", "rows": 2 * array["rows"], "columns": array["columns"] // 2}
    lowest, highest = _resistance(given, "Rmin", 1e3), _resistance(given, "Rmax", 1e6)
    if not given.only("xbar.device.infinite_on_off_ratio", False, True):
        if unit:
            given.refuse("xbar.device.infinite_on_off_ratio", "true with core.offset.style = 2")
        if highest <= lowest:
            given.refuse("xbar.device.Rmax", "more than xbar.device.Rmin")
        array["on_off_ratio"] = highest / lowest
    return array


def _resistance(given: Parameters, name: str, default: float) -> float:
    """A resistance of a cell in ohms; CrossSim's default if the file has none."""
    value = given.number(f"xbar.device.{name}", 1e-3, 1e18, whole=False, default=default)
    return float(value)


def _crosssim_inputs(given: Parameters) -> Values:
    place = "xbar.dac.mvm"
    given.only(f"{place}.model", "SignMagnitudeDAC")
    given.only(f"{place}.signed", True)
    bits, slice_size = given.number(f"{place}.bits", 2, 16), given.get(f"{place}.slice_size", 1)
    if not given.only(f"{place}.input_bitslicing", False, True):
        return {"bits": bits, "dac_bits": bits - 1, "encoding": "bipolar"}
    given.number(f"{place}.slice_size", 1, 16)
    return {"bits": bits, "dac_bits": slice_size, "encoding": "bipolar"}


def _crosssim_converter(given: Parameters) -> Values:
    place = "xbar.adc.mvm"
    model = given.only(f"{place}.model", *CONVERTERS)
    given.only(f"{place}.stochastic_rounding", False)
    for name in ("calibrated_range", "adc_range_option"):
        given.get(f"{place}.{name}")
    for name in ("signed", "symmetric_cdac", "split_cdac"):
        given.only(f"{place}.{name}", True, False)
    given.number(f"{place}.group_size", 0, 1 << 20, default=8)
    for name in ("sigma_capacitor", "sigma_comparator"):
        given.only(f"{place}.{name}", 0.0)
    given.only(f"{place}.gain_db", 100)
    given.only("xbar.array.Icol_max", 0)
    per_cycle = given.only(f"{place}.adc_per_ibit", False, True)
    on = "difference" if given.only("core.balanced.subtract_current_in_xbar", True, False) else ""
    bits = given.get(f"{place}.bits", 0)
    if model == CONVERTERS[0] or bits == 0:
        return {}
    found: Values = {"bits": given.number(f"{place}.bits", 1, 16), "rounding": "half-even"}
    if not on:
        found["on"] = "polarity"
    if given.get("xbar.dac.mvm.input_bitslicing") and not per_cycle:
        found["shift_add"] = "analog"
    return found


def _crosssim_noise(given: Parameters) -> Values:
    g_max = 1e6 / _resistance(given, "Rmin", 1e3)
    found: Values = {}
    given.number("xbar.device.time", 0, 1e12, whole=False, default=0)
    given.only("xbar.device.clip_conductance", False)
    for name in ("drift_error", "nonlinear_IV"):
        _crosssim_error(given, name)
    if error := _crosssim_error(given, "programming_error", INDEPENDENT, PROPORTIONAL):
        model, size = error
        sigma = size * g_max
        found["programming"] = {"sigma": [sigma] if model == INDEPENDENT else [0.0, sigma]}
    if error := _crosssim_error(given, "read_noise", PROPORTIONAL):
        found["read"] = {"sigma": error[1], "redraw": "cycle"}
    place = "xbar.array.parasitics"
    enabled = given.only(f"{place}.enable", False, True)
    given.ignored(place)
    if enabled:
        for name in ("Rp_row_terminal", "Rp_col_terminal"):
            given.only(f"{place}.{name}", 0)
        given.only(f"{place}.current_from_input", True)
        wires = given.number(f"{place}.Rp_row", 1e-9, 1e6, whole=False)
        given.only(f"{place}.Rp_col", wires)
        found["ir_drop"] = {"wire_resistance": float(wires)}
    if not found:
        return {}
    return {"source": "CrossSim's parameters", "g_max": g_max, **found}


INDEPENDENT, PROPORTIONAL = "NormalIndependentDevice", "NormalProportionalDevice"


def _crosssim_error(given: Parameters, name: str, *models: str) -> tuple[str, float] | None:
    """The model and the magnitude of an error of devices; None if there is none."""
    place = f"xbar.device.{name}"
    for key in ("enable", "model", "magnitude"):
        given.get(f"{place}.{key}")
    if not models:
        given.only(f"{place}.enable", False)
    if not given.only(f"{place}.enable", False, True):
        return None
    model = given.only(f"{place}.model", *models)
    return model, float(given.number(f"{place}.magnitude", 0, 1, whole=False))


NOISE_MODELS = {
    "PCMLikeNoiseModel": ("pcm-generic", 25.0),
    "ReRamWan2022NoiseModel": ("neurram", 40.0),
}
"""Noise models of aihwkit, by the shipped model that is the same, and its g_max."""


def aihwkit(given: Parameters) -> Values:
    """A target of the tables `forward`, `mapping` and `noise_model` of an `rpu_config`."""
    given.only("forward.is_perfect", False)
    for key in ("inp_noise", "out_noise", "w_noise", "ir_drop", "inp_asymmetry", "out_asymmetry"):
        given.only(f"forward.{key}", 0)
    for key in ("out_nonlinearity", "s_shape", "inp_sto_round", "out_sto_round"):
        given.only(f"forward.{key}", 0, False)
    for key in ("inp_bound", "out_bound", "noise_management", "bound_management"):
        given.get(f"forward.{key}")
    given.ignored("mapping.weight_scaling_omega", "mapping.learn_out_scaling")
    input_bits = _aihwkit_bits(given, "inp_res")
    rows = given.number("mapping.max_input_size", 1, 1 << 20)
    columns = given.number("mapping.max_output_size", 1, 1 << 20)
    given.only("mapping.digital_bias", True)
    values: Values = {
        "title": "Imported from aihwkit's rpu_config",
        "class": "nominal",
        "technology": "not given",
        "rewritable": "field",
        "simulated": True,
        "array": {
            "rows": rows,
            "columns": 2 * columns,
            "cell_bits": 7,
            "cells_per_weight": 2,
            "encoding": "differential",
        },
        "weights": {"bits": 8},
        "input": {"bits": input_bits, "dac_bits": input_bits - 1, "encoding": "bipolar"},
        "activations": {"bits": input_bits, "feature_bits": max(4, input_bits)},
        "adc": {"bits": _aihwkit_bits(given, "out_res"), "rounding": "half-even"},
        "unmodelled": [OWN_SCALES],
        "unconfirmed": ["weights.bits, array.cell_bits: weights are analog there, 8 bits here"],
    }
    name = given.only("noise_model.name", None, *NOISE_MODELS)
    if name is not None:
        preset, g_max = NOISE_MODELS[name]
        given.only("noise_model.g_max", g_max)
        values["noise"] = {"preset": preset}
    given.only("drift_compensation", None, "GlobalDriftCompensation")
    return values


def _aihwkit_bits(given: Parameters, name: str) -> int:
    """Bits of a resolution 1 / (2^bits - 2), or of as many steps."""
    value = given.number(f"forward.{name}", 1e-6, 1 << 16, whole=False)
    steps = value if value > 1 else 1 / value
    for bits in range(2, 17):
        if abs(steps - ((1 << bits) - 2)) < 1e-6 * steps:
            return bits
    given.refuse(f"forward.{name}", "1 / (2^bits - 2) for 2 to 16 bits")


READERS: dict[tuple[str, ...], Callable[[Parameters], Values]] = {
    ("core", "xbar"): crosssim,
    ("forward", "mapping"): aihwkit,
}
"""The reader of parameters by the tables that show them."""
