"""Input codes: whatever the code, the digits that cycles drive rebuild the inputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from crossbars import mvm
from hypothesis import given
from hypothesis import strategies as st
from random_crossbars import CROSSBARS, INPUTS, drawn, input_limits

from cimtool.base.errors import CimError
from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.input_codes import Cycle, InputCode
from cimtool.hardware.settings import resolve
from cimtool.hardware.stored import StoredWeights
from cimtool.hardware.target import derived, load_target
from cimtool.ir.types import integer


@given(CROSSBARS, st.integers(0, 2**32 - 1))
def test_cycles_rebuild_the_inputs(hardware: Crossbar, seed: int) -> None:
    x = drawn(np.random.default_rng(seed), input_limits(hardware), (2, 5))
    total = np.zeros_like(x)
    for digits, cycle in zip(hardware.digits(x), hardware.cycles, strict=True):
        if hardware.shift_add == "digital":
            assert cycle.bits is not None
            assert cycle.bits <= hardware.inputs.dac_bits
            assert np.abs(digits).max() < 1 << cycle.bits
        lo, hi = hardware.digit_limits
        assert lo <= digits.min() <= digits.max() <= hi
        assert cycle.factor == cycle.sign << cycle.shift
        total += cycle.sign * (digits << cycle.shift)
    if hardware.inputs.name == "offset":
        total -= 1 << hardware.inputs.bits - 1
    np.testing.assert_array_equal(total, x)


@given(CROSSBARS)
def test_limits_are_the_smallest_and_the_largest_input(hardware: Crossbar) -> None:
    assert hardware.inputs.limits(hardware.inputs.bits) == input_limits(hardware)


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("bits", [2, 3, 8])
def test_the_fewest_bits_that_hold_the_limits_are_those_that_have_them(
    name: str, bits: int
) -> None:
    code = InputCode.named(name, "encoding")
    lo, hi = code.limits(bits)
    assert code.bits_for(lo, hi) == bits
    assert code.bits_for(0, hi) == bits
    assert code.bits_for(0, hi + 1) == bits + 1


@pytest.fixture
def top_bits() -> Iterator[type[InputCode]]:
    """A plug-in's code for inputs that are never negative: the lowest bit, then all others."""

    @dataclass(frozen=True)
    class TopBits(InputCode, name="top-bits"):
        signed: ClassVar[bool] = False

        @classmethod
        def limits(cls, bits: int) -> tuple[int, int]:
            return 0, (1 << bits) - 1

        @property
        def cycles(self) -> tuple[Cycle, ...]:
            return Cycle(0, 1, 1), Cycle(1, self.bits - 1, 1)

    yield TopBits
    del InputCode.family["top-bits"]


def test_a_target_chooses_the_code_of_inputs_that_are_never_negative(
    top_bits: type[InputCode],
) -> None:
    isaac, own = load_target("isaac-rram-128"), {"input": {"unsigned_encoding": "top-bits"}}
    settings = resolve(derived(isaac, {"name": "x", "title": "x", **own}), None, {})
    assert resolve(isaac, None, {"unsigned_encoding": "top-bits"}) == settings
    unsigned, signed = integer(("n", 9), 0, 255, 1.0), integer(("n", 9), -9, 255, 1.0)
    assert settings.input_code(unsigned) == top_bits(8, 1)
    assert settings.input_code(signed).name == "twos-complement"
    assert resolve(isaac, None, {}).input_code(unsigned).name == "unsigned"
    rng = np.random.default_rng(0)
    weight, x = rng.integers(-127, 128, (9, 3)), rng.integers(0, 256, (5, 9))
    crossbar = settings.crossbar(settings.input_code(unsigned))
    stored = StoredWeights(weight, crossbar)
    found = mvm(x, stored, crossbar.no_references)
    np.testing.assert_array_equal(found, x @ weight)


@pytest.mark.parametrize(
    ("key", "name"), [("encoding", "unsigned"), ("unsigned_encoding", "bipolar")]
)
def test_a_code_for_other_inputs_is_refused(key: str, name: str) -> None:
    own = {"name": "x", "title": "x", "input": {key: name}}
    with pytest.raises(CimError, match=rf'input\.{key} = "{name}": must be "'):
        derived(load_target("isaac-rram-128"), own)
