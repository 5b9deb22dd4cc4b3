"""A layer on a die: readable and fast alike, whatever the batch, order or threads; converters."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from crossbars import mvm
from drawn import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_crossbars import random_levels

from cimtool.base.errors import CimError
from cimtool.hardware.crossbar import leak_of
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.noise.mechanisms.converters import Adc
from cimtool.hardware.noise.mvm import (
    CURVE_BITS,
    FACTOR_BITS,
    GAIN_BITS,
    ConverterErrors,
    NoisyMvm,
    arch,
    draw_errors,
)
from cimtool.hardware.noise.spec import Noise
from cimtool.hardware.references import AdcReferences
from cimtool.simulation.die_program import Conditions, converter_numbers
from cimtool.simulation.kernels.conversions import ConversionKernel
from cimtool.simulation.kernels.operations import fast_kernel

ALL = {
    "t0": 20.0,
    "programming": {"sigma": [0.3, 1.0]},
    "drift": {"mean": {"polynomial": [0.05]}, "sigma": {"polynomial": [0.01]}},
    "flicker": {"q": {"polynomial": [0.01]}, "t_read": 250e-9},
    "stuck": {"p_on": 0.01, "p_off": 0.02, "spare_columns": 1},
    "adc": {"offset": 0.5, "gain": 0.02, "inl": 0.7, "columns_per_converter": 3},
    "ir_drop": {"wire_resistance": 2.0},
}


def transfer(rng: np.random.Generator, bits: int) -> tuple[int, ...]:
    return tuple(int(v) for v in np.sort(rng.integers(0, 16 << bits, (1 << bits) - 1)))


def set_at_random(op: CrossbarMvm, seed: int) -> tuple[AdcReferences, ...]:
    """Steps of 1 to 4 digits, or levels in 1/16 of them, and offsets of columns."""
    rng, digit = np.random.default_rng(seed), 1 << op.crossbar.places
    levels = op.crossbar.scope.levels
    shape = len(op.stored.groups), op.weight.shape[1]
    return tuple(
        AdcReferences.alike(
            int(rng.integers(digit, 4 * digit)) >> (4 if levels else 0) or 1,
            rng.integers(-digit, 9 * digit, shape),
            random_levels(rng, op.crossbar.law) if levels else None,
        )
        for _ in op.references
    )


def noisy_layer(kit: SimpleNamespace, noise: Noise, seed: int, **hardware: Any) -> NoisyMvm:
    ratio = hardware.pop("ratio", None)
    table = hardware.pop("table", False)
    if table:
        hardware |= {"rounding": None, "transfer": transfer(np.random.default_rng(seed), 6)}
    op = kit.layer(kit.crossbar(leak=leak_of(ratio, 2), **hardware), seed=seed)
    if op.crossbar.reference_bits:
        op = replace(op, references=set_at_random(op, seed))
    arrays = replace(kit.whole, on_off_ratio=ratio)
    found = kit.on_die(op, noise, seconds=3600.0, arrays=arrays, seed=seed)
    wide = np.full(op.weight.shape[1], 1 << 50)
    return replace(found, lo=-wide, hi=wide)  # the clip would hide what differs


@pytest.mark.thorough("every form of a layer; each kernel has some in the first tier")
@given(
    seed=st.integers(0, 1000),
    encoding=st.sampled_from(["differential", "offset", "offset-flip"]),
    input_encoding=st.sampled_from(["twos-complement", "offset", "bipolar"]),
    adc_on=st.sampled_from(["difference", "polarity"]),
    shift_add=st.sampled_from(["digital", "analog"]),
    rounding=st.sampled_from(["half-up", "half-even", "floor", "table"]),
    ratio=st.sampled_from([None, 15.0]),
    rows_active=st.sampled_from([None, 7]),
    adc_bits=st.sampled_from([6, 6, None]),
    references=st.sampled_from(["fixed", "column", "cycle", "levels"]),
    redraw=st.sampled_from(["mvm", "cycle", None]),
    without=st.sets(st.sampled_from(["adc", "stuck", "flicker", "drift"])),
)
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow])
def test_the_fast_kernel_gives_the_readable_numbers(
    kit: SimpleNamespace,
    seed: int,
    adc_bits: int | None,
    rounding: str,
    redraw: str | None,
    without: set[str],
    **hardware: Any,
) -> None:
    table = rounding == "table" and adc_bits is not None
    tables = {name: value for name, value in ALL.items() if name not in without}
    if redraw:
        tables["read"] = {"sigma": 0.03, "redraw": redraw}
    chosen = {"table": True} if table else {"rounding": rounding.replace("table", "floor")}
    op = noisy_layer(
        kit, kit.noise(**tables), seed, adc_bits=adc_bits, unused_rows="driven", **chosen,
        **hardware,
    )  # fmt: skip
    x = kit.inputs(op.perfect, 7, seed)
    expected = op.run(x)
    np.testing.assert_array_equal(fast_kernel(op, ())(x), expected)
    np.testing.assert_array_equal(ConversionKernel(op)(x[::-1]), expected[::-1])
    one = np.concatenate([fast_kernel(op, ())(row[None]) for row in x])
    np.testing.assert_array_equal(one, expected)


@pytest.mark.parametrize("threads", ["1", "2", "3"])
def test_threads_do_not_change_the_numbers(
    kit: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, threads: str
) -> None:
    op = noisy_layer(kit, kit.noise(**ALL, read={"sigma": 0.05}), 3)
    x = kit.inputs(op.perfect, 300)
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    np.testing.assert_array_equal(fast_kernel(op, ())(x), op.run(x))


def test_equal_inputs_read_alike_and_others_do_not(kit: SimpleNamespace) -> None:
    op = noisy_layer(kit, kit.noise(read={"sigma": 0.05}), 0)
    x = kit.inputs(op.perfect, 3)
    x[2] = x[0]
    found = op.run(x)
    np.testing.assert_array_equal(found[0], found[2])
    assert (found[0] != found[1]).any()


def test_reading_at_another_time_draws_fresh_noise_anew(kit: SimpleNamespace) -> None:
    op = kit.layer(kit.crossbar(encoding="differential", cell_bits=5, adc_bits=None))
    noise = kit.noise(read={"sigma": 0.05})
    x = kit.inputs(op, 200)
    exact = x @ op.weight + op.bias
    first, later = (kit.on_die(op, noise, seconds=s).run(x) - exact for s in (0.0, 60.0))
    assert abs(np.corrcoef(first.ravel(), later.ravel())[0, 1]) < 4 / np.sqrt(first.size)


def lossless(kit: SimpleNamespace, **hardware: Any) -> CrossbarMvm:
    """A layer whose converters are proved to lose nothing."""
    return replace(kit.layer(kit.crossbar(**hardware)), references=(None,) * 3)


def test_a_die_without_errors_is_the_perfect_layer(kit: SimpleNamespace) -> None:
    quiet = kit.noise(
        programming={"sigma": [0.0]}, read={"sigma": 0.0}, adc={"offset": 0.0}, stuck={}
    )
    for op in (kit.layer(kit.crossbar()), lossless(kit, adc_bits=None), lossless(kit, adc_bits=9)):
        x = kit.inputs(op, 20)
        found = kit.on_die(op, quiet)
        np.testing.assert_array_equal(found.run(x), op.run(x))
        np.testing.assert_array_equal(fast_kernel(found, ())(x), op.run(x))


def test_a_lossless_converter_rounds_noise_and_no_converter_does_not(
    kit: SimpleNamespace,
) -> None:
    noise = kit.noise(programming={"sigma": [0.02]})
    with_adc = kit.on_die(lossless(kit, adc_bits=9), noise)
    without = kit.on_die(lossless(kit, adc_bits=None), noise)
    assert [one and one.step.item() for one in with_adc.layer.references] == [
        1 << with_adc.cells.finer
    ] * 3
    assert without.layer.references == (None, None, None)
    x = kit.inputs(without.perfect, 50)
    exact = x @ without.perfect.weight + without.perfect.bias
    # Errors that stay below half a digit in a column are rounded off, but not where none rounds.
    assert np.abs(with_adc.run(x) - exact).mean() < np.abs(without.run(x) - exact).mean()


@pytest.mark.parametrize("sigma", [0.0, 2.0])
@pytest.mark.parametrize("encoding", ["differential", "offset-flip"])
def test_cells_in_whole_digits_need_no_converter(
    kit: SimpleNamespace, encoding: str, sigma: float
) -> None:
    wide = {"encoding": encoding, "cell_bits": 8, "weight_bits": 8}
    op = kit.layer(kit.crossbar(**wide, adc_bits=None, rounding=None), 40, 9)
    found = kit.on_die(op, kit.noise(programming={"sigma": [sigma]}))
    assert found.cells.fraction_bits == 0
    x = kit.inputs(op, 7)
    np.testing.assert_array_equal(fast_kernel(found, ())(x), found.run(x))


def test_factors_multiply_what_converters_say(kit: SimpleNamespace) -> None:
    op = kit.layer(kit.crossbar(encoding="differential", cell_bits=5, dac_bits=5, rows=None))
    op = replace(op, bias=np.zeros_like(op.bias))
    found = kit.on_die(op, kit.noise(programming={"sigma": [0.0]}))
    doubled = replace(found, factors=np.full((1, 1, 9), 2 << FACTOR_BITS))
    wide = np.full(9, 1 << 40)
    x = kit.inputs(op, 10)
    expected = 2 * mvm(x, op.stored, op.references)
    np.testing.assert_array_equal(replace(doubled, lo=-wide, hi=wide).run(x), expected)


def test_the_digital_unit_saturates_where_it_was_proved(kit: SimpleNamespace) -> None:
    op = lossless(kit, adc_bits=None)
    known = op.infer(kit.input_type(op))
    found = kit.on_die(op, kit.noise(programming={"sigma": [30.0]}))
    values = found.run(kit.inputs(op, 100))
    assert (values >= known.lo).all()
    assert (values <= known.hi).all()
    assert found.infer(kit.input_type(op)).hi.tolist() == known.hi.tolist()


def test_neighbouring_columns_share_a_converter(kit: SimpleNamespace) -> None:
    op = kit.layer(kit.crossbar(rows=16, rows_active=8), 40, 6)
    numbers = converter_numbers(op.stored, 4, 2)
    assert numbers.shape == (5, 3, 6)
    # A weight's three slices lie side by side: columns 0..11 of an array of 4 weights.
    assert numbers[0, :, 0].tolist() == [0, 0, 1]
    assert numbers[0, :, 1].tolist() == [1, 2, 2]
    np.testing.assert_array_equal(numbers[0], numbers[1])  # two groups of one array
    assert not np.isin(numbers[2], numbers[0]).any()
    assert not np.isin(numbers[0, :, 4:], numbers[0, :, :4]).any()


def test_an_unknown_compensation_is_refused(kit: SimpleNamespace) -> None:
    with pytest.raises(CimError, match=r"compensation .colum. is not known.*column"):
        Conditions(kit.noise(), 0.0, "colum")


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
    found = draw_errors(adc, np.random.default_rng(0), numbers, np.array([[[256], [1280]]]))
    for k, step in enumerate((256, 1280)):
        assert abs(found.offset[:, k].std() / (0.5 * step) - 1) < 0.04
        assert abs(found.bow[:, k].std() / (0.25 * step) - 1) < 0.04
        assert abs(found.gain[:, k].std() / (0.01 * 2**GAIN_BITS) - 1) < 0.04


def test_columns_of_one_converter_err_alike() -> None:
    numbers = np.arange(12).reshape(1, 1, 12) // 4
    found = draw_errors(Adc(offset=1.0), np.random.default_rng(0), numbers, np.array([[[256]]]))
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
