"""Write-verify of a layer's cells in a hand-off: the numbers by which the bench programs them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.base.errors import CimError
from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.noise.die import CellLevels
from cimtool.hardware.settings import Settings
from cimtool.hardware.target import Target
from cimtool.hardware.write_verify import WriteVerify
from cimtool.simulation.die_program import check_analog

FINEST = 16
"""Units of conductance, at least, in the tolerance and in a pulse."""


@dataclass(frozen=True)
class WriteSequence:
    """The numbers of a layer's write-verify: conductances of cells, in 2^-places uS.

    `bounds` [digits, 3] are the target and the lowest and highest conductance of each digit.
    """

    places: int
    tolerance: int
    pulse: int
    max_pulses: int
    erased: int
    bounds: IntArray

    @classmethod
    def of(cls, option: WriteVerify, levels: CellLevels, devices: int) -> WriteSequence:
        """The sequence for cells of so many `devices`, whose conductances are `levels`."""
        tolerance, pulse = option.tolerance * devices, option.pulse * devices
        places = max(0, int(np.ceil(np.log2(FINEST / min(tolerance, pulse)))))
        unit = 2.0**-places
        allowed = round(tolerance / unit)
        targets = np.rint(levels.targets / unit).astype(np.int64)
        bounds = np.stack([targets, np.maximum(targets - allowed, 0), targets + allowed], axis=1)
        return cls(
            places=places,
            tolerance=allowed,
            pulse=round(pulse / unit),
            max_pulses=option.max_pulses,
            erased=round(levels.erased / unit),
            bounds=bounds,
        )


def write_sequence(
    target: Target, settings: Settings, layer: str, crossbar: Crossbar
) -> WriteSequence | None:
    """The write-verify of a layer's cells, None if the target has none.

    Raises CimError for cells that hold no digits of conductance, and for a tolerance in which two
    digits are not told apart.
    """
    option, noise = target.write_verify, target.noise
    if option is None or noise is None:
        return None
    check_analog(crossbar, layer, "format_name")
    top = crossbar.weights.cell_maximum
    levels = CellLevels(noise.g_max * noise.devices, top, settings.on_off_ratio)
    if 2 * option.tolerance * noise.devices >= levels.unit:
        raise CimError(
            f"{layer}: write_verify.tolerance = {option.tolerance:g}: must be less than half the "
            f"{levels.unit / noise.devices:g} uS between two digits of its cells"
        )
    return WriteSequence.of(option, levels, noise.devices)
