"""The target and the settings of a build, and notes on the two."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cimtool.hardware.references import SCOPES
from cimtool.hardware.settings import Settings, given_settings, resolve_given
from cimtool.hardware.target import Target, load_target
from cimtool.hardware.weight_codes import EXPONENT_BITS


@dataclass(frozen=True)
class Configuration:
    """A target and every setting decided for it.

    With `bits_given` a user gave bits that calibration rows would choose else.
    """

    target: Target
    settings: Settings
    bits_given: bool = False

    @classmethod
    def of(
        cls, target: Target | str, file: Path | str | None, settings: Mapping[str, object]
    ) -> Configuration:
        """A target by name or file, with the settings of a file, which settings by name override.

        Raises CimError for an unknown target and for settings that are not allowed.
        """
        chosen = target if isinstance(target, Target) else load_target(target)
        place = None if file is None else Path(file)
        given = given_settings(place, settings)
        bits_given = any(one.give_bits for one in given)
        return cls(chosen, resolve_given(chosen, place, given), bits_given)


def reference_notes(target: Target, settings: Settings) -> list[str]:
    """A sentence if no source, or an unconfirmed one, says that converters can be set so."""
    kind = settings.references
    scope = SCOPES[kind]
    if not scope.chosen or scope.within(SCOPES[target.keys.references]):
        return []
    every = [settings, *(settings.of_layer(one.pattern) for one in settings.layers)]
    if all(one.adc_bits is None for one in every):
        return [f'references = "{kind}" has no effect: no converter of {target.name} rounds']
    said = {one.reference: one for one in target.adc.settable} if target.adc else {}
    offset, levels = said.get("offset"), said.get("levels" if scope.levels else "step")
    if offset is None or not offset.serves(scope):
        return [f'references = "{kind}" is an assumption: no source says so of {target.name}']
    if levels is None or (scope.gains and not levels.serves(scope)):
        part = "levels" if scope.levels else "steps of each column" if scope.gains else "steps"
        return [
            f'references = "{kind}" is an assumption: a source says of {target.name} that offsets '
            f"can be set, and none says so of {part}"
        ]
    for one in (offset, levels) if scope.levels or scope.gains else (offset,):
        if one.status not in ("confirmed", "derived"):
            return [f'references = "{kind}" is {one.status} for {target.name}: {one.source}']
    return []


def code_notes(settings: Settings) -> list[str]:
    """A sentence if rows share exponents: their bits, and what is not counted."""
    code = settings.weight_code
    if code.shared_rows is None:
        return []
    bits = code.bits + EXPONENT_BITS / code.shared_rows
    return [
        f'encoding = "{code.name}": {code.bits}-bit weights take {bits:g} bits with the '
        f"{EXPONENT_BITS} bits of an exponent for {code.shared_rows} rows of a column; reads of "
        "exponents from DRAM and shifts by them are counted, their registers are not"
    ]


def level_notes(target: Target, settings: Settings, layers: Iterable[str]) -> list[str]:
    """A sentence if weights use less than half the levels of their one noisy cell.

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
                "levels of a cell, but their noise stays as large: dies lose more than they need "
                f"to; cell_bits = {stored} uses them all"
            )
    return notes
