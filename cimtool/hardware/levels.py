"""Whether weights fill the cells that hold them: the noise of a device is of its whole range."""

from __future__ import annotations

from collections.abc import Iterable

from cimtool.hardware.settings import Settings
from cimtool.hardware.target import Target


def level_notes(target: Target, settings: Settings, layers: Iterable[str]) -> list[str]:
    """A sentence where weights use less than half the levels of their one noisy cell.

    Half is usual: a differential pair of 8-bit cells holds the 7 bits of an 8-bit weight's |W|.
    """
    if target.noise is None:
        return []
    own = [settings.of_layer(layer) for layer in layers]
    notes = []
    for code in dict.fromkeys(one.weight_code for one in own):
        stored = code.stored_bits(code.bits)
        if stored < code.cell_bits - 1:
            notes.append(
                f"warning: weight_bits = {code.bits} uses {2**stored} of the {2**code.cell_bits} "
                "levels of a cell, whose noise stays as large: dies lose more than they need to; "
                f"cell_bits = {stored} uses them all"
            )
    return notes
