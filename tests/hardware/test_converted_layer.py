"""The record of a layer: its plain data alone make the outputs of the readable reference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from crossbars import PLAIN, changed
from hypothesis import given
from hypothesis import strategies as st
from random_layers import input_limits, integers, random_crossbar, random_layer

from cimtool.base.arrays import IntArray
from cimtool.hardware.contract import group_sums, layer_mvm
from cimtool.hardware.converted_layer import ConvertedColumns, ConvertedLayer
from cimtool.hardware.converters import UniformLaw
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.stored import StoredWeights


def values(column: ConvertedColumns, p: IntArray, group: int) -> IntArray:
    """The values of sums in 2^-places of a digit, by the data of the law."""
    law, step, offset = column.law, column.step[group], column.offset[group]
    if law is None:
        return p
    if isinstance(law, UniformLaw):
        moved = p - offset + (step >> 1 if law.half else 0)
        codes = moved // step
        tied = law.to_even & (step % 2 == 0)
        codes -= tied * (codes * step == moved) * (codes % 2)
        return np.clip(codes, law.lo, law.hi) * step + offset
    reached = (p - offset << law.places)[..., None] >= law.thresholds * step[:, None]
    return law.levels[reached.sum(axis=-1)] * step + offset


def additions(layer: ConvertedLayer, x: IntArray) -> Iterator[IntArray]:
    """The addition of each row group to the outputs [n, N] of inputs [n, K], from the record."""
    cells, crossbar, inputs = layer.cells, layer.crossbar, layer.crossbar.inputs
    for r, group in enumerate(cells.groups):
        total = np.zeros((len(x), len(layer.bias)), np.int64) + layer.starts[r]
        lifted = x[:, group] + inputs.lift
        total += lifted.sum(axis=1, keepdims=True) * layer.row_factors[r]
        size, sign = (np.abs(lifted), np.sign(lifted)) if inputs.sign_magnitude else (lifted, 1)
        for column in layer.columns:
            for c in column.cycles:
                cycle = crossbar.cycles[c]
                digits = sign * (size >> cycle.shift & cycle.mask)
                p = digits @ column.cells.digits[group].astype(np.int64) + cells.idle_sums[r, c]
                value = values(column, p << crossbar.reference_bits, r)
                total += value * column.factors[r] * cycle.factor
        yield total


def outputs(layer: ConvertedLayer, x: IntArray) -> IntArray:
    """The outputs [n, N] of inputs [n, K], from the record."""
    places = layer.cells.places
    total = np.sum([*additions(layer, x)], axis=0)
    return (total + (1 << places >> 1) >> places) + layer.bias


def drawn(seed: int) -> tuple[CrossbarMvm, IntArray]:
    rng = np.random.default_rng(seed)
    op = random_layer(rng, random_crossbar(rng))
    return op, integers(rng, *input_limits(op.crossbar), (5, len(op.weight)))


@given(st.integers(0, 2**32 - 1))
def test_its_data_make_the_outputs(seed: int) -> None:
    op, x = drawn(seed)
    np.testing.assert_array_equal(outputs(op.layer, x), op.run(x))
    for found, right in zip(additions(op.layer, x), group_sums(x, op.layer), strict=True):
        np.testing.assert_array_equal(found, right)
    np.testing.assert_array_equal(op.layer.start, op.layer.starts.sum(axis=0))


@given(st.integers(0, 2**32 - 1), st.integers(0, 6))
def test_so_do_those_of_a_die(seed: int, finer: int) -> None:
    """Cells count in finer places there; a unit column on a die is not modelled."""
    op, x = drawn(seed)
    rng, layer = np.random.default_rng(seed), op.layer
    cells = layer.cells
    if op.crossbar.unit_column:
        return
    slices = []
    for one in cells.slices:
        off = rng.integers(-1, 2, one.digits.shape) << finer >> 1
        slices.append(replace(one, digits=(one.digits.astype(np.int64) << finer) + off))
    on_die = replace(
        cells, slices=tuple(slices), fraction_bits=cells.fraction_bits + finer,
        leak=cells.leak << finer,
    )  # fmt: skip
    references = tuple(None if one is None else one.finer(finer) for one in op.references)
    found = ConvertedLayer(on_die, references, layer.bias)
    np.testing.assert_array_equal(outputs(found, x), layer_mvm(x, found))


@given(st.integers(0, 2**32 - 1))
def test_every_sum_lies_within_its_bounds(seed: int) -> None:
    op, x = drawn(seed)
    layer, crossbar = op.layer, op.crossbar
    driven = crossbar.digits(x)
    assert len(layer.columns) == len(op.references)
    for column in layer.columns:
        assert column.drive == np.abs(crossbar.cycle_factors[column.cycles]).sum()
        assert column.reach == max(np.abs(edge).max() for edge in column.bounds)
        for r, group in enumerate(layer.cells.groups):
            for c in column.cycles:
                held = column.cells.digits[group].astype(np.int64)
                p = driven[c][:, group] @ held + layer.cells.idle_sums[r, c]
                assert (column.bounds[0][r] <= p).all()
                assert (p <= column.bounds[1][r]).all()


@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_a_corner_is_the_layer_of_its_first_weights(seed: int, columns: int) -> None:
    op, x = drawn(seed)
    rows, some = op.layer.cells.groups[0], slice(0, columns)
    references = tuple(None if one is None else one.among(some) for one in op.references)
    few = CrossbarMvm(
        StoredWeights(op.weight[rows, some], op.crossbar), op.bias[some], op.scale[some], references
    )
    corner = replace(op.layer.corner(columns), bias=few.layer.bias)
    np.testing.assert_array_equal(layer_mvm(x[:, rows], corner), few.run(x[:, rows]))


def test_lossless_columns_have_no_law_and_no_step() -> None:
    op = CrossbarMvm(
        StoredWeights(np.array([[1], [-2]]), PLAIN), np.zeros(1), np.ones(1), PLAIN.no_references
    )
    for column in op.layer.columns:
        assert (column.law, column.step, column.exponent) == (None, 0, -1)
        assert not column.offset.any()


def test_row_sums_count_complements_and_offsets() -> None:
    hardware = changed(PLAIN, rows=4, dac_bits=2, encoding="offset-flip", weight_bits=6)
    stored = StoredWeights(np.array([[1, -2], [1, 1]]), hardware)
    # U = 33, 33 and 30, 33: slices 1 0 2, 1 0 2 and 2 3 1, 1 0 2; a sum beyond 3 is flipped
    assert stored.cells.row_sum_factors.tolist() == [[3 * 16 - 32, -32]]
