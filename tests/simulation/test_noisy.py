"""Fresh read noise in one pass: the readable operation's integers, whatever the array."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from crossbars import at_steps, crossbar_of
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from cimtool.base.compiled import jit
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.noise.die import Arrays, Die
from cimtool.hardware.noise.fresh import normals
from cimtool.hardware.noise.mvm import NoisyMvm
from cimtool.hardware.noise.spec import Noise
from cimtool.hardware.references import AdcReferences
from cimtool.hardware.stored import StoredWeights
from cimtool.ir.types import integer
from cimtool.simulation.die_program import Conditions, LayerOnArrays, noisy_layer
from cimtool.simulation.kernels import noisy, tiles
from cimtool.simulation.kernels.normals import normal_line, store_reals
from cimtool.simulation.kernels.operations import fast_kernel

needs_bytes = pytest.mark.skipif(not tiles.DOT_BITS, reason="this CPU has no dot product of bytes")
WIDE = np.array(1 << 50)
"""Limits of outputs that hide no difference."""


def layer_on_die(
    redraw: str,
    seed: int = 0,
    height: int = 150,
    width: int = 45,
    references: str = "fixed",
    programming: float = 0.1,
    **keys: Any,
) -> NoisyMvm:
    """A layer whose devices are programmed with an error and read with fresh noise."""
    values: dict[str, Any] = {
        "rows": 64, "cell_bits": 2, "dac_bits": 1, "encoding": "offset-flip", "weight_bits": 6,
        "input_encoding": "twos-complement", "input_bits": 5, "adc_bits": 6,
        "rounding": "half-up", "accumulator_bits": 40, "references": references,
    }  # fmt: skip
    hardware, rng = crossbar_of(**{**values, **keys}), np.random.default_rng(seed)
    top = (1 << hardware.weights.bits - 1) - 1
    weight = rng.integers(-top, top + 1, (height, width))
    stored, places = StoredWeights(weight, hardware), hardware.reference_bits
    steps = at_steps(hardware, (1,) * hardware.slices)
    if hardware.law is None:
        steps = hardware.no_references
    elif references == "column":
        shape = (len(stored.groups), width)
        steps = tuple(
            AdcReferences.alike(int(rng.integers(3, 9)) << places, rng.integers(-9, 9, shape))
            for _ in steps
        )
    op = CrossbarMvm(stored, rng.integers(-99, 100, width), np.ones(width), steps)
    noise = Noise.model_validate({
        "source": "a test", "g_max": 20.0, "programming": {"sigma": [programming]},
        "read": {"sigma": 0.05, "redraw": redraw},
    })  # fmt: skip
    known = integer(("n", height), *hardware.inputs.limits(hardware.inputs.bits), 1.0)
    place = LayerOnArrays("text.fc1", "text.fc1", Arrays(None, "columns", None))
    die = noisy_layer(op, known, place, Conditions(noise, 0.0, "none", seed), Die(seed, 0, 0.0))
    return replace(die, lo=-WIDE, hi=WIDE)


def rows_of(op: NoisyMvm, count: int, seed: int = 1) -> np.ndarray:
    code = op.crossbar.inputs
    lo, hi = code.limits(code.bits)
    x = np.random.default_rng(seed).integers(lo, hi, (count, len(op.perfect.weight)), endpoint=True)
    x[:2] = [[lo], [hi]]
    return x


@needs_bytes
@given(
    redraw=st.sampled_from(["cycle", "mvm"]),
    seed=st.integers(0, 99),
    encoding=st.sampled_from(["differential", "offset", "offset-flip", "centred"]),
    input_encoding=st.sampled_from(["unsigned", "twos-complement", "offset", "bipolar"]),
    digits=st.sampled_from([(2, 1, 5), (1, 1, 3), (4, 2, 5), (6, 5, 5), (3, 8, 8)]),
    rounding=st.sampled_from(["half-up", "half-even", "floor"]),
    references=st.sampled_from(["fixed", "column"]),
    count=st.sampled_from([1, 5, 12, 13]),
)
@settings(max_examples=examples(40))
def test_noise_is_that_of_the_readable_operation(
    redraw: str,
    seed: int,
    encoding: str,
    input_encoding: str,
    digits: tuple[int, int, int],
    rounding: str,
    references: str,
    count: int,
) -> None:
    cell_bits, dac_bits, input_bits = digits
    if references == "column" and rounding == "half-even":
        rounding = "floor"  # ties to even are for references that count from zero
    op = layer_on_die(
        redraw, seed, references=references, encoding=encoding, input_encoding=input_encoding,
        cell_bits=cell_bits, dac_bits=dac_bits, input_bits=input_bits, rounding=rounding,
    )  # fmt: skip
    kernel = noisy.noisy_cells(op)
    assert kernel is not None
    x = rows_of(op, max(count, 2), seed)[:count]
    np.testing.assert_array_equal(kernel(x), op.run(x))
    np.testing.assert_array_equal(kernel(x[:0]), op.run(x[:0]))


@needs_bytes
@pytest.mark.parametrize("redraw", ["cycle", "mvm"])
def test_noise_does_not_depend_on_batch_or_threads(
    monkeypatch: pytest.MonkeyPatch, redraw: str
) -> None:
    op = layer_on_die(redraw)
    x = rows_of(op, 300)
    expected = op.run(x)
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        np.testing.assert_array_equal(fast_kernel(op, ())(x), expected)
    np.testing.assert_array_equal(fast_kernel(op, ())(x[7:8]), expected[7:8])


@needs_bytes
def test_what_the_kernel_does_not_hold_is_left_to_another() -> None:
    lossless = layer_on_die("cycle", adc_bits=None, rounding=None)
    wide = layer_on_die("cycle", dac_bits=12, input_bits=12)
    for op in (lossless, wide):
        assert noisy.noisy_cells(op) is None
        x = rows_of(op, 5)
        np.testing.assert_array_equal(fast_kernel(op, ())(x), op.run(x))


@needs_bytes
def test_a_kernel_that_is_wrong_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*arguments: Any) -> None:
        arguments[-1][:] = 1

    monkeypatch.setattr(noisy, "_run", wrong)
    op = layer_on_die("cycle")
    x = rows_of(op, 5)
    with pytest.warns(RuntimeWarning, match="noisy dot product kernel does not give"):
        np.testing.assert_array_equal(fast_kernel(op, ())(x), op.run(x))


@jit
def _lines(keys, out):  # type: ignore[no-untyped-def]
    flat = out.reshape(-1)
    for i in range(len(keys)):
        for j in range(0, out.shape[1], tiles.WIDTH):
            store_reals(normal_line(keys[i], j), flat, i * out.shape[1] + j)


def test_vectors_of_normal_numbers_have_the_bits_of_single_ones() -> None:
    keys = np.random.default_rng(0).integers(0, 1 << 63, 4000, dtype=np.uint64) << np.uint64(1)
    out = np.empty((len(keys), 3 * tiles.WIDTH), np.float32)
    _lines(keys, out)
    expected = normals(keys, out.shape[1])
    assert np.abs(expected).max() > 4.0  # both forms of the inverse
    np.testing.assert_array_equal(out.view(np.int32), expected.view(np.int32))
