"""Exporter `handoff`: the files a chip team needs to program, drive and check its silicon."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cimtool.base.files import sha256
from cimtool.bundle.bundle import MANIFEST, Bundle
from cimtool.bundle.exporter import Exporter, Request, names_listed
from cimtool.handoff.bench import BENCH_PART, RANDOM_PART
from cimtool.handoff.c.part import C_PART
from cimtool.handoff.directed import DIRECTED_PART
from cimtool.handoff.images import CONSTANTS_PART, IMAGES_PART
from cimtool.handoff.layers import NUMBER_BITS, DrivenLayer, HandoffPart, HandoffSource, Lanes
from cimtool.handoff.taps import DIES_PART, TAPS_PART, dies_described
from cimtool.handoff.written import HANDOFF
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.report.page import render_file

FORMAT_VERSION = 1
README, MAKEFILE = "README.md", "Makefile"

PARTS: tuple[HandoffPart, ...] = (
    *(IMAGES_PART, CONSTANTS_PART, TAPS_PART, DIRECTED_PART),
    *(BENCH_PART, C_PART, DIES_PART, RANDOM_PART),
)
"""The parts of a hand-off, in the order in which they are written and checked."""


class Handoff(Exporter, name="handoff"):
    """A folder for each part, with `handoff.json`, a README and a Makefile with the checks."""

    counted = True
    takes = ("layers", "inputs", "noise", "gallery")

    @classmethod
    def earlier(cls, folder: Path) -> set[str]:
        """The names that an earlier export's `handoff.json` lists; none without this file."""
        names = names_listed(folder / HANDOFF)
        first = {part for name in names for part in Path(name).parts[:1]}
        return {HANDOFF, *first} if first else set()

    @classmethod
    def least_bytes(cls, bundle: Bundle, request: Request) -> int:
        """The bytes of the layers' images and taps, without files that have a line per column."""
        source = HandoffSource(bundle, request)
        return sum(_array_bytes(one, source.lanes) for one in source.layers)

    @classmethod
    def write(cls, bundle: Bundle, request: Request, folder: Path) -> None:
        """Write every part in the order of PARTS; CimError if a part does not cover the bundle."""
        source = HandoffSource(bundle, request)
        parts = [part for part in PARTS if part.asked(request)]
        for part in parts:
            request.say(f"writing {part.folder}/")
            (folder / part.folder).mkdir()
            part.write(source, folder / part.folder)
        (folder / MAKEFILE).write_text(_makefile(parts), "utf-8")
        explained = render_file(
            "cimtool.handoff",
            "handoff.md",
            bundle=bundle.model.name,
            target=bundle.target.name,
            parts=parts,
        )
        (folder / README).write_text(explained + "\n", "utf-8")
        described = json.dumps(_described(bundle, request, folder), indent=1)
        (folder / HANDOFF).write_text(described + "\n", "utf-8")


def _array_bytes(layer: DrivenLayer, lanes: Lanes) -> int:
    """The bytes of a layer's images, unless it shares another's, and of the taps of its reads."""
    layout, groups = layer.layout, list(layer.groups())
    across = len(layer.arrays(0))
    images = layout.rows * layout.order.line_bytes(layout.columns * layer.image.cell_bits)
    vectors, cycles = len(layer.x), len(layer.op.crossbar.cycles)
    of_row = vectors * layer.image.array_rows * (lanes.inputs + cycles * lanes.digits)
    of_array = vectors * (2 * cycles * layer.lanes * lanes.sums + layout.across * NUMBER_BITS)
    rows_of_arrays, bits = groups[-1][0] + 1, len(groups) * (of_row + across * of_array)
    # A hexadecimal digit of a tap has 4 bits.
    return rows_of_arrays * across * images * (layer.cells == layer.name) + bits // 4


def _makefile(parts: list[HandoffPart]) -> str:
    """The Makefile: goal `check` runs the checks of all parts; the parts' other goals follow."""
    settings = {name: value for part in parts for name, value in part.settings.items()}
    goals = {name: lines for part in parts for name, lines in part.goals.items()}
    checks = [line for part in parts for line in part.checks]
    lines = [f"{name} ?= {value}" for name, value in settings.items() if name != "CC"]
    lines = [f"CC = {settings['CC']}", *lines] if "CC" in settings else lines
    lines += ["", f".PHONY: {' '.join(['check', *goals])}"]
    for goal, commands in {"check": checks, **goals}.items():
        lines += ["", f"{goal}:", "\t@mkdir -p build", *(f"\t{line}" for line in commands)]
    return "\n".join(lines) + "\n"


def _described(bundle: Bundle, request: Request, folder: Path) -> dict[str, Any]:
    """The hand-off's bundle, target and layers, and the digest of each file."""
    files = (file for file in sorted(folder.rglob("*")) if file.is_file())
    noise = request.noise
    dies = {} if noise is None else {"dies": {"bit_exact": False, **dies_described(noise)}}
    return {
        "format_version": FORMAT_VERSION,
        "bundle": bundle.model.name,
        "manifest_sha256": sha256(bundle.folder / MANIFEST),
        "target": bundle.target.to_json(),
        "layers": {
            f"{graph.name}.{name}": {
                "rows": op.weight.shape[0],
                "columns": op.weight.shape[1],
                "row_groups": [[group.start, group.stop] for group in op.stored.groups],
                "lossless": op.exact,
                "crossbar": op.crossbar.to_json(),
            }
            for graph in bundle.program.graphs
            for name, op in graph.operations(CrossbarMvm).items()
        },
        **dies,
        "files": {file.relative_to(folder).as_posix(): sha256(file) for file in files},
    }
