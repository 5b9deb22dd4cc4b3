"""Use of a chip by a gallery: arrays, chips, items per chip, writes against endurance."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cimtool.base.errors import ArgumentError
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.placement import item_products, stored_cells
from cimtool.hardware.settings import Settings
from cimtool.hardware.target import Target
from cimtool.ir.heads.maxsim import tokens_of
from cimtool.ir.program import Graph


@dataclass(frozen=True)
class DrivenProduct:
    """One product: the query that drives a stored matrix, and how its column sums are converted.

    `steps` has the converter's step per slice in digits, None if lossless.
    """

    product: str
    input_bits: int
    input_encoding: str
    cycles: int
    adc_bits: int | None
    steps: tuple[float | None, ...]


@dataclass(frozen=True)
class StoredMatrix:
    """Stored values of all items for one or more products, `rows` in each column of an item.

    An item has `columns`, one for each of its tokens. The cells of a value lie side by side. One
    array holds `across` columns; None: no limit.
    """

    rows: int
    items: int
    weight_bits: int
    encoding: str
    slices: int
    cells_per_value: int
    row_tiles: int
    across: int | None
    columns: int
    drives: tuple[DrivenProduct, ...]

    @property
    def arrays(self) -> int:
        """Arrays that hold all items."""
        return self.arrays_for(self.items)

    @property
    def cells(self) -> int:
        """Cells that are written."""
        return self.rows * self.items * self.columns * self.cells_per_value

    def arrays_for(self, items: int) -> int:
        """Arrays that hold a number of items."""
        return self.row_tiles * (
            1 if self.across is None else -(-items * self.columns // self.across)
        )


@dataclass(frozen=True)
class MemoryUse:
    """Use of a target by a gallery of `items`; None is a figure that the target does not give.

    `items_per_chip` counts the bits that the values really need; `items_at_one_weight` assumes one
    weight of the target per value. Writing a cell takes `pulses`, and a cell endures `endurance`.
    """

    items: int
    matrices: tuple[StoredMatrix, ...]
    arrays_per_chip: int | None
    chips: int | None
    items_per_chip: int | None
    items_at_one_weight: int | None
    pulses: float | None
    endurance: float | None

    @property
    def arrays(self) -> int:
        """Arrays that hold the gallery."""
        return sum(matrix.arrays for matrix in self.matrices)

    @property
    def cells(self) -> int:
        """Cells that are written, once each."""
        return sum(matrix.cells for matrix in self.matrices)

    @property
    def writes(self) -> float | None:
        """Pulses that programming the gallery takes."""
        return None if self.pulses is None else self.cells * self.pulses

    @property
    def programmings(self) -> float | None:
        """Programmings that a cell endures, by the target's figures."""
        return None if self.endurance is None else self.endurance / (self.pulses or 1)

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        derived = ("arrays", "cells", "writes", "programmings")
        return asdict(self) | {name: getattr(self, name) for name in derived}


def memory_use(graph: Graph, settings: Settings, target: Target) -> MemoryUse:
    """Count the arrays, chips and writes that a programmed graph's stored items take."""
    matrices = _matrices(graph, settings)
    figures = {figure.quantity: figure.value for figure in reversed(target.figures)}
    on_chip = target.hierarchy.arrays
    per_chip = None if on_chip is None else on_chip * target.array.weight_sets
    arrays = sum(matrix.arrays for matrix in matrices)
    values = sum(matrix.rows * matrix.columns for matrix in matrices)
    weights = None
    if per_chip and settings.weight_rows and settings.weights_across:
        weights = per_chip * settings.weight_rows * settings.weights_across
    return MemoryUse(
        items=matrices[0].items,
        matrices=matrices,
        arrays_per_chip=per_chip,
        chips=None if per_chip is None else -(-arrays // per_chip),
        items_per_chip=None if per_chip is None else most_items(matrices, per_chip),
        items_at_one_weight=None if weights is None else weights // values,
        pulses=figures.get("write_pulses"),
        endurance=figures.get("endurance"),
    )


def _matrices(graph: Graph, settings: Settings) -> tuple[StoredMatrix, ...]:
    """Each matrix once, in the order of its first product; products may share its cells."""
    stored = stored_cells(graph)
    _, columns = tokens_of(graph)
    products: dict[str, list[tuple[str, CrossbarMvm]]] = {}
    for name, op in item_products(graph).items():
        products.setdefault(stored[f"{graph.name}.{name}"], []).append((name, op))
    return tuple(
        _matrix(found, columns, settings.of_layer(name)) for name, found in products.items()
    )


def _matrix(
    products: Sequence[tuple[str, CrossbarMvm]], columns: int, settings: Settings
) -> StoredMatrix:
    """The matrix of one or more named products, of items with as many columns."""
    _, first = products[0]
    rows, width = first.weight.shape
    own = settings.with_weights(first.crossbar.weights.bits)
    drives = []
    for name, op in products:
        inputs, cycles = op.crossbar.inputs, len(op.crossbar.cycles)
        adc_bits = op.crossbar.converter.bits
        drives.append(DrivenProduct(name, inputs.bits, inputs.name, cycles, adc_bits, op.steps))
    return StoredMatrix(
        rows=rows,
        items=width // columns,
        weight_bits=own.weight_bits,
        encoding=own.encoding,
        slices=own.weight_code.slices,
        cells_per_value=own.cells_per_weight,
        row_tiles=-(-rows // (own.weight_rows or rows)),
        across=own.weights_across,
        columns=columns,
        drives=tuple(drives),
    )


def most_items(matrices: Sequence[StoredMatrix], arrays: int) -> int | None:
    """The most items that `arrays` hold; None if they hold any number."""
    if any(matrix.across is None for matrix in matrices):
        return None
    most = arrays * max(matrix.across or 0 for matrix in matrices)

    def arrays_for(items: int) -> int:
        return sum(matrix.arrays_for(items) for matrix in matrices)

    return bisect_right(range(most + 1), arrays, key=arrays_for) - 1


def check_chips(use: MemoryUse, target: Target, chips: int) -> None:
    """Raise CimError if `chips` are too few and the target cannot rewrite them per query."""
    if chips < 1:
        raise ArgumentError("{chips} is {}; expected at least 1", chips)
    if use.arrays_per_chip is None:
        raise ArgumentError(
            "{chips} is {}, and target {} does not say how many arrays a chip has ([chip] or "
            "array.arrays), so nothing can be counted; leave {chips} out",
            chips,
            target.name,
        )
    room = chips * use.arrays_per_chip
    if use.arrays > room and target.rewritable != "per-inference":
        raise ArgumentError(
            "gallery: {:,} items take {:,} arrays and {} {} {} {:,}, which cannot be rewritten "
            "for each query; expected at most {:,} items, or {chips} {}",
            use.items,
            use.arrays,
            chips,
            target.name,
            "chip has" if chips == 1 else "chips have",
            room,
            most_items(use.matrices, room),
            use.chips,
        )
