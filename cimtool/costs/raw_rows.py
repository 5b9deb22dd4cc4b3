"""Raw rows in 8 bits in the digital unit, at the same prices as a compiled query."""

from __future__ import annotations

from dataclasses import dataclass

from cimtool.base.intervals import Change
from cimtool.costs.charges import digital_cost
from cimtool.costs.estimate import Estimate
from cimtool.costs.operations import Operations, digital_products, elements, width
from cimtool.costs.overheads import with_leakage
from cimtool.costs.price_errors import ratio, times_text
from cimtool.costs.totals import Cost
from cimtool.report.document import Sentence, Tone

BITS = 8


def row_width(estimate: Estimate) -> int | None:
    """Numbers of a raw row of either side; None for rows of tokens or of two widths."""
    if estimate.program.score.numbers_of_pair > 1:
        return None
    rows = (estimate.program.text.inputs["x"], estimate.program.video.inputs["x"])
    numbers, other = (elements(one, {"n": 1}) for one in rows)
    return numbers if numbers == other else None


def raw_query(estimate: Estimate) -> Cost | None:
    """One raw text scored against the raw rows of all items; None without `row_width`.

    It is the text's row from a host, the products of the rows, and one read of each number: from
    SRAM if it holds the whole gallery, else from DRAM.
    """
    numbers = row_width(estimate)
    if estimate.gallery is None or numbers is None:
        return None
    products, prices = estimate.gallery * numbers, estimate.rates.prices
    kind = "sram" if products * BITS <= prices.buffer_bits else "dram"
    work = digital_products(products, BITS) + Operations.of(kind, products, BITS)
    work += Operations.of("host", numbers, width(estimate.program.text.inputs["x"]))
    return with_leakage(digital_cost(work, prices), estimate.area.beside, prices.node)


@dataclass(frozen=True)
class TimesRaw:
    """The energy of a query as a multiple of that of raw rows among the same `items`.

    Both have their prices in common (`price_errors.py`). It is a lower bound if a part of the query
    has no price.
    """

    times: Change
    items: int
    lower_bound: bool

    def sentence(self) -> Sentence:
        """The multiple in words."""
        one, least = self.times, "at least " * self.lower_bound
        tone: Tone = "bad" if one.low > 1 else ""
        if one.high < 1 and not self.lower_bound:
            tone = "good"
        return Sentence(
            f"Energy per query: {least}{times_text(one)} that of raw rows in int8 among "
            f"{self.items:,} items.",
            "verdict",
            tone,
        )


def times_raw(estimate: Estimate) -> TimesRaw | None:
    """The energy of a query beside that of raw rows; None where one of them is not known."""
    raw = raw_query(estimate)
    if raw is None or estimate.gallery is None or (query := estimate.query) is None:
        return None
    own, other = query.energy_pj, raw.energy_pj
    if not (own.value and other.value):
        return None
    times = ratio(query.energy_by_price, raw.energy_by_price)
    return TimesRaw(times, estimate.gallery, own.lower_bound)
