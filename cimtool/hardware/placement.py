"""The placement of a compiled program: arrays a layer, arrays into macros, cores and chips.

A layer's weight matrix is cut into tiles of one array each; a weight's cells lie in one array.
Tiles are placed one after another, layer by layer; an array with several weight sets takes a second
tile once every array has one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.geometry import ChipSpec
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.settings import Settings
from cimtool.hardware.skipping import WHOLE, Activity, empty_columns
from cimtool.hardware.target import Target
from cimtool.hardware.weight_codes import EXPONENT_BITS, WeightCode
from cimtool.ir.program import MODALITIES, Graph, Program


@dataclass(frozen=True)
class Placement:
    """One layer on crossbars.

    `layer` is its name, `text.fc1`, and `graph` the name of its graph. `rows` x `columns` is its
    weight matrix; `row_parts` x `column_parts` arrays hold it, each at most `array_rows` x
    `array_columns` weights. Its rows are summed in `row_groups`, at most `reads` of them one after
    another in an array; each is driven in `drive_cycles` and converted `cycles` times a column of
    each of `slices`. `steps` are the converters' steps a slice in digits, None if lossless.
    `shares` names the layer whose cells it drives too: two queries may be multiplied with one
    stored gallery. `activity` is what is left of the work where arrays skip some.
    """

    graph: str
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
    drive_cycles: int
    reads: int
    row_parts: int
    column_parts: int
    array_rows: int
    array_columns: int
    cells_per_weight: int
    unit_columns: int
    reference_columns: int
    cells_per_array: int
    adc_bits: int | None
    steps: tuple[float | None, ...]
    shares: str | None = None
    activity: Activity = WHOLE

    @property
    def arrays(self) -> int:
        """Arrays that hold the layer, by themselves or as one of an array's weight sets."""
        return self.row_parts * self.column_parts

    @property
    def macs(self) -> int:
        """Multiplications and additions of one product."""
        return self.rows * self.columns

    @property
    def exponents(self) -> int:
        """Exponents that rows of a column share; none with most codes."""
        shared = WeightCode.named(self.encoding, "encoding").shared_rows
        return 0 if shared is None else -(-self.rows // shared) * self.columns

    @property
    def held_bits(self) -> int:
        """Bits of all weights, shared exponents included."""
        return self.macs * self.weight_bits + self.exponents * EXPONENT_BITS

    @property
    def column_sums(self) -> int:
        """Column sums of one product: what is converted, or added digitally where exact."""
        columns = self.columns * self.slices + self.unit_columns * self.column_parts
        read = (columns * self.row_groups - self.activity.empty) * self.cycles
        # Cycles that are added in analog share one conversion, which is not skipped.
        return read if self.cycles < self.drive_cycles else round(read * self.activity.driven)

    @property
    def worked(self) -> float:
        """The share of cells and drive cycles that is not skipped."""
        held = self.columns * self.slices * self.row_groups
        return self.activity.driven * (1 - self.activity.empty / held)

    @property
    def conversions(self) -> int:
        """Conversions of one product; none where arrays add digitally."""
        return 0 if self.adc_bits is None else self.column_sums

    @property
    def tiles(self) -> tuple[tuple[int, int], ...]:
        """Rows and columns of weights in each array, row part by row part."""
        heights = _parts(self.rows, self.array_rows)
        widths = _parts(self.columns, self.array_columns)
        return tuple((height, width) for height in heights for width in widths)

    @property
    def utilisation(self) -> float:
        """Cells used by cells of the arrays, 0 to 1."""
        return self.cells / (self.arrays * self.cells_per_array)

    @property
    def cells(self) -> int:
        """Cells that hold the layer, those of unit and reference columns included."""
        auxiliary = (self.unit_columns + self.reference_columns) * self.column_parts
        return self.macs * self.cells_per_weight + self.rows * auxiliary

    def to_json(self) -> dict[str, Any]:
        """Plain values by name; the layer's name says the graph."""
        names = ("arrays", "macs", "column_sums", "conversions", "cells", "utilisation")
        own = {n: value for n, value in vars(self).items() if n not in ("graph", "activity")}
        skipped = {} if self.activity == WHOLE else {"activity": asdict(self.activity)}
        return own | {name: getattr(self, name) for name in names} | skipped


def _parts(extent: int, size: int) -> list[int]:
    return [min(size, extent - start) for start in range(0, extent, size)]


def placements(
    program: Program, settings: Settings, items: Mapping[str, int] | None = None
) -> tuple[Placement, ...]:
    """Place every layer of a tiled program, in the order text, video, score, shortlist.

    A graph that is named in `items` is placed as if its gallery had so many.
    """
    found = []
    for graph in program.graphs:
        layers, stored = crossbar_layers(graph), stored_cells(graph)
        many = (items or {}).get(graph.name)
        held = () if many is None else item_products(graph).values()
        for layer, op in layers.items():
            shares = None if stored[layer] == layer else stored[layer]
            own = settings.of_layer(layer)
            rows, columns = op.stored.shape
            if many is not None and any(op is one for one in held):
                columns = many
            place = placed(graph.name, layer, (rows, columns), op.crossbar, own)
            empty = empty_columns(op.stored) if "zero-slices" in own.skips else 0
            driven, busiest = op.driven or (1.0, 1.0)
            activity = Activity(driven, busiest, empty)
            found.append(replace(place, steps=op.steps, shares=shares, activity=activity))
    return tuple(found)


def crossbar_layers(graph: Graph) -> dict[str, CrossbarMvm]:
    """The crossbar products of a graph, by the names of their layers."""
    return {f"{graph.name}.{name}": op for name, op in graph.operations(CrossbarMvm).items()}


def item_products(graph: Graph) -> dict[str, CrossbarMvm]:
    """The products of a programmed graph that store items: those that drive no other product."""
    products = graph.operations(CrossbarMvm)
    before: dict[str, set[str]] = {name: set() for name in graph.inputs}
    for node in graph.nodes:
        known = {name for value in node.inputs for name in before[value]}
        before[node.name] = {*known, *({node.name} & products.keys())}
    driving = {
        name for node in graph.nodes if node.name in products
        for value in node.inputs for name in before[value]
    }  # fmt: skip
    return {name: op for name, op in products.items() if name not in driving}


def stored_cells(graph: Graph) -> dict[str, str]:
    """The layer whose cells each crossbar layer drives: its own, or those of an earlier product.

    Two queries may be multiplied with one stored gallery; projectors share nothing.
    """
    layers, owners = crossbar_layers(graph), dict[str, str]()
    for layer, op in layers.items():
        earlier = [] if graph.name in MODALITIES else list(owners.values())
        same = (owner for owner in earlier if same_cells(layers[owner], op))
        owners[layer] = next(same, layer)
    return owners


def same_cells(one: CrossbarMvm, other: CrossbarMvm) -> bool:
    """True for two products with the same stored numbers, in cells of the same kind."""
    return one.crossbar.weights == other.crossbar.weights and (
        one.weight is other.weight or np.array_equal(one.weight, other.weight)
    )


def placed(
    graph: str, layer: str, shape: tuple[int, int], crossbar: Crossbar, settings: Settings
) -> Placement:
    """Place one crossbar product with the settings of its layer, its converters lossless."""
    rows, columns = shape
    # The score in the memory has weights as wide as its gallery needs, not as the settings say.
    own = settings.with_weights(crossbar.weights.bits)
    height, across = own.weight_rows or rows, own.weights_across or columns
    groups = crossbar.tiling.groups(rows)
    unit, reference = int(crossbar.unit_column), int(crossbar.weights.reference_column)
    # Of an array as large as the layer.
    cells_wide = columns * own.cells_per_weight + unit + reference
    return Placement(
        graph=graph,
        layer=layer,
        rows=rows,
        columns=columns,
        weight_bits=crossbar.weights.bits,
        input_bits=crossbar.inputs.bits,
        encoding=crossbar.weights.name,
        input_encoding=crossbar.inputs.name,
        row_groups=len(groups),
        slices=crossbar.slices,
        cycles=len(crossbar.cycles),
        drive_cycles=len(crossbar.inputs.cycles),
        reads=sum(group.start < height for group in groups),
        row_parts=-(-rows // height),
        column_parts=-(-columns // across),
        array_rows=height,
        array_columns=across,
        cells_per_weight=own.cells_per_weight,
        unit_columns=unit,
        reference_columns=reference,
        cells_per_array=(own.rows or rows) * (own.columns or cells_wide),
        adc_bits=crossbar.converter.bits,
        steps=(None,) * crossbar.slices,
    )


@dataclass(frozen=True)
class Floorplan:
    """All layers of a program on one kind of chip.

    `tiles` are array-fuls of weights; each of `arrays` takes up to `weight_sets` of them. Where
    everything does not fit on one chip, weights are loaded in `rounds` an inference of each graph
    (`rewritable = "per-inference"`), otherwise there are as many `chips` as it takes; None if
    the target does not say how large a chip is. The loads pass through `streaming` arrays; in the
    others, the weights of the layers `kept` stay.
    """

    tiles: int
    weight_sets: int
    arrays: int
    chip: ChipSpec
    chips: int | None
    rounds: dict[str, int]
    kept: tuple[str, ...] = ()
    streaming: int = 0

    @property
    def macros(self) -> int:
        """Macros that the arrays in use take."""
        return -(-self.arrays // self.chip.arrays_per_macro)

    @property
    def cores(self) -> int:
        """Cores that the arrays in use take."""
        return -(-self.arrays // self.chip.arrays_per_core)

    @property
    def loads(self) -> int:
        """Loads of a whole chip for one inference of every graph; 0 if all weights stay."""
        return sum(self.rounds.values())

    @property
    def resident(self) -> bool:
        """All weights stay where they are between inferences."""
        return not self.loads

    @property
    def chips_filled(self) -> float | None:
        """Chip-fuls of weights, as a fraction: 13.33 for NeuRRAM's two projectors."""
        on_chip = self.chip.arrays
        return None if on_chip is None else self.tiles / (on_chip * self.weight_sets)

    @property
    def arrays_at_once(self) -> int:
        """Arrays that work side by side: those of the chips that there are."""
        if self.chips is None or self.chip.arrays is None:
            return self.arrays
        return self.chips * self.chip.arrays

    def passes(self, layer: Placement) -> int:
        """Uses of the busiest array in one product of a layer."""
        kept = (layer.shares or layer.layer) in self.kept
        if self.streaming:
            return -(-layer.arrays // (self.arrays - self.streaming if kept else self.streaming))
        return -(-layer.arrays // self.arrays_at_once)

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        names = ("macros", "cores", "loads", "resident", "chips_filled")
        values = {name: getattr(self, name) for name in names}
        own = {name: value for name, value in vars(self).items() if name != "chip"}
        return own | values | {"chip": self.chip.model_dump() | {"arrays": self.chip.arrays}}


def floorplan(layers: Sequence[Placement], target: Target, kept: Collection[str] = ()) -> Floorplan:
    """Fill macros, cores and chips of a target with the arrays of a program's layers.

    If weights are loaded, those of the layers `kept` stay; they must leave arrays to the others.
    """
    chip, sets = target.hierarchy, target.array.weight_sets
    stored = [layer for layer in layers if layer.shares is None]
    tiles = sum(layer.arrays for layer in stored)
    arrays, chips = -(-tiles // sets), None
    if chip.arrays is None:
        return Floorplan(tiles, sets, arrays, chip, chips, {})
    chips = max(1, -(-tiles // (chip.arrays * sets)))
    if chips == 1 or target.rewritable != "per-inference":
        arrays = min(tiles, chips * chip.arrays)
        return Floorplan(tiles, sets, arrays, chip, chips, {})
    staying = [one for one in stored if one.layer in kept]
    streaming = chip.arrays - -(-sum(one.arrays for one in staying) // sets)
    rounds: dict[str, int] = {}
    for graph in dict.fromkeys(layer.graph for layer in stored):
        own = sum(one.arrays for one in stored if one.graph == graph and one not in staying)
        rounds[graph] = -(-own // (streaming * sets))
    names = tuple(one.layer for one in staying)
    return Floorplan(tiles, sets, chip.arrays, chip, 1, rounds, kept=names, streaming=streaming)
