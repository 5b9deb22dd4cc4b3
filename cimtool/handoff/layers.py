"""The layers of a hand-off as a test bench drives them, and the base of the hand-off's parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.progress import Countdown
from cimtool.bundle.bundle import Bundle
from cimtool.bundle.exporter import Request
from cimtool.handoff.carries import with_carries
from cimtool.handoff.formats import NUMBER_BITS, NumberFile, lane_bits
from cimtool.handoff.requantiser import Requantisation, requantisations, requantiser_inputs
from cimtool.handoff.searches import DrivenSearch, driven_search
from cimtool.handoff.stimuli import chosen_layers, layer_stimuli, real_rows
from cimtool.handoff.write_sequence import WriteSequence, write_sequence
from cimtool.hardware.converters import StaircaseLaw
from cimtool.hardware.image import ArrayLayout
from cimtool.hardware.image_file import (
    ImagesFile,
    ImageSlice,
    LayerImage,
    array_name,
    weights_digest,
)
from cimtool.hardware.keys import PairAxis
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.placement import Placement, placements
from cimtool.hardware.stored import StoredWeights, require_digits
from cimtool.ir.program import Graph, Node
from cimtool.loading.embeddings import Embeddings


@dataclass(frozen=True, eq=False, kw_only=True)
class DrivenLayer:
    """A layer with its stimuli [n, K], and the places of its weights in arrays.

    `cells` is the layer whose cells it uses: itself, or a product with the same weights.
    """

    graph: Graph
    node: Node
    op: CrossbarMvm
    cells: str
    image: LayerImage
    layout: ArrayLayout
    x: IntArray
    stimuli: tuple[str, ...]
    writes: WriteSequence | None

    @property
    def name(self) -> str:
        """The layer's name."""
        return self.graph.layer(self.node)

    @property
    def polarities(self) -> int:
        """Columns of a slice that are converted separately."""
        return 1 + self.op.crossbar.columns_by_polarity

    @property
    def lanes(self) -> int:
        """Converted columns of an array: the columns of all weights, and the unit column."""
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
        """The names of the arrays in a row of arrays."""
        across = -(-self.image.columns // self.image.array_columns)
        return [array_name(row, c) for c in range(across)]

    def of_arrays(self, values: IntArray) -> IntArray:
        """Numbers [lines, columns], split over the arrays side by side, [arrays, lines, lanes].

        `columns` are the converted columns of `Taps`: each slice's N, then the unit column.
        """
        own = self.op.weight.shape[1] * self.layout.slices * self.polarities
        by_slice = values[:, :own].reshape(len(values), -1, self.polarities, self.image.columns)
        weights = by_slice.transpose(0, 3, 1, 2)
        if self.layout.order.pair == "negative-first":
            weights = weights[..., ::-1]
        lanes = self.layout.lanes(self.layout.in_arrays(weights))
        beside = np.broadcast_to(values[:, own:], (len(lanes), len(values), values.shape[1] - own))
        return np.concatenate([lanes, beside], axis=2)

    def write_arrays(
        self,
        file: NumberFile,
        folder: Path,
        row: int,
        values: IntArray,
        bits: int = NUMBER_BITS,
        **names: str,
    ) -> None:
        """Write numbers [.., columns] of a row of arrays, a file for each array."""
        *lines, columns = values.shape
        split = self.of_arrays(values.reshape(-1, columns))
        for array, lanes in zip(self.arrays(row), split, strict=True):
            place = f"{self.name}/{array}"
            file.write(folder, lanes.reshape(*lines, -1), bits, array=place, **names)

    @cached_property
    def facts(self) -> set[str]:
        """The keys of WHERE that hold for it."""
        law, scope = self.op.crossbar.law, self.op.crossbar.scope
        found = {
            "converters": law is not None,
            "tables": bool(self.tables),
            "references": law is not None and scope.set,
            "writes": self.writes is not None,
            "stages": any(len(one.affine) for one in self.requantisations.values()),
        }
        return {name for name, holds in found.items() if holds}

    @property
    def tables(self) -> list[StaircaseLaw]:
        """The tables of its converters: one, or one for each of their references."""
        op, crossbar = self.op, self.op.crossbar
        if crossbar.scope.levels and crossbar.law is not None:
            # A lossless conversion gets equal levels instead.
            equal = crossbar.finest_references
            given = (equal if one is None else one for one in op.references)
            return [one.levels for one in given if one.levels is not None]
        return [crossbar.law] if isinstance(crossbar.law, StaircaseLaw) else []

    @cached_property
    def requantisations(self) -> dict[str, Requantisation]:
        """The requantisations of the layer's sums, by place in a hand-off, `LAYER/qN`."""
        found = requantisations(self.graph, self.node, self.op.weight.shape[1])
        return {f"{self.name}/q{number}": after for number, after in enumerate(found)}

    @cached_property
    def directed(self) -> dict[str, IntArray]:
        """The directed inputs [DIRECTED, N] of each requantisation, by its place."""
        return {
            place: requantiser_inputs(after, *self.reached(after))
            for place, after in self.requantisations.items()
        }

    def reached(self, after: Requantisation) -> tuple[IntArray, IntArray]:
        """The smallest and the largest number [N] that a requantisation provably gets."""
        known, width = self.graph.types[self.node.name], self.op.weight.shape[1]
        ends = (np.broadcast_to(end.astype(np.int64), (width,)) for end in (known.lo, known.hi))
        return after.reached(*ends)


def driven_layers(
    bundle: Bundle, pattern: str, inputs: Embeddings | None, gallery: bool = False
) -> list[DrivenLayer]:
    """The layers of `chosen_layers` that match a pattern, with their stimuli.

    Raises CimError if no layer matches, or if `gallery` is set and the bundle holds no gallery in
    its arrays.
    """
    if gallery and bundle.gallery is None:
        raise ArgumentError(
            "{gallery} hands off stored items, but {} holds none; expected a bundle that `cimtool "
            "program` wrote",
            bundle.folder,
        )
    places = {one.layer: one for one in placements(bundle.program, bundle.settings)}
    images = empty_images(bundle)
    chosen = chosen_layers(bundle.program, pattern, gallery)
    real, found = real_rows(bundle.program, inputs), []
    for graph, node, op in chosen:
        place = places[graph.layer(node)]
        image = layer_image(op.stored, place, bundle.settings.pairs)
        x, names = with_carries(graph, node, op, *layer_stimuli(graph, node, op, real))
        cells, layout = place.shares or place.layer, image.layout(images)
        writes = write_sequence(bundle.target, bundle.settings, place.layer, op.crossbar)
        found.append(
            DrivenLayer(
                graph=graph,
                node=node,
                op=op,
                cells=cells,
                image=image,
                layout=layout,
                x=x,
                stimuli=tuple(names),
                writes=writes,
            )
        )
    return found


def empty_images(bundle: Bundle) -> ImagesFile:
    """The order and the extents of a bundle's arrays.

    If a target does not give the size of an array, the largest layer fits.
    """
    places, high = placements(bundle.program, bundle.settings), 1
    if bundle.settings.pairs == "rows":
        high = 2
    columns = (
        one.array_columns * one.cells_per_weight // high + one.unit_columns + one.reference_columns
        for one in places
    )
    return ImagesFile(
        order=bundle.target.cell_order,
        array_rows=bundle.settings.rows or max(one.array_rows * high for one in places),
        array_columns=bundle.settings.columns or max(columns),
        layers={},
    )


def layer_image(stored: StoredWeights, place: Placement, pairs: PairAxis) -> LayerImage:
    """The image of a layer, before its arrays are known.

    Raises CimError for cells that hold no digits, and for digits that do not fit their cells.
    """
    crossbar, code = stored.crossbar, stored.crossbar.weights
    require_digits(code)
    slices = []
    for number, one in enumerate(stored.slices[:: 1 + crossbar.columns_by_polarity]):
        lo, hi = int(one.digits.min()) + code.baseline, int(one.digits.max()) + code.baseline
        signed = lo < 0 and not code.paired
        half = 1 << code.cell_bits - 1
        if signed and not -half <= lo <= hi < half:
            raise CimError(
                f"{place.layer}: slice {number} has digits from {lo} to {hi}, which a cell of "
                f"{code.cell_bits} bits cannot hold; expected {-half} to {half - 1}"
            )
        sign: Literal[-1, 1] = 1 if one.sign > 0 else -1
        counts = {"shift": one.shift, "factor": one.factor}
        slices.append(ImageSlice(sign=sign, signed=signed, **counts))
    return LayerImage(
        rows=place.rows,
        columns=place.columns,
        array_rows=place.array_rows,
        array_columns=place.array_columns,
        encoding=code.name,
        weight_bits=code.bits,
        cell_bits=code.cell_bits,
        slices=tuple(slices),
        polarities=2 if code.paired else 1,
        pairs=pairs,
        baseline=code.baseline,
        complement=code.complement,
        offset=code.offset,
        flips=code.complements,
        unit_column=crossbar.unit_column,
        reference_column=code.reference_column,
        row_groups=tuple((group.start, group.stop) for group in stored.groups),
        weights_sha256=weights_digest([stored.weight]),
        arrays=(),
    )


@dataclass(frozen=True)
class Lanes:
    """Bits of a lane in the bus-wide lines of a hand-off: multiples of 4, equal in all layers.

    `inputs` and `digits` have a lane per row, `sums` (also for codes) a lane per converted column.
    """

    inputs: int
    digits: int
    sums: int

    @classmethod
    def of(cls, layers: list[DrivenLayer]) -> Lanes:
        """The fewest bits that hold every number of these layers, signed."""
        inputs, digits, sums = [], [], []
        for one in layers:
            known, crossbar = one.graph.types[one.node.inputs[0]], one.op.crossbar
            inputs.append(lane_bits(int(known.lo.min()), int(known.hi.max())))
            digits.append(lane_bits(*crossbar.digit_limits))
            sums.append(-(-sum_bits(one.op) // 4) * 4)
            if crossbar.law is not None:
                sums.append(lane_bits(crossbar.law.lo, crossbar.law.hi))
        return cls(*map(max, (inputs, digits, sums)))


def sum_bits(op: CrossbarMvm) -> int:
    """Bits of two's complement that hold every column sum, for any inputs."""
    crossbar = op.crossbar
    largest = max(column.reach for column in op.layer.of_slices)
    unit = max(map(abs, crossbar.digit_limits)) * len(op.weight) if crossbar.unit_column else 0
    return max(largest, unit).bit_length() + 1


@dataclass(frozen=True, eq=False)
class HandoffSource:
    """A bundle, the request, and the layers that the request names."""

    bundle: Bundle
    request: Request

    @cached_property
    def layers(self) -> list[DrivenLayer]:
        """The layers that the request names, with their stimuli; CimError if there is none."""
        request = self.request
        return driven_layers(self.bundle, request.layers, request.inputs, request.gallery)

    def layers_told(self, work: str) -> Iterator[DrivenLayer]:
        """Yield the layers, and tell each when the `work` on it is done."""
        countdown, total = Countdown(self.request.say), len(self.layers)
        for count, layer in enumerate(self.layers, 1):
            yield layer
            countdown.tell(f"{work}: {layer.name}, layer {count} of {total}", count, total)

    @cached_property
    def search(self) -> DrivenSearch | None:
        """The search of the gallery that the request names, None if no CAM holds one."""
        request = self.request
        return driven_search(self.bundle, request.inputs) if request.gallery else None

    @cached_property
    def lanes(self) -> Lanes:
        """The bits of the lanes of these layers."""
        return Lanes.of(self.layers)


def no_bytes(source: HandoffSource) -> int:
    """The size of a part that is small next to the others."""
    del source
    return 0


@dataclass(frozen=True)
class HandoffPart:
    """One subfolder of a hand-off.

    `write(source, folder)` fills the new folder, or raises CimError. `formats` declares its files
    of numbers; `files` explains each other file, by name or pattern. `uncovered` has sentences on
    gaps in the part. `checks` are the commands of the goal `check`, `goals` the commands of other
    goals, all run in the hand-off's folder; `settings` are variables that they read, with defaults.
    The part is written if `asked` returns True. `size` are the bytes of files that no format
    declares.
    """

    folder: str
    title: str
    write: Callable[[HandoffSource, Path], object]
    files: Mapping[str, str] = field(default_factory=dict)
    formats: Mapping[str, NumberFile] = field(default_factory=dict)
    uncovered: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    goals: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    asked: Callable[[HandoffSource], bool] = lambda source: True
    size: Callable[[HandoffSource], int] = no_bytes

    @property
    def told(self) -> dict[str, str]:
        """The files with a sentence each, by name or pattern."""
        return {**self.files, **{one.told: one.what for one in self.formats.values()}}
