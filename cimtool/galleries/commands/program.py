"""Write a gallery into the arrays for a score in the memory, or change it there."""

from __future__ import annotations

import shlex
from typing import Any

import click

from cimtool.base.errors import Argument, ArgumentError
from cimtool.cli.output import Output
from cimtool.cli.records import values_command
from cimtool.galleries import api
from cimtool.galleries.options import CamOptions, ChangeOptions, ProgramOptions
from cimtool.galleries.programming import ProgrammedBundle, ProgrammedCam
from cimtool.report.document import Verbatim

CHANGES = ("add", "remove", "replace")
"""Options that change a gallery."""


@values_command(ProgramOptions, ChangeOptions, CamOptions, defaults={"gallery": None, "cam": None})
def command(out: Output, options: dict[str, Any]) -> None:
    """Write a gallery into the arrays for a score in the memory, or change it there.

    BUNDLE was compiled with --score-mapping in-memory or hybrid. The new bundle goes to
    BUNDLE+<gallery's name> unless -o says otherwise; it scores texts against these items only.
    To change the gallery, give the new bundle as BUNDLE with --add, --remove and --replace, in one
    call; the whole bundle is replaced unless -o says otherwise. An item's id is its row in the
    gallery that was programmed first; added items continue the count. With --cam the items are in
    a content-addressable memory beside the target, with B bits per cell.
    """
    bundle, gallery = options.pop("bundle"), options.pop("gallery")
    changes = {name: value for name in CHANGES if (value := options.pop(name))}
    if gallery is None and not changes:
        raise click.UsageError(
            "expected --gallery, to program one, or --add, --remove and --replace, to change one"
        )
    if gallery is not None and changes:
        raise ArgumentError(
            "{gallery} and {} exclude each other; expected {gallery}, to program a gallery, or {}, "
            "to change one",
            Argument(next(iter(changes))),
            Argument(next(iter(changes))),
        )
    cam = options.pop("cam")
    found: ProgrammedBundle | ProgrammedCam
    if cam is not None and gallery is None:
        raise ArgumentError("{cam} is {}; expected {gallery} with it", cam)
    if cam is not None:
        kept = _only(options, ("output", "shortlist", "shortlist_bits"), cam=True)
        found = api.program_cam(bundle, gallery, cam, say=out.say, **kept)
    elif gallery is not None:
        found = api.program(bundle, gallery, say=out.say, **options)
    else:
        kept = _only(options, ("output", "shortlist", "chips"), cam=False)
        found = api.change_gallery(bundle, say=out.say, **changes, **kept)
    folder = found.bundle.folder
    shown = found.document().plus(Verbatim(f"wrote {folder}"))
    out.result(
        shown.plus(Verbatim(f"next: cimtool simulate {shlex.quote(str(folder))} --inputs NPZ"))
    )


def _only(options: dict[str, Any], names: tuple[str, ...], cam: bool) -> dict[str, Any]:
    """The options of these names; ArgumentError if another one was given."""
    for name, value in options.items():
        if name in names or value is None:
            continue
        if cam:
            raise ArgumentError(
                "{} is {}; expected it without {cam}, whose queries have the bits of its cells",
                Argument(name),
                value,
            )
        raise ArgumentError(
            "{} is {}; expected it with {gallery}: a change keeps the bits that the gallery was "
            "programmed with",
            Argument(name),
            value,
        )
    return {name: options[name] for name in names}
