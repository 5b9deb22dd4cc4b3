"""Converters that err: offset, gain and bow of a sum before it is rounded."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from cimtool.hardware.noise.converter_errors import (
    CURVE_BITS,
    GAIN_BITS,
    ConverterErrors,
    arch,
    draw_errors,
)
from cimtool.hardware.noise.mechanisms.converters import Adc

ONE = (1, 1, 1)


def errors(offset: int = 0, gain: int = 0, bow: int = 0) -> ConverterErrors:
    return ConverterErrors(*(np.full(ONE, value) for value in (offset, gain, bow)))


def test_an_offset_moves_every_sum() -> None:
    p = np.arange(-20, 20)[:, None]
    np.testing.assert_array_equal(errors(offset=7).apply(p, 0, 0, -128, 256), p + 7)


def test_a_gain_is_rounded_half_up() -> None:
    p = np.array([[0], [1000], [-1000], [12345]])
    gain = round(0.03 * (1 << GAIN_BITS))
    found = errors(gain=gain).apply(p, 0, 0, 0, 256)
    expected = p + np.floor(p * gain / (1 << GAIN_BITS) + 0.5).astype(np.int64)
    np.testing.assert_array_equal(found, expected)


def test_a_bow_is_zero_at_the_ends_and_whole_in_the_middle() -> None:
    p = np.array([[-128], [0], [127], [128], [900], [-900], [-64]])
    found = (errors(bow=40).apply(p, 0, 0, -128, 256) - p)[:, 0]
    assert found.tolist() == [0, 40, 1, 0, 0, 0, 30]


def test_the_arch_is_the_parabola_for_wide_and_narrow_ranges() -> None:
    for bits in (3, 8, 15, 24):
        p = np.linspace(0, (1 << bits) - 1, 50).astype(np.int64)
        u = p / (1 << bits)
        np.testing.assert_allclose(
            arch(p, 0, 1 << bits) / (1 << CURVE_BITS), 4 * u * (1 - u), atol=2e-4
        )


def test_errors_are_as_large_as_they_should_be() -> None:
    numbers = np.arange(4 * 2 * 3000).reshape(4, 2, 3000)
    adc = Adc(offset=0.5, gain=0.01, inl=0.25)
    found = draw_errors(adc, np.random.default_rng(0), numbers, (256, 1280))
    for k, step in enumerate((256, 1280)):
        assert abs(found.offset[:, k].std() / (0.5 * step) - 1) < 0.04
        assert abs(found.bow[:, k].std() / (0.25 * step) - 1) < 0.04
        assert abs(found.gain[:, k].std() / (0.01 * 2**GAIN_BITS) - 1) < 0.04


def test_columns_of_one_converter_err_alike() -> None:
    numbers = np.arange(12).reshape(1, 1, 12) // 4
    found = draw_errors(Adc(offset=1.0), np.random.default_rng(0), numbers, (256,))
    assert len(set(found.offset.ravel().tolist())) == 3


def test_a_converters_offset_is_added_in_every_cycle(kit: SimpleNamespace) -> None:
    hardware = kit.crossbar(encoding="differential", cell_bits=5, dac_bits=5, rows=None)
    op = kit.layer(hardware, 9)
    found = kit.on_die(op, kit.noise(adc={"offset": 3.0}))
    assert found.errors is not None
    assert found.cells.fraction_bits == 0
    codes = np.clip(found.errors.offset[0, 0] + 1 >> 1, -32, 31)
    # Two cycles, of which that of the sign counts -16: both see nothing but the offset.
    expected = (codes << 1) * (1 - 16) + op.bias
    np.testing.assert_array_equal(found.run(np.zeros((1, 9), np.int64))[0], expected)
