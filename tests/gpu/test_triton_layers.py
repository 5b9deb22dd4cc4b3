"""The Triton kernels give the readable operation's integers: interpreted, and on a GPU.

Triton's interpreter is chosen when a kernel is defined, so that without a GPU the tests of this
file run in a process of their own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import kernel_check
import numpy as np
import pytest
import random_layers
import torch
from crossbars import at_steps, crossbar_of

from cimtool.base.arrays import Array
from cimtool.gpu.plugin import TorchDevice
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.stored import StoredWeights
from cimtool.ir.types import integer

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
INTERPRETER = "TRITON_INTERPRET"
HERE = DEVICE == "cuda" or os.environ.get(INTERPRETER) == "1"

here = pytest.mark.skipif(not HERE, reason="runs in a process with Triton's interpreter")

if HERE:
    from cimtool.gpu import triton_layers
    from cimtool.gpu.triton_layers import TensorCoreLayer


@pytest.mark.thorough("Triton's interpreter is slow")
@pytest.mark.skipif(HERE, reason="runs here")
def test_all_tests_of_this_file_pass_in_tritons_interpreter() -> None:
    pytest.importorskip("triton")
    alone = [sys.executable, "-m", "pytest", __file__, "-p", "no:cacheprovider"]
    environ = {**os.environ, INTERPRETER: "1"}
    done = subprocess.run(alone, env=environ, capture_output=True, text=True, check=False)
    assert re.match(r"8 passed, 1 skipped", done.stdout.splitlines()[-1]), done.stdout


def taken(op: CrossbarMvm) -> TensorCoreLayer | None:
    """Triton's form of a layer, where it is what the device runs."""
    lo, hi = kernel_check.input_limits(op.crossbar)
    known = integer(("n", len(op.weight)), lo, hi, 1.0)
    found = TorchDevice(DEVICE).prepare(op, (known,), op.infer(known))
    return found if isinstance(found, TensorCoreLayer) else None


def assert_equal(layer: TensorCoreLayer, op: CrossbarMvm, x: Array) -> None:
    expected = op.run(x)
    there = torch.from_numpy(x).to(DEVICE)
    for extents in (triton_layers.WIDE, triton_layers.NARROW):
        found = layer.run(there, extents).cpu().numpy()
        np.testing.assert_array_equal(found, expected, err_msg=repr(op.crossbar))


def drawn_layers() -> Iterator[tuple[CrossbarMvm, Array]]:
    """Layers of many rows with converters that count from zero, and small ones of any kind."""
    yield from kernel_check.random_layers(18, 9)
    for seed in range(60, 90):
        rng = np.random.default_rng(seed)
        op = random_layers.random_layer(rng, random_layers.random_crossbar(rng))
        limits = kernel_check.input_limits(op.crossbar)
        yield op, random_layers.integers(rng, *limits, (5, len(op.weight)))


@here
def test_random_layers_give_the_readable_integers() -> None:
    forms: Counter[str] = Counter()
    for op, x in drawn_layers():
        layer = taken(op)
        if layer is not None:
            assert_equal(layer, op, x)
            forms.update(name for name, has in layer._form.items() if has is True)
            forms["layers"] += 1
            forms["SIGN_MAGNITUDE"] += layer._sign_magnitude
    assert forms["layers"] >= 10
    wanted = {"SET", "LEVELS", "TO_EVEN", "SUMMED", "SIGN_MAGNITUDE"}
    assert not {name for name in wanted if not forms[name]}


def layer_of(K: int, N: int, rows: int, cell_bits: int = 2) -> CrossbarMvm:
    """A layer of two slices, with 4-bit inputs in two cycles and 6-bit converters."""
    bits = 2 * cell_bits
    hardware = crossbar_of(
        rows=rows, cell_bits=cell_bits, dac_bits=2, encoding="offset", weight_bits=bits,
        input_encoding="unsigned", input_bits=4, adc_bits=6, rounding="half-up",
        accumulator_bits=62,
    )  # fmt: skip
    rng = np.random.default_rng(K)
    weight = rng.integers(-(1 << bits - 1), 1 << bits - 1, (K, N))
    stored = StoredWeights(weight, hardware)
    references = at_steps(hardware, (4,) * hardware.slices, None)
    return CrossbarMvm(stored, rng.integers(-99, 99, N), np.ones(N), references)


@here
@pytest.mark.parametrize(
    ("rows", "K", "N", "cell_bits"), [(300, 500, 130, 2), (64, 100, 1, 2), (40, 100, 3, 8)]
)
def test_any_number_of_inputs_rows_and_columns(rows: int, K: int, N: int, cell_bits: int) -> None:
    op = layer_of(K, N, rows, cell_bits)
    layer = taken(op)
    assert layer is not None
    assert layer._form["ONE_CHUNK"] == (rows < 257)
    assert layer._form["MIDDLE"] == (cell_bits == 8)
    rng = np.random.default_rng(0)
    for count in (0, 1, 65):
        assert_equal(layer, op, rng.integers(0, 16, (count, K)))
    x = rng.integers(0, 16, (3, K))
    found = layer(torch.from_numpy(x).to(DEVICE)).cpu().numpy()
    np.testing.assert_array_equal(found, op.run(x))


@here
@pytest.mark.parametrize("fault", ["wrong", "no compiler", "no driver", "no such compiler"])
def test_a_kernel_that_fails_its_check_is_left_out(
    monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    real = TensorCoreLayer.run

    def failing(self: TensorCoreLayer, x: torch.Tensor, blocks: Any) -> torch.Tensor:
        if fault == "no compiler":
            raise RuntimeError("Failed to find C compiler.\nSay CC.")
        if fault == "no driver":
            raise AssertionError("libcuda.so cannot found!")
        if fault == "no such compiler":
            raise FileNotFoundError(2, "No such file or directory")
        return real(self, x, blocks) + (blocks is triton_layers.WIDE)

    monkeypatch.setattr(TensorCoreLayer, "run", failing)
    said = {
        "wrong": "does not give the reference's integers",
        "no compiler": r"cannot run \(Failed to find C compiler\.\)",
        "no driver": r"cannot run \(libcuda\.so cannot found!\)",
        "no such compiler": r"cannot run \(\[Errno 2\] No such file or directory\)",
    }
    with pytest.warns(
        RuntimeWarning, match=f"the Triton kernel {said[fault]} on {DEVICE}; torch's"
    ):
        assert taken(layer_of(20, 3, 16)) is None
