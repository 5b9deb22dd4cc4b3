"""CrossSim's parameters of a crossbar, by dotted names: the same cells, inputs and converters."""

from __future__ import annotations

from typing import Any

from cimtool.hardware.converters import Formula
from cimtool.hardware.crossbar import Crossbar

PUSH = 1e-7
"""The share of a step by which CrossSim's ranges are moved, so that halves round up there too."""


def parameters(
    crossbar: Crossbar,
    step: int,
    rows: int,
    columns: int,
    ratio: float | None = None,
) -> dict[str, Any]:
    """The parameters of arrays of `rows` inputs and `columns` outputs.

    A converter's step is 2^step digits; `ratio` is the on/off ratio of the cells (None: infinite).
    """
    weights, inputs = crossbar.weights, crossbar.inputs
    top, drive = float((1 << weights.bits - 1) - 1), float(_magnitudes(crossbar))
    style = "BALANCED" if weights.paired else "OFFSET"
    # CrossSim's own core of offsets maps weights to conductances, not their digits.
    sliced = weights.slices > 1 or not weights.paired
    values: dict[str, Any] = {
        "core.style": "BITSLICED" if sliced else style,
        "core.weight_bits": weights.bits,
        "core.rows_max": rows,
        "core.cols_max": columns,
        "core.mapping.weights.percentile": None,
        "core.mapping.weights.min": -top,
        "core.mapping.weights.max": top,
        "core.mapping.inputs.mvm.min": -drive if inputs.signed else 0.0,
        "core.mapping.inputs.mvm.max": drive,
        "xbar.dac.mvm.model": "SignMagnitudeDAC" if inputs.signed else "QuantizerDAC",
        "xbar.dac.mvm.signed": inputs.signed,
        "xbar.dac.mvm.bits": inputs.bits,
        "xbar.dac.mvm.input_bitslicing": len(crossbar.cycles) > 1,
        "xbar.dac.mvm.slice_size": inputs.dac_bits,
        "xbar.device.cell_bits": weights.cell_bits if sliced else 0,
        "xbar.device.infinite_on_off_ratio": ratio is None,
    }
    if sliced:
        values |= {
            "core.bit_sliced.style": style,
            "core.bit_sliced.num_slices": weights.bits // weights.cell_bits,
        }
    if ratio is not None:
        values |= {"xbar.device.Rmin": 1e5, "xbar.device.Rmax": 1e5 * ratio}
    if isinstance(crossbar.converter, Formula):
        values |= _converter(crossbar, crossbar.converter.bits, step, ratio)
    return values


def _magnitudes(crossbar: Crossbar) -> int:
    """The largest input's magnitude."""
    return (1 << crossbar.inputs.bits - crossbar.inputs.signed) - 1


def _converter(crossbar: Crossbar, bits: int, step: int, ratio: float | None) -> dict[str, Any]:
    """CrossSim's range of a converter whose codes count 2^step digits."""
    weights = crossbar.weights
    per_cycle = crossbar.shift_add == "digital" and len(crossbar.cycles) > 1
    signed = crossbar.signed_sums
    last = (1 << bits - signed) - 1
    shares = 1 - (0 if ratio is None else 1 / ratio)
    drive = (1 << crossbar.inputs.dac_bits) - 1 if per_cycle else _magnitudes(crossbar)
    sliced = weights.slices > 1 or not weights.paired
    full = weights.cell_maximum if sliced else (1 << weights.bits - 1) - 1
    width = shares / (full * drive) * 2.0**step
    ends = [(-last if signed else 0) * width - PUSH * width, last * width - PUSH * width]
    if signed:  # CrossSim asks for a range that is symmetric about 0
        ends = [-last * width, last * width]
    return {
        "xbar.adc.mvm.model": "SignMagnitudeADC" if signed else "QuantizerADC",
        "xbar.adc.mvm.bits": bits,
        "xbar.adc.mvm.adc_per_ibit": per_cycle,
        "xbar.adc.mvm.adc_range_option": "CALIBRATED",
        "xbar.adc.mvm.calibrated_range": [ends] * weights.slices if sliced else ends,
    }


def error(kind: str, model: str, magnitude: float) -> dict[str, Any]:
    """The parameters of an error of devices."""
    place = f"xbar.device.{kind}"
    return {f"{place}.enable": True, f"{place}.model": model, f"{place}.magnitude": magnitude}
