"""Monte Carlo on the same hardware: what the score of one query takes where it is sampled.

Its samples of the gallery are drawn once and stored, or drawn again for each query. The products of
samples could run in arrays as those of a layer do; what else it takes no target here has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cimtool.base.errors import CimError
from cimtool.costs.rates import Rates
from cimtool.costs.totals import Quantity
from cimtool.hardware.placement import Placement, placed
from cimtool.hardware.settings import Settings
from cimtool.ir.types import integer

OUTSIDE = ("random numbers", "sigmoids", "digital operations outside the arrays")
WRITING = "writing of samples"


@dataclass(frozen=True)
class SamplingWay:
    """One query scored by samples: `stored` ones of the gallery, or `redrawn` ones.

    `gallery_bytes` holds all items, `cells_written` are those of samples that this query writes
    where its products run in arrays. `latency_ns` and `energy_pj` are of these products.
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
    latency, energy = _products(place, rates, settings, samples, gallery)
    arrays = cells = None
    if place is not None:
        across = settings.with_weights(bits).weights_across
        wide = 1 if across is None else -(-gallery * samples // across)
        arrays, cells = place.row_parts * wide, gallery * place.cells
    written_energy, written_time = _writing(rates, settings, cells)
    return SamplingCost(
        samples,
        SamplingWay(
            own, own + pairs * dimension, pairs, -(-gallery * own * bits // 8), 0, latency, energy
        ),
        SamplingWay(
            all_drawn,
            all_drawn + pairs * dimension,
            pairs,
            -(-gallery * 2 * dimension * bits // 8),
            cells,
            latency + written_time,
            energy + written_energy,
        ),
        arrays,
        rates.value("endurance"),
    )


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
        unknown = Quantity(None, ("products of samples", *OUTSIDE))
        return unknown, unknown
    own = settings.with_weights(place.weight_bits)
    parts = rates.energies(place, own)
    known = [one for one in (parts.macs, parts.conversions, parts.shift_adds) if one]
    lacks = [
        name
        for name, one in (("MACs in arrays", parts.macs), ("conversions", parts.conversions))
        if one is None
    ]
    energy = samples * gallery * sum(known) if known else None
    time = rates.latency(place, own)
    return (
        Quantity(None if time is None else samples * time, OUTSIDE),
        Quantity(energy, (*lacks, *OUTSIDE)),
    )


def _writing(rates: Rates, settings: Settings, cells: int | None) -> tuple[Quantity, Quantity]:
    """Energy and time of writing the samples of all items, all arrays at once."""
    energy, row = rates.value("write_energy"), rates.value("write_latency")
    missing = Quantity(None, (WRITING,))
    return (
        missing if energy is None or cells is None else Quantity(cells * energy),
        missing if row is None or not settings.rows else Quantity(settings.rows * row),
    )
