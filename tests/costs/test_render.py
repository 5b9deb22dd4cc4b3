"""The cost in words and tables."""

from __future__ import annotations

from typing import Any

import pytest

from cimtool.bundle.placement_view import fit_facts, fit_sentence
from cimtool.costs.render import missing_sentences
from cimtool.costs.totals import Cost, PartShare, Quantity, longest
from cimtool.hardware.geometry import ChipSpec
from cimtool.hardware.placement import Floorplan
from cimtool.report.formats import ENERGIES, TIMES

SMALL = ChipSpec(arrays_per_macro=1, macros_per_core=1, cores=64)


@pytest.mark.parametrize(
    ("plan", "sentence", "fact"),
    [
        ({"chips": 1}, "On one chip: 60 arrays of 64", "93.8% (0.9375 of"),
        ({"chips": 5, "tiles": 288}, "On 5 chips of 64 arrays", "90.0% (4.5 of a chip)"),
        (
            {"chips": 1, "tiles": 224, "rounds": {"text": 2, "video": 2}},
            "In rounds: 4 loads of one chip", "text 2, video 2",
        ),
        ({"chips": None, "chip": ChipSpec()}, "60 arrays", "not given"),
    ],
)  # fmt: skip
def test_whether_it_fits(plan: dict[str, Any], sentence: str, fact: str) -> None:
    values = {"tiles": 60, "weight_sets": 1, "arrays": 60, "chip": SMALL, "rounds": {}}
    found = Floorplan(**values | plan)
    assert fit_sentence(found) == sentence
    assert any(fact in value for _, value in fit_facts(found))


def test_lower_bounds_are_marked_and_said_once() -> None:
    energy, latency = Quantity(2500.0, ("x",)), Quantity(None, ("x",))
    assert (energy.text(ENERGIES), latency.text(TIMES)) == ("> 2.5 nJ", "not given")
    found = missing_sentences(Cost(latency_ns=latency, parts={"arrays": PartShare(energy)}))
    assert list(found) == ["energy and latency: without x"]
    assert list(missing_sentences(Cost(parts={"arrays": PartShare(Quantity(1.0))}))) == []


def test_intervals_are_sums_of_ends() -> None:
    one, other = Quantity(2.0, (), 1.0, 3.0, own=2.0), Quantity(5.0, ("x",))
    assert one + other == Quantity(7.0, ("x",), 6.0, 8.0, own=2.0)
    assert longest((one, Quantity(2.5))) == Quantity(2.5, (), 2.5, 3.0, own=2.0)
    assert one.times(2, 1, 10) == Quantity(4.0, (), 1.0, 30.0, own=4.0)
