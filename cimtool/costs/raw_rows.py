"""The costs of the other ways, at the same prices: raw rows in 8 bits in digital, and sampling."""

from __future__ import annotations

from dataclasses import dataclass

from cimtool.base.intervals import Change
from cimtool.costs.charges import digital_cost
from cimtool.costs.estimate import Estimate
from cimtool.costs.operations import Operations, digital_products, elements
from cimtool.costs.overheads import with_leakage
from cimtool.costs.totals import Cost
from cimtool.report.document import Sentence, Tone
from cimtool.report.formats import ENERGIES

BITS = 8


def raw_query(estimate: Estimate) -> Cost | None:
    """One raw text scored against the raw rows of all items; None for rows of two widths.

    It is the products of the rows, and one read of each number: from SRAM if it holds the whole
    gallery, else from DRAM.
    """
    rows = (estimate.program.text.inputs["x"], estimate.program.video.inputs["x"])
    numbers, other = (elements(one, {"n": 1}) for one in rows)
    if estimate.gallery is None or numbers != other:
        return None
    products, prices = estimate.gallery * numbers, estimate.rates.prices
    kind = "sram" if products * BITS <= prices.buffer_bits else "dram"
    work = digital_products(products, BITS) + Operations.of(kind, products, BITS)
    return with_leakage(digital_cost(work, prices), estimate.area.beside, prices.node)


@dataclass(frozen=True)
class TimesRaw:
    """The energy of a query as a multiple of that of raw rows among the same `items`.

    The ends are at the same ends of the prices, which both have in common. It is a lower bound if
    a part of the query has no price.
    """

    times: Change
    items: int
    lower_bound: bool

    def sentence(self, more: str = "") -> Sentence:
        """The multiple in words; `more` follows."""
        one, least = self.times, "at least " * self.lower_bound
        tone: Tone = "bad" if one.low > 1 else ""
        if one.high < 1 and not self.lower_bound:
            tone = "good"
        return Sentence(
            f"Energy per query: {least}{_two_digits(one.value)} times ({_two_digits(one.low)} to "
            f"{_two_digits(one.high)}) that of raw rows in int8 among {self.items:,} items{more}.",
            "verdict",
            tone,
        )


def _two_digits(value: float) -> str:
    """Two significant digits, without an exponent where a number is large."""
    rounded = float(f"{value:.2g}")
    return f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:g}"


def times_raw(estimate: Estimate) -> TimesRaw | None:
    """The energy of a query beside that of raw rows; None where one of them is not known."""
    raw = raw_query(estimate)
    if raw is None or estimate.gallery is None or (query := estimate.query) is None:
        return None
    own, other = query.energy_at_ends, raw.energy_at_ends
    if own.value is None or not (other.value and other.low and other.high):
        return None
    ends = sorted(((own.low or 0.0) / other.low, (own.high or 0.0) / other.high))
    return TimesRaw(Change(own.value / other.value, *ends), estimate.gallery, own.lower_bound)


def verdict(estimate: Estimate) -> list[Sentence]:
    """The same as a sentence, with the energy of raw rows; without a gallery, what it takes."""
    if estimate.gallery is None:
        return [
            Sentence(
                "The number of items is not given, on which it depends whether the model pays "
                "against raw rows in int8.",
                "verdict",
            )
        ]
    raw, found = raw_query(estimate), times_raw(estimate)
    said = []
    if raw is not None and found is not None:
        place = "DRAM" if raw.digital.count("dram") else "SRAM"
        more = (
            f", which need no model and take {raw.energy_pj.full_text(ENERGIES)} in digital at the "
            f"same prices, read from {place}"
        )
        said.append(found.sentence(more))
    return said + sampling_verdict(estimate)


def sampling_verdict(estimate: Estimate) -> list[Sentence]:
    """The energy of a query by Monte Carlo, with stored samples, beside that of the compiled one.

    Nothing if one is not known. Both encode the query alike; lower bounds have no multiple.
    """
    if (sampled := estimate.montecarlo) is None or (query := estimate.query) is None:
        return []
    own, score, text = query.energy_pj, sampled.stored.energy_pj, estimate.text.energy_pj
    if own.lower_bound or text.lower_bound or not (own.value and score.value and text.value):
        return []
    times = (text.value + score.value) / own.value
    return [
        Sentence(
            f"Monte Carlo with K={sampled.samples} and stored samples takes {_two_digits(times)} "
            "times the energy of this query.",
            "verdict",
        )
    ]
