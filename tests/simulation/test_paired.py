"""The digits of two cycles in one byte: the integers of the readable operation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from crossbars import at_steps, changed, crossbar_of
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import config
from random_layers import random_references

from cimtool.hardware.contract import layer_mvm
from cimtool.hardware.converted_layer import ConvertedLayer
from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.stored import StoredWeights
from cimtool.ir.types import integer
from cimtool.simulation.kernels import choice, fused, paired, popcount, tiles
from cimtool.simulation.kernels.operations import fast_kernel

pytestmark = pytest.mark.skipif(
    not tiles.SHORT_SUMS, reason="this CPU adds no products of bytes in 16 bits"
)

SERIAL = crossbar_of(
    rows=100, cell_bits=2, dac_bits=1, encoding="offset", weight_bits=8, input_encoding="unsigned",
    input_bits=8, adc_bits=6, rounding="half-up", accumulator_bits=40,
)  # fmt: skip


@pytest.fixture(autouse=True)
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The kernel alone, wherever it fits; the number of reads of each call."""
    calls: list[int] = []
    run = paired.run

    def noted(x: np.ndarray, *others: object) -> None:
        calls.append(len(x))
        run(x, *others)

    monkeypatch.setattr(paired, "run", noted)
    monkeypatch.setattr(paired, "FASTER", True)
    monkeypatch.setattr(choice, "FUSED_KERNELS", {"two cycles": paired})
    return calls


def random_layer(
    seed: int, hardware: Crossbar, rows: int, columns: int
) -> tuple[CrossbarMvm, tuple[int, int]]:
    """A layer of random weights, many the largest, and the limits of its inputs."""
    rng = np.random.default_rng(seed)
    half = 1 << hardware.weights.bits - 1
    weight = rng.integers(1 - half, half, (rows, columns))
    weight[rng.random(weight.shape) < rng.choice([0, 0.9])] = half - 1
    steps = tuple(int(step) for step in rng.integers(0, 5, hardware.slices))
    references = at_steps(hardware, steps, 0 if hardware.unit_column else None)
    if hardware.reference_bits:
        references = random_references(rng, references, hardware, rows, columns)
    op = CrossbarMvm(
        StoredWeights(weight, hardware),
        rng.integers(-99, 99, columns),
        np.ones(columns),
        references,
    )
    return op, hardware.inputs.limits(hardware.inputs.bits)


def assert_equal(op: CrossbarMvm, limits: tuple[int, int], count: int = 5) -> None:
    """Rows at the limits and random ones have the readable operation's integers."""
    lo, hi = limits
    x = np.random.default_rng(3).integers(lo, hi, (count, len(op.weight)), endpoint=True)
    x[:2] = np.array([[lo], [hi]])[: len(x)]
    kernel = fast_kernel(op, (integer(("n", x.shape[1]), lo, hi, 1.0),))
    np.testing.assert_array_equal(kernel(x), op.run(x))


@pytest.mark.thorough("more of the same kind")
@settings(max_examples=examples(120))
@given(
    st.sampled_from(["offset", "offset-flip", "centred", "differential"]),
    st.sampled_from(["unsigned", "twos-complement", "offset"]),
    st.sampled_from(["slice", "fixed", "column", "levels"]),
    st.integers(1, 3),
    st.sampled_from([2, 4, 6, 8]),
    st.integers(1, 70),
    st.integers(1, 300),
    st.integers(0, 2**32 - 1),
)
def test_layers_of_one_bit_a_cycle(
    encoding: str, inputs: str, references: str, cell_bits: int, input_bits: int, columns: int,
    rows: int, seed: int,
) -> None:  # fmt: skip
    if encoding == "differential":
        cell_bits = min(cell_bits, 2)  # those of three bits are -7 to 7
    hardware = changed(
        SERIAL, encoding=encoding, input_encoding=inputs, cell_bits=cell_bits,
        input_bits=input_bits, references=references, rows=1 + seed % 140,
    )  # fmt: skip
    op, limits = random_layer(seed, hardware, rows, columns)
    made = choice.candidate_of(op.layer)
    if made is not None:
        lo, hi = made.layer.cell_limits
        assert paired.fits(made.layer) == (hi - min(lo, 0) >= 2)
    assert_equal(op, limits, 1 + seed % 9)


@pytest.mark.parametrize(("encoding", "cell_bits"), [("differential", 1), ("centred", 2)])
def test_cells_below_zero_take_no_more_room_than_others(encoding: str, cell_bits: int) -> None:
    """Counted from the least, -1 to 1 and -1 to 2 have two bits each."""
    op, _ = random_layer(
        1, changed(SERIAL, encoding=encoding, cell_bits=cell_bits, rows=128), 128, 64
    )
    made = choice.candidate_of(op.layer)
    assert made is not None
    cells = paired.pack(made.layer)
    assert (cells.bits, cells.middle) == (2, -1)
    assert cells.words.nbytes == op.crossbar.slices * 128 * 64 * 2 // 8


@pytest.mark.parametrize("spread", [1, 3])
def test_cells_of_a_die(taken: list[int], spread: int) -> None:
    """Some beyond what a perfect cell holds, and below zero."""
    rng = np.random.default_rng(spread)
    perfect = StoredWeights(rng.integers(-127, 128, (250, 37)), SERIAL).cells
    slices = tuple(
        replace(s, digits=s.digits + rng.integers(-1, spread, s.digits.shape, endpoint=True))
        for s in perfect.slices
    )
    references = at_steps(SERIAL, (2,) * 4, None)
    on_die = ConvertedLayer(replace(perfect, slices=slices), references, np.zeros(37, np.int64))
    kernel = choice.fused_cells(on_die)
    assert kernel is not None
    x = rng.integers(0, 256, (9, 250))
    taken.clear()
    np.testing.assert_array_equal(kernel(x), layer_mvm(x, on_die))
    assert taken


def test_bits_are_counted_where_that_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    for words, most in (("+avx512vpopcntdq", 4), ("-avx512vpopcntdq", 1), ("-avx512f", 1)):
        monkeypatch.setattr(config, "CPU_FEATURES", words)
        assert popcount.most_planes() == most
    monkeypatch.setattr(popcount, "DOT_BITS", 0)
    assert popcount.most_planes() == 8


@pytest.mark.parametrize("encoding", ["offset", "differential"])
@pytest.mark.parametrize("rows", [1, 4, 84, 85, 256])
def test_sums_at_their_ends(encoding: str, rows: int, taken: list[int]) -> None:
    """All cells the largest or the least, all digits ones: in each cycle alone and in both."""
    hardware = changed(SERIAL, encoding=encoding, rows=256, rounding="floor", adc_bits=12)
    for value in (127, -126):
        stored = StoredWeights(np.full((rows, 3), value), hardware)
        references = at_steps(hardware, (0,) * hardware.slices, None)
        op = CrossbarMvm(stored, np.zeros(3, np.int64), np.ones(3), references)
        x = np.array([[0], [255], [0x55], [0xAA], [1], [2], [128]]) * np.ones(rows, np.int64)
        kernel = fast_kernel(op, (integer(("n", rows), 0, 255, 1.0),))
        taken.clear()
        np.testing.assert_array_equal(kernel(x), op.run(x))
        assert taken


@pytest.mark.parametrize(
    "keys",
    [
        {"input_bits": 7},
        {"dac_bits": 2},
        {"cell_bits": 4},
        {"cell_bits": 1},
        {"references": "cycle"},
        {"encoding": "differential", "cell_bits": 3, "weight_bits": 7},
        {"input_encoding": "bipolar"},
    ],
    ids=lambda keys: " ".join(map(str, keys.values())),
)
def test_others_are_left_to_other_kernels(keys: dict[str, object]) -> None:
    op, limits = random_layer(1, changed(SERIAL, **keys), 150, 40)
    made = choice.candidate_of(op.layer)
    assert made is not None
    assert not paired.fits(made.layer)
    assert_equal(op, limits)


def test_it_is_taken_where_bits_are_counted_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    op, _ = random_layer(1, SERIAL, 150, 40)
    made = choice.candidate_of(op.layer)
    assert made is not None
    assert paired.fits(made.layer)
    monkeypatch.setattr(paired, "FASTER", False)
    assert not paired.fits(made.layer)


def test_a_part_has_room_for_the_largest_sums() -> None:
    """As many words as `short` of the largest cells and digits leave a part below 128."""
    for largest in range(paired.SMALLEST_CELL, paired.LARGEST_CELL + 1):
        cells = np.full((64, 2), largest)
        layer = fused.exact_layer(cells, np.zeros(2, np.int64), (0, 1))
        words = paired.pack(layer).short
        assert 0 < 2 * words * largest < 1 << tiles.PART_BITS <= 2 * (words + 1) * largest
