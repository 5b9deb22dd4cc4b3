"""Raw rows in digital beside a compiled query."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cimtool.base.intervals import Change
from cimtool.bundle.bundle import read_bundle
from cimtool.costs.estimate import Estimate, estimate_bundle
from cimtool.costs.raw_rows import TimesRaw, raw_query, times_raw, verdict
from cimtool.costs.render import document, estimate_json

BUNDLE = Path(__file__).resolve().parents[2] / "exports" / "reference-small@isaac-rram-128"


def estimated(gallery: int | None) -> Estimate:
    return estimate_bundle(read_bundle(BUNDLE), 10, gallery)


def test_raw_rows_take_a_product_and_a_read_of_each_number() -> None:
    found = estimated(1000)
    raw = raw_query(found)
    assert raw is not None
    width = found.program.text.inputs["x"].shape[-1]
    numbers = 1000 * int(width)
    assert raw.digital.multiplications == numbers
    assert raw.digital.count("sram", "dram") == numbers
    twice = raw_query(found.with_gallery(2000))
    assert twice is not None
    assert twice.energy_pj.value == pytest.approx(2 * (raw.energy_pj.value or 0))
    assert estimate_json(found)["raw_query"] == raw.to_json()


def test_rows_that_no_longer_fit_the_buffer_are_read_from_dram() -> None:
    found = estimated(10**7)
    raw = raw_query(found)
    assert raw is not None
    assert raw.digital.count("dram") > 0
    assert raw.digital.count("sram") == 0


def test_the_verdict_on_energy_leads() -> None:
    found = estimated(1000)
    raw, query = raw_query(found), found.query
    assert raw is not None
    assert query is not None
    sentence, sampling = verdict(found)
    assert document(found, "small").blocks[0] == sentence
    ratio = (query.energy_pj.value or 0) / (raw.energy_pj.value or 1)
    assert f": {ratio:.2g} times (" in sentence.text
    assert " that of raw rows in int8 among 1,000 items" in sentence.text
    assert sentence.text.endswith(", read from SRAM.")
    assert sentence.tone == ("bad" if ratio > 1 else "good")
    assert sentence.level == "verdict"
    sampled, text = found.montecarlo, found.text.energy_pj.value
    assert sampled is not None
    times = ((text or 0) + (sampled.stored.energy_pj.value or 0)) / (query.energy_pj.value or 1)
    assert sampling.text.startswith("Monte Carlo with K=10 and stored samples takes ")
    told = sampling.text.split(" takes ")[1].split(" times ")[0]
    assert float(told.replace(",", "")) == pytest.approx(times, rel=0.05)


def test_large_multiples_have_no_exponent() -> None:
    sentence = TimesRaw(Change(1.234e6, 0.0456, 98.7), 7, lower_bound=False).sentence()
    assert sentence.text == (
        "Energy per query: 1,200,000 times (0.046 to 99) that of raw rows in int8 among 7 items."
    )


def test_without_a_gallery_or_with_rows_of_two_widths_there_is_nothing_to_compare() -> None:
    (asked,) = verdict(estimated(None))
    assert asked.text.startswith("The number of items is not given")
    assert raw_query(estimated(None)) is None
    found = estimated(1000)
    text = found.program.text
    wide = replace(text.inputs["x"], shape=("n", 7))
    changed = replace(text, inputs={**text.inputs, "x": wide})
    other = replace(found, program=replace(found.program, text=changed))
    assert raw_query(other) is None
    assert times_raw(other) is None
    assert estimate_json(found)["raw_query"] is not None
