"""A code or converter of a plug-in that is wrong: one sentence names the plug-in and its class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import pytest
from crossbars import PLAIN, changed
from plugin_of import as_plugin

from cimtool.base.arrays import IntArray
from cimtool.base.errors import CimError
from cimtool.base.plugins import as_plugin_fault
from cimtool.bundle.bundle import Bundle
from cimtool.bundle.exporters import Exporter, Request
from cimtool.cli import run
from cimtool.hardware.converters import Converter, ConverterKeys, StaircaseLaw, UniformLaw
from cimtool.hardware.input_codes import Cycle, InputCode
from cimtool.hardware.stored import StoredWeights
from cimtool.hardware.weight_codes import Offset, Slice, plain

WEIGHT = np.array([[3, -4, 0], [1, 2, -8]])


@pytest.fixture(autouse=True)
def named(monkeypatch: pytest.MonkeyPatch) -> str:
    """This module as a plug-in, by its name in sentences."""
    return as_plugin(monkeypatch, __name__, "zed-arrays 0.3", "zed")


@dataclass(frozen=True)
class Broken(Offset):
    """Offset weights, one thing wrong."""

    wrong: str = ""

    def encode(self, weight: IntArray, groups: Sequence[slice]) -> tuple[Slice, ...]:
        if self.wrong == "raises":
            raise KeyError(self.wrong)
        slices = list(super().encode(weight, groups))
        digits = slices[1].digits
        changes = {
            "few": slices[:-1],
            "kinds": [*slices[:-1], 3],
            "large": [slices[0], plain(digits + 4, groups, 2)],
            "negative": [slices[0], plain(-digits, groups, 2, -1)],
            "shape": [slices[0], plain(digits[:1], groups, 2)],
            "fraction": [slices[0], plain(digits.astype(np.float64), groups, 2)],
            "flags": [slices[0], replace(slices[1], flipped=np.zeros((2, 1), bool))],
            "shift": [slices[0], plain(digits, groups, 1)],
        }
        return tuple(changes.get(self.wrong, slices))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("few", "1 slices (Slice); expected 2 of type Slice"),
        ("kinds", "2 slices (Slice or int); expected 2 of type Slice"),
        ("large", "digits from 4 to 6 in slice 1; expected 0 to 3, its digit_limits"),
        ("negative", "digits from -2 to 0 in slice 1; expected 0 to 3, its digit_limits"),
        ("shape", "digits [1, 3] of int16 in slice 1; expected integers [2, 3]"),
        ("fraction", "digits [2, 3] of float64 in slice 1; expected integers [2, 3]"),
        ("flags", "flipped [2, 1] of bool in slice 1; expected bool [1, 3]"),
        (
            "shift",
            "digits that make -1 of the weight 3; expected the sum of its digits times sign "
            "* factor << shift, less its offset, to be the weight",
        ),
    ],
)
def test_digits_that_are_not_the_weights(named: str, wrong: str, said: str) -> None:
    hardware = replace(PLAIN, weights=Broken(4, 2, wrong))
    with pytest.raises(CimError) as caught:
        _ = StoredWeights(WEIGHT, hardware).slices
    assert str(caught.value) == f"{named}: Broken.encode yields {said}"


def test_complements_count_among_the_digits() -> None:
    for encoding in ("offset-flip", "offset"):
        hardware = changed(PLAIN, encoding=encoding, weight_bits=4, cell_bits=2, rows=1)
        assert len(StoredWeights(WEIGHT, hardware).slices) == 2
    with pytest.raises(ValueError, match=r"^Offset\.encode yields digits"):
        _ = StoredWeights(WEIGHT + 5, hardware).slices


def test_a_method_that_raises_is_named_with_what_it_is(named: str) -> None:
    hardware = replace(PLAIN, weights=Broken(4, 2, "raises"))
    with pytest.raises(KeyError) as caught:
        _ = StoredWeights(WEIGHT, hardware).slices
    fault = as_plugin_fault(caught.value)
    assert isinstance(fault, CimError)
    assert str(fault) == (
        f"{named}: Broken.encode raises KeyError: 'raises'; expected: slices of integer weights "
        "[K, N] in row groups, least significant first"
    )


def test_what_cimtool_raises_stays_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    as_plugin(monkeypatch, "elsewhere", "other 1", "other")
    with pytest.raises(ZeroDivisionError) as caught:
        _ = 1 // 0
    assert as_plugin_fault(caught.value) is caught.value
    refused = CimError("a sentence")
    assert as_plugin_fault(refused) is refused


@dataclass(frozen=True)
class HalfInputs(InputCode):
    """Unsigned inputs whose lowest bit is never driven."""

    signed: ClassVar[bool] = False

    @classmethod
    def limits(cls, bits: int) -> tuple[int, int]:
        return 0, (1 << bits) - 1

    @property
    def cycles(self) -> tuple[Cycle, ...]:
        return (Cycle(1, None, 1),)


def test_cycles_that_do_not_make_up_the_inputs(named: str) -> None:
    with pytest.raises(CimError) as caught:
        replace(PLAIN, inputs=HalfInputs(4, 3))
    assert str(caught.value) == (
        f"{named}: HalfInputs.cycles drive digits that make 0 of the input 1; expected the sum of "
        "the digits times sign << shift, less lift, to be the input"
    )


LAWS = {
    "lengths": StaircaseLaw(0, np.array([8, 24]), np.arange(4)),
    "falls": StaircaseLaw(0, np.array([24, 8]), np.arange(3)),
    "fractions": StaircaseLaw(0, np.array([8, 24]), np.arange(3) / 2),
    "rounding": UniformLaw(0, 7, "up"),  # type: ignore[arg-type]
    "other": (0, 7),
}


@dataclass(frozen=True)
class Ladder(Converter):
    """A converter of a law by name."""

    bits: int
    which: str

    @classmethod
    def of(cls, bits: int, keys: ConverterKeys) -> Self:
        return cls(bits, str({}["law"]))

    def law(self, signed: bool) -> StaircaseLaw:
        return LAWS[self.which]  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("which", "said"),
    [
        ("lengths", "a StaircaseLaw with 2 thresholds and 4 levels; expected 3 levels, one more"),
        ("falls", "a StaircaseLaw whose thresholds fall; expected rising ones"),
        ("fractions", "a StaircaseLaw with levels [3] of float64; expected integers [n]"),
        (
            "rounding",
            "UniformLaw(lo=0, hi=7, rounding='up'); expected lo of at most hi and one of half-up, "
            "half-even, floor",
        ),
        ("other", "of type tuple (int, int); expected UniformLaw, StaircaseLaw or None"),
    ],
)
def test_a_law_that_is_none(named: str, which: str, said: str) -> None:
    with pytest.raises(CimError) as caught:
        _ = replace(PLAIN, converter=Ladder(3, which)).law
    assert str(caught.value) == f"{named}: Ladder.law is {said}"


class Files(Exporter):
    """An exporter that fails while it writes."""

    @classmethod
    def earlier(cls, folder: Path) -> set[str]:
        return set()

    @classmethod
    def write(cls, bundle: Bundle, request: Request, folder: Path) -> None:
        (folder / "half").write_text("")
        raise IndexError(f"no cell {len(bundle.name)}"[:7])


def test_the_command_line_names_the_plug_in_with_status_2(
    named: str,
    small_bundle: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(Exporter.family, "files", Files)
    out = tmp_path / "out"
    assert run(["export", str(small_bundle), "--format", "files", "-o", str(out)]) == 2
    assert capsys.readouterr().err == (
        f"cimtool: error: {named}: Files.write raises IndexError: no cell; expected: write the "
        "files into a new folder; --debug shows where\n"
    )
    assert not list(tmp_path.iterdir())


def test_a_converter_whose_keys_cannot_be_read_is_named(
    named: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(Converter.family, "ladder", Ladder)
    file = tmp_path / "own.toml"
    file.write_text(
        'base = "isaac-rram-128"\nname = "own"\ntitle = "Own"\nadc = { kind = "ladder" }\n'
    )
    assert run(["targets", "show", str(file)]) == 2
    assert capsys.readouterr().err == (
        f"cimtool: error: {named}: Ladder.of raises KeyError: 'law'; expected: the converter of "
        "this many bits that the keys of a layer describe; --debug shows where\n"
    )
