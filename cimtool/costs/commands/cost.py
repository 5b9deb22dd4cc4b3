"""Estimate arrays, time, energy and area of a bundle on its target."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from cimtool.base.files import COST_FILES, check_folder, replace_texts
from cimtool.base.options import DIR, Record, optional
from cimtool.cli.output import Output, json_text
from cimtool.cli.records import record_command
from cimtool.costs import api
from cimtool.costs.bundle_cost import BundleCost, CostOptions
from cimtool.costs.instead import by_size_text, verdict
from cimtool.costs.instead_picture import instead_svg
from cimtool.costs.render import document


class CostPlace(Record):
    """The folder of the command's files."""

    output: Path | None = optional(
        "Folder of the files [default: the bundle].", DIR, short="o", place="report"
    )


def _needs_gallery(given: Mapping[str, Any]) -> Collection[str]:
    """Data of a project file are of ways of a query, which need a gallery."""
    return () if given.get("gallery") else ("data", "qrels")


@record_command(CostOptions, CostPlace, left_out=_needs_gallery)
def command(out: Output, options: CostOptions, folder: CostPlace) -> None:
    """Estimate arrays, time, energy and area of a bundle on its target.

    Uses the target's figures at one operating point, and reference prices for parts without a
    figure. A total that lacks a part is a lower bound. With a gallery, the first table has every
    way to answer a query: raw rows here, on a CPU core and on a GPU, Monte Carlo, and this build
    digital, in the memory and by shortlist. Writes cost.json, placement.svg,
    schedule.svg and, with a gallery, instead.svg: the energy of each way by the number of items.
    """
    bundle = Path(options.bundle)
    output = folder.output or bundle
    if not bundle.is_file():  # opening it says that it is no bundle
        check_folder(output)
    found = api.cost(**vars(options))
    name = bundle.name
    shown = document(found, name).plus(bundle=name)
    pictures = (shown.pictures[one].svg for one in ("placement", "schedule"))
    sizes = instead_svg(found, name, by_size_text(found))
    contents = (json_text(shown.values()) + "\n", *pictures, sizes)
    texts = {n: one for n, one in zip(COST_FILES, contents, strict=True) if one is not None}
    out.result(shown.wrote(replace_texts(output, texts, "the cost"), *_next(found, bundle)))


def _next(found: BundleCost, bundle: Path) -> Iterator[str]:
    """The command that measures R@1 of the ways if it is not known, and the hand-off if it pays."""
    name = shlex.quote(str(bundle))
    if found.gallery is None:
        yield f"cimtool cost {name} --gallery N"
    elif found.accuracy is None:
        yield f"cimtool cost {name} --gallery {found.gallery} --data NPZ"
    elif any(one.tone == "good" for one in verdict(found)):
        yield f"cimtool export {name} --format handoff -o {name}-handoff"
