"""What a compiled program takes of its target: row groups, slices, cycles and arrays a layer."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from cimtool.hardware.crossbar import input_cycles
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.program import Program
from cimtool.settings import Settings


@dataclass(frozen=True)
class Placement:
    """One layer on crossbars.

    `rows` x `columns` is its weight matrix; `arrays` hold it, a weight's cells side by side in one
    row of one array. `steps` are the converters' step exponents a slice, None where lossless.
    """

    layer: str
    rows: int
    columns: int
    weight_bits: int
    input_bits: int
    encoding: str
    input_encoding: str
    row_groups: int
    slices: int
    cycles: int
    arrays: int
    adc_bits: int | None
    steps: tuple[int | None, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        return asdict(self)


def placements(program: Program, settings: Settings) -> tuple[Placement, ...]:
    """Place every layer of a tiled program, in the order text, video."""
    return tuple(
        _place(graph.layer(node), node.op, settings)
        for graph in program.graphs
        for node in graph.nodes
        if isinstance(node.op, CrossbarMvm)
    )


def _place(layer: str, op: CrossbarMvm, settings: Settings) -> Placement:
    rows, columns = op.weight.shape
    crossbar, own = op.crossbar, settings.of_layer(layer)
    groups = len(crossbar.groups(rows))
    weights_across = columns if own.columns is None else own.columns // own.cells_per_weight
    return Placement(
        layer=layer,
        rows=rows,
        columns=columns,
        weight_bits=crossbar.weight_bits,
        input_bits=crossbar.input_bits,
        encoding=crossbar.encoding,
        input_encoding=crossbar.input_encoding,
        row_groups=groups,
        slices=crossbar.slices,
        cycles=len(input_cycles(crossbar)),
        arrays=groups * -(-columns // weights_across),
        adc_bits=crossbar.adc_bits,
        steps=op.steps,
    )
