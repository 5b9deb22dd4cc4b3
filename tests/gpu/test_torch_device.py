"""Products of torch tensors are exact; whole layers: tests/emit/test_exactness.py."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from maxima_case import maxima_case

from cimtool.base.errors import CimError
from cimtool.gpu.torch_device import device_of, integer_product
from cimtool.simulation.simulator import Runner

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("a", "b"), [(7, 7), (2**20, 2**14), (2**31, 2**24), (2**24, 2**31)])
def test_products_are_exact_whatever_their_size(device: str, a: int, b: int) -> None:
    rng = np.random.default_rng(a % 97)
    x = rng.choice([-a, a, a - 1, 0, 3], (5, 40))
    y = rng.choice([-b, b, 1 - b, 1], (40, 6))
    product = integer_product(a, b, 40)
    found = product(*(torch.from_numpy(m).to(device) for m in (x, y))).cpu().numpy()
    np.testing.assert_array_equal(found, x @ y)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("a", [4095, 4097, 94906265, 94906267])
def test_products_are_exact_on_both_sides_of_what_floats_hold(device: str, a: int) -> None:
    """Odd squares beside 2^24 and 2^53."""
    x = torch.tensor([[a]], device=device)
    assert integer_product(a, a, 1)(x, x).item() == a * a


@pytest.mark.parametrize("device", DEVICES)
@settings(max_examples=examples(60))
@given(seed=st.integers(0, 2**32 - 1))
def test_maxima_of_pairs_are_those_of_plain_loops(device: str, seed: int) -> None:
    case = maxima_case(seed)
    found = Runner(case.graph, device=device).run({"x": case.numbers})["maxima"]
    np.testing.assert_array_equal(found, case.wanted)


@pytest.mark.parametrize(
    "name", ["gpu", "cuda:x", "meta", "mps", "cpu:0", "cpu:3", "cuda:", "cuda:-1"]
)
def test_an_unknown_device_is_one_sentence(name: str) -> None:
    with pytest.raises(CimError, match=f'device is "{name}"; expected cpu, cuda or cuda:N'):
        device_of(name)


@pytest.mark.parametrize("number", [99, 128, 256, 999999999])
def test_a_device_that_is_not_there_is_one_sentence(number: int) -> None:
    with pytest.raises(CimError, match=r"CUDA devices? that torch can use"):
        device_of(f"cuda:{number}")


def test_a_large_number_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch keeps the last byte: it reads `cuda:256` as `cuda:0`."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert device_of("cuda:1").index == 1
    for number in (128, 256):
        with pytest.raises(CimError, match="this machine has 2 CUDA devices"):
            device_of(f"cuda:{number}")
