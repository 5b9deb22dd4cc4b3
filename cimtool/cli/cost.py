"""`cimtool cost`: what a bundle takes of its target, in arrays, time, energy and area."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cimtool import api
from cimtool.base.files import replace_texts
from cimtool.cli.group import AtLeast, Command
from cimtool.cli.options import DIR, FILE
from cimtool.cli.output import Output, json_text
from cimtool.costs.picture import placement_svg
from cimtool.costs.render import estimate_json, estimate_text
from cimtool.costs.roofline import roofline_svg


@click.command(cls=Command)
@click.argument("bundle", metavar="BUNDLE", type=FILE)
@click.option(
    "--gallery", type=AtLeast(1), metavar="M", help="Items that a query is scored against."
)
@click.option(
    "--samples", type=AtLeast(1), metavar="K", default=10, help="Monte Carlo samples a side."
)
@click.option("--operating-point", metavar="NAME", help="Operating point [default: the first].")
@click.option(
    "--digital", type=FILE, help="TOML file of the digital unit: its process, width, clock, prices."
)
@click.option("-o", "--output", type=DIR, help="Folder of the files [default: the bundle].")
@click.pass_obj
def command(out: Output, /, bundle: Path, output: Path | None, **options: Any) -> None:
    """Estimate arrays, time, energy and area of a bundle on its target.

    Uses the target's figures at one operating point, and reference prices for what has none. A
    total without a part is a lower bound. Writes cost.json, placement.svg and,
    with a gallery, roofline.svg.
    """
    found = api.cost(bundle, **options)
    values = estimate_json(found, bundle.name)
    picture = placement_svg(
        found.placements, found.floorplan, f"{bundle.name} on {found.target.name}"
    )
    texts = {"cost.json": json_text(values) + "\n", "placement.svg": picture}
    pictures = roofline_svg(found, bundle.name)
    if pictures is not None:
        texts["roofline.svg"] = pictures
    written = replace_texts(output or bundle, texts, "the cost")
    text = estimate_text(found, bundle.name)
    out.result({**values, "written": written}, f"{text}\n\nwrote {', '.join(map(str, written))}")
