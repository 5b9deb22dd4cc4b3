"""A program on a die: every crossbar layer on arrays that are not perfect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.base.errors import Argument, ArgumentError, CimError
from cimtool.base.named import unknown
from cimtool.hardware.converted_layer import Cells, ConvertedLayer
from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.noise.die import Arrays, Die, draw
from cimtool.hardware.noise.fresh import fresh_noise
from cimtool.hardware.noise.model import ConverterNoise, ReadNoise, read_at, time_text
from cimtool.hardware.noise.mvm import ConverterErrors, NoisyMvm, added, draw_errors
from cimtool.hardware.noise.spec import Noise
from cimtool.hardware.placement import stored_cells
from cimtool.hardware.settings import Settings
from cimtool.hardware.stored import StoredWeights
from cimtool.ir.program import Builder, Graph, Node, Program, rewrite_each
from cimtool.ir.types import Type
from cimtool.simulation.compensation import Compensation, ReadoutCost, compensated


@dataclass(frozen=True)
class Conditions:
    """The noise of the dies, and when and with which compensation they are read.

    If `corner` is set, the noise belongs to that process corner.
    """

    noise: Noise
    seconds: float
    compensation: Compensation = "none"
    seed: int = 0
    corner: str | None = None

    def __post_init__(self) -> None:
        if self.compensation not in get_args(Compensation):
            raise unknown("compensation", self.compensation, get_args(Compensation))

    @property
    def when(self) -> str:
        """The time of reading and the corner as text: `1 h`, `1 h, ss`."""
        return read_at(time_text(self.seconds), self.corner)


@dataclass(frozen=True)
class DieProgram:
    """A program whose crossbar layers belong to one die, and the cost of its compensation."""

    program: Program
    readout: ReadoutCost


def on_die(program: Program, settings: Settings, conditions: Conditions, index: int) -> DieProgram:
    """Draw die `index` and put the program on it. Products that share cells share their errors.

    Raises CimError if the noise does not apply to a layer, or if the wires are outside the
    first-order model of IR drop.
    """

    def layer(op: CrossbarMvm, x: Type, place: LayerOnArrays) -> tuple[NoisyMvm, ReadoutCost]:
        return _layer(op, x, place, conditions, index)

    return with_layers(program, settings, layer)


def with_layers(program: Program, settings: Settings, layer_of: LayerOf) -> DieProgram:
    """Put a program on imperfect arrays. `layer_of` replaces each crossbar layer.

    Raises CimError if the program has no crossbar layer.
    """
    costs: list[ReadoutCost] = []

    def on_arrays(graph: Graph) -> Graph:
        stored = stored_cells(graph)

        def rule(builder: Builder, op: CrossbarMvm, node: Node, inputs: tuple[str, ...]) -> str:
            layer = graph.layer(node)
            owner = stored[layer]
            arrays = arrays_of(settings, owner, op.crossbar.weights.bits)
            place = LayerOnArrays(layer, owner, arrays)
            noisy, cost = layer_of(op, builder.types[inputs[0]], place)
            costs.append(cost)
            return builder.add(node.name, noisy, *inputs)

        return rewrite_each(graph, CrossbarMvm, rule)

    graphs = {graph.name: on_arrays(graph) for graph in program.graphs}
    if not costs:
        raise CimError("the program has no layer on crossbars, so no die can be drawn for it")
    return DieProgram(replace(program, **graphs), sum(costs, ReadoutCost()))


def arrays_of(settings: Settings, layer: str, weight_bits: int) -> Arrays:
    """The arrays of a layer. A gallery's `weight_bits` may differ from the settings."""
    own = settings.of_layer(layer).with_weights(weight_bits)
    return Arrays(own.weights_across, own.pairs, own.on_off_ratio, own.redundant_columns or 0)


@dataclass(frozen=True)
class LayerOnArrays:
    """A layer's name, the name of the layer whose `cells` it drives, and these cells' arrays."""

    layer: str
    cells: str
    arrays: Arrays


LayerOf = Callable[[CrossbarMvm, Type, LayerOnArrays], tuple[NoisyMvm, ReadoutCost]]
"""Makes a layer on imperfect arrays; also returns the readout cost of its compensation."""


def _layer(
    op: CrossbarMvm, x: Type, place: LayerOnArrays, conditions: Conditions, index: int
) -> tuple[NoisyMvm, ReadoutCost]:
    check_analog(op.crossbar, place.layer)
    die = Die(conditions.seed, index, conditions.seconds)
    now = noisy_layer(op, x, place, conditions, die)
    if conditions.compensation == "none":
        return now, ReadoutCost()
    earliest = replace(die, seconds=conditions.noise.seconds(None))
    programmed = noisy_layer(op, x, place, conditions, earliest)
    rng = die.readout(place.layer)
    return compensated(now, programmed, x, conditions.compensation, rng)


def check_analog(crossbar: Crossbar, layer: str, argument: str = "noise") -> None:
    """Raise CimError if no conductance can hold the layer's digits.

    The message says to leave `argument` out. Such cells have no analog noise, and no conductance
    that could be measured.
    """
    what = "there is no analog noise to draw" if argument == "noise" else "none conducts digits"
    if not crossbar.weights.analog:
        raise ArgumentError(
            '{}: its arrays add digitally (encoding = "{}"), so {}; leave {} out',
            layer,
            crossbar.weights.name,
            what,
            Argument(argument),
        )
    if not crossbar.weights.paired and crossbar.cell_limits[0] + crossbar.weights.baseline < 0:
        raise ArgumentError(
            '{}: its single cells hold digits below 0 (encoding = "{}"), which no conductance can, '
            "so {}; leave {} out",
            layer,
            crossbar.weights.name,
            what,
            Argument(argument),
        )
    if crossbar.unit_column:
        raise CimError(
            f'{layer}: noise in a unit column is not modelled; expected offset_sum = "digital"'
        )


def noisy_layer(
    op: CrossbarMvm, x: Type, place: LayerOnArrays, conditions: Conditions, die: Die
) -> NoisyMvm:
    """Draw one layer of a die, without compensation, for inputs of type `x`."""
    noise = conditions.noise
    drawn = draw(op.stored, place.arrays, noise, die, place.cells)
    known, fresh = op.infer(x), None
    if drawn.variance is not None:
        first = noise.of(ReadNoise)[0]  # the first one's key serves them all
        key = die.key(first, place.layer)
        fresh = fresh_noise(drawn.variance, drawn.cells, key, first.shared)
    frozen = NoisyMvm(op, layer_with(op, drawn.cells), known.lo, known.hi, fresh)
    return replace(frozen, errors=_errors(frozen, noise, place, die))


def layer_with(op: CrossbarMvm, cells: Cells) -> ConvertedLayer:
    """The layer with these cells. A converter that was lossless now rounds the noise."""
    layer, references = op.layer, op.references
    if op.crossbar.law is not None:
        finest = op.crossbar.finest_references
        references = tuple((one or finest).finer(cells.finer) for one in references)
    return replace(layer, cells=cells, references=references)


def _errors(op: NoisyMvm, noise: Noise, place: LayerOnArrays, die: Die) -> ConverterErrors | None:
    """Errors of the layer's converters; None if there are no errors or no converters."""
    widths = [one.width for one in op.layer.references if one is not None]
    if len(widths) < len(op.layer.references):
        return None
    extents = np.max([one.shape for one in widths], axis=0)
    steps = np.stack([np.broadcast_to(one, extents) for one in widths], axis=1)
    errors = []
    for one in noise.of(ConverterNoise):
        converters = converter_numbers(op.perfect.stored, place.arrays.across, one.sharing)
        errors.append(draw_errors(one, die.numbers(one, place.cells), converters, steps))
    return added(errors)


def converter_numbers(stored: StoredWeights, across: int | None, sharing: int) -> IntArray:
    """The converter number of each column [groups, slices, N]. Neighbouring columns share one."""
    rows, width = stored.shape
    slices = stored.crossbar.slices
    side = min(across or width, width)
    columns = np.arange(width)
    inside = (columns % side)[None, :] * slices + np.arange(slices)[:, None]
    per_array = -(-side * slices // sharing)
    of_array = columns // side * per_array + inside // sharing
    height = stored.crossbar.tiling.height or rows
    bands = np.array([group.start // height for group in stored.groups])
    per_band = -(-width // side) * per_array
    numbers: IntArray = bands[:, None, None] * per_band + of_array[None]
    return numbers
