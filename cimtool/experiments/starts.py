"""Starts of a tuning: combinations of a grid, or the ways of a gallery if nothing says which."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

from cimtool.base.errors import ArgumentError
from cimtool.base.grids import Grid, Value
from cimtool.base.named import unknown
from cimtool.experiments.objectives import CostObjective
from cimtool.experiments.options import VARIED, TuneOptions
from cimtool.hardware.configuration import Configuration
from cimtool.hardware.settings import SettingOptions, read_settings
from cimtool.passes.gallery import DEFAULT_SHORTLIST

Builds = list[tuple[dict[str, Value], Configuration]]

WAY, SHORTLIST = "score_mapping", "shortlist"

LENGTHS = (DEFAULT_SHORTLIST, 10 * DEFAULT_SHORTLIST)
"""Lengths of shortlists that are tried if nothing says which."""


def starts_of(options: TuneOptions, objective: CostObjective) -> tuple[Builds, Builds]:
    """Combinations of the grid as configurations, and the ways of a gallery tried beside them.

    The ways are tried if the objective has a query among `gallery` items, and neither the grid nor
    the settings have a `score_mapping`. ArgumentError for a key of the grid that is not varied.
    """
    grid = options.grid or {}
    for key in grid:
        if key not in VARIED:
            raise ArgumentError("{grid} {}", str(unknown("key", key, VARIED)))
    asked = _combined(options, grid)
    if options.gallery is None or not objective.of_query or _way_given(options):
        return asked, []
    beside = [
        one
        for length in LENGTHS
        for one in _combined(options, {**grid, WAY: ["hybrid"], SHORTLIST: [length]})
    ]
    return [({WAY: "digital", **values}, build) for values, build in asked], beside


def _way_given(options: TuneOptions) -> bool:
    """True if the way of the gallery is the user's choice."""
    settings = {} if options.settings is None else read_settings(Path(options.settings))
    named = {**settings, **(options.grid or {})}
    by_name = options.part(SettingOptions)
    return any(key in named or by_name.get(key) is not None for key in (WAY, SHORTLIST))


def _combined(options: TuneOptions, grid: Grid) -> Builds:
    """Every combination of a grid; only a hybrid score has its length of a shortlist."""
    given: Mapping[str, Any] = options.part(SettingOptions)
    found: dict[tuple[tuple[str, Value], ...], dict[str, Any]] = {}
    for values in product(*grid.values()):
        own = dict(zip(grid, values, strict=True))
        by_name = {**given, **own}
        if own.get(WAY, "hybrid") != "hybrid":
            own.pop(SHORTLIST, None)
            by_name[SHORTLIST] = None
        found.setdefault(tuple(own.items()), by_name)
    return [
        (dict(own), Configuration.of(options.target, options.settings, by_name))
        for own, by_name in found.items()
    ]
