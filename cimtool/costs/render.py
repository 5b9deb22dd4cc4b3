"""The tables, sentences, pictures and plain values of an estimate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from cimtool.bundle.placement_picture import placement_svg
from cimtool.bundle.placement_view import fit_sentence, floorplan_sentences
from cimtool.costs.area import area_table
from cimtool.costs.bounds import bound_table, bounds_text, query_bounds
from cimtool.costs.bundle_cost import BundleCost
from cimtool.costs.estimate import Estimate
from cimtool.costs.instead import (
    by_size_text,
    cheapest_by_size_text,
    instead_json,
    instead_notes,
    instead_table,
    sampling_text,
    unmeasured_text,
    verdict,
    ways_table,
)
from cimtool.costs.instead_picture import instead_picture
from cimtool.costs.prices import kind_of
from cimtool.costs.schedule_picture import schedule_svg
from cimtool.costs.schedule_render import schedule_blocks, schedule_json
from cimtool.costs.silicon import interval_sentence
from cimtool.costs.total_tables import (
    by_itself,
    energy_headline,
    of_batch,
    part_table,
    total_table,
    totals,
)
from cimtool.costs.totals import Cost
from cimtool.hardware.placement import Placement
from cimtool.hardware.skipping import skipping_notes
from cimtool.report.document import Document, Picture, Section, Sentence, notes
from cimtool.report.formats import (
    AREAS,
    ENERGIES,
    SIZES,
    TIMES,
    Units,
    coverage,
    scaled,
    whole,
)
from cimtool.report.table import (
    BlockLevel,
    Cell,
    Column,
    Content,
    ItemColumns,
    Table,
    item_table,
    make_table,
)

UNIT_NAMES = {
    "bits": "a bit",
    "bits x bits": "a product of two bits",
    "each": "one",
    "ladder": "one",
}
"""The units of prices, by how the price grows with width."""


def document(estimate: BundleCost, name: str = "") -> Document:
    """All of an estimate: what instead, totals, layers and their places, and Monte Carlo."""
    point, area, plan = estimate.rates.point, estimate.area.total, estimate.floorplan
    at = "" if point is None else f', at "{point.name}" ({point.conditions()})'
    bound = area.value is not None and area.lower_bound
    without = f" (a lower bound: without {', '.join(area.missing)})" if bound else ""
    place = f"{name or 'the cost'} on {estimate.target.name}"
    points = query_bounds(estimate)
    energies = (f"{of}: {energy_headline(cost)}" for of, cost in of_batch(estimate).items())
    # Without a gallery there is no other way to compare with, so these lead.
    totals_told = tuple(map(Sentence, [fit_sentence(plan), *energies]))
    by_size, unknown = by_size_text(estimate), unmeasured_text(estimate)
    # With data at hand, an R@1 that they cannot give is what a reader looks for first.
    told, *others = (
        (unknown, by_size) if estimate.pairs is not None and unknown else (by_size, unknown)
    )
    return Document(
        f"{place}{at}",
        (
            *verdict(estimate),
            *instead_table(estimate),
            *([Sentence(told)] if told else []),
            *(() if estimate.gallery else totals_told),
            *notes([sampling_text(estimate), *others, cheapest_by_size_text(estimate)], "detail"),
            Section(
                "Energies and times",
                (
                    *(totals_told if estimate.gallery else ()),
                    total_table(estimate).named("totals"),
                    *schedule_blocks(estimate),
                    *map(Sentence, _missing_lines(estimate)),
                ),
            ),
            layer_cost_table(estimate).named("layers", "detail"),
            Section(
                "Arrays and area",
                (
                    *map(Sentence, floorplan_sentences(plan)),
                    Sentence(f"area: {area.full_text(AREAS)}{without}{_known_area(estimate)}"),
                    area_table(estimate.area),
                    Sentence(programming_sentence(estimate)),
                ),
            ),
            *notes(instead_notes(estimate), "detail"),
            *ways_table(estimate),
            part_table(estimate),
            *bound_table(points),
            *notes([bounds_text(points)] if points else (), "detail"),
            *montecarlo_table(estimate),
            *notes(montecarlo_sentences(estimate), "detail"),
            price_table(estimate),
            *notes(assumptions(estimate), "detail"),
            Picture(
                "placement",
                placement_svg(estimate.placements, plan, place),
                f"Placement of {place}: {fit_sentence(plan)}",
            ),
            Picture("schedule", schedule_svg(estimate, place), f"Schedule of {place}"),
            *instead_pictures(estimate),
        ),
        lambda: cost_json(estimate),
    )


def _known_area(estimate: Estimate) -> str:
    """The clause on the share of the area that the target's figures give."""
    known = estimate.area.known_share
    return f", {coverage(known)} of it by the target's figures" if estimate.area.total.value else ""


def layer_cost_table(estimate: Estimate) -> Table:
    """Each layer: its size, its arrays, and the cost of one product."""
    costs, help_ = estimate.layers, "> marks a lower bound: some parts have no figure"
    several: ItemColumns[Placement] = ()
    if max(estimate.products.values(), default=1) > 1:
        said = "products per item: one for each of its rows (tokens), in the same arrays"
        several = ((Column("an item", whole, said), lambda p: estimate.products[p.layer]),)
    columns: ItemColumns[Placement] = (
        (Column("layer"), lambda p: p.layer),
        *several,
        (Column("rows x cols", whole), lambda p: Cell(f"{p.rows} x {p.columns}", p.macs)),
        (Column("arrays", whole), lambda p: p.arrays if p.shares is None else Cell("shared", 0)),
        (Column("used", "{:.1%}".format), lambda p: p.utilisation),
        (Column("MACs", whole), lambda p: p.macs),
        (Column("cycles", whole), lambda p: costs[p.layer].drive_cycles),
        (Column("conversions", whole), lambda p: p.conversions),
        (Column("latency", whole), lambda p: costs[p.layer].latency_ns.cell(TIMES)),
        (Column("energy", whole, help_), lambda p: costs[p.layer].energy_pj.cell(ENERGIES)),
    )
    return item_table("One product of each layer", estimate.placements, columns)


def programming_sentence(estimate: Estimate) -> str:
    """The cells that are written before the first inference, with their energy and time."""
    cost = estimate.programming
    energy, time = cost.energy_pj.full_text(ENERGIES), cost.latency_ns.full_text(TIMES)
    if cost.energy_pj.value is None and cost.latency_ns.value is None:
        cells = f"{cost.cells_written:,} cells"
        return f"programming: {cells}; no source gives the cost of writing such a cell"
    return f"programming: {cost.cells_written:,} cells, {energy}, {time}"


def missing_sentences(query: Cost) -> Iterator[str]:
    """The parts that the energy and the latency of a query leave out."""
    missing: dict[tuple[str, ...], list[str]] = {}
    for name, quantity in (("energy", query.energy_pj), ("latency", query.latency_ns)):
        missing.setdefault(quantity.missing, []).append(name)
    return (f"{' and '.join(of)}: without {', '.join(p)}" for p, of in missing.items() if p)


def _missing_lines(estimate: Estimate) -> list[str]:
    lines = []
    for quantity, name in (("latency_ns", "latency"), ("energy_pj", "energy")):
        costs = [getattr(cost, quantity) for cost in totals(estimate).values()]
        if parts := ", ".join(dict.fromkeys(part for cost in costs for part in cost.missing)):
            lines.append(f"{name}: not given for {parts}; totals are a lower bound (>)")
    reasons: dict[str, list[str]] = {}
    for place in estimate.placements:
        why = estimate.rates.mismatch(place, estimate.settings.of_layer(place.layer))
        if why is not None:
            reasons.setdefault(why, []).append(place.layer)
    return lines + [
        f"{', '.join(layers)}: {why}; reference prices are used" for why, layers in reasons.items()
    ]


def montecarlo_table(estimate: Estimate) -> list[Table]:
    """The score of one query, compiled and sampled; no table if no query is estimated."""
    score, sampled = estimate.score, estimate.montecarlo
    if score is None or sampled is None:
        return []
    ways, multiplications = (sampled.stored, sampled.redrawn), score_multiplications(score)
    columns = (
        Column("score of one query"),
        Column("compiled", whole),
        Column(f"K = {sampled.samples}, stored", whole, "the items' samples are stored"),
        Column(
            f"K = {sampled.samples}, redrawn",
            whole,
            "the items' samples are drawn again for each query",
        ),
    )
    memory = (estimate.gallery_bytes, *(way.gallery_bytes for way in ways))
    rows: list[Sequence[Content]] = [
        ("multiplications", multiplications, *(way.multiplications for way in ways)),
        ("normal random numbers", 0, *(way.random_normals for way in ways)),
        ("sigmoids", 0, *(way.sigmoids for way in ways)),
        ("gallery in memory", *(_scaled_cell(one, SIZES) for one in memory)),
        ("cells written", score.cells_written, *(way.cells_written for way in ways)),
        ("latency", *(one.latency_ns.cell(TIMES) for one in (score, *ways))),
        ("energy", *(one.energy_pj.cell(ENERGIES) for one in (score, *ways))),
    ]
    title = f"Compiled and sampled{by_itself(estimate)}"
    made = make_table(title, columns, rows, sortable=False)
    return [made.named("sampling", "detail")]


def score_multiplications(score: Cost) -> int:
    """Multiplications in arrays and digital ones."""
    return score.macs + score.digital.multiplications


def _scaled_cell(value: float | None, units: Units) -> Cell | None:
    return None if value is None else Cell(scaled(value, units), value)


def montecarlo_sentences(estimate: Estimate) -> list[str]:
    """The reasons that Monte Carlo does not run in the arrays, one sentence each."""
    score, sampled = estimate.score, estimate.montecarlo
    if score is None or sampled is None:
        return []
    K, stored, redrawn = sampled.samples, sampled.stored, sampled.redrawn
    ratio = stored.multiplications / max(score_multiplications(score), 1)
    rewritten = ""
    if redrawn.cells_written:
        rewritten = f", and in arrays it would write {redrawn.cells_written:,} cells each time"
        if sampled.endurance is not None:
            rewritten += f"; a cell endures {sampled.endurance:.3g} pulses"
    return [
        f"Monte Carlo, K = {K}: an array can only add products up. Each of the {K * K} distances "
        f"of a pair needs its own sigmoid before the mean: {stored.sigmoids:,} digital sigmoids "
        "per query",
        f"with stored samples a query draws {stored.random_normals:,} normal numbers, which no "
        f"target here makes, and multiplies {ratio:.3g} times as often as the compiled score; the "
        f"gallery takes {scaled(stored.gallery_bytes, SIZES)} instead of "
        f"{scaled(estimate.gallery_bytes or 0, SIZES)}",
        f"with redrawn samples a query draws {redrawn.random_normals:,}{rewritten}",
        f"latency and energy of sampling count its products {_place(estimate)}, and random "
        "numbers, sigmoids and their mean at reference prices",
    ]


def _place(estimate: Estimate) -> str:
    """The unit that computes the products of samples: the same as for the score."""
    if estimate.program.shortlist is not None:
        shortlist = estimate.shortlist or estimate.gallery
        return (
            f"in the digital unit, for the {shortlist:,} items of the same shortlist, whose cost "
            "is in both"
        )
    if estimate.program.gallery_items is None:
        return "in the digital unit, like the score"
    return "in arrays, like the score, with samples stored and loaded like the gallery"


def instead_pictures(estimate: BundleCost, level: BlockLevel = "shown") -> list[Picture]:
    """The picture of all ways by the size of the gallery, if that can vary."""
    picture = instead_picture(estimate)
    if picture is None:
        return []
    said = (
        "Energy of a query in each way, by number of items; marks: another is the cheapest; "
        "dashed: whether compute-in-memory takes less energy changes"
    )
    return [Picture("instead", picture, said, level)]


def price_table(estimate: Estimate) -> Table:
    """The prices of the digital operations of a program at its target, with their sources."""
    kinds = dict.fromkeys(
        kind for cost in totals(estimate).values() for kind in cost.digital.tallies
    )
    rows: list[list[Content]] = []
    for kind in kinds:
        unit = estimate.rates.prices.unit(kind)
        if unit is not None:
            ends = (Cell(f"{one:.3g}", one) for one in (unit.value, unit.low, unit.high))
            of = UNIT_NAMES[kind_of(kind).width]
            sources = Cell("; ".join(dict.fromkeys(unit.sources)), style="long")
            rows.append([kind, *ends, of, unit.status, sources])
    columns = [Column("kind"), *(Column(name, whole) for name in ("pJ", "from", "to"))]
    columns += [Column(name) for name in ("of", "standing", "source")]
    return make_table("Prices of digital operations", columns, rows).named("prices", "detail")


def assumptions(estimate: Estimate) -> list[str]:
    """Assumptions of the totals, one sentence each."""
    plan, target = estimate.floorplan, estimate.target
    said = [
        "the arrays of a layer work side by side, and layers that do not wait for each other; an "
        "array with several tiles of a layer computes them in turn",
        "figures of whole products are charged in proportion to the cells used; figures of one bit "
        "or cell are charged for each bit or cell of a layer",
        "converters work while the next cycle is read; if they are slower, they set the pace",
    ]
    if not plan.resident:
        said.append("each inference loads the weights that do not stay; a batch shares its loads")
    if estimate.query is not None:
        said.append("the gallery is encoded already; a query encodes one text and scores it")
    said += [
        f"{place.layer} drives the cells of {place.shares}"
        for place in estimate.placements
        if place.shares is not None
    ]
    if plan.chips is None and estimate.rates.own.rows is not None:
        said.append("chips are as large as the program needs")
    said += [f"not modelled: {text}" for text in target.unmodelled]
    unconfirmed = [one.quantity for one in target.figures if one.status == "unconfirmed"]
    if unconfirmed:
        said.append(f"unconfirmed figures: {', '.join(unconfirmed)}")
    said.append(interval_sentence(target))
    skipped = skipping_notes([place.activity for place in estimate.placements])
    return [*said, *skipped, *estimate.rates.prices.assumptions()]


def cost_json(estimate: BundleCost) -> dict[str, Any]:
    """All of the cost of a bundle as plain values: ns, pJ and mm2."""
    point, sampled = estimate.rates.point, estimate.montecarlo
    return {
        **instead_json(estimate),
        "target": estimate.target.name,
        "operating_point": None if point is None else point.model_dump(exclude_none=True),
        "gallery": estimate.gallery,
        "layout": estimate.floorplan.to_json(),
        "layers": [
            p.to_json()
            | {"products": estimate.products[p.layer], "cost": estimate.layers[p.layer].to_json()}
            for p in estimate.placements
        ],
        "text": estimate.text.to_json(),
        "video": estimate.video.to_json(),
        "query": None if estimate.query is None else estimate.query.to_json(),
        "area_mm2": estimate.area.total.to_json(),
        "area_parts": estimate.area.to_json(),
        "score": None if estimate.score is None else estimate.score.to_json(),
        "programming": estimate.programming.to_json(),
        "bounds": [one.to_json() for one in query_bounds(estimate)],
        "gallery_bytes": estimate.gallery_bytes,
        "montecarlo": None if sampled is None else sampled.to_json(),
        "schedule": schedule_json(estimate),
        "assumptions": assumptions(estimate),
    }
