"""Write a gallery into the arrays for a score in the memory, or change it there."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from cimtool.base.errors import Argument, ArgumentError
from cimtool.cli.output import Output
from cimtool.cli.records import values_command
from cimtool.galleries import api
from cimtool.galleries.cams import ProgrammedCam
from cimtool.galleries.options import CamOptions, ChangeOptions, ProgramOptions
from cimtool.galleries.programming import ProgrammedBundle
from cimtool.loading.embeddings import EmbeddingsLike
from cimtool.report.document import Verbatim

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
        _print(out, api.program(bundle, gallery, say=out.say, **options))
        return
    _print(out, _changed(out, bundle, changes, options))


def _print(out: Output, found: ProgrammedBundle | ProgrammedCam) -> None:
    folder = found.bundle.folder
    shown = found.document().plus(Verbatim(f"wrote {folder}"))
    out.result(
        shown.plus(Verbatim(f"next: cimtool simulate {shlex.quote(str(folder))} --inputs NPZ"))
    )


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
    _print(out, api.program_cam(bundle, gallery, cam, say=out.say, **kept))
