"""The faults of a macro that show: what of a layer's numbers each of them would change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.handoff.converter_taps import Taps, column_places, taps
from cimtool.handoff.layers import DrivenLayer
from cimtool.handoff.requantiser import (
    clipped_show,
    floor_shows,
    low_bits_show,
    ties_show,
)
from cimtool.hardware.converters import UniformLaw
from cimtool.hardware.weight_codes import WeightCode

NARROW_BITS = 18
"""Those of the accumulator that is too narrow."""


CODE_FACTS = ("CODES_DOWN", "CODES_EVEN", "CODES_TOP", "CODES_BEYOND")
"""Facts of converters: codes rounded up, those of ties, the highest, those clipped to it."""


def layer_facts(layer: DrivenLayer, directed: Mapping[str, IntArray]) -> dict[str, int]:
    """1 by the name of each fact that holds of a layer's stimuli and its directed inputs, else 0.

    Facts are those of `FAULTS`. They err towards 0: of a fault that might show nothing is said.
    """
    op, crossbar = layer.op, layer.op.crossbar
    driven = crossbar.digits(layer.x)
    cycles = enumerate(crossbar.cycles)
    after = [(one, directed[place]) for place, one in layer.requantisations.items()]
    facts: dict[str, bool] = {
        **dict.fromkeys(CODE_FACTS, False),
        "NEGATIVE": any(cycle.sign < 0 and driven[c].any() for c, cycle in cycles),
        "HIGH_BITS": any(_beyond_a_bit(one.digits, crossbar.weights) for one in op.stored.slices),
        "FLIPS": any(one.flipped.any() for one in op.stored.slices),
        "APART": any(one.shift != k for k, one in enumerate(op.stored.slices)),
        "OFFSET": crossbar.weights.offset > 0,
        "BIAS": bool(op.layer.bias.any()),
        "DOWN": any(floor_shows(*one).any() for one in after),
        "CLIPS": any(clipped_show(*one).any() for one in after),
        "TIES": any(ties_show(*one).any() for one in after),
        "LOW_BITS": any(low_bits_show(*one, 6).any() for one in after),
    }
    if not op.exact:
        seen = taps(op, layer.x)
        facts |= _code_facts(layer, seen) | {"WIDE": _wide(seen.shift_add)}
    else:
        x = layer.x + crossbar.inputs.lift
        groups = (x[:, group] @ op.weight[group] for group in op.stored.groups)
        facts["WIDE"] = any(_wide(one << crossbar.places) for one in groups)
    return {name: int(holds) for name, holds in facts.items()}


def _beyond_a_bit(digits: Array, code: WeightCode) -> bool:
    """Some cell holds more than 0 and 1."""
    cells = np.abs(digits) if code.paired else digits.astype(np.int64) + code.baseline
    return code.cell_bits > 1 and not ((cells == 0) | (cells == 1)).all()


def _wide(sums: IntArray) -> bool:
    """Some sum does not fit NARROW_BITS of two's complement."""
    half = 1 << NARROW_BITS - 1
    return bool((sums >= half).any() or (sums < -half).any())


def _code_facts(layer: DrivenLayer, seen: Taps) -> dict[str, bool]:
    """The faults of a converter that change a code of the layer's stimuli."""
    crossbar, converted, law = layer.op.crossbar, layer.op.layer, layer.op.crossbar.law
    assert law is not None
    others: dict[str, UniformLaw] = {}
    if isinstance(law, UniformLaw) and not crossbar.scope.levels:
        others = {
            "CODES_DOWN": replace(law, rounding="floor"),
            "CODES_EVEN": replace(law, rounding="half-even"),
            "CODES_BEYOND": replace(law, hi=2 * law.hi - law.lo + 1),
        }
    facts = dict.fromkeys(["CODES_TOP", *others], False)
    columns = zip(converted.columns, column_places(converted), strict=True)
    for column, place in columns:
        for c, r in product(column.cycles, range(len(converted.cells.groups))):
            if column.law is None:
                continue
            codes = seen.codes[:, r, c, place]
            fine = seen.sums[:, r, c, place] << crossbar.reference_bits
            facts["CODES_TOP"] |= bool((codes == law.hi).any())
            for name, other in others.items():
                if not facts[name]:
                    facts[name] = bool(np.any(replace(column, law=other).codes(fine, r) != codes))
    return facts
