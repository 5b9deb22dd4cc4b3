"""The energy of everything around arrays and arithmetic: links, host, clock, control, leakage.

Each is from published figures in `prices.toml`. What neither the figures of an array nor the prices
of operations hold is charged here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from statistics import fmean

import numpy as np

from cimtool.costs.operations import Operations, elements, width
from cimtool.costs.prices import reference
from cimtool.costs.totals import Cost, PartShare, Quantity, product
from cimtool.hardware.placement import Floorplan
from cimtool.ir.program import Graph

ENCODERS = ("text", "video")
"""Graphs whose inputs a host sends."""


def _of_sources(values: Iterable[float]) -> Quantity:
    """The geometric mean of several sources, from lowest to highest."""
    found = list(values)
    return Quantity(math.exp(fmean(map(math.log, found))), (), min(found), max(found))


def around(graph: Graph, work: Operations, plan: Floorplan) -> Operations:
    """The operations of a walk with the numbers that come from a host or cross from chip to chip.

    The digital unit is on one of the chips. Of the numbers sent to arrays and back, as many cross a
    link as there are other chips, of all chips.
    """
    found = work
    if graph.name in ENCODERS:
        for known in graph.inputs.values():
            found += Operations.of("host", elements(known, {"n": 1, "m": 0}), width(known))
    chips, sent = plan.chips or 1, work.tallies.get("wires")
    if chips == 1 or sent is None:
        return found
    crossed = replace(sent, count=sent.count * (chips - 1) // chips)
    crossed = replace(crossed, size=sent.size * (chips - 1) // chips)
    return found + Operations({"links": crossed})


def clock_and_control(energy: Quantity) -> Quantity:
    """The energy of clock and control of logic that takes `energy`, as published shares of both."""
    share = _of_sources(one.value / (1 - one.value) for one in reference().control_shares)
    return replace(energy.times(share.value or 0.0, share.low, share.high), own=0.0)


def leakage_density(node: float) -> Quantity:
    """The leakage of logic at a node in mW/mm2.

    The geometric means at the nodes of the sources are joined by straight lines of logarithms;
    outside them the nearest is taken. The interval is the widest of a node with several sources.
    """
    by_node: dict[float, list[float]] = {}
    for one in reference().leakages:
        by_node.setdefault(one.node, []).append(math.log(one.value))
    means = {at: fmean(logs) for at, logs in by_node.items()}
    nodes = sorted(means)
    value = math.exp(np.interp(math.log(node), np.log(nodes), [means[at] for at in nodes]))
    below = max(means[at] - min(logs) for at, logs in by_node.items())
    above = max(max(logs) - means[at] for at, logs in by_node.items())
    return Quantity(value, (), value * math.exp(-below), value * math.exp(above))


def with_leakage(cost: Cost, area: Quantity, node: float) -> Cost:
    """The cost with the leakage of an area in mm2 at a node for the time that is known.

    Without an area, leakage is missing; of no area there is none. mW times ns are pJ.
    """
    time = cost.latency_ns
    if not time.value or area.value == 0:
        return cost
    if area.value is None:
        leaked = Quantity(None, ("leakage",))
    else:
        leaked = product((leakage_density(node), area, replace(time, missing=())))
    return replace(cost, parts={**cost.parts, "leakage": PartShare(leaked)})
