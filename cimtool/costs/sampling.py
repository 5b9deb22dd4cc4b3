"""Monte Carlo on the same hardware: what the score of one query takes where it is sampled.

Its samples of the gallery are drawn once and stored, or drawn again for each query. The products of
samples are priced where the score's own are: in the digital unit, or as if they ran in arrays as
those of a layer do. Random numbers and sigmoids are priced as circuits of the digital unit, which
no target here has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cimtool.base.errors import CimError
from cimtool.costs.digital import digital_cost
from cimtool.costs.operations import Operations
from cimtool.costs.prices import Prices
from cimtool.costs.rates import Rates
from cimtool.costs.totals import NOTHING, Quantity
from cimtool.costs.writing import writing
from cimtool.hardware.placement import Placement, placed
from cimtool.hardware.settings import Settings
from cimtool.ir.types import integer

WRITING = "writing of samples"

MEAN_BITS = 16
"""Bits of a sigmoid while its mean over samples is taken."""


@dataclass(frozen=True)
class SamplingWay:
    """One query scored by samples: `stored` ones of the gallery, or `redrawn` ones.

    `gallery_bytes` holds all items, `cells_written` are those of samples that this query writes
    where its products run in arrays. `latency_ns` and `energy_pj` are of these products, of the
    random numbers, the sigmoids and their mean.
    """

    random_normals: int
    multiplications: int
    sigmoids: int
    gallery_bytes: int
    cells_written: int | None
    latency_ns: Quantity
    energy_pj: Quantity

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        quantities = {name: getattr(self, name).to_json() for name in ("latency_ns", "energy_pj")}
        return vars(self) | quantities


@dataclass(frozen=True)
class SamplingCost:
    """Monte Carlo with `samples` a side, in both ways, and the `arrays` for stored samples."""

    samples: int
    stored: SamplingWay
    redrawn: SamplingWay
    arrays: int | None
    endurance: float | None

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        ways = {name: getattr(self, name).to_json() for name in ("stored", "redrawn")}
        return vars(self) | ways


def sampling_cost(
    samples: int, gallery: int, dimension: int, rates: Rates, settings: Settings
) -> SamplingCost:
    """The cost of sampling K times a side, for one query against M items of width d.

    A query takes K d normal numbers, each scaled by a standard deviation; redrawn samples take as
    many for every item. Each pair takes K^2 distances of d multiplications and K^2 sigmoids. In
    arrays the items' samples are M K columns of d weights, driven by the query's, one after the
    other.
    """
    own, all_drawn = samples * dimension, (1 + gallery) * samples * dimension
    pairs = gallery * samples**2
    bits = settings.feature_bits
    place = _samples_of_an_item(samples, dimension, settings)
    arrays = cells = None
    if place is not None:
        across = settings.with_weights(bits).weights_across
        wide = 1 if across is None else -(-gallery * samples // across)
        arrays, cells = place.row_parts * wide, gallery * place.cells
    digital = settings.score_mapping == "digital"
    ways = []
    for drawn, of_an_item, written in ((own, own, 0), (all_drawn, 2 * dimension, cells)):
        kept = gallery * of_an_item
        work = _around(drawn, pairs, bits)
        latency = energy = NOTHING
        if digital:
            work += _digital_products(pairs * dimension, kept, bits, rates.prices)
        else:
            latency, energy = _products(place, rates, settings, samples, gallery)
            added_energy, added_time = _writing(rates, settings, written)
            latency, energy = latency + added_time, energy + added_energy
        around = digital_cost(work, rates.prices)
        way = SamplingWay(
            drawn,
            drawn + pairs * dimension,
            pairs,
            -(-kept * bits // 8),
            written,
            latency + around.latency_ns,
            energy + around.energy_pj,
        )
        ways.append(way)
    stored, redrawn = ways
    return SamplingCost(samples, stored, redrawn, arrays, rates.value("endurance"))


def _around(drawn: int, pairs: int, bits: int) -> Operations:
    """Operations around the products: draws, their scaling, sigmoids and their mean."""
    work = Operations.of("normals", drawn) + Operations.of("sigmoids", pairs)
    work += Operations.of("multiplications", drawn, bits, bits)
    work += Operations.of("additions", drawn, bits)
    return work + Operations.of("additions", pairs, MEAN_BITS)


def _digital_products(products: int, kept: int, bits: int, prices: Prices) -> Operations:
    """Products in the digital unit, and the reads of what is kept of the items."""
    memory = "sram" if kept * bits <= prices.buffer_bits else "dram"
    work = Operations.of("multiplications", products, bits, bits)
    work += Operations.of("additions", products, 2 * bits)
    return work + Operations.of(memory, kept, bits)


def _samples_of_an_item(samples: int, dimension: int, settings: Settings) -> Placement | None:
    """The K samples of an item as columns of d weights; None where the arrays hold no such."""
    bits = settings.feature_bits
    most = 2 ** (bits - 1) - 1
    own = settings.with_weights(bits)
    try:
        crossbar = own.crossbar(own.input_code(integer(("n", dimension), -most, most, 1.0)))
    except CimError:
        return None
    return placed("samples", "samples", (dimension, samples), crossbar, own)


def _products(
    place: Placement | None, rates: Rates, settings: Settings, samples: int, gallery: int
) -> tuple[Quantity, Quantity]:
    """Latency and energy of all products of samples, by the target's figures."""
    if place is None:
        unknown = Quantity(None, ("products of samples",))
        return unknown, unknown
    own = settings.with_weights(place.weight_bits)
    names = {"arrays": "MACs in arrays", "converters": "conversions", "shift-and-add": ""}
    energy = NOTHING
    for part, one in rates.energies(place, own).items():
        energy += Quantity(None, (names[part],)) if one is None else one
    time = rates.latency(place, own)
    latency = Quantity(None, ("arrays",)) if time is None else Quantity(samples * time)
    return latency, energy.times(samples * gallery)


def _writing(rates: Rates, settings: Settings, cells: int | None) -> tuple[Quantity, Quantity]:
    """Energy and time of writing the samples of all items, all arrays at once."""
    missing = Quantity(None, (WRITING,))
    if cells == 0:
        return NOTHING, NOTHING
    if cells is None or not settings.rows:
        return missing, missing
    written = writing(cells, settings.rows, rates)
    found = (written.energy_pj, written.latency_ns)
    return (
        missing if found[0].value is None else found[0],
        missing if found[1].value is None else found[1],
    )
