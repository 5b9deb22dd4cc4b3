"""Tile: each layer's integer weights go into row groups and slices of crossbars.

The row group (all columns over the rows summed in one conversion) is the unit of numerics; which
macro holds which columns is placement, and changes no number.
"""

from __future__ import annotations

from dataclasses import replace

from cimtool.hardware.converter import measured_thresholds
from cimtool.hardware.crossbar import Crossbar, InputEncoding, leak_of
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.settings import Settings
from cimtool.ir.arithmetic import Mvm
from cimtool.ir.op import Level
from cimtool.ir.program import Builder, Node, Program, Rule, keep, rewrite
from cimtool.ir.types import Type
from cimtool.passes.step import Job, Pass


def tile(program: Program, job: Job) -> Program:
    """Return the program with every layer on crossbars, converters still lossless."""

    def mvm(builder: Builder, node: Node, inputs: tuple[str, ...]) -> str:
        op = node.op
        assert isinstance(op, Mvm)
        settings = job.settings.of_layer(f"{builder.name}.{node.name}")
        crossbar = layout(settings, builder.types[inputs[0]])
        assert op.scale is not None
        steps = (None,) * crossbar.slices
        return builder.add(
            node.name, CrossbarMvm(op.weight, op.bias, op.scale, crossbar, steps), *inputs
        )

    def rule(node: Node) -> Rule:
        return mvm if isinstance(node.op, Mvm) else keep

    text, video = (rewrite(graph, rule) for graph in (program.text, program.video))
    return replace(program, text=text, video=video)


def layout(settings: Settings, x: Type) -> Crossbar:
    """The crossbar of a layer whose input is `x`; inputs that are never negative are unsigned."""
    encoding: InputEncoding = settings.input_encoding if x.signed else "unsigned"
    # A sign and a magnitude hold one number less than two's complement of as many bits.
    bits = int(x.magnitude).bit_length() + 1 if encoding == "bipolar" else x.bits
    return Crossbar(
        rows=settings.weight_rows,
        cell_bits=settings.cell_bits,
        dac_bits=settings.dac_bits,
        encoding=settings.encoding,
        weight_bits=settings.weight_bits,
        input_encoding=encoding,
        input_bits=bits,
        adc_bits=settings.adc_bits,
        rounding=settings.rounding,
        accumulator_bits=settings.accumulator_bits,
        rows_active=settings.rows_active,
        adc_on=settings.adc_on,
        shift_add=settings.shift_add,
        offset_sum=settings.offset_sum,
        leak=leak_of(settings.on_off_ratio, settings.cell_bits),
        unused_rows=settings.unused_rows,
        transfer=None if settings.transfer is None else measured_thresholds(settings.transfer),
    )


TILE = Pass("tiled", "tiling onto crossbars", tile, Level.CROSSBAR)
