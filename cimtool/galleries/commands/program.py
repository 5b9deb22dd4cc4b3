"""Write a gallery into the arrays for a score in the memory, or change it there."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, get_args

import click

from cimtool import api
from cimtool.base.errors import Argument, ArgumentError
from cimtool.cli.group import INTEGER, NUMBER, Command, Integers
from cimtool.cli.options import DIR, FILE, Files, files_option
from cimtool.cli.output import Output
from cimtool.galleries.cams import ProgrammedCam
from cimtool.galleries.programming import ProgrammedBundle
from cimtool.galleries.shortlists import Minimised
from cimtool.report.document import Verbatim

CHANGES = ("add", "remove", "replace")
"""Options that change a gallery."""


@click.command(cls=Command)
@click.argument("bundle", metavar="BUNDLE", type=FILE)
@files_option(
    "--gallery", "Embeddings whose video rows are the items (.npz, .npy or .pt).", required=False
)
@files_option("--add", "Embeddings whose video rows come into the gallery.", required=False)
@click.option("--remove", type=Integers(), default=(), help="Ids of items that are taken out.")
@click.option(
    "--replace",
    type=(Integers(), FILE),
    metavar="IDS NPZ",
    help="Ids of items, and the video rows that take their places.",
)
@click.option("-o", "--output", type=DIR, help="Folder of the new bundle.")
@click.option("--shortlist", type=INTEGER, metavar="L", help="Items that a hybrid score rescores.")
@click.option(
    "--shortlist-bits",
    type=INTEGER,
    metavar="B",
    help="Bits an item stores of a value: 1 is its sign.",
)
@click.option("--query-bits", type=INTEGER, metavar="Q", help="Bits of a query of such items.")
@click.option(
    "--shortlist-dimensions",
    type=INTEGER,
    metavar="D",
    help="Principal components of mu that an item stores in place of all.",
)
@click.option(
    "--recall",
    type=NUMBER,
    metavar="X",
    help="Choose the cheapest bits, dimensions and length that hold this share of best items.",
)
@click.option(
    "--minimise",
    type=click.Choice(get_args(Minimised)),
    help="What such a choice makes least, cells where nothing is said.",
)
@click.option(
    "--cam",
    metavar="NAME|FILE",
    help="Content-addressable memory that draws up a hybrid score's shortlist.",
)
@click.option("--chips", type=INTEGER, metavar="N", help="Refuse a gallery that needs more chips.")
@click.pass_obj
def command(out: Output, /, bundle: Path, gallery: Files | None, **options: Any) -> None:
    """Write a gallery into the arrays for a score in the memory, or change it there.

    BUNDLE was compiled with --score-mapping in-memory or hybrid. The new bundle goes to
    BUNDLE+<gallery's name> unless -o says otherwise; it answers texts against these items alone.
    With --add, --remove and --replace, all of them at once, BUNDLE is such a new bundle: it is
    replaced as a whole unless -o says otherwise. An item's id is its row in the gallery that was
    programmed first; added ones count on from there. With --cam a content-addressable memory beside
    the target holds the items, B bits a cell.
    """
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
    out: Output, bundle: Path, gallery: Files | None, cam: str, options: dict[str, Any]
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
