"""The first lines and the first table of a cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cimtool import api
from cimtool.base.intervals import Change
from cimtool.costs.accuracy import WayAccuracy
from cimtool.costs.crossings import CheapestFrom
from cimtool.costs.instead import (
    by_size_text,
    cheapest_by_size_text,
    cheapest_sentences,
    instead_notes,
    instead_table,
    sampling_text,
    unmeasured_text,
    verdict,
)
from cimtool.costs.price_errors import times_text
from cimtool.costs.render import document
from cimtool.costs.totals import Quantity
from cimtool.costs.ways import BUILT, HERE, KINDS, GalleryWay, WayKind, cheapest, times
from cimtool.report.document import Note
from cimtool.report.terminal import terminal

SAME = Change(0.0, -0.005, 0.005)


def way(
    kind: WayKind, value: float, spread: float = 1.0, place: str = HERE, gain: Change = SAME
) -> GalleryWay:
    energy = Quantity(value, (), value / spread, value * spread)
    r1 = Change(0.25, 0.2, 0.3)
    return GalleryWay(
        kind, f"the {kind}", 7000, place, energy, r1=r1, gain=gain if kind in BUILT else None
    )


def test_one_way_is_cheapest_and_the_next_of_the_other_side_is_a_multiple() -> None:
    ways = (way("raw rows", 1000), way("GPU", 900, 2, "A100"), way("shortlist", 100))
    (said,) = cheapest_sentences(ways, "7,000 items")
    assert said.text == (
        'Compute-in-memory pays among 7,000 items: "the GPU" takes 9 times (4.5 to 18) the energy '
        'of "the shortlist".'
    )
    assert said.tone == "good"


def test_raw_rows_that_are_cheapest_say_that_it_does_not_pay() -> None:
    (said,) = cheapest_sentences((way("raw rows", 10), way("digital", 30)), "7,000 items")
    assert said.text == (
        'Compute-in-memory does not pay among 7,000 items: "the digital" takes exactly 3 times the '
        'energy of "the raw rows".'
    )
    assert said.tone == "bad"


LESS, MORE, OPEN = (100, 30), (10, 30), (10, 10)
"""Energies of raw rows and of the digital way."""


@pytest.mark.parametrize(
    ("energies", "gain", "answer", "tone"),
    [
        (LESS, (0.03, 0.01, 0.05), "Compute-in-memory pays among 7 items", "good"),
        (LESS, (0.0, -0.01, 0.01), "Compute-in-memory pays among 7 items", "good"),
        (LESS, (0.0, -0.011, 0.01), "less energy among 7 items, and is not shown to find as", ""),
        (LESS, (-0.005, -0.009, -0.001), "less energy among 7 items, and finds less", ""),
        (MORE, (0.03, 0.01, 0.05), "more energy among 7 items, and finds more", ""),
        (MORE, (0.02, -0.001, 0.05), "more energy among 7 items, and is not shown to find", ""),
        (MORE, (0.0, -0.5, 0.01), "Compute-in-memory does not pay among 7 items: ", "bad"),
        (MORE, (-0.2, -0.5, -0.1), "Compute-in-memory does not pay among 7 items: ", "bad"),
        (OPEN, (0.03, 0.01, 0.05), "Whether compute-in-memory pays among 7 items is open", ""),
        (OPEN, (0.0, -0.01, 0.01), "Whether compute-in-memory pays among 7 items is open", ""),
        (OPEN, (-0.2, -0.5, -0.1), "does not pay among 7 items, where it finds less", "bad"),
    ],
)
def test_the_answer_has_what_both_sides_find_and_what_they_take(
    energies: tuple[int, int], gain: tuple[float, ...], answer: str, tone: str
) -> None:
    raw, built = energies
    ways = way("raw rows", raw, 2), way("digital", built, place="array", gain=Change(*gain))
    said, *_ = cheapest_sentences(ways, "7 items")
    assert answer in said.text
    assert said.tone == tone


@pytest.mark.parametrize(
    ("cheap", "dear", "answer"),
    [
        ("shortlist", "Monte Carlo", "less energy among 7,000 items, and finds less"),
        ("Monte Carlo", "digital", "more energy among 7,000 items, and finds more"),
    ],
)
def test_without_a_comparison_on_the_same_queries_intervals_are_independent(
    cheap: WayKind, dear: WayKind, answer: str
) -> None:
    least, other = way(cheap, 10), replace(way(dear, 30), r1=Change(0.4, 0.3, 0.5))
    (said,) = cheapest_sentences((least, other), "7,000 items")
    assert said.text.startswith(f"Compute-in-memory takes {answer}: ")
    # A difference of 0.1 with an interval of 0.112 to both sides.
    (said,) = cheapest_sentences(
        (least, replace(other, r1=Change(0.35, 0.25, 0.45))), "7,000 items"
    )
    assert "and is not shown to find" in said.text


def test_a_dearer_way_that_is_measured_answers_for_one_that_is_not() -> None:
    ways = (
        way("raw rows", 100),
        replace(way("shortlist", 10), r1=None, gain=None),
        way("digital", 40),
    )
    (said,) = cheapest_sentences(ways, "7,000 items")
    assert said.text == (
        'Compute-in-memory pays among 7,000 items: "the raw rows" takes exactly 2.5 times the '
        'energy of "the digital".'
    )
    # One that may take as much energy does not.
    (said,) = cheapest_sentences((*ways[:2], way("digital", 90, 2)), "7,000 items")
    assert "how much it finds is not measured" in said.text


def test_ways_that_overlap_are_named_and_nothing_is_claimed() -> None:
    said, note = cheapest_sentences((way("GPU", 10, 2, "A100"), way("digital", 15)), "7,000 items")
    assert said.text == (
        'Whether compute-in-memory pays among 7,000 items is open: "the digital" takes 1.5 times '
        '(0.75 to 3) the energy of "the GPU".'
    )
    assert said.tone == ""
    assert note == Note("Least known is the energy of A100.")
    assert cheapest_sentences((), "7 items") == []


@pytest.mark.parametrize(
    ("cheap", "dear", "answer"),
    [
        ("shortlist", "raw rows", "less"),
        ("raw rows", "shortlist", "more"),
    ],
)
def test_without_r1_of_both_sides_it_neither_pays_nor_does_not(
    cheap: WayKind, dear: WayKind, answer: str
) -> None:
    least, other = way(cheap, 10), way(dear, 1000)
    for ways in (
        (replace(least, r1=None, gain=None), other), (least, replace(other, r1=None, gain=None)),
        (replace(least, r1=None, gain=None), replace(other, r1=None, gain=None)),
    ):  # fmt: skip
        (said,) = cheapest_sentences(ways, "7,000 items")
        assert said.text.startswith(
            f"Compute-in-memory takes {answer} energy among 7,000 items, how much it finds is not "
            "measured: "
        )
        assert said.tone == ""


def test_the_verdict_says_what_measures_a_way(small_bundle: Path) -> None:
    found, known = api.cost(small_bundle, gallery=10**8), Change(0.25, 0.2, 0.3)
    measured = {one.kind: replace(one, r1=known) for one in found.ways}
    assert "shortlist" in [one.kind for one in cheapest(found.ways)]
    unknown = replace(measured["shortlist"], r1=None)
    vars(found)["ways"] = tuple((measured | {"shortlist": unknown}).values())
    assert unmeasured_text(found) == (
        'R@1 of "chip, shortlist of 100" is not measured; `cimtool cost --data NPZ` of a '
        "bundle by `cimtool compile --score-mapping hybrid` measures it."
    )
    # With data at hand, whose list is too short, it says what would do.
    vars(found)["pairs"] = object()
    vars(found)["accuracy"] = WayAccuracy({}, 20, "eval.npz")
    assert unmeasured_text(found) == (
        'R@1 of "chip, shortlist of 100" takes `cimtool compile '
        "--score-mapping hybrid` and a list of at least 5,000,000, or at least 1,000,000 items to "
        "measure on."
    )
    short = replace(unknown, unmeasured="of 9 items it is fewer than one of the 2")
    vars(found)["ways"] = tuple((measured | {"shortlist": short}).values())
    assert unmeasured_text(found) == (
        'R@1 of "chip, shortlist of 100" is not measured: of 9 items it is fewer than one of the 2.'
    )
    vars(found)["ways"] = tuple(measured.values())
    assert unmeasured_text(found) == ""


def test_the_way_of_the_other_side_is_named_if_it_is_not_measured(small_bundle: Path) -> None:
    found = api.cost(small_bundle, gallery=50)
    ways = (way("raw rows", 10), replace(way("digital", 1000), r1=None))
    vars(found)["ways"] = ways
    assert unmeasured_text(found) == (
        'R@1 of "the digital" is not measured; `cimtool cost --data NPZ` measures it.'
    )


def test_a_list_is_told_with_what_was_measured_of_it(small_bundle: Path) -> None:
    found = api.cost(small_bundle, gallery=7000)
    listed = replace(
        way("shortlist", 10), note="2 bits", recall=Change(0.9, 0.8, 0.95), measured_of=70,
        measured_list=1, enough_list=400,
    )  # fmt: skip
    vars(found)["ways"] = (listed, way("GPU", 1000))
    assert (
        "the shortlist: 2 bits; R@1 is after a list of 1 of 70 items, the same share; it holds the "
        "best item of 90.0% [80.0, 95.0] of the texts; 99% would need a list of 400"
    ) in list(instead_notes(found))
    short = replace(listed, r1=None, recall=None, measured_list=None, unmeasured="too short")
    vars(found)["ways"] = (short, way("GPU", 1000))
    assert (
        "the shortlist: 2 bits; R@1 is not measured: too short; 99% would need a list of 400"
    ) in list(instead_notes(found))


def test_monte_carlo_is_beside_the_score_in_its_place_and_batch(small_bundle: Path) -> None:
    for batch in (1, 8):
        found = api.cost(small_bundle, gallery=1_000_000, batch=batch)
        ways = {one.kind: one for one in found.ways}
        ratio = times(ways["Monte Carlo"], ways["digital"])
        assert ratio is not None
        assert ways["Monte Carlo"].batch == ways["digital"].batch == batch
        at_once = "" if batch == 1 else ", 8 queries at once"
        assert sampling_text(found) == (
            f'"Monte Carlo, K=10" takes {times_text(ratio)} as much a query as "chip, '
            f'digital", in the same place{at_once}.'
        )


def test_the_table_leads_and_has_one_row_a_kind(small_bundle: Path) -> None:
    found = api.cost(small_bundle, gallery=1000)
    (table,) = instead_table(found)
    assert len(table.rows) == len(found.ways) == len(KINDS) == 8
    assert [one.kind for one in found.ways] == list(KINDS)
    shown = document(found, "small")
    assert shown.blocks[: len(verdict(found))] == tuple(verdict(found))
    assert shown.blocks[len(verdict(found))] == table
    text = terminal(shown, width=80)
    start = text.index("One query against 1,000 items")
    lines = text[start:].splitlines()[:20]  # intervals are below their figures
    assert max(map(len, lines)) <= 80
    # The cheapest of both sides, and the build's own way.
    told = [line.split("  ")[0].strip() for line in lines if line.startswith((" raw", " M", " c"))]
    least = [one.way for one in cheapest(found.ways)]
    assert 2 <= len(told) <= 3
    assert any(line.startswith("chip, digital") for line in told)
    assert any(line.startswith(least[0]) for line in told)
    long = terminal(shown, width=80, verbose=True)
    lines = long[long.index("One query against 1,000 items") :].splitlines()[:30]
    assert sum(line.startswith((" raw", " Monte", " chip")) for line in lines) >= 8


def test_rows_are_the_costs_themselves(small_bundle: Path) -> None:
    found = api.cost(small_bundle, gallery=1000)
    rows = {one.kind: one for one in found.ways}
    query, sampled = found.query, found.montecarlo
    assert query is not None
    assert sampled is not None
    assert rows["digital"].energy_pj == query.energy_pj
    assert rows["digital"].latency_ns == query.latency_ns
    expected = (found.text + sampled.stored.cost).energy_pj
    assert rows["Monte Carlo"].energy_pj == expected
    # 24 numbers a row: 24,000 bytes on the machines.
    assert rows["GPU"].latency_ns.value == pytest.approx(9000 + 24_000 / 1555)
    values = found.to_dict()
    assert [one["kind"] for one in values["ways"]][:3] == ["raw rows", "Monte Carlo", "digital"]
    assert {*values["cheapest"]} == {"raw rows", "GPU in batches"}
    assert values["cheapest_by_size"][0]["items"] == 1000


def test_r1_is_in_the_table_with_its_interval(small_bundle: Path) -> None:
    found = api.cost(small_bundle, gallery=1000)
    known = tuple(replace(one, r1=Change(0.5, 0.4, 0.6)) for one in found.ways)
    vars(found)["ways"] = known
    (table,) = instead_table(found)
    assert {row.cells[-1].line for row in table.rows} == {"50.0 [40.0, 60.0]"}


def test_without_a_gallery_it_is_asked_for(small_bundle: Path) -> None:
    found = api.cost(small_bundle)
    (asked,) = verdict(found)
    assert asked.text.endswith("depends on the number of items, which is not given.")
    assert instead_table(found) == []
    assert by_size_text(found) == cheapest_by_size_text(found) == ""


def test_sizes_are_told_from_where_the_answer_changes(small_bundle: Path) -> None:
    found = api.cost(small_bundle, gallery=1000)
    sizes = ((1000, "raw rows"), (2345, "raw rows", "digital"), (31_000, "shortlist"))
    made = tuple(CheapestFrom(items, kinds) for items, *kinds in sizes)
    vars(found)["cheapest_by_size"] = made
    assert by_size_text(found) == (
        "Does it take less energy? From 1,000 items on no, from 2,300 on open, from 31,000 on yes."
    )
    assert cheapest_by_size_text(found) == (
        "Cheapest at the middle of all prices: raw int8 rows, here, from 31,000 on chip, "
        "shortlist of 100. The list is as long in every gallery, so it holds fewer of the best "
        "items of a larger one."
    )


def test_no_leading_figure_has_zero_width(small_bundle: Path) -> None:
    for batch in (1, 8):
        found = api.cost(small_bundle, gallery=1_000_000, batch=batch)
        for one in found.ways:
            for figure in (one.energy_pj, one.latency_ns, one.queries_per_s):
                assert figure.low is not None
                assert figure.value is not None
                assert figure.high is not None
                assert figure.low < figure.high, one.way
                assert figure.low <= figure.value <= figure.high


@pytest.mark.parametrize(
    ("energies", "answer"),
    [
        (LESS, "Compute-in-memory takes less energy among 7 items, and finds less"),
        (MORE, "Compute-in-memory does not pay among 7 items: "),
        (OPEN, "Compute-in-memory does not pay among 7 items, where it finds less"),
    ],
)
def test_a_list_that_is_not_measured_finds_no_more_than_scores_that_find_less(
    energies: tuple[int, int], answer: str
) -> None:
    raw, listed = energies
    ways = (
        way("raw rows", raw, 2),
        way("digital", 5000, gain=Change(-0.2, -0.3, -0.1)),
        replace(way("shortlist", listed, place="array"), r1=None, gain=None),
    )
    said, *_ = cheapest_sentences(ways, "7 items")
    assert said.text.startswith(answer)
