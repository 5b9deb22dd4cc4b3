"""The ways of a query side by side: the sentence, the table, and the plain values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from cimtool.base.intervals import Change
from cimtool.bundle.bundle import QUERIES
from cimtool.costs.bundle_cost import BundleCost
from cimtool.costs.crossings import CheapestFrom
from cimtool.costs.price_errors import times_text
from cimtool.costs.totals import Quantity
from cimtool.costs.ways import (
    BUILT,
    ENOUGH,
    GalleryWay,
    WayKind,
    cheapest,
    dearer,
    finds_more,
    least_known_price,
    times,
)
from cimtool.reference.list_share import ListShare
from cimtool.report.document import Note, Sentence, Tone
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
from cimtool.verification.worth import MARGIN

RATES: Units = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""))
"""Units of queries a second."""


PAYS: dict[Tone, str] = {
    "good": "Compute-in-memory pays among {}",
    "bad": "Compute-in-memory does not pay among {}",
    "": "Whether compute-in-memory pays among {} is open",
}
"""The answer by tone."""

FINDS_FEWER = "Compute-in-memory does not pay among {}, where it finds less"
"""The answer if it finds less, and either side may take less energy."""

TONES: dict[str, Tone] = {PAYS["good"]: "good", PAYS["bad"]: "bad", FINDS_FEWER: "bad"}
"""The tone of the answers that say what to do."""

UNMEASURED: dict[Tone, str] = {
    "good": "Compute-in-memory takes less energy among {}, how much it finds is not measured",
    "bad": "Compute-in-memory takes more energy among {}, how much it finds is not measured",
}
"""The answer by tone if R@1 is not known of all cheapest ways, and of the other side's."""

FINDS_LESS: dict[Tone, str] = {
    "good": "Compute-in-memory takes less energy among {}, and finds less",
    "bad": "Compute-in-memory takes more energy among {}, and finds more",
}
"""The answer by tone if the side that takes less energy finds less."""

NOT_SHOWN: dict[Tone, str] = {
    "good": "Compute-in-memory takes less energy among {}, and is not shown to find as much",
    "bad": "Compute-in-memory takes more energy among {}, and is not shown to find more",
}
"""The answer by tone if the queries cannot tell which side finds more."""

HYBRID = "cimtool compile --score-mapping hybrid"
"""The command that makes a bundle which keeps calibration items, so that lists are measured."""


def verdict(found: BundleCost) -> list[Sentence]:
    """The sentence on whether compute-in-memory pays, and by which factor."""
    if found.gallery is None:
        return [
            Sentence(
                "Whether the model pays against raw rows in int8 depends on the number of items, "
                "which is not given.",
                "verdict",
            )
        ]
    return cheapest_sentences(found.ways, _among(found))


def _among(found: BundleCost) -> str:
    """The gallery and the batch that energies are of."""
    return f"{found.gallery:,} items{_at_once(found, ' for ')}"


def _at_once(found: BundleCost, before: str = ", ") -> str:
    """The queries of a batch; empty for one by itself."""
    return f"{before}{found.batch:,} queries at once" if found.batch > 1 else ""


def cheapest_sentences(ways: tuple[GalleryWay, ...], among: str) -> list[Sentence]:
    """The answer, and the cheapest way of these `among` so many items beside the other side's.

    One side is the compiled model on its target (BUILT), the other is all else. If the answer is
    open, a note names what would have to be known better.
    """
    least = cheapest(ways)
    if not least:
        return []
    built = {one.kind in BUILT for one in least}
    tone: Tone = "" if len(built) > 1 else ("good" if built == {True} else "bad")
    rival = _rival(ways, least)
    if rival is None:
        answer = PAYS[tone] if all(one.r1 for one in least) or not tone else UNMEASURED[tone]
        energy = least[0].energy_pj.full_text(ENERGIES)
        alone = f'{answer.format(among)}: "{least[0].way}" takes {energy}.'
        return [Sentence(alone, "verdict", TONES.get(answer, ""))]
    if tone == "good" and any(finds_more(one, rival) is None for one in least):
        least = _measured(ways) or least
    answer = _answer(tone, [*least, rival], ways)
    # One that is surely cheaper than the other side shows the answer.
    shown = least if tone else least[:1]
    against, ratio = max(_multiples(rival, shown), key=lambda one: one[1].low)
    compared = f'"{rival.way}" takes {times_text(ratio)} the energy of "{against.way}"'
    said = Sentence(f"{answer.format(among)}: {compared}.", "verdict", TONES.get(answer, ""))
    if answer != PAYS[""]:
        return [said]
    return [said, Note(f"Least known is the energy of {least_known_price(rival, against)}.")]


def _answer(tone: Tone, compared: Sequence[GalleryWay], ways: Sequence[GalleryWay]) -> str:
    """The answer of `tone` by energy, with what the compiled model finds more than the others.

    A way in BUILT that is not measured is taken to find less where another of `ways` does, whose
    scores it only lists.
    """
    built = [one for one in compared if one.kind in BUILT]
    others = [one for one in compared if one.kind not in BUILT]
    found = [
        finds_more(one, other) or _loss_of_scores(ways, other) for one in built for other in others
    ]
    gains = [one for one in found if one is not None]
    if len(gains) < len(found):
        return UNMEASURED.get(tone, PAYS[tone])
    more, fewer = all(one.low > 0 for one in gains), all(one.high < 0 for one in gains)
    if not tone:
        return FINDS_FEWER if fewer else PAYS[tone]
    if (fewer, more)[tone == "bad"]:
        return FINDS_LESS[tone]
    as_many = all(one.low >= -MARGIN for one in gains)
    no_more = all(one.high <= MARGIN for one in gains)
    return (PAYS if (as_many, no_more)[tone == "bad"] else NOT_SHOWN)[tone]


def _loss_of_scores(ways: Sequence[GalleryWay], other: GalleryWay) -> Change | None:
    """The gain of the measured way in BUILT if it finds less than the `other`, else None."""
    known = (finds_more(one, other) for one in ways if one.kind in BUILT)
    return next((gain for gain in known if gain is not None and gain.high < 0), None)


def _measured(ways: Sequence[GalleryWay]) -> tuple[GalleryWay, ...]:
    """The way in BUILT of least energy whose R@1 is known and that is surely cheaper than all else.

    Nothing if there is none.
    """
    others = [one for one in ways if one.kind not in BUILT and one.known]
    known = [one for one in ways if one.kind in BUILT and one.known and one.r1 is not None]
    return cheapest([one for one in known if all(dearer(other, one) for other in others)])[:1]


def _multiples(way: GalleryWay, least: Sequence[GalleryWay]) -> list[tuple[GalleryWay, Change]]:
    """The energy of a way as a multiple of each of `least`, with that one."""
    found = ((one, times(way, one)) for one in least)
    return [(one, ratio) for one, ratio in found if ratio is not None]


def unmeasured_text(found: BundleCost) -> str:
    """The ways of the first line whose R@1 is not known, and what measures it; empty if all are."""
    least = cheapest(found.ways)
    rival = _rival(found.ways, least) if least else None
    compared = least if rival is None or rival in least else (*least, rival)
    unknown = [one for one in compared if one.r1 is None]
    said = [f"{_unmeasured(one)}." for one in unknown if one.unmeasured]
    if others := [one for one in unknown if not one.unmeasured]:
        *some, last = (f'"{one.way}"' for one in others)
        names = f"{', '.join(some)} and {last}" if some else last
        said.append(f"R@1 of {names} {_measure(found, others)}.")
    return " ".join(said)


def _measure(found: BundleCost, unknown: Sequence[GalleryWay]) -> str:
    """The end of a sentence on R@1 of such ways: what measures it, if there is more to be done."""
    hybrid = QUERIES not in found.bundle.manifest["files"] and any(one.cells for one in unknown)
    if found.bundle.gallery is not None:
        return "is not measured; `cimtool verify` measures it"
    if found.pairs is None:
        more = f" of a bundle by `{HYBRID}`" if hybrid else ""
        return f"is not measured; `cimtool cost --data NPZ`{more} measures it"
    return f"takes `{HYBRID}`{_long_enough(found, unknown)}" if hybrid else "is not measured"


def _long_enough(found: BundleCost, unknown: Sequence[GalleryWay]) -> str:
    """The list, or the items of data, that R@1 takes; empty if the list is long enough."""
    length = next((one.length for one in unknown if one.length is not None), None)
    if found.accuracy is None or found.gallery is None or length is None:
        return ""
    share = ListShare(length, found.gallery, found.accuracy.items)
    return "" if share.measured else f" and {share.enough}"


def _unmeasured(way: GalleryWay) -> str:
    """The reason that a list is too short to be measured, with its way."""
    return f'R@1 of "{way.way}" is not measured: {way.unmeasured}'


def sampling_text(found: BundleCost) -> str:
    """Monte Carlo as a multiple of the build that scores in the same place; empty if not known."""
    both = {one.kind: one for one in found.ways}
    sampled, built = both.get("Monte Carlo"), both.get(_kind(found))
    ratio = None if sampled is None or built is None else times(sampled, built)
    if sampled is None or built is None or ratio is None:
        return ""
    return (
        f'"{sampled.way}" takes {times_text(ratio)} as much a query as "{built.way}", in the same '
        f"place{_at_once(found)}."
    )


def _kind(found: BundleCost) -> WayKind:
    """The way in which the build answers."""
    if found.program.shortlist is not None:
        return "shortlist"
    return "digital" if found.program.gallery_items is None else "in the memory"


def _rival(ways: Sequence[GalleryWay], least: Sequence[GalleryWay]) -> GalleryWay | None:
    """The cheapest way of the other side than the first of `least`; None if none is known."""
    other = [one for one in ways if (one.kind in BUILT) != (least[0].kind in BUILT)]
    return next(iter(cheapest(other)), None)


def by_size_text(found: BundleCost) -> str:
    """From which size on the compiled model takes less energy; empty if it is not known."""
    sizes = found.cheapest_by_size
    if not sizes:
        return ""
    less = _runs(sizes, lambda one: ANSWERS[one.takes_less])
    return f"Does it take less energy{_at_once(found)}? From {sizes[0].items:,} items on {less}."


def cheapest_by_size_text(found: BundleCost) -> str:
    """The cheapest way at middle prices, by size; empty if it is not known."""
    sizes = found.cheapest_by_size
    if not sizes:
        return ""
    names = {one.kind: one.way for one in found.ways}
    least = _runs(sizes, lambda one: names[one.ways[0]])
    return (
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
    """Each text once, with the size from which on it holds; of equal sizes, in digits, the last."""
    starts: dict[str, str] = {digits(one.items): said(one) for one in sizes}
    (_, before), *later = starts.items()
    text = before
    for items, now in later:
        if now != before:
            text += f", from {items} on {now}"
            before = now
    return text


def instead_table(found: BundleCost) -> list[Table]:
    """One row per kind of way, the cheapest in bold; no table without a gallery.

    Essential are the cheapest of both sides, the build's own way, and a shortlist whose length was
    asked for.
    """
    if found.gallery is None:
        return []
    least = cheapest(found.ways)
    told = {_kind(found)}
    if found.bundle.settings.shortlist is not None:
        told.add("shortlist")
    if least:
        rival = _rival(found.ways, least)
        told |= {least[0].kind} | (set() if rival is None else {rival.kind})
    among = "" if found.accuracy is None else f" of {found.accuracy.items:,}"
    accuracy = Column(f"R@1 %{among}", percent, "of texts, with its interval, among so many items")
    columns: tuple[tuple[Column, Callable[[GalleryWay], Content]], ...] = (
        (Column("way"), lambda w: w.way),
        (
            Column("energy", whole, "with its interval"),
            lambda w: w.energy_pj.full_cell(ENERGIES),
        ),
        (
            Column("latency", whole, "with its interval", essential=False),
            lambda w: w.latency_ns.full_cell(TIMES),
        ),
        (Column("queries/s", whole, essential=False), lambda w: _rate(w.queries_per_s)),
        (Column("chips", whole, essential=False), lambda w: w.chips),
        (accuracy, lambda w: _share(w.r1)),
    )
    one = "One query" if found.batch == 1 else f"A query of {found.batch:,} at once"
    made = item_table(
        f"{one} against {found.gallery:,} items",
        found.ways,
        columns,
        lambda w: "result" if w in least else "",
        lambda w: w.kind in told,
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
