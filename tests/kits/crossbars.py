"""Crossbars of tests, by the keys of a target's file in place of codes and converters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cimtool.base.arrays import IntArray
from cimtool.hardware.contract import layer_mvm
from cimtool.hardware.converted_layer import ConvertedLayer
from cimtool.hardware.converters import Converter, Formula, Lossless, Measured
from cimtool.hardware.crossbar import Crossbar, RowTiling
from cimtool.hardware.input_codes import InputCode
from cimtool.hardware.references import AdcReferences
from cimtool.hardware.stored import StoredWeights
from cimtool.hardware.weight_codes import WeightCode


def crossbar_of(
    rows: int | None,
    cell_bits: int,
    dac_bits: int,
    encoding: str,
    weight_bits: int,
    input_encoding: str,
    input_bits: int,
    adc_bits: int | None,
    rounding: Any,
    accumulator_bits: int,
    **more: Any,
) -> Crossbar:
    """The crossbar of these keys; `rows` are those of weights, `transfer` counts in 1/16."""
    tiling = RowTiling(rows, more.pop("rows_active", None), more.pop("unused_rows", "off"))
    converter = converter_of(adc_bits, rounding, more.pop("transfer", None))
    return Crossbar(
        WeightCode.named(encoding, "encoding")(weight_bits, cell_bits),
        InputCode.named(input_encoding, "encoding")(input_bits, dac_bits),
        accumulator_bits,
        converter,
        tiling,
        **more,
    )


def converter_of(
    adc_bits: int | None, rounding: Any, transfer: tuple[int, ...] | None = None
) -> Converter:
    """The converter of these keys."""
    if adc_bits is None:
        return Lossless()
    return Formula(adc_bits, rounding) if transfer is None else Measured(adc_bits, transfer)


PLAIN = crossbar_of(None, 2, 1, "offset", 8, "twos-complement", 8, None, "half-up", 62)
"""A crossbar without limits or converters, to change keys of."""


def changed(crossbar: Crossbar, **keys: Any) -> Crossbar:
    """The crossbar with other values of some keys."""
    converter, tiling = crossbar.converter, crossbar.tiling
    values = {
        "rows": tiling.height,
        "cell_bits": crossbar.weights.cell_bits,
        "dac_bits": crossbar.inputs.dac_bits,
        "encoding": crossbar.weights.name,
        "weight_bits": crossbar.weights.bits,
        "input_encoding": crossbar.inputs.name,
        "input_bits": crossbar.inputs.bits,
        "adc_bits": converter.bits,
        "rounding": getattr(converter, "rounding", "half-up"),
        "transfer": getattr(converter, "transfer", None),
        "rows_active": tiling.active,
        "unused_rows": tiling.unused,
    }
    own = ("accumulator_bits", "adc_on", "shift_add", "offset_sum", "references", "leak")
    values |= {name: getattr(crossbar, name) for name in own}
    return crossbar_of(**values | keys)  # type: ignore[arg-type]


def with_crossbar(op: Any, crossbar: Crossbar) -> Any:
    """A layer with its weights on another crossbar."""
    return replace(op, stored=replace(op.stored, crossbar=crossbar))


def at_steps(
    crossbar: Crossbar, exponents: Sequence[int | None], unit: int | None = None
) -> tuple[AdcReferences | None, ...]:
    """AdcReferences that count steps of 2^e units of a column sum from zero, None where lossless.

    Of each slice, and of the unit column where there is one.
    """
    own = (*exponents, unit)[: crossbar.slices + crossbar.unit_column]
    every = [one for one in own for _ in range(crossbar.reference_cycles)]
    assert len(every) == len(crossbar.no_references)
    bits = crossbar.reference_bits
    found = (None if e is None else AdcReferences.from_zero(1 << e + bits) for e in every)
    if not crossbar.scope.levels or crossbar.law is None:
        return tuple(found)
    law = crossbar.law
    return tuple(None if one is None else one.with_equal_levels(law) for one in found)


def mvm(x: IntArray, stored: StoredWeights, references: Sequence[AdcReferences | None]) -> IntArray:
    """The crossbar product [n, N] of integer inputs [n, K] and stored weights, without a bias."""
    return layer_mvm(x, ConvertedLayer(stored.cells, tuple(references), -stored.correction))
