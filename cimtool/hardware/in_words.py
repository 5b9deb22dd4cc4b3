"""An array of a target in words, as its settings make it."""

from __future__ import annotations

from collections.abc import Iterator

from cimtool.hardware.input_codes import InputCode
from cimtool.hardware.placement import placed
from cimtool.hardware.settings import resolve
from cimtool.hardware.target import Target

ANY_SIZE = (128, 32)
"""Weights of an array whose size the target leaves open."""


def array_text(target: Target) -> Iterator[str]:
    """Sentences on what an array holds, how it is driven, and how it is converted."""
    own = resolve(target, None, {})
    shape = own.weight_rows or ANY_SIZE[0], own.weights_across or ANY_SIZE[1]
    inputs = InputCode.named(own.input_encoding, "input encoding")(
        own.activation_bits, own.dac_bits
    )
    one = placed("", "", shape, own.crossbar(inputs), own)
    held = f"{shape[0]} x {shape[1]} weights" if own.rows and own.columns else "weights"
    size = f"{own.rows} x {own.columns}" if own.rows and own.columns else "any number of"
    columns = _times(one.slices, "column" if one.adc_bits is None else "converted column")
    yield (
        f"an array of {size} cells of {_bits(own.cell_bits)} holds {held} of "
        f"{_bits(own.weight_bits)}, {one.encoding}: {_times(own.cells_per_weight, 'cell')} and "
        f"{columns} a weight"
    )
    groups = "all rows at once"
    if one.row_groups > 1:
        groups = f"{one.row_groups} groups of rows one after another"
    yield (
        f"inputs of {_bits(one.input_bits)}, {one.input_encoding}, take "
        f"{_times(one.drive_cycles, 'cycle')} of {_bits(own.dac_bits)}, {groups}"
    )
    if one.adc_bits is None:
        yield "sums are exact: no converter"
    else:
        yield f"converters of {_bits(one.adc_bits)} convert {_times(one.cycles, 'time')} a column"
    known = {figure.quantity for figure in target.figures}
    if "adc_count" in known and "adc_rate" not in known:
        yield "no adc_rate: converters are taken to keep up with the cycles"


def _bits(count: int) -> str:
    return _times(count, "bit")


def _times(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"
