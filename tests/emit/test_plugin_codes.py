"""Codes unlike those of cimtool: all implementations compute the same integers, and none warns."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from c_layers import compared
from crossbars import PLAIN, at_steps, changed
from random_crossbars import drawn, input_limits

from cimtool.base.arrays import IntArray
from cimtool.base.errors import CimError
from cimtool.emit.onnx import file_bytes, onnx_model
from cimtool.emit.runtime import Session
from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.input_codes import Cycle, InputCode
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.stored import StoredWeights
from cimtool.hardware.weight_codes import Slice, WeightCode, plain
from cimtool.ir.integer import Quantize
from cimtool.ir.program import Builder
from cimtool.ir.types import real
from cimtool.simulation.die_program import check_analog
from cimtool.simulation.kernels.choice import fused_cells
from cimtool.simulation.simulator import Runner


@dataclass(frozen=True)
class SignedTop(InputCode):
    """Two's complement whose top cycle drives one signed digit of `dac_bits`."""

    @property
    def cycles(self) -> tuple[Cycle, ...]:
        starts = range(0, self.bits, self.dac_bits)
        low = (Cycle(start, self.dac_bits, 1) for start in starts[:-1])
        return (*low, Cycle(starts[-1], None, 1))


@dataclass(frozen=True)
class OpenMagnitude(InputCode):
    """Sign and magnitude of x + 1, whose last cycle drives all that is above its shift."""

    sign_magnitude: ClassVar[bool] = True

    @property
    def lift(self) -> int:
        return 1

    @property
    def cycles(self) -> tuple[Cycle, ...]:
        return Cycle(0, self.dac_bits, 1), Cycle(self.dac_bits, None, 1)


@dataclass(frozen=True)
class SignedCell(WeightCode):
    """Digits of |W| with its sign, each in one cell that holds -1, 0 or 1."""

    name: ClassVar[str] = "signed-cell"  # and not registered: the family is the whole process's

    @property
    def digit_limits(self) -> tuple[int, int]:
        return -self.cell_maximum, self.cell_maximum

    @classmethod
    def stored_bits(cls, bits: int) -> int:
        return bits - 1

    def encode(self, weight: IntArray, groups: Sequence[slice]) -> tuple[Slice, ...]:
        sign, size = np.sign(weight), np.abs(weight)
        return tuple(plain(sign * (size >> k & self.cell_maximum), groups, k) for k in self.shifts)


@dataclass(frozen=True)
class CountedDown(WeightCode):
    """Two digits, the high one's complement in cells that count below zero; every other column
    of the low one holds complements, in every other row group.
    """

    name: ClassVar[str] = "counted-down"
    is_offset: ClassVar[bool] = True
    complements: ClassVar[bool] = True

    @property
    def offset(self) -> int:
        return (1 << self.bits - 1) - (self.cell_maximum << self.cell_bits)

    def encode(self, weight: IntArray, groups: Sequence[slice]) -> tuple[Slice, ...]:
        lifted, top = weight + (1 << self.bits - 1), self.cell_maximum
        low, high = lifted & top, lifted >> self.cell_bits
        flipped = np.add.outer(range(len(groups)), range(weight.shape[1])) % 2 == 1
        for r, group in enumerate(groups):
            low[group] = np.where(flipped[r], top - low[group], low[group])
        return Slice(low, flipped, 0, 1), plain(top - high, groups, self.cell_bits, -1)


def layer_on(rng: np.random.Generator, crossbar: Crossbar, rows: int = 24) -> CrossbarMvm:
    """A layer whose converters round and clip."""
    weight = rng.integers(-31, 32, (rows, 5))
    drawn = (int(step) for step in rng.integers(0, 4, crossbar.slices))
    unit = 1 if crossbar.unit_column else None
    steps = at_steps(crossbar, tuple(drawn), unit)
    return CrossbarMvm(StoredWeights(weight, crossbar), np.zeros(5, np.int64), np.ones(5), steps)


def assert_agree(layer: CrossbarMvm, seed: int) -> None:
    """The readable operation, the fast one, torch's and ONNX Runtime; none gives a warning."""
    rng, inputs = np.random.default_rng(seed), layer.crossbar.inputs
    lo, hi = inputs.limits(inputs.bits)
    builder = Builder("text", {"x": real(("n", len(layer.weight)))})
    codes = builder.add("x.codes", Quantize(np.ones(()), lo, hi), "x")
    graph = builder.graph({"sums": builder.add("fc", layer, codes)})
    x = drawn(rng, (lo, hi), (6, len(layer.weight)))
    x[:2] = [[lo], [hi]]
    rows = {"x": x.astype(np.float32)}
    expected = graph.run(rows)["sums"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fast, torch = (Runner(graph, device=device).run(rows) for device in (None, "cpu"))
    for found in (fast, torch, Session(file_bytes(onnx_model(graph))).run(rows)):
        np.testing.assert_array_equal(found["sums"], expected)
    exact = CrossbarMvm(layer.stored, layer.bias, layer.scale, layer.crossbar.no_references)
    np.testing.assert_array_equal(exact.run(x), x @ layer.weight + layer.bias)


CONVERTED = changed(PLAIN, encoding="offset", cell_bits=1, weight_bits=6, adc_bits=6, rows=16)


@pytest.mark.thorough(
    "every form of a layer; each kernel has some in the first tier", quick=("shape0",)
)
@pytest.mark.parametrize("code", [SignedTop, OpenMagnitude])
@pytest.mark.parametrize("shape", [(6, 2), (6, 4), (12, 8)])
@pytest.mark.parametrize("encoding", ["offset", "differential", "offset-flip"])
def test_an_input_code_with_signed_digits(
    code: type[InputCode], shape: tuple[int, int], encoding: str
) -> None:
    for seed, shift_add in enumerate(("digital", "analog")):
        hardware = changed(CONVERTED, encoding=encoding, shift_add=shift_add)
        hardware = replace(hardware, inputs=code(*shape))
        assert_agree(layer_on(np.random.default_rng(seed), hardware), seed)


def test_digit_limits_are_those_that_inputs_reach() -> None:
    for code in (SignedTop(6, 2), OpenMagnitude(6, 2), SignedTop(7, 7)):
        hardware = replace(CONVERTED, inputs=code)
        first, last = code.limits(code.bits)
        digits = hardware.digits(np.arange(first, last + 1)[:, None])
        assert hardware.digit_limits == (digits.min(), digits.max())
        assert hardware.signed_sums
        assert hardware.law is not None
        assert hardware.law.ends[0] < 0


def test_a_fused_kernel_takes_signed_digits() -> None:
    hardware = replace(CONVERTED, inputs=SignedTop(6, 2))
    layer = layer_on(np.random.default_rng(0), hardware)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel = fused_cells(layer.layer)
    assert kernel is not None


@pytest.mark.parametrize("inputs", ["unsigned", "twos-complement", "bipolar"])
def test_signed_digits_in_single_cells_are_not_clipped(inputs: str) -> None:
    hardware = replace(changed(CONVERTED, input_encoding=inputs, input_bits=4, adc_bits=8),
                       weights=SignedCell(6, 1))  # fmt: skip
    assert hardware.cell_limits == (-1, 1)
    assert hardware.signed_sums
    layer = layer_on(np.random.default_rng(1), hardware)
    assert_agree(layer, 1)
    weight = -np.ones((16, 2), np.int64)
    stored = StoredWeights(weight, hardware)
    zero = np.zeros(2, np.int64)
    steps = at_steps(hardware, (0,) * hardware.slices)
    found = CrossbarMvm(stored, zero, np.ones(2), steps)
    np.testing.assert_array_equal(found.run(np.full((1, 16), 3)), [[-48, -48]])


@pytest.mark.parametrize("inputs", ["unsigned", "twos-complement", "offset", "bipolar"])
def test_a_weight_code_of_slices_that_count_down(inputs: str, tmp_path: Path) -> None:
    """No backend knows it, and all of them, C among them, compute its integers."""
    layers = []
    for seed, keys in enumerate(product((0, 777), ("digital", "unit-column"), (4, None))):
        leak, offset_sum, rows = keys
        hardware = changed(
            CONVERTED, input_encoding=inputs, input_bits=5, adc_bits=7, cell_bits=3, rows=rows,
            leak=0 if offset_sum == "unit-column" else leak, offset_sum=offset_sum,
            unused_rows="driven",
        )  # fmt: skip
        hardware = replace(hardware, weights=CountedDown(6, 3))
        layer = layer_on(np.random.default_rng(seed), hardware, 23)
        assert_agree(layer, seed)
        x = drawn(np.random.default_rng(seed), input_limits(hardware), (9, 23))
        layers.append((layer, x, layer.run(x)))
    assert compared(layers, tmp_path, "gcc") == (len(layers) * 9 * 5, 0)


def test_signed_digits_in_single_cells_take_no_noise() -> None:
    hardware = replace(CONVERTED, weights=SignedCell(6, 1))
    with pytest.raises(CimError, match=r"^text\.mu: its single cells hold digits below 0"):
        check_analog(hardware, "text.mu")
    check_analog(CONVERTED, "text.mu")
    check_analog(changed(CONVERTED, encoding="differential"), "text.mu")
