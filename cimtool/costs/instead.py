"""The ways of a query side by side: the sentence, the table, and the plain values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from cimtool.base.intervals import Change
from cimtool.bundle.bundle import QUERIES
from cimtool.costs.bundle_cost import BundleCost
from cimtool.costs.crossings import MOST, CheapestFrom
from cimtool.costs.price_errors import times_text
from cimtool.costs.totals import Quantity
from cimtool.costs.ways import BUILT, ENOUGH, GalleryWay, WayKind, cheapest, times
from cimtool.report.document import Sentence, Tone
from cimtool.report.formats import (
    ENERGIES,
    TIMES,
    Units,
    digits,
    percent,
    percent_range,
    scaled,
    whole,
)
from cimtool.report.table import Cell, Column, Content, Table, interval_cell, item_table

RATES: Units = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""))
"""Units of queries a second."""


PAYS: dict[Tone, str] = {
    "good": "Compute-in-memory pays here.",
    "bad": "Compute-in-memory does not pay here.",
    "": "Whether compute-in-memory pays here is open.",
}
"""The answer by tone."""

UNMEASURED: dict[Tone, str] = {
    "good": "Compute-in-memory takes less energy here; whether it finds as much is not measured.",
    "bad": "Compute-in-memory takes more energy here; whether it finds more is not measured.",
}
"""The answer by tone if R@1 is not known of all cheapest ways, and of the other side's."""

FINDS_LESS = {
    "good": "Compute-in-memory takes less energy here, and finds less.",
    "bad": "Compute-in-memory takes more energy here, and finds more.",
}
"""The answer by tone if R@1 of the cheapest way is lower than that of the other side."""


def verdict(found: BundleCost) -> list[Sentence]:
    """The cheapest way, the factor, and whether compute-in-memory pays; then by size."""
    if found.gallery is None:
        return [
            Sentence(
                "Whether the model pays against raw rows in int8 depends on the number of items, "
                "which is not given.",
                "verdict",
            )
        ]
    first = cheapest_sentence(found.ways, _among(found))
    by_size = found.cheapest_by_size
    later = (unmeasured_text(found), by_size_text(found) if by_size else "")
    return [*first, *(Sentence(text, "verdict") for text in later if text)]


def _among(found: BundleCost) -> str:
    """The gallery and the batch that energies are of."""
    return f"{found.gallery:,} items{_at_once(found, ' for ')}"


def _at_once(found: BundleCost, before: str = ", ") -> str:
    """The queries of a batch; empty for one by itself."""
    return f"{before}{found.batch:,} queries at once" if found.batch > 1 else ""


def cheapest_sentence(ways: tuple[GalleryWay, ...], among: str) -> list[Sentence]:
    """The cheapest way of these `among` so many items, beside the cheapest of the other side.

    One side is the compiled model on its target (BUILT), the other is all else.
    """
    least = cheapest(ways)
    if not least:
        return []
    built = {one.kind in BUILT for one in least}
    tone: Tone = "" if len(built) > 1 else ("good" if built == {True} else "bad")
    answer, first = PAYS[tone], least[0]
    rival = _rival(ways, least)
    if len(least) == 1:
        text = f"Cheapest among {among}: {_named(first)}"
    else:
        *some, last = (_named(one) for one in least)
        text = f"Among {among} no way is shown to be cheapest, at these prices: "
        text += f"{'; '.join(some)}; and {last}"
    compared = least if rival is None else (*least, rival)
    if tone and any(one.r1 is None for one in compared):
        answer, tone = UNMEASURED[tone], ""
    elif tone and rival is not None and _finds_less(first, rival):
        answer, tone = FINDS_LESS[tone], ""
    if rival is not None:
        against, ratio = max(_multiples(rival, least), key=lambda one: one[1].low)
        of = "" if len(least) == 1 else f" as {against.way}"
        text += f"; {rival.way} takes {times_text(ratio)} as much{of}, {_figures(rival)}"
    return [Sentence(f"{text}. {answer}", "verdict", tone)]


def _multiples(way: GalleryWay, least: Sequence[GalleryWay]) -> list[tuple[GalleryWay, Change]]:
    """The energy of a way as a multiple of each of `least`, with that one."""
    found = ((one, times(way, one)) for one in least)
    return [(one, ratio) for one, ratio in found if ratio is not None]


def unmeasured_text(found: BundleCost) -> str:
    """The ways of the first line whose R@1 is not known, and what measures it; empty if all are."""
    least = cheapest(found.ways)
    rival = _rival(found.ways, least) if least else None
    unknown = [one for one in (*least, *([] if rival is None else [rival])) if one.r1 is None]
    said = [f"{_unmeasured(one)}." for one in unknown if one.unmeasured]
    if others := [one for one in unknown if not one.unmeasured]:
        *some, last = (f'"{one.way}"' for one in others)
        names = f"{', '.join(some)} and {last}" if some else last
        said.append(f"R@1 of {names} is not measured{_measure(found, others)}.")
    return " ".join(said)


def _measure(found: BundleCost, unknown: Sequence[GalleryWay]) -> str:
    """The command that measures R@1 of such ways; empty if there is none but what was run."""
    hybrid = QUERIES not in found.bundle.manifest["files"] and any(one.cells for one in unknown)
    if found.bundle.gallery is not None:
        return "; `cimtool verify` measures it"
    if found.pairs is None:
        more = " of a bundle by `cimtool compile --score-mapping hybrid`" if hybrid else ""
        return f"; `cimtool cost --data NPZ`{more} measures it"
    return "; in a bundle by `cimtool compile --score-mapping hybrid` it is" if hybrid else ""


def _unmeasured(way: GalleryWay) -> str:
    """The reason that a list is too short to be measured, with its way."""
    return f'R@1 of "{way.way}" is not measured: {way.unmeasured}'


def sampling_text(found: BundleCost) -> str:
    """Monte Carlo as a multiple of the build that scores in the same place; empty if not known."""
    program = found.program
    kind: WayKind = "digital" if program.gallery_items is None else "in the memory"
    kind = kind if program.shortlist is None else "shortlist"
    both = {one.kind: one for one in found.ways}
    sampled, built = both.get("Monte Carlo"), both.get(kind)
    ratio = None if sampled is None or built is None else times(sampled, built)
    if sampled is None or built is None or ratio is None:
        return ""
    return (
        f"{sampled.way} takes {times_text(ratio)} as much a query as {built.way}, in the same place"
        f"{_at_once(found)}."
    )


def _rival(ways: Sequence[GalleryWay], least: Sequence[GalleryWay]) -> GalleryWay | None:
    """The cheapest way of the other side than the first of `least`.

    None if none is known, or if it is among `least`.
    """
    other = [one for one in ways if (one.kind in BUILT) != (least[0].kind in BUILT)]
    found = next(iter(cheapest(other)), None)
    return None if found in least else found


def _finds_less(one: GalleryWay, other: GalleryWay) -> bool:
    """True if R@1 of one way is lower, beyond both intervals."""
    return one.r1 is not None and other.r1 is not None and one.r1.high < other.r1.low


def _named(way: GalleryWay) -> str:
    return f"{way.way} at {_figures(way)}"


def _figures(way: GalleryWay) -> str:
    """The energy of a way and its R@1, each with its interval."""
    known = "not measured"
    if way.r1 is not None:
        known = f"{percent(way.r1.value)}% {percent_range(way.r1.low, way.r1.high)}"
        listed = "" if way.measured_list is None else f" by a list of {way.measured_list:,}"
        known += "" if way.measured_of is None else f"{listed} of {way.measured_of:,} items"
    return f"{way.energy_pj.full_text(ENERGIES)}, R@1 {known}"


def by_size_text(found: BundleCost) -> str:
    """From which size on the compiled model takes less energy; the cheapest at middle prices."""
    sizes = found.cheapest_by_size
    if not sizes:
        return ""
    names = {one.kind: one.way for one in found.ways}
    less = _runs(sizes, lambda one: ANSWERS[one.takes_less])
    least = _runs(sizes, lambda one: names[one.ways[0]])
    return (
        f"Does compute-in-memory take less energy, from {sizes[0].items:,} to {MOST:,} "
        f"items{_at_once(found)}: {less}. "
        f"Cheapest at the middle of all prices: {least}."
        f"{LISTS * any('shortlist' in one.ways for one in sizes)}"
    )


LISTS = (
    " The list is as long in every gallery, so it holds fewer of the best items of a larger one."
)
"""A sentence on the shortlist at other sizes than the one that R@1 is measured for."""


ANSWERS = {True: "yes", False: "no", None: "open"}
"""Answers to whether compute-in-memory takes less energy."""


def _runs(sizes: Sequence[CheapestFrom], said: Callable[[CheapestFrom], str]) -> str:
    """Each text once, with the size from which on it holds."""
    first, *later = ((one.items, said(one)) for one in sizes)
    text = before = first[1]
    for items, now in later:
        if now != before:
            text += f", from {digits(items)} on {now}"
            before = now
    return text


def instead_table(found: BundleCost) -> list[Table]:
    """One row per kind of way, the cheapest in bold; no table without a gallery."""
    if found.gallery is None:
        return []
    least = cheapest(found.ways)
    among = "" if found.accuracy is None else f"\nof {found.accuracy.items:,}"
    accuracy = Column(f"R@1 %{among}", percent, "of texts, with its interval, among so many items")
    columns: tuple[tuple[Column, Callable[[GalleryWay], Content]], ...] = (
        (Column("way"), lambda w: w.way),
        (
            Column("energy", whole, "with its interval"),
            lambda w: w.energy_pj.full_cell(ENERGIES),
        ),
        (
            Column("latency", whole, "with its interval"),
            lambda w: w.latency_ns.full_cell(TIMES),
        ),
        (Column("queries/s", whole), lambda w: _rate(w.queries_per_s)),
        (Column("chips", whole, essential=False), lambda w: w.chips),
        (accuracy, lambda w: _share(w.r1)),
    )
    one = "One query" if found.batch == 1 else f"A query of {found.batch:,} at once"
    made = item_table(
        f"{one} against {found.gallery:,} items",
        found.ways,
        columns,
        lambda w: "result" if w in least else "",
    )
    return [made.named("instead", "verdict")]


def _rate(rate: Quantity) -> Content:
    """Queries a second, `<` before an upper bound: a time that lacks parts."""
    if rate.value is None:
        return None
    return Cell(f"{'< ' * rate.lower_bound}{scaled(rate.value, RATES)}", rate.value)


def _share(one: Change | None) -> Content:
    return interval_cell(one, percent)


def instead_notes(found: BundleCost) -> Iterator[str]:
    """The source of R@1, and the notes and reasons of rows."""
    if found.gallery is None:
        return
    if found.accuracy is None:
        yield "R@1 is not measured: `cimtool verify` measures it, or data given here"
    else:
        yield (
            f"R@1 of texts is from {found.accuracy.source}, among {found.accuracy.items:,} items; "
            "- is not measured"
        )
    yield "queries/s have the interval of their latency; `cost.json` has its ends"
    if found.loads_of_batches:
        yield (
            "items are loaded for each batch, so the sizes at which another way takes over are not "
            "searched for: batch = 1 has them"
        )
    for one in found.ways:
        if one.refused:
            yield f"{one.way}: {one.refused}"
        elif said := "; ".join(filter(None, (one.note, _list_text(one)))):
            yield f"{one.way}: {said}"


def _list_text(way: GalleryWay) -> str:
    """A sentence on the list that was measured, and on one that is enough; empty without any."""
    if way.enough_list is None:
        return ""
    enough = f"{ENOUGH:.0%} would need a list of {way.enough_list:,}"
    if way.recall is None:
        return f"R@1 is not measured: {way.unmeasured}; {enough}"
    ends = percent_range(way.recall.low, way.recall.high)
    return (
        f"R@1 is after a list of {way.measured_list:,} of {way.measured_of:,} items, the same "
        f"share; it holds the best item of {percent(way.recall.value)}% {ends} of the texts; "
        f"{enough}"
    )


def ways_table(found: BundleCost) -> list[Table]:
    """The cells, arrays and conversions of each way in the memory; no table if none is known."""
    stored = [one for one in found.all_ways if one.cells is not None]
    if not stored:
        return []
    columns: tuple[tuple[Column, Callable[[GalleryWay], Content]], ...] = (
        (Column("way"), lambda w: w.way),
        (Column("stored"), lambda w: w.note),
        (Column("cells\nper item", whole), lambda w: w.cells),
        (Column("arrays", whole), lambda w: w.arrays),
        (Column("conversions", whole), lambda w: w.conversions),
        (Column("energy"), lambda w: w.energy_pj.cell(ENERGIES)),
        (Column("latency"), lambda w: w.latency_ns.cell(TIMES)),
        (Column("best item\nheld, %", percent), lambda w: _share(w.recall)),
        (Column("by a\nlist of", whole), lambda w: w.measured_list),
        (Column(f"{ENOUGH:.0%} by\na list of", whole), lambda w: w.enough_list),
    )
    made = item_table("Ways in the memory", stored, columns)
    return [made.named("ways", "detail")]


def instead_json(found: BundleCost) -> dict[str, Any]:
    """The ways, the cheapest, and where another takes over, as plain values."""
    known, core = found.accuracy, found.core
    return {
        "ways": [one.to_json() for one in found.all_ways],
        "cheapest": [one.kind for one in cheapest(found.ways)],
        "cheapest_by_size": [asdict(one) for one in found.cheapest_by_size],
        "r1_from": None if known is None else {"source": known.source, "items": known.items},
        "measured_core": None
        if core is None
        else asdict(core) | {"byte_ns": core.byte_ns.to_json()},
    }
