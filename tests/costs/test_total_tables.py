"""Totals of one item, by itself and in a batch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cimtool import api
from cimtool.costs.render import document
from cimtool.costs.total_tables import energy_headline
from cimtool.costs.totals import Cost, PartShare, Quantity
from cimtool.report.terminal import terminal


def test_a_headline_on_less_than_95_percent_says_so() -> None:
    half = Cost(macs=2, known=1, parts={"arrays": PartShare(Quantity(2000.0, (), 1000.0, 5000.0))})
    assert energy_headline(half) == ("2 nJ (1 nJ to 5 nJ), known for only 50% of its operations")
    assert energy_headline(replace(half, known=2)) == "2 nJ (1 nJ to 5 nJ)"


@pytest.mark.thorough("two costs; first lines of batches are in the snapshots")
def test_a_batch_leads_with_what_one_of_it_takes(small_bundle: Path) -> None:
    one, many = (api.cost(small_bundle, gallery=1_000_000, batch=batch) for batch in (1, 32))
    shared = many.schedules["query"].item
    assert one.query is not None
    assert energy_headline(shared) != energy_headline(one.query)
    said = terminal(document(many, "small"), width=200, verbose=True)
    assert f"query x 1,000,000, 32 at once: {energy_headline(shared)}" in said
    assert "for 32 queries at once" in said.splitlines()[1]
    assert "Totals of one text, one video and a query, by itself" in said
    alone = terminal(document(one, "small"), width=200, verbose=True)
    assert f"query x 1,000,000: {energy_headline(one.query)}" in alone
    assert "at once" not in alone.split("Totals of")[0]
