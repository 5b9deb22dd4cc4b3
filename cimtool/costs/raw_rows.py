"""The cost of doing without a model: raw rows in 8 bits, scored in digital at the same prices."""

from __future__ import annotations

from cimtool.costs.charges import digital_cost
from cimtool.costs.estimate import Estimate
from cimtool.costs.operations import Operations, digital_products, elements
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
    return digital_cost(work, prices)


def verdict(estimate: Estimate) -> list[Sentence]:
    """The energy of a query beside that of raw rows; nothing where one of them is not known.

    The ends of the ratio are at the same ends of the prices, which both have in common.
    """
    query, raw = estimate.query, raw_query(estimate)
    if query is None or raw is None:
        return []
    own, other = query.energy_pj, raw.energy_pj
    if own.value is None or not (other.value and other.low and other.high):
        return []
    low, high = sorted(((own.low or 0.0) / other.low, (own.high or 0.0) / other.high))
    tone: Tone = "bad" if low > 1 else "good" if high < 1 and not own.lower_bound else ""
    least = "at least " * own.lower_bound
    place = "DRAM" if raw.digital.count("dram") else "SRAM"
    return [
        Sentence(
            f"Energy per query: {least}{own.value / other.value:.2g} times ({low:.2g} to "
            f"{high:.2g}) that of raw rows in int8 among {estimate.gallery:,} items, which need no "
            f"model and take {other.full_text(ENERGIES)} in digital at the same prices, read from "
            f"{place}.",
            "verdict",
            tone,
        )
    ]
