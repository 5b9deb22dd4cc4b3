"""Digital operations, counted by hand on graphs small enough for it."""

from __future__ import annotations

import numpy as np
import pytest
from crossbars import crossbar_of

from cimtool.costs.operations import Operations, digital
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.references import AdcReferenceKind, AdcReferences
from cimtool.hardware.stored import StoredWeights
from cimtool.ir.arithmetic import (
    Add,
    Arrange,
    Axis,
    BatchMatMul,
    Clip,
    MatMul,
    Mul,
    Store,
    Sum,
    SumOfMaxima,
)
from cimtool.ir.integer import Dequantize, Quantize, Requant
from cimtool.ir.op import Op
from cimtool.ir.program import Builder
from cimtool.ir.types import Type, integer, real

ROWS = {"x": integer(("n", 5), -8, 7, 1.0), "y": integer(("m", 5), -8, 7, 1.0)}
ROWS |= {"rows": integer(("8n", 5), -8, 7, 1.0), "columns": integer(("4n", 5), -8, 7, 1.0)}
ROWS |= {"pairs": integer(("3n", "8m"), -8, 7, 1.0)}
ONE = np.int64(1)
UNIT = np.float64(1)


def counted(
    op: Op, *inputs: str, types: dict[str, Type] = ROWS, n: int = 1, m: int = 3
) -> dict[str, int]:
    builder = Builder("score", types)
    name = builder.add("out", op, *inputs)
    graph = builder.graph({"out": name})
    return digital(graph, graph.by_name[name], {"n": n, "m": m}).to_json()


def counts(
    multiplications: int = 0, additions: int = 0, shifts: int = 0, limits: int = 0
) -> dict[str, int]:
    return {
        "multiplications": multiplications,
        "additions": additions,
        "shifts": shifts,
        "limits": limits,
    }


@pytest.mark.parametrize(
    ("op", "inputs", "expected"),
    [
        (MatMul(), ("x", "y"), counts(3 * 5, 3 * 5)),
        (Mul(), ("x", "x"), counts(5)),
        (Sum(), ("x",), counts(0, 4)),
        (Clip(ONE, np.int64(4)), ("x",), counts(limits=5)),
        (Requant(np.int64(3), np.int64(2), -8, 7, UNIT), ("x",), counts(5, 5, 5, 5)),
        (Dequantize(np.float64(0.5)), ("x",), counts(shifts=5)),
        (Axis(1), ("x",), counts()),
        (Arrange(1, np.arange(5)[None]), ("x",), counts()),
        (BatchMatMul(4, 2), ("rows", "columns"), counts(8 * 2 * 5, 8 * 2 * 5)),
        # Of 24 numbers of each of 3 pairs: 7 comparisons a row, and 2 additions of 3 maxima.
        (SumOfMaxima(3, 8), ("pairs",), counts(additions=3 * 2, limits=3 * 3 * 7)),
        # x - 4 x + 3 x + 1: one shift, one multiplication and three additions an element.
        (Add((ONE, -4 * ONE, 3 * ONE), ONE, UNIT), ("x", "x", "x"), counts(5, 15, 5)),
        (Add((-ONE,), np.int64(0), UNIT), ("x",), counts()),
    ],
)
def test_counts_of_one_query_and_three_items(
    op: Op, inputs: tuple[str, ...], expected: dict[str, int]
) -> None:
    assert counted(op, *inputs) == expected


def test_quantising_shifts_rounds_and_limits() -> None:
    op = Quantize(np.float64(0.25), -8, 7)
    found = counted(op, "x", types={"x": real(("n", 5), -1.0, 1.0)})
    assert found == counts(additions=5, shifts=5, limits=5)


def test_a_scale_that_is_no_power_of_two_takes_a_product() -> None:
    quantize = Quantize(np.float64(np.float32(0.3)), -8, 7)
    assert counted(quantize, "x", types={"x": real(("n", 5))}) == counts(5, 5, 5, 5)


@pytest.mark.parametrize(
    ("encoding", "sums"),
    [("differential", 0), ("offset", 5), ("twos-complement", 0)],
)
def test_behind_arrays_a_bias_and_what_offsets_need(encoding: str, sums: int) -> None:
    crossbar = crossbar_of(4, 1, 8, encoding, 4, "unsigned", 4, None, "half-up", 32)
    weight = np.arange(10).reshape(5, 2) - 5
    stored, steps = StoredWeights(weight, crossbar), crossbar.no_references
    op = CrossbarMvm(stored, np.zeros(2, np.int64), np.ones(2), steps)
    found = counted(op, "x", types={"x": integer(("n", 5), 0, 15, 1.0)}, n=2)
    # Two row groups by two outputs take the inputs' sum, shifted, off again; twice, for two rows.
    factors = 4 if sums else 0
    assert found == counts(0, 2 * (2 + sums + factors), 2 * factors)


@pytest.mark.parametrize(
    ("references", "step", "expected"),
    [
        ("slice", 12, counts(4, 2 + 4)),
        ("slice", 16, counts(0, 2)),
        ("cycle", 12, counts(3 * 4, 2 + 3 * 4)),
        ("levels", 12, {**counts(0, 2), "registers": 2 * 3 * 4}),
    ],
)
def test_codes_at_steps_that_are_set_take_a_product_a_column_or_a_value_a_conversion(
    references: AdcReferenceKind, step: int, expected: dict[str, int]
) -> None:
    # Two row groups, three cycles, two slices, two outputs; polarities are subtracted before.
    crossbar = crossbar_of(
        4, 2, 1, "differential", 5, "unsigned", 3, 4, "half-up", 32, references=references
    )
    weight = np.arange(10).reshape(5, 2) - 5
    stored = StoredWeights(weight, crossbar)
    law = crossbar.law
    assert law is not None
    one = AdcReferences.alike(step, np.full((2, 2), 7))
    one = one.with_equal_levels(law) if references == "levels" else one
    op = CrossbarMvm(
        stored, np.zeros(2, np.int64), np.ones(2), tuple(one for _ in crossbar.no_references)
    )
    assert counted(op, "x", types={"x": integer(("n", 5), 0, 7, 1.0)}) == expected


def test_steps_of_columns_take_a_product_for_each_that_an_output_has() -> None:
    """Two row groups of two outputs: 12 twice, 12 and 20, in each of two slices; 16 is a shift."""
    crossbar = crossbar_of(
        4, 2, 1, "differential", 5, "unsigned", 3, 4, "half-up", 32, references="gain"
    )
    stored = StoredWeights(np.arange(10).reshape(5, 2) - 5, crossbar)
    for steps, products in (([[12, 12], [12, 20]], 3), ([[16, 8], [16, 12]], 1)):
        one = AdcReferences(np.array(steps), np.full((2, 2), 7))
        op = CrossbarMvm(stored, np.zeros(2, np.int64), np.ones(2), (one, one))
        found = counted(op, "x", types={"x": integer(("n", 5), 0, 7, 1.0)})
        assert found == counts(2 * products, 2 + 2 * products)


def test_what_no_compiled_program_holds_is_not_counted() -> None:
    with pytest.raises(TypeError, match="costs has no rule for operation store"):
        counted(Store("mu"), "x")


def test_operations_add_up() -> None:
    one = Operations.of("additions", 2, 8) + Operations.of("shifts", 3, 16)
    both = one + Operations.of("multiplications", 1, 8, 4).times(2)
    assert both.to_json() == counts(2, 2, 3)
    assert {kind: tally.size for kind, tally in both.tallies.items()} == {
        "additions": 16,
        "shifts": 48,
        "multiplications": 64,
    }
    assert both.total == 7
