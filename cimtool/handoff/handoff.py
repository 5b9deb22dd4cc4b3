"""Exporters of hand-offs: the files a chip team needs to program, drive and check its silicon."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, ClassVar

from cimtool.base.files import sha256
from cimtool.bundle.bundle import MANIFEST, Bundle
from cimtool.bundle.exporter import Exporter, Request, names_listed
from cimtool.handoff.bench import BENCH_PART, RANDOM_PART
from cimtool.handoff.c.part import C_PART
from cimtool.handoff.cam import CAM_PART
from cimtool.handoff.directed import DIRECTED_PART
from cimtool.handoff.format_page import FORMAT, format_text
from cimtool.handoff.images import CONSTANTS_PART, IMAGES_PART
from cimtool.handoff.layers import HandoffPart, HandoffSource
from cimtool.handoff.layout import LAYOUT, layout_of, part_bytes
from cimtool.handoff.steps import STEPS_FILE, steps_text
from cimtool.handoff.taps import DIES_PART, TAPS_PART, dies_described
from cimtool.handoff.unchanged import GOAL, LIST, PROGRAM, goal_lines, list_text
from cimtool.handoff.written import HANDOFF
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.report.page import render_file

FORMAT_VERSION = 1
README, MAKEFILE = "README.md", "Makefile"
BUILD = "build"
"""The folder of what the Makefile's goals make."""

PARTS: tuple[HandoffPart, ...] = (
    *(IMAGES_PART, CONSTANTS_PART, TAPS_PART, DIRECTED_PART, CAM_PART),
    *(BENCH_PART, C_PART, DIES_PART, RANDOM_PART),
)
"""The parts of a hand-off, in the order in which they are written and checked."""


class HandoffExporter(Exporter):
    """Base of the exporters of a hand-off or some parts of it: a folder for each part.

    Beside them lie `handoff.json`, a README and, where there are checks, a Makefile with
    `files.sha256`; with numbers of layers also `steps.txt`, FORMAT.md and `layout.json`.
    """

    counted = True
    parts: ClassVar[tuple[HandoffPart, ...]]

    @classmethod
    def earlier(cls, folder: Path) -> set[str]:
        """The names that an earlier export's `handoff.json` lists, and what its goals made.

        None without this file.
        """
        names = names_listed(folder / HANDOFF)
        first = {part for name in names for part in Path(name).parts[:1]}
        return {HANDOFF, BUILD, *first} if first else set()

    @classmethod
    def expected_bytes(cls, bundle: Bundle, request: Request) -> dict[str, int]:
        """The bytes of each part."""
        source = HandoffSource(bundle, request)
        return {
            f"{part.folder}/": part_bytes(part, source) for part in cls.parts if part.asked(source)
        }

    @classmethod
    def write(cls, bundle: Bundle, request: Request, folder: Path) -> None:
        """Write every part in their order; CimError if a part does not cover the bundle."""
        source = HandoffSource(bundle, request)
        parts = [part for part in cls.parts if part.asked(source)]
        for part in parts:
            request.say(f"writing {part.folder}/")
            (folder / part.folder).mkdir()
            part.write(source, folder / part.folder)
        checked = any(part.checks or part.goals for part in parts)
        numbers = any(part.formats for part in parts)
        if numbers:
            steps = steps_text(source.layers, source.lanes, source.search)
            (folder / STEPS_FILE).write_text(steps, "utf-8")
            layout = layout_of(source, parts)
            text = json.dumps(layout.model_dump(exclude_none=True), indent=1) + "\n"
            (folder / LAYOUT).write_text(text, "utf-8")
            page = format_text(source, parts, folder, layout)
            (folder / FORMAT).write_text(page, "utf-8")
        explained = render_file(
            "cimtool.handoff",
            "handoff.md",
            bundle=bundle.model.name,
            target=bundle.target.name,
            parts=parts,
            told={part.folder: _told(part, folder / part.folder) for part in parts},
            checked=any(part.checks for part in parts),
            numbers=numbers,
        )
        (folder / README).write_text(explained + "\n", "utf-8")
        described = _described(bundle, request, parts)
        digests = _digests(folder, sorted(folder.rglob("*")))
        if checked:
            listed = list_text(digests)
            (folder / LIST).write_text(listed, "utf-8")
            (folder / MAKEFILE).write_text(_makefile(parts, listed), "utf-8")
            digests |= _digests(folder, [folder / LIST, folder / MAKEFILE])
        text = json.dumps({**described, "files": digests}, indent=1) + "\n"
        (folder / HANDOFF).write_text(text, "utf-8")


class Handoff(HandoffExporter, name="handoff"):
    """The whole hand-off."""

    takes = ("layers", "inputs", "noise", "gallery")
    parts = PARTS


class GoldenModel(HandoffExporter, name="c"):
    """The golden model in C, and what it must show."""

    takes = ("inputs",)
    parts = (C_PART,)


class Images(HandoffExporter, name="images"):
    """The images of arrays, and the constants beside them."""

    takes = ("layers", "gallery")
    parts = (IMAGES_PART, CONSTANTS_PART, CAM_PART)


class ExpectedTaps(HandoffExporter, name="taps"):
    """The right values at each tap, with the constants that they follow from."""

    takes = ("layers", "inputs", "gallery")
    parts = (CONSTANTS_PART, TAPS_PART, DIRECTED_PART, CAM_PART)


class Bench(HandoffExporter, name="bench"):
    """The bench with all that its goals read."""

    takes = ("layers", "inputs", "gallery")
    parts = (
        *(IMAGES_PART, CONSTANTS_PART, TAPS_PART, DIRECTED_PART, CAM_PART),
        *(C_PART, BENCH_PART, RANDOM_PART),
    )


def _told(part: HandoffPart, folder: Path) -> dict[str, str]:
    """The files of a part that are there, with a sentence each; capitals stand for any name."""
    return {
        name: what
        for name, what in part.told.items()
        if any(folder.glob(re.sub("[A-Z]+", "*", name)))
    }


def _digests(folder: Path, files: list[Path]) -> dict[str, str]:
    """The SHA-256 of files of `folder` by their paths in it; folders are left out."""
    return {one.relative_to(folder).as_posix(): sha256(one) for one in files if one.is_file()}


def _makefile(parts: list[HandoffPart], listed: str) -> str:
    """The Makefile: goal `check` runs the checks of all parts; the parts' other goals follow.

    Each needs that no file of `files.sha256`, whose content is `listed`, has changed.
    """
    settings = {name: value for part in parts for name, value in part.settings.items()}
    checks = [line for part in parts for line in part.checks]
    goals = {"check": tuple(checks)} if checks else {}
    goals |= {name: lines for part in parts for name, lines in part.goals.items()}
    lines = [f"{name} ?= {value}" for name, value in settings.items() if name != "CC"]
    lines = [f"CC = {settings['CC']}", *lines] if "CC" in settings else lines
    lines += [f"SHA256 ?= {PROGRAM}", "", f".PHONY: {' '.join([*goals, GOAL])}"]
    for goal, commands in goals.items():
        lines += ["", f"{goal}: {GOAL}", *(f"\t{line}" for line in commands)]
    lines += ["", f"{GOAL}:", f"\t@mkdir -p {BUILD}", *(f"\t{one}" for one in goal_lines(listed))]
    return "\n".join(lines) + "\n"


def _described(bundle: Bundle, request: Request, parts: list[HandoffPart]) -> dict[str, Any]:
    """The hand-off's bundle, target and layers, and the folders of its parts."""
    noise = request.noise
    dies = {} if noise is None else {"dies": {"bit_exact": False, **dies_described(noise)}}
    return {
        "format_version": FORMAT_VERSION,
        "parts": [part.folder for part in parts],
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
    }
