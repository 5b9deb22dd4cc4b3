"""Costs in the report of `verify`: the fit of the bundle, and the cost of a query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from cimtool.bundle.placement_picture import placement_svg
from cimtool.bundle.placement_view import fit_facts, fit_sentence
from cimtool.costs import instead, render
from cimtool.costs.area import area_table
from cimtool.costs.bounds import bound_table, bounds_text, query_bounds
from cimtool.costs.bundle_cost import BundleCost, bundle_cost
from cimtool.costs.measured_accuracy import accuracy_of_rows
from cimtool.costs.total_tables import energy_headline, part_table, total_table
from cimtool.report.document import Block, FactList, Picture, Section, Sentence, notes
from cimtool.report.formats import (
    AREAS,
    ENERGIES,
    NOT_GIVEN,
    TIMES,
    counted,
    coverage,
    whole,
)
from cimtool.report.table import Content
from cimtool.verification.sections import ComparedFigure, ReportSection, SectionInputs


class CostSection(ReportSection, name="cost"):
    """The cost of a query against the videos as gallery, as `cimtool cost` estimates it."""

    figures = (
        ComparedFigure("arrays", "", ("layout", "arrays")),
        ComparedFigure("chips", "", ("layout", "chips")),
        ComparedFigure("cells written", "", ("programming", "cells_written")),
        ComparedFigure("conversions of a query", "", ("query", "conversions")),
        ComparedFigure("energy of a query", "pJ", ("query", "energy_pj", "value")),
        ComparedFigure("latency of a query", "ns", ("query", "latency_ns", "value")),
        ComparedFigure("conversions of an item", "", ("video", "conversions")),
        ComparedFigure("energy of an item", "pJ", ("video", "energy_pj", "value")),
    )

    @classmethod
    def measure(cls, measured: SectionInputs) -> BundleCost:
        """Estimate a query among the items that the verdict is for.

        Monte Carlo beside it has the references' number of samples.
        """
        samples, drift, bundle = measured.references.samples, measured.drift, measured.bundle
        found = bundle_cost(bundle, samples, drift.worth.ranked_items)
        items = len(measured.data.video)
        gain = drift.worth.gain
        known = accuracy_of_rows(bundle, drift.rows, samples, items, "this report", gain)
        return replace(found, accuracy=known)

    @classmethod
    def values(cls, found: BundleCost) -> Mapping[str, Any]:
        """Return the content of `cost.json`."""
        return render.cost_json(found)

    @classmethod
    def verdict(cls, found: BundleCost) -> list[Sentence]:
        """Return the cheapest way of a query, and whether compute-in-memory pays."""
        return instead.verdict(found)

    @classmethod
    def compared(cls, found: BundleCost) -> dict[str, Content]:
        """Return the arrays, and the energy of a query with its interval."""
        energy = None if found.query is None else found.query.energy_pj.full_cell(ENERGIES)
        return {"arrays": found.floorplan.arrays, "energy of a query": energy}

    @classmethod
    def blocks(cls, found: BundleCost, bundle: str) -> tuple[Block, ...]:
        """Return two cards, and a section with all tables."""
        fit, name = fit_sentence(found.floorplan), f"{bundle} on {found.target.name}"
        picture = placement_svg(found.placements, found.floorplan, name)
        stored = [place for place in found.placements if place.shares is None]
        cells = sum(place.arrays * place.cells_per_array for place in stored)
        used = sum(place.cells for place in stored) / cells if cells else 0.0
        facts = (
            ("cells used", f"{used:.1%} of those in its arrays"),
            *fit_facts(found.floorplan),
            ("area", found.area.total.full_text(AREAS)),
        )
        points, by_size = query_bounds(found), instead.by_size_text(found)
        tables: tuple[Block, ...] = (
            *(one.named("instead") for one in instead.instead_table(found)),
            *([Sentence(by_size)] if by_size else []),
            *notes(
                [instead.unmeasured_text(found), instead.cheapest_by_size_text(found)], "detail"
            ),
            *notes(instead.instead_notes(found), "detail"),
            *render.instead_pictures(found, "detail"),
            *instead.ways_table(found),
            Picture("placement", picture, f"Placement of {name}: {fit}", "detail"),
            render.layer_cost_table(found).named("cost_layers", "detail"),
            total_table(found).named("cost", "detail"),
            part_table(found),
            area_table(found.area),
            *bound_table(points),
            *notes([bounds_text(points)] if points else (), "detail"),
            *render.montecarlo_table(found),
        )
        folded = (
            Section(
                "Why Monte Carlo does not run in the arrays",
                notes(render.montecarlo_sentences(found), "detail"),
            ),
            Section(
                "Prices that the target does not publish",
                (render.price_table(found),),
            ),
            Section("Assumptions of the totals", notes(render.assumptions(found), "detail")),
        )
        return (
            Section("Does it fit?", (Sentence(fit), FactList(facts, "detail")), "fit", 2),
            Section("What does a query cost?", tuple(_query(found)), "energy", 2),
            Section("Cost and placement", (*tables, *folded), "cost"),
        )


def _query(found: BundleCost) -> Iterator[Block]:
    """The energy and the latency of a query, and the basis of both."""
    query, point = found.query, found.rates.point
    if query is None:
        return
    latency = query.latency_ns.full_text(TIMES)
    yield Sentence(f"Energy {energy_headline(query)}; latency {latency}")
    facts = (
        ("gallery", counted(found.gallery or 0, "item")),
        ("energy known for", f"{coverage(query.coverage)} of its operations"),
        ("from the target's figures", f"{coverage(query.own_share)} of the energy"),
        ("conversions", whole(query.conversions)),
        ("operating point", NOT_GIVEN if point is None else point.name),
    )
    yield FactList(facts, "detail")
    yield from (Sentence(one, "detail", "soft") for one in render.missing_sentences(query))
