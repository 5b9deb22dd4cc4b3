"""The cost of a point, as plain values by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from cimtool.costs.estimate import Estimate
from cimtool.costs.raw_rows import times_raw
from cimtool.costs.render import score_multiplications
from cimtool.costs.totals import Quantity
from cimtool.experiments.objectives import CostName

UNITS = {"energy": "pj", "encoding_energy": "pj", "latency": "ns"}
"""Costs with an interval, of which parts may have no price: units in their names."""


@dataclass(frozen=True)
class PointCost:
    """The cost of a point, by the names in its file; None if unknown or not applicable."""

    arrays: int | None
    chips: int | None
    loads: int | None
    cells: int | None
    area_mm2: float | None
    area_missing: str | None
    conversions: int | None
    encoding_energy_pj: float | None
    encoding_energy_low_pj: float | None
    encoding_energy_high_pj: float | None
    encoding_energy_missing: str
    energy_pj: float | None
    energy_low_pj: float | None
    energy_high_pj: float | None
    energy_missing: str
    latency_ns: float | None
    latency_low_ns: float | None
    latency_high_ns: float | None
    latency_missing: str
    energy_coverage: float | None
    energy_basis: str | None
    score_multiplications: int
    sigmoids: int
    random_normals: int
    gallery_bytes: int | None
    energy_to_raw: float | None
    energy_to_raw_low: float | None
    energy_to_raw_high: float | None


def cost_of(found: Estimate, sampled: bool = False) -> dict[str, Any]:
    """The cost of a point on its target, to encode a text and a video, and of a query.

    `energy_to_raw` is the query's energy as a multiple of that of raw rows in int8. Energy in pJ,
    latency in ns and area in mm2 are None if the target gives no figures, and lower
    bounds if parts are missing. For Monte Carlo (`sampled`, with stored samples), energy and
    latency cover the query's encoding and its sampled score; arrays and area are None.
    """
    cost: dict[str, Any] = dict.fromkeys(one.name for one in fields(PointCost))
    if sampled:
        assert found.montecarlo is not None
        way, text = found.montecarlo.stored, found.text
        energy, latency = text.energy_pj + way.energy_pj, text.latency_ns + way.latency_ns
        cost |= {"energy_basis": text.basis, "score_multiplications": way.multiplications}
        cost |= {"sigmoids": way.sigmoids, "random_normals": way.random_normals}
        cost |= {"gallery_bytes": way.gallery_bytes}
    else:
        query, plan, score, own = found.query, found.floorplan, found.score, found.settings
        assert query is not None
        assert score is not None
        energy, latency = query.energy_pj, query.latency_ns
        cost |= {"arrays": plan.arrays, "chips": plan.chips, "loads": plan.loads}
        if own.rows is not None and own.columns is not None:
            cost["cells"] = plan.arrays * own.rows * own.columns  # redundant and idle ones too
        area = found.area.total
        cost |= {"area_mm2": area.value, "area_missing": "; ".join(area.missing)}
        cost |= {"conversions": query.conversions}
        cost |= {"energy_coverage": query.coverage, "energy_basis": query.basis}
        cost |= {"score_multiplications": score_multiplications(score), "sigmoids": 0}
        cost |= {"random_normals": 0, "gallery_bytes": found.gallery_bytes}
        if (times := times_raw(found)) is not None:
            ends = times.times.value, times.times.low, times.times.high
            names = (f"energy_to_raw{end}" for end in ("", "_low", "_high"))
            cost |= dict(zip(names, ends, strict=True))
    amounts = {
        "encoding_energy": (found.text + found.video).energy_pj,
        "energy": energy,
        "latency": latency,
    }
    for name, one in amounts.items():
        unit = UNITS[name]
        cost |= {f"{name}_{unit}": one.value, f"{name}_missing": "; ".join(one.missing)}
        cost |= {f"{name}_low_{unit}": one.low, f"{name}_high_{unit}": one.high}
    return cost


OF_CHOICES: Mapping[CostName, str] = {
    "query_energy": "energy_pj",
    "encoding_energy": "encoding_energy_pj",
    "latency": "latency_ns",
    "arrays": "arrays",
    "conversions": "conversions",
}
"""The names of costs of a choice in a point's cost; its conversions are of a query."""


def known_costs(cost: Mapping[str, Any]) -> dict[CostName, float]:
    """The costs of a choice that a point has, without those of which a part has no figure."""
    lacking = {f"{name}_{unit}" for name, unit in UNITS.items() if cost.get(f"{name}_missing")}
    found = {name: cost.get(key) for name, key in OF_CHOICES.items() if key not in lacking}
    return {name: value for name, value in found.items() if value is not None}


def quantity_of(cost: Mapping[str, Any], name: str) -> Quantity:
    """One of UNITS in a point's cost, with its interval."""
    unit, missing = UNITS[name], cost.get(f"{name}_missing")
    low, high = (cost.get(f"{name}_{end}_{unit}") for end in ("low", "high"))
    return Quantity(cost[f"{name}_{unit}"], (missing,) if missing else (), low, high)
