"""Write a gallery into the arrays for a score in the memory, or change it there."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from cimtool import api
from cimtool.base.errors import Argument, ArgumentError
from cimtool.cli.output import Output
from cimtool.cli.records import values_command
from cimtool.galleries.cams import ProgrammedCam
from cimtool.galleries.options import CamOptions, ChangeOptions, ProgramOptions
from cimtool.galleries.programming import ProgrammedBundle
from cimtool.galleries.render import front_table, matrices_table
from cimtool.loading.embeddings import EmbeddingsLike
from cimtool.report.formats import ENERGIES, TIMES
from cimtool.report.page import render_text
from cimtool.report.terminal import table_text

CHANGES = ("add", "remove", "replace")
"""Options that change a gallery."""


@values_command(ProgramOptions, ChangeOptions, CamOptions, defaults={"gallery": None, "cam": None})
def command(out: Output, options: dict[str, Any]) -> None:
    """Write a gallery into the arrays for a score in the memory, or change it there.

    BUNDLE was compiled with --score-mapping in-memory or hybrid. The new bundle goes to
    BUNDLE+<gallery's name> unless -o says otherwise; it answers texts against these items alone.
    With --add, --remove and --replace, all of them at once, BUNDLE is such a new bundle: it is
    replaced as a whole unless -o says otherwise. An item's id is its row in the gallery that was
    programmed first; added ones count on from there. With --cam a content-addressable memory beside
    the target holds the items, B bits a cell.
    """
    bundle, gallery = options.pop("bundle"), options.pop("gallery")
    changes = {name: value for name in CHANGES if (value := options.pop(name))}
    if (gallery is not None) == bool(changes):
        raise click.UsageError(
            "expected --gallery, to program one, or --add, --remove and --replace, to change one"
        )
    cam = options.pop("cam")
    if cam is not None:
        _into_cam(out, bundle, gallery, cam, options)
        return
    if gallery is not None:
        _print_arrays(out, api.program(bundle, gallery, say=out.say, **options))
        return
    found = _changed(out, bundle, changes, options)
    if isinstance(found, ProgrammedCam):
        _print_cam(out, found)
    else:
        _print_arrays(out, found)


def _print_arrays(out: Output, found: ProgrammedBundle) -> None:
    text = render_text(
        "cimtool.galleries",
        "program.txt",
        found=found,
        gallery=found.gallery,
        use=found.use,
        accuracy=found.accuracy,
        table=table_text(matrices_table(found.use.matrices)),
        search=found.search,
        taken=found.search and found.search.chosen,
        front=found.search and table_text(front_table(found.search)),
        folder=shlex.quote(str(found.bundle.folder)),
    )
    out.result(found.to_json(), text)


def _changed(
    out: Output, bundle: Path, changes: dict[str, Any], options: dict[str, Any]
) -> ProgrammedBundle | ProgrammedCam:
    """The bundle after a change; ArgumentError for an option that only goes with --gallery."""
    kept = {name: options[name] for name in ("output", "shortlist", "chips")}
    for name, value in options.items():
        if name not in kept and value is not None:
            raise ArgumentError(
                "{} is {}; expected it with {gallery}: a change keeps the bits that the gallery "
                "was programmed with",
                Argument(name),
                value,
            )
    return api.change_gallery(bundle, say=out.say, **changes, **kept)


def _into_cam(
    out: Output, bundle: Path, gallery: EmbeddingsLike | None, cam: str, options: dict[str, Any]
) -> None:
    """Program a CAM; ArgumentError for an option that only goes with arrays."""
    if gallery is None:
        raise ArgumentError("{cam} is {}; expected {gallery} with it", cam)
    kept = {name: options[name] for name in ("output", "shortlist", "shortlist_bits")}
    for name, value in options.items():
        if name not in kept and value is not None:
            raise ArgumentError(
                "{} is {}; expected it without {cam}, whose queries have the bits of its cells",
                Argument(name),
                value,
            )
    _print_cam(out, api.program_cam(bundle, gallery, cam, say=out.say, **kept))


def _print_cam(out: Output, found: ProgrammedCam) -> None:
    text = render_text(
        "cimtool.galleries",
        "program_cam.txt",
        found=found,
        gallery=found.gallery,
        use=found.use,
        cam=found.use.cam,
        accuracy=found.accuracy,
        energy=found.use.energy_pj.text(ENERGIES),
        latency=found.use.latency_ns.text(TIMES),
        query_energy=found.score.energy_pj.full_text(ENERGIES),
        query_latency=found.score.latency_ns.full_text(TIMES),
        folder=shlex.quote(str(found.bundle.folder)),
    )
    out.result(found.to_json(), text)
