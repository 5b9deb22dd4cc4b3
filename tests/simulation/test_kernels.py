"""The fast kernels give the integers of the readable operations, whatever the bits."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from crossbars import at_steps, changed, crossbar_of
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from random_crossbars import ENCODINGS, FORMS, random_levels, weight_limits, weights_of_form

from cimtool.base.arrays import IntArray
from cimtool.hardware.contract import layer_mvm
from cimtool.hardware.converted_layer import Cells, ConvertedLayer
from cimtool.hardware.converters import Rounding, UniformLaw
from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.noise.mvm import ConverterErrors
from cimtool.hardware.references import AdcReferences
from cimtool.hardware.stored import StoredWeights
from cimtool.hardware.weight_codes import Slice
from cimtool.ir.arithmetic import MatMul, Mul, Mvm
from cimtool.ir.integer import Requant
from cimtool.ir.types import integer, real
from cimtool.simulation.kernels import amx, choice, conversions, fused, paired, popcount, tiles
from cimtool.simulation.kernels.choice import fused_cells
from cimtool.simulation.kernels.operations import fast_kernel
from cimtool.simulation.kernels.products import Factor, product_kind, weight_product
from cimtool.simulation.kernels.staircases import tables_of

INPUTS = ("unsigned", "twos-complement", "offset", "bipolar")

OF_MOST = [name for name in choice.FUSED_KERNELS if name != "two cycles"]
"""Kernels that take nearly every layer; `test_paired.py` has the layers of the other."""


def limits(hardware: Crossbar) -> tuple[int, int]:
    half = 1 << hardware.inputs.bits - 1
    if hardware.inputs.name == "unsigned":
        return 0, 2 * half - 1
    return 1 - half, half - 1


def steps_of(rng: np.random.Generator, hardware: Crossbar) -> tuple[int | None, ...]:
    def step() -> int | None:
        return None if hardware.law is None or rng.integers(4) == 0 else int(rng.integers(8))

    return tuple(step() for _ in range(hardware.slices))


def layer(rng: np.random.Generator, hardware: Crossbar, rows: int, columns: int) -> CrossbarMvm:
    top = (1 << hardware.weights.bits - 1) - 1
    weight = rng.integers(-top, top, (rows, columns), endpoint=True)
    if rng.integers(3) == 0:
        weight = np.where(rng.random(weight.shape) < 0.9, top, weight)
    unit_step = int(rng.integers(4)) if hardware.unit_column and hardware.law else None
    bias = rng.integers(-999, 999, columns)
    stored, steps = StoredWeights(weight, hardware), steps_of(rng, hardware)
    return CrossbarMvm(stored, bias, np.ones(columns), at_steps(hardware, steps, unit_step))


def rows_for(rng: np.random.Generator, hardware: Crossbar, width: int, count: int) -> IntArray:
    lo, hi = limits(hardware)
    x = rng.integers(lo, hi, (count, width), endpoint=True)
    x[:2] = [[lo], [hi]]
    return x


def assert_fast_is_readable(op: CrossbarMvm, x: IntArray) -> None:
    known = integer(("n", x.shape[1]), *limits(op.crossbar), 1.0)
    kernel = fast_kernel(op, (known,))
    found = kernel(x)
    assert found.dtype == np.int64
    assert kernel(x[:0]).shape == (0, found.shape[1])
    expected = op.run(x)
    np.testing.assert_array_equal(found, expected)
    narrow = x.astype(np.int8 if np.abs(x).max() < 128 else np.int32)
    result = op.infer(known)
    np.testing.assert_array_equal(fast_kernel(op, (known,), result)(narrow), expected)


@st.composite
def crossbars(draw: st.DrawFn) -> Crossbar:
    """Any array of the contract."""
    encoding = draw(st.sampled_from(ENCODINGS))
    rows = draw(st.one_of(st.none(), st.integers(1, 40)))
    bits = None if encoding == "twos-complement" else draw(st.integers(1, 12))
    table = bits is not None and bits < 6 and draw(st.booleans())
    rounding = draw(st.sampled_from(["half-up", "half-even", "floor"]))
    wide = draw(st.sampled_from([8, 16]))
    return crossbar_of(
        rows=rows,
        rows_active=None if rows is None else draw(st.one_of(st.none(), st.integers(1, rows))),
        cell_bits=1 if encoding == "ternary" else draw(st.integers(1, 8)),
        dac_bits=draw(st.integers(1, 9)),
        encoding=encoding,
        weight_bits=draw(st.integers(2, wide)),
        input_encoding=draw(st.sampled_from(INPUTS)),
        input_bits=draw(st.integers(2, wide)),
        adc_bits=bits,
        rounding=None if bits is None or table else rounding,
        transfer=_thresholds(bits or 0) if table else None,
        adc_on=draw(st.sampled_from(["difference", "polarity"])),
        shift_add=draw(st.sampled_from(["digital", "analog"])),
        offset_sum=draw(st.sampled_from(["digital", "unit-column"])),
        leak=draw(st.sampled_from([0, 0, 0, 200])),
        unused_rows=draw(st.sampled_from(["off", "driven"])),
        accumulator_bits=62,
    )


def _thresholds(bits: int) -> tuple[int, ...]:
    return tuple(16 * j + 8 + 3 * j % 5 for j in range((1 << bits) - 1))


@settings(max_examples=examples(300))
@given(crossbars(), st.integers(1, 90), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_conversions_are_those_of_the_contract(
    hardware: Crossbar, rows: int, columns: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    op = layer(rng, hardware, rows, columns)
    assert_fast_is_readable(op, rows_for(rng, hardware, rows, 6))


def leave(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Leave the fused kernel of this name alone, whatever it costs; none where there is none."""
    if name == "dot product" and not tiles.DOT_BITS:
        pytest.skip("this CPU has no products of bytes in vectors")
    if name == "two cycles" and not tiles.SHORT_SUMS:
        pytest.skip("this CPU adds no products of bytes in 16 bits")
    if name == "AMX" and not amx.ALLOWED:
        pytest.skip("this CPU has no tile registers: test_amx.py emulates them")
    taken = {name: choice.FUSED_KERNELS[name]} if name in choice.FUSED_KERNELS else {}
    monkeypatch.setattr(choice, "FUSED_KERNELS", taken)
    monkeypatch.setattr(popcount, "MOST_PLANES", 999)
    monkeypatch.setattr(paired, "FASTER", True)


@pytest.mark.thorough(
    "all modes of rounding and pairs of codes; a diagonal is in the first tier",
    quick=(
        *("unsigned-differential-half-up", "twos-complement-offset-half-even"),
        *("offset-offset-flip-floor", "bipolar-centred-half-up"),
    ),
)
@pytest.mark.parametrize("name", [*choice.FUSED_KERNELS, "portable"])
@pytest.mark.parametrize("rounding", ["half-up", "half-even", "floor"])
@pytest.mark.parametrize("encoding", ["differential", "offset", "offset-flip", "centred"])
@pytest.mark.parametrize("input_encoding", INPUTS)
def test_every_kernel_gives_the_same_integers(
    monkeypatch: pytest.MonkeyPatch, name: str, rounding: str, encoding: str, input_encoding: str
) -> None:
    leave(monkeypatch, name)
    rng = np.random.default_rng(1)
    for dac_bits, cell_bits in ((1, 2), (1, 1), (2, 2), (8, 8), (3, 4)):
        hardware = plain(
            rounding=rounding, encoding=encoding, input_encoding=input_encoding,
            dac_bits=dac_bits, cell_bits=cell_bits, rows=50,
        )  # fmt: skip
        op = layer(rng, hardware, 133, 45)
        assert_fast_is_readable(op, rows_for(rng, hardware, 133, 7))


@pytest.mark.parametrize("bits", [1, 5, 8])
@pytest.mark.parametrize("name", choice.FUSED_KERNELS)
def test_measured_converters_are_looked_up_behind_the_sums(
    monkeypatch: pytest.MonkeyPatch, name: str, bits: int
) -> None:
    leave(monkeypatch, name)
    rng = np.random.default_rng(bits)
    hardware = plain(adc_bits=bits, rounding=None, transfer=_thresholds(bits), rows=50)
    op = layer(rng, hardware, 133, 45)
    for steps in ([0, 1, 2, 3], [None, 5, 0, None], [9, 9, 9, 9]):
        op = replace(op, references=at_steps(hardware, steps, None))
        bounds = op.infer(integer(("n", 133), *limits(hardware), 1.0))
        assert fused_cells(op.layer, (bounds.lo, bounds.hi)) is not None
        assert_fast_is_readable(op, rows_for(rng, hardware, 133, 9))


@pytest.mark.thorough("all encodings of weights", quick=("differential", "flip"))
@pytest.mark.parametrize("kind", ["slice", "column", "cycle", "levels"])
@pytest.mark.parametrize("name", [*OF_MOST, "conversions"])
@pytest.mark.parametrize("encoding", ["differential", "offset", "offset-flip", "centred"])
def test_kernels_convert_from_any_offset_by_any_step(
    monkeypatch: pytest.MonkeyPatch, name: str, encoding: str, kind: str
) -> None:
    leave(monkeypatch, name)
    rng = np.random.default_rng(6)
    for (dac_bits, cell_bits), rounding in product(((1, 2), (2, 2), (8, 8)), ("half-up", "floor")):
        hardware = plain(
            references=kind, rounding=rounding, encoding=encoding, dac_bits=dac_bits,
            cell_bits=cell_bits, rows=50, accumulator_bits=40,
        )  # fmt: skip
        op = layer(rng, hardware, 133, 45)
        groups, width = len(op.stored.groups), 1 if kind == "slice" else 45
        shape = (1, 1) if kind == "slice" else (groups, width)
        wide = 12 if cell_bits == 8 else 0
        step = [int(rng.integers(4, 8)) << int(rng.integers(5)) + wide for _ in op.references]
        found = tuple(
            None
            if rng.integers(5) == 0
            else AdcReferences.alike(
                s,
                rng.integers(-9 * s, 40 * s, shape),
                random_levels(rng, hardware.law) if kind == "levels" else None,
            )
            for s in step
        )
        op = replace(op, references=found)
        # Those of 8-bit cells are too wide for 32 bits now and then.
        if choice.FUSED_KERNELS and cell_bits < 8:
            known = integer(("n", 133), *limits(hardware), 1.0)
            bounds = op.infer(known)
            assert fused_cells(op.layer, (bounds.lo, bounds.hi)) is not None
        assert_fast_is_readable(op, rows_for(rng, hardware, 133, 7))


@pytest.mark.parametrize("rounding", ["half-up", "half-even", "floor"])
@pytest.mark.parametrize("wide", [0, 36])
def test_kernels_convert_by_steps_of_columns(rounding: str, wide: int) -> None:
    rng = np.random.default_rng(wide)
    hardware = plain(references="gain", rounding=rounding, rows=50, accumulator_bits=60)
    op = layer(rng, hardware, 133, 45)
    shape = len(op.stored.groups), 45
    steps = [rng.integers(4, 90, shape) << wide for _ in op.references]
    found = tuple(AdcReferences(s, rng.integers(-999, 2999, shape)) for s in steps)
    op = replace(op, references=(None, *found[1:]))
    assert fused_cells(op.layer) is None
    assert_fast_is_readable(op, rows_for(rng, hardware, 133, 7))


def test_kernels_convert_by_steps_of_columns_that_are_all_alike() -> None:
    rng = np.random.default_rng(4)
    hardware = plain(references="gain", rows=50, accumulator_bits=60)
    op = layer(rng, hardware, 133, 45)
    shape = len(op.stored.groups), 45
    alike = AdcReferences(np.full(shape, 12 << 36), np.zeros((1, 1), np.int64))
    op = replace(op, references=(alike,) * len(op.references))
    assert_fast_is_readable(op, rows_for(rng, hardware, 133, 7))


def reading_at(law: UniformLaw, step: int) -> conversions.Reading:
    """Conversions at one step, of the type that layers compile for: compiled code is cached."""
    none = conversions.NOTHING
    errors = ConverterErrors(none, none, none)
    return conversions.Reading(
        0, 1, np.array([[[step]]]), np.array([[[-1]]]), none, law.lo, law.hi, law.half,
        law.to_even, tables_of([law]), np.array([[[[0, 1]]]]), np.float32(0), errors, none,
    )  # fmt: skip


@pytest.mark.parametrize("rounding", ["half-up", "floor", "half-even"])
@pytest.mark.parametrize("step", [3, 49, 1000, 65537, 1 << 22, (1 << 41) + 1, (1 << 46) + 1])
def test_sums_on_either_side_of_a_threshold(step: int, rounding: Rounding) -> None:
    law = UniformLaw(-128, 127, rounding)
    codes = np.random.default_rng(8).integers(law.lo - 3, law.hi + 4, 700)
    edges = codes[:, None] * step + np.array([0, step // 2, step - step // 2])
    p = (edges[..., None] + np.arange(-1, 2)).ravel()
    wanted = law.values(law.codes(p, step), step)
    conversions.divided(p, reading_at(law, step), step)
    np.testing.assert_array_equal(p, wanted)


@pytest.mark.parametrize("bits", [4, 8, 10])
def test_a_reciprocal_divides_exactly(bits: int) -> None:
    for step in (1, 3, 5, 6, 7, 10, 12, 28, 96, 4 << bits, 7 << bits):
        largest = step * (1 << bits) - 1
        found = fused.reciprocal(step, largest)
        assert found is not None
        down, factor, shift = found
        edges = np.arange(step, largest, step)
        some = np.linspace(0, largest, 999).astype(np.int64)
        x = np.concatenate([some, edges - 1, edges]).astype(np.uint32)
        quotient = ((x >> np.uint32(down)) * np.uint32(factor)) >> np.uint32(shift)
        np.testing.assert_array_equal(quotient, x // step)
    assert fused.reciprocal((1 << 20) + 1, (1 << 31) - 1) is None


def test_few_bits_are_counted_and_bytes_multiplied() -> None:
    def pairs(**keys: object) -> int:
        hardware = plain(**keys)
        cells = StoredWeights(np.arange(-127, 128)[:, None], hardware).cells
        steps = at_steps(hardware, (1,) * hardware.slices)
        made = fused.fused_layer(ConvertedLayer(cells, steps, np.zeros(1, np.int64)), None)
        assert made is not None
        return popcount.plane_pairs(made)

    assert pairs() == 2
    assert pairs(cell_bits=1, input_encoding="bipolar") == 2
    assert pairs(encoding="differential") == 3
    assert pairs(cell_bits=8, dac_bits=8) == 7 * 8 > popcount.MOST_PLANES


@pytest.mark.parametrize("dac_bits", [1, 8])
def test_numbers_do_not_depend_on_batch_or_threads(
    monkeypatch: pytest.MonkeyPatch, dac_bits: int
) -> None:
    rng = np.random.default_rng(5)
    hardware = plain(dac_bits=dac_bits)
    op = layer(rng, hardware, 300, 60)
    x = rows_for(rng, hardware, 300, 300)
    kernel = fast_kernel(op, (integer(("n", 300), *limits(hardware), 1.0),))
    expected = op.run(x)
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        np.testing.assert_array_equal(kernel(x), expected)
        for start, stop in ((0, 1), (1, 14), (14, 14)):
            np.testing.assert_array_equal(kernel(x[start:stop]), expected[start:stop])


@pytest.mark.parametrize("name", OF_MOST)
@pytest.mark.parametrize("fraction", [0, 5, 9])
@pytest.mark.parametrize(("dac_bits", "cell_bits"), [(1, 2), (8, 2), (8, 7)])
def test_cells_of_a_die_take_the_same_kernels(
    monkeypatch: pytest.MonkeyPatch, name: str, fraction: int, dac_bits: int, cell_bits: int
) -> None:
    """Up to eight bits a cell is one product of bytes, up to sixteen two."""
    leave(monkeypatch, name)
    rng = np.random.default_rng(fraction)
    hardware = plain(dac_bits=dac_bits, cell_bits=cell_bits, encoding="offset", adc_bits=8)
    perfect = StoredWeights(rng.integers(-127, 128, (300, 37)), hardware).cells
    spread = 1 << fraction >> 2
    slices = tuple(_on_die(s, fraction, rng, spread) for s in perfect.slices)
    cells = Cells(hardware, slices, fraction, 0)
    steps = at_steps(hardware, (3 + fraction,) * hardware.slices)
    on_die = ConvertedLayer(cells, steps, rng.integers(-999, 999, 37))
    kernel = fused_cells(on_die)
    x = rows_for(rng, hardware, 300, 11)
    assert kernel is not None
    np.testing.assert_array_equal(kernel(x), layer_mvm(x, on_die))


@pytest.mark.parametrize("kind", ["column", "cycle", "levels"])
@pytest.mark.parametrize("fraction", [0, 3])
def test_cells_of_a_die_are_converted_by_references_that_are_set(fraction: int, kind: str) -> None:
    rng = np.random.default_rng(fraction)
    hardware = plain(references=kind, cell_bits=1, encoding="offset", adc_bits=4, rows=50)
    perfect = StoredWeights(rng.integers(-127, 128, (120, 37)), hardware).cells
    slices = tuple(_on_die(s, fraction, rng, 1 << fraction >> 1) for s in perfect.slices)
    cells = Cells(hardware, slices, fraction, 0)
    references = tuple(
        AdcReferences.alike(
            int(rng.integers(3, 8)),
            rng.integers(-9, 40, (3, 37)),
            random_levels(rng, hardware.law) if kind == "levels" else None,
        ).finer(fraction)
        for _ in range(hardware.slices * hardware.reference_cycles)
    )
    on_die = ConvertedLayer(cells, references, rng.integers(-999, 999, 37))
    kernel = fused_cells(on_die)
    x = rows_for(rng, hardware, 120, 11)
    if tiles.DOT_BITS or fraction == 0:
        assert kernel is not None
        np.testing.assert_array_equal(kernel(x), layer_mvm(x, on_die))


def _on_die(cells: Slice, fraction: int, rng: np.random.Generator, spread: int) -> Slice:
    off = rng.integers(-spread, spread, cells.digits.shape, endpoint=True)
    return replace(cells, digits=(cells.digits.astype(np.int64) << fraction) + off)


@pytest.mark.parametrize("name", choice.FUSED_KERNELS)
def test_a_kernel_that_is_wrong_is_left_out(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    leave(monkeypatch, name)

    def wrong(x: IntArray, *others: IntArray) -> None:
        others[-1][:] = 1

    monkeypatch.setattr(choice.FUSED_KERNELS[name], "run", wrong)
    rng = np.random.default_rng(2)
    hardware = plain(dac_bits=8 if name in ("AMX", "dot product") else 1)
    op = layer(rng, hardware, 130, 9)
    with pytest.warns(RuntimeWarning, match=f"the {name} kernel does not give the reference's"):
        assert_fast_is_readable(op, rows_for(rng, hardware, 130, 5))


@pytest.mark.thorough("all encodings of weights", quick=("centred",))
@pytest.mark.parametrize("name", [*choice.FUSED_KERNELS, "portable"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("encoding", ["differential", "offset", "offset-flip", "centred"])
def test_layers_of_one_value_one_row_and_one_column(
    monkeypatch: pytest.MonkeyPatch, name: str, form: str, encoding: str
) -> None:
    leave(monkeypatch, name)
    rng = np.random.default_rng(7)
    for dac_bits, cell_bits in ((1, 2), (1, 1), (8, 8)):
        hardware = plain(encoding=encoding, dac_bits=dac_bits, cell_bits=cell_bits, rows=50)
        weight = weights_of_form(rng, form, weight_limits(hardware), (133, 45))
        references = at_steps(hardware, (1,) * hardware.slices, None)
        bias = rng.integers(-999, 999, weight.shape[1])
        stored = StoredWeights(weight, hardware)
        op = CrossbarMvm(stored, bias, np.ones(weight.shape[1]), references)
        assert_fast_is_readable(op, rows_for(rng, hardware, len(weight), 7))


def plain(**keys: object) -> Crossbar:
    hardware = crossbar_of(
        rows=128, cell_bits=2, dac_bits=1, encoding="offset-flip", weight_bits=8,
        input_encoding="twos-complement", input_bits=8, adc_bits=5, rounding="half-up",
        accumulator_bits=32,
    )  # fmt: skip
    return changed(hardware, **keys)


@pytest.mark.parametrize("rounding", ["half-up", "half-even", "floor"])
@pytest.mark.parametrize("encoding", ["differential", "offset", "offset-flip", "centred"])
@pytest.mark.parametrize("dac_bits", [1, 8])
def test_many_rows_in_several_blocks(rounding: str, encoding: str, dac_bits: int) -> None:
    rng = np.random.default_rng(5)
    hardware = plain(rounding=rounding, encoding=encoding, dac_bits=dac_bits)
    op = layer(rng, hardware, 300, 60)
    assert_fast_is_readable(op, rng.integers(-127, 128, (300, 300)))


@pytest.mark.parametrize("encoding", ["offset", "offset-flip", "differential"])
@pytest.mark.parametrize("input_encoding", INPUTS)
def test_partial_sums_may_be_wider_than_the_result(encoding: str, input_encoding: str) -> None:
    """Small weights of many bits: what the offset adds leaves 32 bits, the layer's sum does not."""
    hardware = plain(
        rows=None, cell_bits=8, dac_bits=8, encoding=encoding, weight_bits=16,
        input_encoding=input_encoding, input_bits=9, adc_bits=16,
    )  # fmt: skip
    weight = np.tile([[3, -2, 0]], (1024, 1))
    stored, steps = StoredWeights(weight, hardware), at_steps(hardware, (8,) * hardware.slices)
    op = CrossbarMvm(stored, np.zeros(3, np.int64), np.ones(3), steps)
    lo, hi = limits(hardware)
    assert_fast_is_readable(op, np.array([[lo] * 1024, [hi] * 1024, [lo, hi] * 512]))


@pytest.mark.parametrize("bits", [31, 32, 33, 40])
@pytest.mark.parametrize("input_encoding", INPUTS)
def test_inputs_wider_than_32_bits(bits: int, input_encoding: str) -> None:
    hardware = plain(
        encoding="differential", input_encoding=input_encoding, input_bits=bits, dac_bits=1,
        cell_bits=2, weight_bits=3, rounding="half-up", adc_bits=4,
    )  # fmt: skip
    stored = StoredWeights(np.ones((8, 3), np.int64), hardware)
    op = CrossbarMvm(stored, np.zeros(3, np.int64), np.ones(3), at_steps(hardware, (1,)))
    x = rows_for(np.random.default_rng(1), hardware, 8, 5)
    known = integer(("n", 8), *limits(hardware), 1.0)
    np.testing.assert_array_equal(fast_kernel(op, (known,))(x), op.run(x))


def test_lossless_layers_are_one_product() -> None:
    rng = np.random.default_rng(0)
    hardware = plain(adc_bits=None)
    weight = rng.integers(-127, 128, (300, 7))
    stored, steps = StoredWeights(weight, hardware), hardware.no_references
    op = CrossbarMvm(stored, np.arange(7), np.ones(7), steps)
    x = rng.integers(-127, 128, (5, 300))
    known = integer(("n", 300), -127, 127, 1.0)
    np.testing.assert_array_equal(fast_kernel(op, (known,))(x), x @ weight + np.arange(7))
    np.testing.assert_array_equal(op.run(x), x @ weight + np.arange(7))


@pytest.mark.parametrize(
    ("lo", "hi", "kind"),
    [(0, 255, np.uint8), (-127, 127, np.int8), (-128, 127, np.int64), (-3, 200, np.int16)],
)
def test_products_of_bytes_at_their_ends(lo: int, hi: int, kind: type) -> None:
    rng = np.random.default_rng(0)
    x, weight = rng.integers(lo, hi, (70, 300), endpoint=True), rng.integers(-128, 128, (300, 257))
    x[0], x[1], weight[:, 0], weight[:, 1] = lo, hi, -128, 127
    bias = rng.integers(-9999, 9999, 257)
    for made in (np.int32, np.int64):
        run = weight_product(weight, bias, Factor(np.full(300, lo), np.full(300, hi)), made)
        found = run(x.astype(kind))
        np.testing.assert_array_equal(found, x @ weight + bias)
        assert found.dtype == made
        assert run(x[:0].astype(kind)).shape == (0, 257)


@pytest.mark.parametrize("bits", [5, 7, 9, 13, 15])
@pytest.mark.parametrize("signed", [False, True])
def test_products_of_several_bytes(bits: int, signed: bool) -> None:
    top, width = (1 << bits) - 1, 700
    known = integer(("n", width), -top if signed else 0, top, 1.0)
    rng = np.random.default_rng(bits)
    x, y = (rng.integers(int(known.lo), top, (count, width), endpoint=True) for count in (5, 70))
    x[0], y[0], y[1] = top, top, int(known.lo)
    expected = x @ y.T
    op = Mvm(y.T.copy(), np.arange(70), np.ones(70))
    for rows in (x, x.astype(np.int32)):
        np.testing.assert_array_equal(fast_kernel(MatMul(), (known, known))(rows, y), expected)
        np.testing.assert_array_equal(fast_kernel(op, (known,))(rows), expected + np.arange(70))


def test_narrow_integers_are_the_same_integers() -> None:
    rng = np.random.default_rng(4)
    known = integer(("n", 40), -(2**20), 2**20, 1.0)
    x = rng.integers(-(2**20), 2**20, (9, 40)).astype(np.int32)
    requant = Requant(np.array([40000]), np.array([28]), -127, 127, np.ones(1))
    for op, inputs in ((requant, (x,)), (Mul(), (x, x[::-1].copy())), (Mul(), (x, x[:1]))):
        types = (known,) * len(inputs)
        result = op.infer(*types)
        found = fast_kernel(op, types, result)(*inputs)
        np.testing.assert_array_equal(found, op.run(*(one.astype(np.int64) for one in inputs)))
    assert fast_kernel(requant, (known,), requant.infer(known))(x).dtype == np.int8


@pytest.mark.parametrize("bits", [6, 12, 20, 26, 29])
def test_products_are_exact_beyond_float32_and_float64(bits: int) -> None:
    top, width = 1 << bits, 9
    known = integer(("n", width), -top, top, 1.0)
    rng = np.random.default_rng(bits)
    x, y = (rng.choice([-top, top, top - 1], (4, width)) for _ in "xy")
    exact = x.astype(object) @ y.T.astype(object)
    np.testing.assert_array_equal(fast_kernel(MatMul(), (known, known))(x, y), exact)
    op = Mvm(y.T.copy(), np.zeros(4, np.int64), np.ones(4))
    np.testing.assert_array_equal(fast_kernel(op, (known,))(x), exact)


def test_real_products_keep_their_own_arithmetic() -> None:
    op = Mvm(np.eye(2), np.zeros(2))
    assert fast_kernel(op, (real(("n", 2)),)) == op.run


def test_the_number_is_chosen_by_a_bound_that_cannot_wrap() -> None:
    assert product_kind((1 << 24) - 1) is np.float32
    assert product_kind(1 << 24) is np.float64
    assert product_kind(1 << 53) is np.int64
