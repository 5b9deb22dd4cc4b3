"""Small digital chips whose costs tests work out by hand, as TOML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

CHIP = """
name = "hand"
title = "A chip to calculate by hand"
class = "bit-exact"
technology = "{node} nm digital"
rewritable = "{rewritable}"
simulated = false
[array]
rows = 32
columns = 64
cell_bits = 1
cells_per_weight = 8
encoding = "twos-complement"
[input]
bits = 8
dac_bits = 2
encoding = "offset"
[weights]
bits = 8
[activations]
bits = 8
feature_bits = 8
[accumulator]
bits = 32
[chip]
cores = {arrays}
[process]
node = {node}
memory = "sram"
[digital]
{digital}
[[operating_points]]
name = "INT8"
precision = "INT8"
input_bits = 8
weight_bits = 8
"""
PRICE = """
[[digital.prices]]
kind = "{}"
value = {}
bits = 1
source = "here"
status = "assumed"
"""
FIGURE = """
[[figures]]
quantity = "{}"
value = {}
unit = "{}"
at = "INT8"
scope = "{}"
status = "assumed"
source = "here"
"""

HandFigure = tuple[str, float, str, str]
"""Quantity, value, unit and scope of a figure."""


def hand_chip(
    arrays: int,
    rewritable: str,
    node: int,
    digital: Mapping[str, float],
    prices: Mapping[str, float],
    figures: Iterable[HandFigure],
) -> str:
    """A chip of so many arrays; `prices` in pJ a bit by kind, `digital` has keys of its unit."""
    unit = "\n".join(f"{key} = {value}" for key, value in digital.items())
    text = CHIP.format(arrays=arrays, rewritable=rewritable, node=node, digital=unit)
    text += "".join(PRICE.format(*one) for one in prices.items())
    return text + "".join(FIGURE.format(*one) for one in figures)
