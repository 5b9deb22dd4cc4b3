"""The faults that a layer's numbers show: facts on its stimuli and directed inputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from cimtool.handoff.coverage import swept
from cimtool.handoff.directed import (
    ConverterInput,
    PopulationCount,
    converter_inputs,
    population_counts,
)
from cimtool.handoff.faults import CODES_WRONG, COUNTS_WRONG, INPUTS_WRONG, NARROW_BITS
from cimtool.handoff.layers import DrivenLayer
from cimtool.handoff.requantiser import mistakes
from cimtool.handoff.stimuli import input_limits
from cimtool.handoff.taps import Taps, column_places, taps
from cimtool.hardware.converters import UniformLaw
from cimtool.hardware.stored import cell_digits


def layer_facts(layer: DrivenLayer) -> set[str]:
    """The facts that hold for a layer's stimuli and directed inputs, by their names in `FAULTS`.

    A fact is left out if it is in doubt; then the bench does not have to find its faults.
    """
    op, crossbar = layer.op, layer.op.crossbar
    driven = crossbar.digits(layer.x)
    facts = {
        "ANY": True,
        "WRITES": layer.writes is not None,
        "MANY_CYCLES": len(crossbar.cycles) > 1,
        "NEGATIVE": any(
            c.sign < 0 and d.any() for c, d in zip(crossbar.cycles, driven, strict=True)
        ),
        "HIGH_BITS": bool((cell_digits(op.stored, slice(None)) > 1).any()),
        **_settings(layer),
    }
    found = {name for name, holds in facts.items() if holds} | set(_number_facts(layer))
    for place, after in layer.requantisations.items():
        shown = mistakes(after, layer.directed[place])
        found |= {name for name, seen in shown.items() if seen.any()}
    if op.exact:
        x = layer.x + crossbar.inputs.lift
        groups = [x[:, group] @ op.weight[group] << crossbar.places for group in op.stored.groups]
    else:
        seen = taps(op, layer.x)
        groups = [seen.shift_add]
        found |= set(_code_facts(layer, seen))
    half = 1 << NARROW_BITS - 1
    if any((sums >= half).any() or (sums < -half).any() for sums in groups):
        found.add("WIDE")
    return found


def _settings(layer: DrivenLayer) -> dict[str, bool]:
    """Facts on settings and images alone: without one, the faulty expression has the right value.

    This holds for all inputs.
    """
    slices = layer.op.layer.cells.slices
    return {
        "FLIPS": any(one.flipped.any() for one in slices),
        "MULTIPLIES": any(one.factor != 1 for one in slices),
        "APART": any(one.shift != k for k, one in enumerate(slices)),
        "OFFSET": layer.image.offset > 0,
        "BIAS": bool(layer.op.layer.bias.any()),
    }


def unreachable_facts(layer: DrivenLayer) -> set[str]:
    """The facts that no input gives a layer: their faults change no number in it."""
    found = {name for name, holds in _settings(layer).items() if not holds}
    after = layer.requantisations.values()
    if not any(one.may_tie(*layer.reached(one)).any() for one in after):
        found.add("TIES")
    return found


def _number_facts(layer: DrivenLayer) -> Iterator[str]:
    """Yield the numbers at which a single fault of a converter, a count or an input shows."""
    counts = population_counts(layer)
    codes: list[set[int]] = [set() for _ in range(layer.op.crossbar.slices)]
    inputs: list[ConverterInput | PopulationCount] = [*converter_inputs(layer), *counts]
    for one in inputs:
        if one.slice < len(codes):
            codes[one.slice].add(one.code)
    yield from (f"CODE_{n}" for n in CODES_WRONG if all(n in reached for reached in codes))
    yield from (f"ANY_CODE_{n}" for n in CODES_WRONG if any(n in reached for reached in codes))
    yield from (f"COUNT_{n}" for n in COUNTS_WRONG if any(one.rows == n for one in counts))
    lo, hi = input_limits(layer.graph, layer.node, layer.op)
    if layer.op.stored.groups[0].stop > 3:
        driven = set(swept(int(lo[3]), int(hi[3]), 3).tolist())
        yield from (f"INPUT_{n}" for n in INPUTS_WRONG if n in driven)


def _code_facts(layer: DrivenLayer, seen: Taps) -> Iterator[str]:
    """Yield the facts on converters that a code of the layer's stimuli shows.

    CODES_DOWN: a code was rounded up; CODES_EVEN: a code came from a tie; CODES_TOP: a code is the
    highest; CODES_BEYOND: a code was clipped to the highest.
    """
    crossbar, converted, law = layer.op.crossbar, layer.op.layer, layer.op.crossbar.law
    assert law is not None
    others: dict[str, UniformLaw] = {}
    if isinstance(law, UniformLaw) and not crossbar.scope.levels:
        others = {
            "CODES_DOWN": replace(law, rounding="floor"),
            "CODES_EVEN": replace(law, rounding="half-even"),
            "CODES_BEYOND": replace(law, hi=2 * law.hi - law.lo + 1),
        }
    for column, place in zip(converted.columns, column_places(converted), strict=True):
        if column.law is None:
            continue
        for c, r in product(column.cycles, range(len(converted.cells.groups))):
            codes = seen.codes[:, r, c, place]
            fine = seen.sums[:, r, c, place] << crossbar.reference_bits
            if (codes == law.hi).any():
                yield "CODES_TOP"
            for name, other in list(others.items()):
                if np.any(replace(column, law=other).codes(fine, r) != codes):
                    del others[name]
                    yield name
