"""Writes of a gallery's cells: counted by hand, in the arrays where they lie, against endurance."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from cimtool.base.errors import CimError
from cimtool.costs.memory_use import MemoryUse, memory_use
from cimtool.galleries.wear import (
    ArrayCells,
    array_writes,
    check_endurance,
    counts_after,
    first_counts,
    first_writes,
    matrix_cells,
)
from cimtool.hardware.image import ImageSpec
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.settings import Settings, resolve
from cimtool.hardware.stored import StoredWeights
from cimtool.hardware.target import load_target
from cimtool.ir.program import Builder, Graph
from cimtool.ir.types import integer

NAME = "score.mu.mu"


def small_arrays() -> Settings:
    """Arrays of 4 x 9 cells: four 4-bit weights side by side, each in two cells of two bits."""
    own = resolve(load_target("ideal"), None, {})
    return own.model_copy(update={"rows": 4, "columns": 9, "cell_bits": 2, "encoding": "offset"})


def gallery(settings: Settings, weight: np.ndarray, bits: int = 4) -> Graph:
    builder = Builder("score", {"text.mu": integer(("n", len(weight)), -127, 127, 1.0)})
    crossbar = settings.with_weights(bits).crossbar(settings.input_code(builder.types["text.mu"]))
    stored = StoredWeights(weight, crossbar)
    bias = np.zeros(weight.shape[1], np.int64)
    op = CrossbarMvm(stored, bias, np.float64(1.0), crossbar.no_references)
    builder.add("mu.mu", op, "text.mu")
    return Graph("score", builder.inputs, tuple(builder.by_name.values()), {})


def cells(settings: Settings, weight: np.ndarray, bits: int = 4) -> dict[str, ArrayCells]:
    return matrix_cells(gallery(settings, weight, bits), settings, ImageSpec())


def test_only_cells_that_differ_are_written() -> None:
    settings = small_arrays()
    # 6 rows are two row parts, of 4 and 2; 5 items two column parts, of 4 and 1.
    weight = np.zeros((6, 5), np.int64)
    before = cells(settings, weight)
    counts = first_counts(before)
    assert counts[NAME].shape == (2, 2, 4, 9)
    assert counts[NAME].sum() == 6 * 5 * 2
    other = weight.copy()
    other[0, 1] = 1  # the lower cell alone
    other[5, 4] = 5  # both
    after = counts_after(counts, before, cells(settings, other))[NAME]
    expected = counts[NAME].copy()
    expected[0, 0, 0, 2] += 1
    expected[1, 1, 1, 0:2] += 1
    np.testing.assert_array_equal(after, expected)


def test_an_item_in_a_free_column_is_written_whole() -> None:
    settings, weight = small_arrays(), np.zeros((4, 4), np.int64)
    full, fewer = cells(settings, weight), cells(settings, weight[:, :3])
    counts = counts_after(first_counts(full), full, fewer)
    np.testing.assert_array_equal(counts[NAME], first_counts(full)[NAME])
    counts = counts_after(counts, fewer, full)
    np.testing.assert_array_equal(counts[NAME][0, 0, 0], [1, 1, 1, 1, 1, 1, 2, 2, 0])


def test_a_further_slice_moves_the_cells_of_all_items() -> None:
    settings, weight = small_arrays(), np.arange(8).reshape(2, 4) - 4
    before, after = cells(settings, weight), cells(settings, weight, bits=6)
    counts = counts_after(first_counts(before), before, after)[NAME]
    # Four items of two cells take one array, of three cells two of them.
    assert counts.shape == (1, 2, 4, 9)
    own, laid = before[NAME].laid(0)[0][0], after[NAME].laid(0)[0]
    differ = own[:2, :8] != laid[0, :2, :8]
    np.testing.assert_array_equal(counts[0, 0, :2, :8], 1 + differ)
    assert (counts[0, 0, :2, 8] == 1).all()
    assert counts[0, 1, :2, :3].all()


@pytest.mark.parametrize("name", ["isaac-rram-128", "hermes-pcm-14nm", "ideal", "prime-rram-256"])
def test_first_writes_are_those_of_memory_use(name: str) -> None:
    target = load_target(name)
    settings = resolve(target, None, {})
    rng = np.random.default_rng(0)
    graph = gallery(settings, rng.integers(-100, 100, (300, 150)), 8)
    found = matrix_cells(graph, settings, target.cell_order)
    use = memory_use(graph, settings, target)
    writes = first_writes(found)
    assert sum(one.cells_written for one in writes[NAME]) == use.cells
    assert len(writes[NAME]) == use.arrays
    assert writes == array_writes(first_counts(found))


def endured(**values: float) -> MemoryUse:
    target = load_target("ideal")
    settings = resolve(target, None, {})
    figures = [SimpleNamespace(quantity=k, value=v) for k, v in values.items()]
    known = SimpleNamespace(array=target.array, hierarchy=target.hierarchy, figures=figures)
    graph = gallery(settings, np.ones((2, 2), np.int64))
    return memory_use(graph, settings, known)  # type: ignore[arg-type]


def test_spent_endurance_is_refused() -> None:
    found = cells(small_arrays(), np.zeros((6, 5), np.int64))
    counts = first_counts(found)
    counts[NAME][1, 0, 1, 3] = 6
    writes = array_writes(counts)
    for values in ({}, {"write_pulses": 20.0}, {"endurance": 6.0}):
        check_endurance(writes, endured(**values), "t")
    use = endured(endurance=100.0, write_pulses=20.0)
    with pytest.raises(
        CimError,
        match=r"^score\.mu\.mu: a cell of array r1\.c0 would be written 6 times; expected at most "
        r"5, by endurance = 100 and write_pulses = 20 of t; program a fresh chip$",
    ):
        check_endurance(writes, use, "t")
