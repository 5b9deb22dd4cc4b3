"""The layers of a hand-off as a test bench drives them: stimuli, lanes, and what follows them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.base.errors import ArgumentError
from cimtool.bundle.bundle import Bundle
from cimtool.handoff.converter_taps import sum_bits
from cimtool.handoff.hex_lines import NUMBER_BITS, bus_digits, hex_lines
from cimtool.handoff.images import empty_images, layer_image
from cimtool.handoff.stimuli import chosen_layers, layer_stimuli, real_rows
from cimtool.hardware.image import ArrayLayout
from cimtool.hardware.image_file import LayerImage, array_name
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.placement import placements
from cimtool.ir.arithmetic import Add, Clip
from cimtool.ir.format import requant
from cimtool.ir.integer import Requant
from cimtool.ir.program import Graph, Node
from cimtool.loading.embeddings import Embeddings

NO_LIMIT = 1 << 62
"""A limit that no number of a program reaches."""


@dataclass(frozen=True)
class Requantisation:
    """The way from a layer's sums to a requantised value `name`.

    `affine` [stages, N, 4] are factor, offset and both limits of each stage before it; multiplier,
    shift, lo and hi [N] are its own.
    """

    name: str
    affine: IntArray
    multiplier: IntArray
    shift: IntArray
    lo: IntArray
    hi: IntArray

    def run(self, total: IntArray) -> IntArray:
        """The requantised values of sums [.., N]."""
        for factor, offset, lo, hi in self.affine.transpose(0, 2, 1):
            total = np.clip(total * factor + offset, lo, hi)
        return self.rounded(total)

    def rounded(self, x: IntArray) -> IntArray:
        """The requantised values of what the stages before have made of sums [.., N]."""
        return requant(x, self.multiplier, self.shift, self.lo, self.hi)

    def among(self, columns: slice) -> Requantisation:
        """Those of some columns."""
        own = (self.multiplier, self.shift, self.lo, self.hi)
        return Requantisation(self.name, self.affine[:, columns], *(one[columns] for one in own))

    def with_multiplier(self, multiplier: IntArray) -> Requantisation:
        """The same with other multipliers."""
        return replace(self, multiplier=multiplier)


@dataclass(frozen=True, eq=False)
class DrivenLayer:
    """A layer with its stimuli [n, K], and the places of its weights in arrays.

    `cells` is the layer that these are written for: itself, or a product with the same weights.
    """

    graph: Graph
    node: Node
    op: CrossbarMvm
    cells: str
    image: LayerImage
    layout: ArrayLayout
    x: IntArray
    stimuli: tuple[str, ...]

    @property
    def name(self) -> str:
        """The layer's name."""
        return self.graph.layer(self.node)

    @property
    def polarities(self) -> int:
        """Columns of a slice that are converted each by itself."""
        return 1 + self.op.crossbar.columns_by_polarity

    @property
    def lanes(self) -> int:
        """Columns of an array that are converted: those of all weights, and the unit column."""
        own = self.layout.across * self.layout.slices * self.polarities
        return own + self.op.crossbar.unit_column

    def groups(self) -> Iterator[tuple[int, int, slice]]:
        """Yield the row of arrays, the number within an array and the rows of each row group."""
        within = 0
        for group in self.op.stored.groups:
            row, first = divmod(group.start, self.image.array_rows)
            within = within + 1 if first else 0
            yield row, within, group

    def arrays(self, row: int) -> list[str]:
        """The names of the arrays in a row of them."""
        across = -(-self.image.columns // self.image.array_columns)
        return [array_name(row, c) for c in range(across)]

    def of_arrays(self, values: IntArray) -> IntArray:
        """Numbers [lines, columns] as arrays side by side have them, [arrays, lines, lanes].

        `columns` are the converted ones of `Taps`: each slice's N, then the unit column.
        """
        own = self.op.weight.shape[1] * self.layout.slices * self.polarities
        by_slice = values[:, :own].reshape(len(values), -1, self.polarities, self.image.columns)
        weights = by_slice.transpose(0, 3, 1, 2)
        if self.layout.order.pair == "negative-first":
            weights = weights[..., ::-1]
        lanes = self.layout.lanes(self.layout.in_arrays(weights))
        beside = np.broadcast_to(values[:, own:], (len(lanes), len(values), values.shape[1] - own))
        return np.concatenate([lanes, beside], axis=2)

    @cached_property
    def requantisations(self) -> dict[str, Requantisation]:
        """The requantisations of its sums, each by its place `LAYER/qN` in a hand-off."""
        found = requantisations(self.graph, self.node, self.op.weight.shape[1])
        return {f"{self.name}/q{number}": after for number, after in enumerate(found)}


def requantisations(graph: Graph, layer: Node, width: int) -> Iterator[Requantisation]:
    """The requantisations of the sums of a layer that additions and limits alone precede."""
    stages: dict[str, list[IntArray]] = {layer.name: []}
    for node in graph.nodes:
        if len(node.inputs) != 1 or node.inputs[0] not in stages:
            continue
        before, op = stages[node.inputs[0]], node.op
        if isinstance(op, Requant):
            yield Requantisation(
                node.name,
                np.array(before, np.int64).reshape(len(before), width, 4),
                *(_each(one, width) for one in (op.multiplier, op.shift, op.lo, op.hi)),
            )
        elif isinstance(op, Add):
            parts = (op.factors[0], op.offset, -NO_LIMIT, NO_LIMIT)
            added = np.stack([_each(one, width) for one in parts], axis=1)
            stages[node.name] = [*before, added]
        elif isinstance(op, Clip):
            *earlier, last = before or [_each([1, 0, -NO_LIMIT, NO_LIMIT], (width, 4))]
            low, high = (_each(np.clip(one, -NO_LIMIT, NO_LIMIT), width) for one in (op.lo, op.hi))
            limits = np.clip(np.stack([low, high], axis=1), last[:, 2:3], last[:, 3:])
            stages[node.name] = [*earlier, np.hstack([last[:, :2], limits])]


def _each(value: Array | float | list[int], shape: int | tuple[int, int]) -> IntArray:
    return np.broadcast_to(np.asarray(value), shape).astype(np.int64)


def driven_layers(
    bundle: Bundle, pattern: str, inputs: Embeddings | None, gallery: bool = False
) -> list[DrivenLayer]:
    """The layers of `chosen_layers` that match a pattern, with their stimuli.

    Raises CimError where none does, and for a gallery where the bundle holds none.
    """
    if gallery and bundle.gallery is None:
        raise ArgumentError(
            "{gallery} hands off stored items, and {} holds none; expected a bundle that `cimtool "
            "program` wrote",
            bundle.folder,
        )
    places = {one.layer: one for one in placements(bundle.program, bundle.settings)}
    images, pairs = empty_images(bundle), bundle.settings.pairs
    chosen, real = (
        chosen_layers(bundle.program, pattern, gallery),
        real_rows(bundle.program, inputs),
    )
    found = []
    for graph, node, op in chosen:
        place = places[graph.layer(node)]
        image = layer_image(op.stored, place, pairs)
        x, names = layer_stimuli(graph, node, op, real)
        layout = image.layout(images)
        cells = place.shares or place.layer
        found.append(DrivenLayer(graph, node, op, cells, image, layout, x, tuple(names)))
    return found


@dataclass(frozen=True)
class Lanes:
    """Bits of a lane in the bus-wide lines of a hand-off, multiples of 4, alike in all layers.

    `inputs` and `digits` are a lane a row, `sums` (codes too) a lane a converted column.
    """

    inputs: int
    digits: int
    sums: int

    @classmethod
    def of(cls, layers: list[DrivenLayer]) -> Lanes:
        """The fewest that hold every number of these layers, signed."""
        inputs, digits, sums = [], [], []
        for one in layers:
            known, crossbar = one.graph.types[one.node.inputs[0]], one.op.crossbar
            inputs.append(_signed_bits(int(known.lo.min()), int(known.hi.max())))
            digits.append(_signed_bits(*crossbar.digit_limits))
            sums.append(sum_bits(one.op))
            if crossbar.law is not None:
                sums.append(_signed_bits(crossbar.law.lo, crossbar.law.hi))
        return cls(*(-(-max(bits) // 4) * 4 for bits in (inputs, digits, sums)))


def _signed_bits(lo: int, hi: int) -> int:
    return max(lo, hi, -lo - 1).bit_length() + 1


def write_numbers(file: Path, values: IntArray) -> None:
    """Write a line for each number, in NUMBER_BITS of two's complement."""
    file.write_bytes(hex_lines(values, NUMBER_BITS))


def write_bus(file: Path, values: IntArray, bits: int) -> None:
    """Write a bus-wide line for each row of values [lines, lanes]."""
    file.write_bytes(bus_digits(values, bits).tobytes())
