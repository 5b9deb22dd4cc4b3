"""Monte Carlo on the same hardware: the cost of one query whose score is sampled.

The gallery's samples are drawn once and stored, or redrawn for each query. Sampling replaces only
the score: the same items are scored, behind the same shortlist. It runs in the arrays if these hold
the gallery, else in the digital unit. If the gallery is loaded from DRAM, so are stored samples, or
the means and deviations for redrawn ones. Random numbers and sigmoids are priced as circuits of
the digital unit; no target here has such circuits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cimtool.base.errors import CimError
from cimtool.costs.charges import digital_cost, layer_cost, loading, programming
from cimtool.costs.operations import Operations, digital_products
from cimtool.costs.overheads import with_leakage
from cimtool.costs.rates import Rates
from cimtool.costs.totals import Cost, PartShare, Quantity
from cimtool.hardware.placement import Placement, floorplan, placed
from cimtool.hardware.settings import Settings
from cimtool.ir.types import integer

SCORE, SAMPLES = "score", "samples"
"""The graph and the layer of the items' samples, if they are in arrays."""

MEAN_BITS = 16
"""Bits of a sigmoid while its mean over samples is taken."""


@dataclass(frozen=True)
class SamplingWay:
    """One query scored by samples: `stored` ones of the gallery, or `redrawn` ones.

    `gallery_bytes` holds all items. `cells_written` counts the cells that this query writes, with
    its loads and shortlist. Redrawn samples in the digital unit add the cells that they would
    write in arrays. `multiplications` and `cost` cover the shortlist, if there is one, the products
    of samples, the random numbers, the sigmoids and their mean.
    """

    random_normals: int
    multiplications: int
    sigmoids: int
    gallery_bytes: int
    cells_written: int | None
    cost: Cost

    @property
    def latency_ns(self) -> Quantity:
        """The time of the query's score."""
        return self.cost.latency_ns

    @property
    def energy_pj(self) -> Quantity:
        """The energy of the query's score."""
        return self.cost.energy_pj

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        quantities = {name: getattr(self, name).to_json() for name in ("latency_ns", "energy_pj")}
        return {name: one for name, one in vars(self).items() if name != "cost"} | quantities


@dataclass(frozen=True)
class SamplingCost:
    """Monte Carlo with `samples` per side, in both ways, and the `arrays` for stored samples."""

    samples: int
    stored: SamplingWay
    redrawn: SamplingWay
    arrays: int | None
    endurance: float | None

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        ways = {name: getattr(self, name).to_json() for name in ("stored", "redrawn")}
        return vars(self) | ways


@dataclass(frozen=True)
class SampledItems:
    """The items of a gallery; `scored` of them are sampled: all, or the shortlist.

    In arrays, their samples lie beside the layers `beside`; None: in the digital unit. `loaded` is
    True if the gallery, which they replace, is loaded from DRAM for each query.
    """

    dimension: int
    gallery: int
    scored: int
    beside: Sequence[Placement] | None
    loaded: bool


def sampling_cost(
    samples: int,
    items: SampledItems,
    before: Cost,
    rates: Rates,
    settings: Settings,
    leaking: Quantity,
) -> SamplingCost:
    """The cost of sampling K times per side, for one query against M items of width d.

    `before` is the cost of the shortlist. A query takes K d normal numbers, each scaled by a
    standard deviation; redrawn samples take K d more for every scored item. Each pair takes K^2
    distances of d multiplications and K^2 sigmoids. In arrays, the items' samples are M K columns
    of d weights; the query's samples drive them one after the other. The area `leaking`, in mm2, is
    that of the program.
    """
    gallery, scored, dimension = items.gallery, items.scored, items.dimension
    beside = items.beside
    own, all_drawn = samples * dimension, (1 + scored) * samples * dimension
    pairs, bits = scored * samples**2, settings.feature_bits
    place = _stored_samples(samples * gallery, dimension, settings)
    ways = []
    for stored in (True, False):
        drawn, kept = (own, own) if stored else (all_drawn, 2 * dimension)
        cells: int | None = before.cells_written
        work = _around(drawn, pairs, bits)
        if beside is None:
            work += digital_products(pairs * dimension, bits)
            found = before
            if not stored:  # the cells that arrays would take
                drawn_cells = None if place is None else place.cells * scored // gallery
                cells = None if drawn_cells is None else before.cells_written + drawn_cells
        else:
            found = before + _in_arrays(place, beside, rates, settings, samples, stored)
            cells = None if place is None else found.cells_written
        if beside is None or not stored:
            in_buffer = not items.loaded and gallery * kept * bits <= rates.prices.buffer_bits
            work += Operations.of("sram" if in_buffer else "dram", scored * kept, bits)
        cost = found + digital_cost(work, rates.prices)
        cost = with_leakage(cost, leaking, rates.prices.node)
        way = SamplingWay(
            drawn,
            before.macs + before.digital.multiplications + drawn + pairs * dimension,
            pairs,
            -(-gallery * kept * bits // 8),
            cells,
            cost,
        )
        ways.append(way)
    first, second = ways
    arrays = None if place is None else place.arrays
    return SamplingCost(samples, first, second, arrays, rates.value("endurance"))


def _around(drawn: int, pairs: int, bits: int) -> Operations:
    """Operations around the products: draws, their scaling, sigmoids and their mean."""
    work = Operations.of("normals", drawn) + Operations.of("sigmoids", pairs)
    work += Operations.of("multiplications", drawn, bits, bits)
    work += Operations.of("additions", drawn, bits)
    return work + Operations.of("additions", pairs, MEAN_BITS)


def _stored_samples(columns: int, dimension: int, settings: Settings) -> Placement | None:
    """All samples of the items as columns of d weights; None if no array can hold them."""
    bits = settings.feature_bits
    most = 2 ** (bits - 1) - 1
    own = settings.with_weights(bits)
    try:
        crossbar = own.crossbar(own.input_code(integer(("n", dimension), -most, most, 1.0)))
    except CimError:
        return None
    return placed(SCORE, SAMPLES, (dimension, columns), crossbar, own)


def _in_arrays(
    place: Placement | None,
    beside: Sequence[Placement],
    rates: Rates,
    settings: Settings,
    samples: int,
    stored: bool,
) -> Cost:
    """All products of samples, and the writing of redrawn samples or the loading of stored ones."""
    if place is None:
        unknown = PartShare(*[Quantity(None, ("products of samples",))] * 2)
        return Cost(latency_ns=unknown.time, parts={"arrays": unknown})
    plan = floorplan((*beside, place), rates.target)
    own = settings.with_weights(place.weight_bits)
    products = layer_cost(place, rates, own, plan).times(samples)
    if stored:
        return products + loading(SCORE, (place,), plan, rates)
    return products + programming(place.cells, plan.rounds.get(SCORE, 1), plan, rates)
