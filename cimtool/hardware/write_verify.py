"""Write-verify of cells: the option of a target by which a hand-off programs its arrays."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field

from cimtool.base.toml_files import TomlTable
from cimtool.hardware.noise.mechanisms.devices import Programming
from cimtool.hardware.noise.model import PositiveNumber
from cimtool.hardware.noise.spec import Noise


class WriteVerify(TomlTable):
    """A cell is read, and given a pulse, until it lies within its bounds; figures of a device."""

    tolerance: PositiveNumber = Field(
        title="Largest error of a conductance that is accepted.", json_schema_extra={"unit": "uS"}
    )
    pulse: PositiveNumber = Field(
        title="Change of a conductance by one pulse, at most.", json_schema_extra={"unit": "uS"}
    )
    max_pulses: Annotated[int, Field(ge=1, le=65535)] = Field(
        title="Pulses after which a cell that does not lie within its bounds is given up."
    )

    def check(self, noise: Noise | None, on_off_ratio: float | None) -> None:
        """Raise ValueError for values that no cell of the target can be programmed by."""
        if noise is None:
            raise ValueError(
                "write_verify: conductances are in uS, and the target does not say what a cell "
                "conducts; expected g_max in a table [noise] beside it"
            )
        for one in noise.of(Programming):
            if one.tolerance not in (None, self.tolerance):
                raise ValueError(
                    f"write_verify.tolerance = {self.tolerance:g}: must be {one.tolerance:g}, the "
                    "tolerance of noise.programming"
                )
        if self.pulse > 2 * self.tolerance:
            raise ValueError(
                f"write_verify.pulse = {self.pulse:g}: may step over the bounds; expected at most "
                f"{2 * self.tolerance:g}, twice the tolerance"
            )
        span = noise.g_max - (noise.g_max / on_off_ratio if on_off_ratio else 0.0)
        if self.pulse * self.max_pulses < span - self.tolerance:
            raise ValueError(
                f"write_verify.max_pulses = {self.max_pulses}: pulses of {self.pulse:g} uS cannot "
                f"take a cell to {noise.g_max:g} uS; expected at least "
                f"{math.ceil((span - self.tolerance) / self.pulse)}"
            )
