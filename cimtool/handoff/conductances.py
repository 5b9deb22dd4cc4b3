"""Exporter `conductances`: the level and the target conductance of every cell, as CSV files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from cimtool.base.files import place_in
from cimtool.base.progress import Countdown
from cimtool.bundle.bundle import CONSTANTS, Bundle
from cimtool.bundle.chip import CELLS, DESCRIPTION, ChipFile
from cimtool.bundle.exporter import Exporter, Request
from cimtool.handoff.stimuli import matching
from cimtool.hardware.noise.mechanisms.devices import Programming
from cimtool.hardware.noise.model import ConverterNoise
from cimtool.hardware.placement import floorplan, placements
from cimtool.simulation.chip_program import LayerOfChip, layers_of_chip

LINE = 64
"""Bytes that a cell's line takes at most."""


class Conductances(Exporter, name="conductances"):
    """A CSV file per layer with a line per cell; `chip.toml` names the bundle of the weights."""

    takes = ("layers",)

    @classmethod
    def earlier(cls, folder: Path) -> set[str]:
        """No files: measurements may have replaced the targets, so no export is replaced."""
        return set()

    @classmethod
    def expected_bytes(cls, bundle: Bundle, request: Request) -> dict[str, int]:
        """The most bytes that the chosen layers take."""
        layers = layers_of_chip(bundle.program, bundle.settings, "format_name")
        chosen = matching(layers, request.layers)
        return {name: LINE * layer.cells for name, layer in chosen.items()}

    @classmethod
    def write(cls, bundle: Bundle, request: Request, folder: Path) -> None:
        """Write the chosen layers.

        Raises CimError if no layer has such a name, or cells add digitally.
        """
        layers = layers_of_chip(bundle.program, bundle.settings, "format_name")
        chosen = matching(layers, request.layers)
        noise = bundle.target.noise
        sharing = [] if noise is None else [one.sharing for one in noise.of(ConverterNoise)]
        chip = ChipFile(
            bundle=bundle.name,
            constants=bundle.manifest["files"][CONSTANTS],
            # Without known uS, a cell with the largest digit has conductance 1.
            g_max=1.0 if noise is None else noise.g_max * noise.devices,
            columns_per_converter=sharing[0] if sharing else 1,
        )
        (folder / DESCRIPTION).write_text(chip.text(), "utf-8")
        plan = floorplan(placements(bundle.program, bundle.settings), bundle.target)
        cores = (plan.arrays, bundle.target.hierarchy.arrays_per_core)
        countdown, total = Countdown(request.say), len(chosen)
        for count, (name, layer) in enumerate(chosen.items(), 1):
            tolerance = _tolerance(bundle, layer, chip.g_max)
            file = place_in(folder, f"{name}.csv")
            with file.open("w", encoding="ascii", newline="\n") as stream:
                stream.write(",".join(CELLS) + "\n")
                stream.writelines(_lines(layer, chip.g_max, tolerance, cores))
            countdown.tell(f"{name}: written, layer {count} of {total}", count, total)


def _tolerance(bundle: Bundle, layer: LayerOfChip, full: float) -> float:
    """The largest error of a cell: the tolerance of write-verify if known, else half a level."""
    noise = bundle.target.noise
    for one in () if noise is None else noise.of(Programming):
        if one.tolerance is not None and noise is not None:
            return one.tolerance * noise.devices
    return layer.levels(full).unit / 2


def _lines(
    layer: LayerOfChip, full: float, tolerance: float, cores: tuple[int, int]
) -> Iterator[str]:
    """The lines of a layer's cells, array by array.

    `cores` are the numbers of arrays in total and per core.
    """
    levels = layer.levels(full)
    ends = [f",{level},{float(g)!r},{tolerance:.6g}\n" for level, g in enumerate(levels.targets)]
    number = layer.first
    for _, digits in layer.bands():
        for held in layer.on_arrays(digits):
            place = f"{number % cores[0] // cores[1]},{number}"
            columns = [f",{column}" for column in range(held.shape[1])]
            for row, found in enumerate(held.astype(np.int64).tolist()):
                cells = zip(columns, found, strict=True)
                start = f"{place},{row}"
                yield "".join([start + column + ends[level] for column, level in cells])
            number += 1
