from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cimtool.reference.bootstrap import Change
from cimtool.verification.answers import (
    clipping_sentence,
    energy,
    figures_by_status,
    fit_facts,
    fit_sentence,
    latency,
    missing_sentences,
    noisiest_sentence,
    survival_sentence,
)
from cimtool.verification.report import Report


def placed(report: Report, **layout: Any) -> Report:
    chip = {"arrays_per_macro": 1, "macros_per_core": 1, "cores": 64, "arrays": 64}
    plan = {**report.cost["layout"], "chip": chip, "arrays": 60, "rounds": {}, **layout}
    return replace(report, cost={**report.cost, "layout": plan})


@pytest.mark.parametrize(
    ("layout", "sentence", "fact"),
    [
        ({"chips": 1, "chips_filled": 0.9375}, "On one chip: 60 arrays of 64", "93.8% (0.9375 of"),
        ({"chips": 5, "chips_filled": 4.5}, "On 5 chips of 64 arrays", "90.0% (4.5 of a chip)"),
        (
            {"chips": 1, "chips_filled": 3.5, "resident": False, "loads": 4,
             "rounds": {"text": 2, "video": 2}},
            "In rounds: 4 loads of one chip", "text 2, video 2",
        ),
        ({"chips": None, "chips_filled": None}, "60 arrays", "not given"),
    ],
)  # fmt: skip
def test_whether_it_fits(report: Report, layout: dict[str, Any], sentence: str, fact: str) -> None:
    found = placed(report, resident=layout.pop("resident", True), **layout)
    assert fit_sentence(found) == sentence
    assert any(fact in value for _, value in fit_facts(found))


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (Change(0.05, 0.03, 0.07), "It loses R@1"),
        (Change(0.01, -0.01, 0.02), "No sure loss of R@1"),
        (Change(-0.05, -0.06, -0.01), "It gains R@1"),
        (None, "not known"),
    ],
)
def test_whether_it_survives(report: Report, loss: Change | None, words: str) -> None:
    found = replace(report, headline=replace(report.headline, r1_loss=loss))
    assert words in survival_sentence(found)


def test_the_worst_clipping_is_named(report: Report) -> None:
    first, *others = report.layers
    column, *rest = first.converters
    clipped = replace(column, step=3, clipped=0.25, conversions=4000)
    found = replace(report, layers=(replace(first, converters=(clipped, *rest)), *others))
    assert clipping_sentence(found) == (
        f"{first.layer}, {column.column}: 25.000% of 4,000 column sums are clipped."
    )


def test_the_noisiest_layer_is_named(report: Report) -> None:
    noisy = tuple(replace(one, own_sqnr_db=30.0 + i) for i, one in enumerate(report.layers))
    found = noisiest_sentence(replace(report, layers=noisy[::-1]))
    assert found is not None
    assert f"{report.layers[0].layer}, with a signal 30.0 dB" in found
    quiet = tuple(replace(one, own_sqnr_db=None) for one in report.layers)
    assert noisiest_sentence(replace(report, layers=quiet)) is None


def test_lossless_converters_do_not_clip(report: Report) -> None:
    lossless = tuple(
        replace(one, converters=tuple(replace(c, step=None) for c in one.converters))
        for one in report.layers
    )
    assert "lossless" in clipping_sentence(replace(report, layers=lossless))


def test_lower_bounds_are_marked_and_said_once(report: Report) -> None:
    def cost(value: float | None, missing: list[str]) -> dict[str, Any]:
        return {"value": value, "missing": missing, "lower_bound": bool(missing)}

    query = {"energy_pj": cost(2500.0, ["x"]), "latency_ns": cost(None, ["x"])}
    assert (energy(query), latency(query)) == ("> 2.5 nJ", "not given")
    found = replace(report, cost={**report.cost, "query": {**report.cost["query"], **query}})
    assert missing_sentences(found) == ("energy and latency: without x",)


def test_every_figure_has_a_status(report: Report) -> None:
    found = figures_by_status(report)
    assert [status for status, _, _ in found] == ["confirmed", "derived", "unconfirmed"]
    assert {name for _, _, names in found for name in names} == {
        one.quantity for one in report.figures
    }
