"""Bounds are proved: no run of an operation on allowed inputs leaves what it infers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from crossbars import at_steps, crossbar_of
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from maxima_case import maxima_case

from cimtool.base.arrays import Array
from cimtool.base.errors import CimError
from cimtool.emit.onnx import file_bytes, onnx_model
from cimtool.emit.runtime import Session
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.stored import StoredWeights
from cimtool.ir.arithmetic import (
    Add,
    Arrange,
    Axis,
    BatchMatMul,
    Clip,
    MatMul,
    Mul,
    Mvm,
    Store,
    Sum,
    SumOfMaxima,
    mvm_bounds,
    scalar,
)
from cimtool.ir.format import ratio
from cimtool.ir.integer import Requant
from cimtool.ir.op import Op
from cimtool.ir.program import Builder
from cimtool.ir.types import RangeError, Type, integer, real
from cimtool.simulation.simulator import Runner

WIDTH = 5


def rows_within(rng: np.random.Generator, known: Type, rows: int) -> Array:
    """Rows inside the bounds of a type, most of them at its corners."""
    lo, hi = (np.broadcast_to(bound, (rows, WIDTH)) for bound in (known.lo, known.hi))
    inner = rng.integers(lo, hi, endpoint=True)
    corner = np.where(rng.random((rows, WIDTH)) < 0.5, lo, hi)
    return np.where(rng.random((rows, 1)) < 0.3, inner, corner)


def random_input(rng: np.random.Generator) -> Type:
    shape = (WIDTH,) if rng.integers(2) else ()
    ends = np.sort(rng.integers(-130, 130, (2, *shape)), axis=0)
    return integer(("n", WIDTH), ends[0], ends[1], 0.5)


def add_mvm(b: Builder, rng: np.random.Generator, x: str, y: str) -> str:
    weight = rng.integers(-127, 128, (WIDTH, WIDTH))
    return b.add("op", Mvm(weight, rng.integers(-99, 99, WIDTH), np.ones(WIDTH)), x)


def add_crossbar(b: Builder, rng: np.random.Generator, x: str, y: str) -> str:
    known = b.types[x]
    bits = int(known.magnitude).bit_length() + 1
    if bits > 16:
        return add_mvm(b, rng, x, y)
    encodings = ("differential", "offset", "offset-flip")
    inputs = ("twos-complement", "offset", "bipolar") if known.signed else ("unsigned",)
    crossbar = crossbar_of(
        rows=[None, 2, 3][rng.integers(3)],
        cell_bits=int(rng.integers(1, 5)),
        dac_bits=int(rng.integers(1, 5)),
        encoding=encodings[rng.integers(3)],  # type: ignore[arg-type]
        weight_bits=8,
        input_encoding=inputs[rng.integers(len(inputs))],  # type: ignore[arg-type]
        input_bits=bits,
        adc_bits=int(rng.integers(2, 7)),
        rounding=("half-up", "half-even", "floor")[rng.integers(3)],  # type: ignore[arg-type]
        accumulator_bits=62,
    )
    weight = rng.integers(-127, 128, (WIDTH, WIDTH))
    drawn = rng.integers(-2, 6, crossbar.slices).tolist()
    steps = at_steps(crossbar, [None if step < 0 else step for step in drawn])
    bias = rng.integers(-99, 99, WIDTH)
    return b.add("op", CrossbarMvm(StoredWeights(weight, crossbar), bias, np.ones(WIDTH), steps), x)


def add_sum(b: Builder, rng: np.random.Generator, x: str, y: str) -> str:
    total = b.add("op", Sum(), x)
    return b.add("op", Mul(), y, b.add("op", Axis(1), total))


def add_add(b: Builder, rng: np.random.Generator, x: str, y: str) -> str:
    factors = tuple(
        np.asarray(rng.integers(-9, 9, () if rng.integers(2) else (WIDTH,))) for _ in "xy"
    )
    return b.add("op", Add(factors, rng.integers(-50, 50, WIDTH), scalar(1.0)), x, y)


def add_clip(b: Builder, rng: np.random.Generator, x: str, y: str) -> str:
    lo, hi = sorted(rng.integers(-200, 200, 2))
    return b.add("op", Clip(np.asarray(lo), np.asarray(hi)), x)


def add_requant(b: Builder, rng: np.random.Generator, x: str, y: str) -> str:
    magnitude = max(int(b.types[x].magnitude), 1)
    found = ratio(Fraction(int(rng.integers(1, 4000)), magnitude * 7), magnitude)
    limit = int(rng.integers(1, 1000))
    op = Requant(np.asarray(found.multiplier), np.asarray(found.shift), -limit, limit, scalar(1.0))
    return b.add("op", op, x)


def add_mul(b: Builder, rng: np.random.Generator, x: str, y: str) -> str:
    return b.add("op", Mul(), x, x if rng.integers(2) else y)


def add_arrange(b: Builder, rng: np.random.Generator, x: str, y: str) -> str:
    return b.add("op", Arrange(1, rng.integers(0, WIDTH, (1, WIDTH))), x)


def add_batch(b: Builder, rng: np.random.Generator, x: str, y: str) -> str:
    """Two rows of an item by four of it, in two batches."""
    rows, columns = (
        b.add("op", Arrange(1, rng.integers(0, WIDTH, (height, 3))), value)
        for height, value in ((4, x), (8, y))
    )
    product = b.add("op", BatchMatMul(2, 4), rows, columns)
    return b.add("op", Arrange(4, rng.integers(0, 16, (1, WIDTH))), product)


CHOICES: tuple[Callable[[Builder, np.random.Generator, str, str], str], ...] = (
    add_mvm, add_crossbar, add_sum, add_add, add_clip, add_requant, add_mul, add_arrange, add_batch,
)  # fmt: skip


@settings(max_examples=examples(150))
@given(st.integers(0, 2**32 - 1))
def test_random_graphs_stay_inside_their_bounds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    inputs = {name: random_input(rng) for name in ("a", "b")}
    builder = Builder("text", inputs)
    names = list(inputs)
    for _ in range(5):
        x, y = rng.choice(names, 2)
        with contextlib.suppress(CimError, ValueError):  # too wide to add, or to requantise
            names.append(CHOICES[rng.integers(len(CHOICES))](builder, rng, str(x), str(y)))
    graph = builder.graph({name: name for name in names})
    rows = {name: rows_within(rng, known, 16) for name, known in inputs.items()}
    found = graph.run(rows)
    fast = Runner(graph).run(rows)
    for name, value in found.items():
        known = graph.types[name]
        assert (value >= known.lo).all(), (seed, name)
        assert (value <= known.hi).all(), (seed, name)
        np.testing.assert_array_equal(fast[name], value, err_msg=f"{seed} {name}")


@settings(max_examples=examples(60))
@given(st.integers(0, 2**32 - 1))
def test_pairs_stay_inside_their_bounds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = random_input(rng), random_input(rng)
    known = MatMul().infer(a, b)
    found = MatMul().run(rows_within(rng, a, 20), rows_within(rng, b, 20))
    assert found.min() >= known.lo
    assert found.max() <= known.hi
    assert known.unit == 0.25


@settings(max_examples=examples(60))
@given(st.integers(0, 2**32 - 1))
def test_maxima_of_pairs_are_the_same_in_every_form(seed: int) -> None:
    case = maxima_case(seed)
    op, known, graph = case.op, case.known, case.graph
    made = op.infer(known)
    bounds = op.rows * known.lo, op.rows * known.hi
    assert (made.shape, made.lo, made.hi, made.unit) == (("n", "m"), *bounds, 0.5)
    for found in (
        op.run(case.numbers),
        Runner(graph).run({"x": case.numbers})["maxima"],
        Session(file_bytes(onnx_model(graph))).run({"x": case.numbers})["maxima"],
    ):
        np.testing.assert_array_equal(found, case.wanted)


def test_maxima_of_stored_items_have_the_bounds_of_their_columns() -> None:
    known = integer(("2n", 4), [-3, 1, 5, -9], [4, 2, 6, 7], 1.0)
    made = SumOfMaxima(2, 2).infer(known)
    assert made.shape == ("n", 2)
    np.testing.assert_array_equal([made.lo, made.hi], [[2, 10], [8, 14]])


def test_bounds_of_a_layer_are_reached() -> None:
    x = integer(("n", 2), np.array([-1, 0]), np.array([2, 3]), 1.0)
    weight, bias = np.array([[4, -4], [-5, 5]]), np.array([7, 0])
    lo, hi = mvm_bounds(weight, bias, x)
    corners = np.array([[-1, 0], [-1, 3], [2, 0], [2, 3]]) @ weight + bias
    np.testing.assert_array_equal(lo, corners.min(axis=0))
    np.testing.assert_array_equal(hi, corners.max(axis=0))


@settings(max_examples=examples(200))
@given(st.integers(0, 2**32 - 1), st.integers(1, 29), st.integers(1, 29))
def test_bounds_of_a_layer_are_exact_at_any_size(seed: int, bits: int, weight_bits: int) -> None:
    rng = np.random.default_rng(seed)
    width, outputs = rng.integers(1, 9, 2)
    lo, hi = np.sort(rng.integers(-(2**bits), 2**bits, (2, width), endpoint=True), axis=0)
    weight = rng.integers(-(2**weight_bits), 2**weight_bits, (width, outputs), endpoint=True)
    bias = rng.integers(-(2**weight_bits), 2**weight_bits, outputs)
    found = mvm_bounds(weight, bias, integer(("n", int(width)), lo, hi, 1.0))
    for column in range(outputs):
        products = [
            sorted((int(w) * int(a), int(w) * int(b)))
            for w, a, b in zip(weight[:, column], lo, hi, strict=True)
        ]
        for end in (0, 1):
            assert found[end][column] == sum(p[end] for p in products) + int(bias[column])


def test_a_value_times_itself_is_never_negative() -> None:
    x, y = (integer(("n", 2), -3, 5, 1.0) for _ in "xy")
    assert Mul().infer(x, x).lo == 0
    assert Mul().infer(x, y).lo == -15


def huge(width: int = 16, bits: int = 30) -> Type:
    return integer(("n", width), -(2**bits), 2**bits, 1.0)


@pytest.mark.parametrize(
    ("op", "inputs"),
    [
        (MatMul(), (huge(), huge())),
        (Mul(), (huge(bits=40), huge(bits=40))),
        (Sum(), (huge(bits=60),)),
        (Add((np.asarray(1),) * 4, np.asarray(0), scalar(1.0)), (huge(bits=61),) * 4),
        (Add((np.asarray(1 << 40),), np.asarray(0), scalar(1.0)), (huge(),)),
        (Mvm(np.full((16, 2), 2**30), np.zeros(2, np.int64), np.ones(2)), (huge(),)),
        (Mvm(np.zeros((16, 1), np.int64), np.array([2**62]), np.ones(1)), (huge(),)),
        (Requant(np.asarray(2**31 - 1), np.asarray(1), -9, 9, scalar(1.0)), (huge(bits=40),)),
    ],
    ids=["matmul", "mul", "sum", "add", "factor", "mvm", "bias", "requant"],
)
def test_overflow_is_refused_by_the_operation_and_named_by_the_graph(
    op: MatMul, inputs: tuple[Type, ...]
) -> None:
    with pytest.raises(RangeError):
        op.infer(*inputs)
    builder = Builder("score", {f"x{i}": known for i, known in enumerate(inputs)})
    with pytest.raises(CimError, match=rf"^score\.wide \({op.name}\): its proved range"):
        builder.add("wide", op, *builder.inputs)


def test_real_bounds_come_from_interval_arithmetic() -> None:
    x = real(("n", 2), -1.0, 2.0)
    assert Mul().infer(x, x).hi == 4.0
    total = Add((scalar(-2.0),), scalar(1.0)).infer(x)
    assert (total.lo, total.hi) == (-3.0, 3.0)
    unbounded = Mvm(np.ones((2, 3)), np.zeros(3)).infer(real(("n", 2)))
    assert np.isneginf(unbounded.lo).all()


def test_a_batch_of_rows_is_multiplied_by_its_own() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.integers(-9, 9, (2 * 3 * 4, 5)), rng.integers(-9, 9, (2 * 3 * 7, 5))
    found = BatchMatMul(4, 7).run(a, b).reshape(6, 4, 7)
    for i, batch in enumerate(found):
        np.testing.assert_array_equal(batch, a.reshape(6, 4, 5)[i] @ b.reshape(6, 7, 5)[i].T)


def test_arranged_columns_keep_their_own_bounds_and_units() -> None:
    known = integer(("2n", 2), [-1, 3], [5, 4], [0.5, 2.0])
    made = Arrange(2, np.array([[0, 1, 3]])).infer(known)
    assert made.shape == ("n", 3)
    np.testing.assert_array_equal([made.lo, made.hi], [[-1, 3, 3], [5, 4, 4]])
    np.testing.assert_array_equal(made.unit, [0.5, 2.0, 2.0])
    x = np.arange(8).reshape(4, 2)
    np.testing.assert_array_equal(Arrange(2, np.array([[0, 1, 3]])).run(x), [[0, 1, 3], [4, 5, 7]])


PLAIN, TOKENS = integer(("n", 4), 0, 9, 1.0), integer(("3n", 4), 0, 9, 1.0)
UNITS = integer(("n", 4), 0, 9, np.arange(1.0, 5))
ROWS = np.arange(4).reshape(2, 2)
MISPLACED: dict[str, tuple[Op, tuple[Type, ...]]] = {
    "rows": (Arrange(2, ROWS), (PLAIN,)),
    "place beyond": (Arrange(1, ROWS + 1), (PLAIN,)),
    "place below": (Arrange(1, ROWS - 1), (PLAIN,)),
    "no table": (Arrange(1, np.arange(4)), (PLAIN,)),
    "no integers": (Arrange(1, ROWS / 2), (PLAIN,)),
    "axes": (Arrange(1, ROWS), (integer(("n", 2, 2), 0, 9, 1.0),)),
    "no symbol": (Arrange(1, ROWS), (integer((1, 4), 0, 9, 1.0),)),
    "units of a column": (Arrange(1, ROWS), (UNITS,)),
    "batches": (BatchMatMul(3, 4), (TOKENS, TOKENS)),
    "no rows": (BatchMatMul(0, 3), (TOKENS, TOKENS)),
    "items": (BatchMatMul(3, 3), (TOKENS, integer(("3m", 4), 0, 9, 1.0))),
    "widths": (BatchMatMul(3, 3), (TOKENS, integer(("3n", 5), 0, 9, 1.0))),
    "units of rows": (BatchMatMul(1, 1), (UNITS, PLAIN)),
    "pairs of other rows": (SumOfMaxima(2, 4), (TOKENS,)),
    "pairs of other columns": (SumOfMaxima(3, 3), (TOKENS,)),
    "pairs of no rows": (SumOfMaxima(0, 4), (TOKENS,)),
    "units of pairs": (SumOfMaxima(1, 4), (UNITS,)),
}


@pytest.mark.parametrize("what", MISPLACED)
def test_numbers_that_have_no_place_are_refused(what: str) -> None:
    op, types = MISPLACED[what]
    with pytest.raises(ValueError, match=r"rows|place|unit|pairs|columns"):
        op.infer(*types)


MISFITS: dict[str, tuple[Op, list[tuple[str | int, ...]]]] = {
    "a sum": (Add((scalar(1.0), scalar(1.0)), scalar(0.0)), [("n", 1), ("m", 1)]),
    "a sum of columns": (Add((scalar(1.0), scalar(1.0)), scalar(0.0)), [("n", 3), ("n", 4)]),
    "constants of a sum": (Add((np.ones(3),), scalar(0.0)), [("n", 4)]),
    "a product": (Mul(), [("n", 4), ("m", 4)]),
    "inner products": (MatMul(), [("n", 4), ("m", 3)]),
    "inner products of one axis": (MatMul(), [("n",), ("m",)]),
    "a layer": (Mvm(np.ones((4, 2)), np.ones(2)), [("n", 3)]),
    "a layer of pairs": (Mvm(np.ones((4, 2)), np.ones(2)), [("n", "m")]),
    "a bias": (Mvm(np.ones((4, 2)), np.ones(3)), [("n", 4)]),
    "weights of one axis": (Mvm(np.ones(4), np.ones(1)), [("n", 4)]),
}


@pytest.mark.parametrize("name", MISFITS)
def test_shapes_that_do_not_meet_are_refused(name: str) -> None:
    op, shapes = MISFITS[name]
    with pytest.raises(ValueError, match=r"do not meet|does not meet|have no inner products"):
        op.infer(*(real(shape, -1.0, 1.0) for shape in shapes))


def test_a_store_changes_nothing() -> None:
    x = np.array([[1.5]])
    assert Store("mu").run(x) is x
    assert Store("mu") == Store("mu")
    assert Store("s", 16) != Store("s")
