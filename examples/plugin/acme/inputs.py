"""An input code: x + 2^(bits-1) - 1, as exponents of floating-point numbers are written."""

from __future__ import annotations

from dataclasses import dataclass

from cimtool.hardware.input_codes import InputCode


@dataclass(frozen=True)
class Excess(InputCode, name="excess"):
    """Inputs from 1 - 2^(bits-1) to 2^(bits-1), lifted so that none is negative."""

    @classmethod
    def limits(cls, bits: int) -> tuple[int, int]:
        return 1 - (1 << bits - 1), 1 << bits - 1

    @property
    def lift(self) -> int:
        return (1 << self.bits - 1) - 1
