"""Report on a gallery in arrays or in a CAM: its use of cells, and its accuracy."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cimtool.base.intervals import Change
from cimtool.bundle.placement_view import converters_text
from cimtool.costs.memory_use import StoredMatrix
from cimtool.galleries.programming import Accuracy, ProgrammedBundle, ProgrammedCam
from cimtool.galleries.shortlists import ShortlistOption, ShortlistSearch
from cimtool.report.document import Block, Document, Sentence, notes
from cimtool.report.formats import ENERGIES, TIMES, counted, four_digits, percent, whole
from cimtool.report.table import Column, Content, Table, item_table


def _matrices_table(matrices: tuple[StoredMatrix, ...]) -> Table:
    """Each stored matrix: its products, its cells, and the conversion for each drive."""
    columns: tuple[tuple[Column, Callable[[StoredMatrix], Content]], ...] = (
        (Column("products"), lambda m: ", ".join(drive.product for drive in m.drives)),
        (Column("rows x items", str), _size),
        (Column("values"), lambda m: f"{m.weight_bits} {m.encoding}"),
        (Column("cells", whole), lambda m: m.cells_per_value),
        (Column("arrays", whole), lambda m: m.arrays),
        (
            Column("query bits in cycles"),
            lambda m: ", ".join(f"{drive.input_bits} in {drive.cycles}" for drive in m.drives),
        ),
        (
            Column("converters"),
            lambda m: "; ".join(converters_text(d.adc_bits, d.steps) for d in m.drives),
        ),
    )
    return item_table("Stored matrices", matrices, columns)


def _size(matrix: StoredMatrix) -> str:
    """Rows by items, and by columns of an item if it has several."""
    tokens = f" x {matrix.columns}" if matrix.columns > 1 else ""
    return f"{matrix.rows} x {matrix.items}{tokens}"


def _front_table(search: ShortlistSearch) -> Table:
    """The settings on the Pareto front that reach the recall, with a mark at the chosen one."""
    columns: tuple[tuple[Column, Callable[[ShortlistOption], Content]], ...] = (
        (Column("taken"), lambda o: "*" if o == search.chosen else ""),
        (Column("of mu", whole), lambda o: o.bits.dimensions or "all"),
        (Column("bits of\nitems"), lambda o: o.bits.item),
        (Column("bits of\nqueries"), lambda o: o.bits.query),
        (Column("shortlist", whole), lambda o: o.length),
        (Column("cells\nper item", whole), lambda o: o.cells),
        (Column("conversions\nper item", four_digits), lambda o: o.conversions),
        (Column("energy\nper query"), lambda o: o.energy_pj.cell(ENERGIES)),
        (Column("latency\nper query"), lambda o: o.latency_ns.cell(TIMES)),
        (Column("items\nper chip", whole), lambda o: o.items_per_chip),
        (Column("recall\n%", percent), lambda o: o.recall.best.value),
        (Column("of best\nten %", percent), lambda o: o.recall.best_ten),
        (
            Column("R@1\n%", percent),
            lambda o: None if o.recall.found is None else o.recall.found.value,
        ),
    )
    return item_table("Shortlists", search.front, columns)


def document(found: ProgrammedBundle | ProgrammedCam) -> Document:
    """The report on a gallery that was programmed or changed."""
    gallery, target = found.gallery, found.bundle.target.name
    changed = f", changed {counted(gallery.changes, 'time')}" if gallery.changes else ""
    title = f"{gallery.file}{changed}: {gallery.items:,} items"
    if isinstance(found, ProgrammedCam):
        cam = found.use.cam
        bits = "" if gallery.bits is None else f"cells of {counted(gallery.bits.item, 'bit')}, "
        title += (
            f" in {cam.name} beside {target} (hybrid, shortlist {gallery.shortlist}, "
            f"{bits}distance {cam.array.distance})"
        )
        return Document(title, notes(_taken_of_cam(found)), found.to_json)
    where = (
        gallery.mapping if gallery.shortlist is None else f"hybrid, shortlist {gallery.shortlist}"
    )
    return Document(
        f"{title} on {target} ({where})",
        (
            _matrices_table(found.use.matrices).named("matrices"),
            *([] if found.search is None else _searched(found.search)),
            *notes(_taken(found)),
        ),
        found.to_json,
    )


def _taken_of_cam(found: ProgrammedCam) -> Iterator[str]:
    """The words that a gallery takes, the cost of a query, and the recall of its shortlist."""
    use, cam, score = found.use, found.use.cam, found.score
    yield (
        f"{use.width:,} cells per item, in {counted(use.words_per_item, 'word')} of "
        f"{cam.array.cells}; {use.words:,} words in {counted(use.arrays, 'array')} of "
        f"{cam.array.words}"
    )
    if found.gallery.changes:
        yield _written_by_change(found)
    levels = "without loss"
    if cam.sense.levels is not None:
        levels = f"to {cam.sense.levels} levels of {cam.sense.step}"
    yield (
        f"a query searches all of them at once, energy {use.energy_pj.full_text(ENERGIES)}, time "
        f"{use.latency_ns.full_text(TIMES)}; {use.words:,} distances are converted {levels}"
    )
    yield (
        "with the exact scores of its shortlist a query takes "
        f"{score.energy_pj.full_text(ENERGIES)}, {score.latency_ns.full_text(TIMES)} (the energy "
        "of converters of words: not given)"
    )
    yield (
        f"{_shortlisted(found.accuracy)}, on {found.accuracy.queries} calibration queries, none of "
        "which it was fitted on"
    )


def _searched(search: ShortlistSearch) -> Iterator[Block]:
    """The choice of a shortlist, and its recall."""
    taken = search.chosen
    yield Sentence(
        f"Shortlists that hold the best item of {100 * search.recall:.4g}% of the queries, on both "
        f"halves of them ({len(search.options)} settings do; listed are those that no other beats "
        "in cells, conversions and length):"
    )
    yield _front_table(search).named("shortlists")
    every, one, other = (share.best for share in (taken.recall, *taken.halves))
    yield Sentence(
        f"taken (*): the one with the least {search.minimised}. Of {sum(search.queries)} "
        f"calibration queries it holds the best item of {_share(every)}, of one half of them of "
        f"{_share(one)}, of the other of {_share(other)} (95% intervals, Clopper and Pearson). "
        "Each half was tried in a shortlist fitted on the other. Both halves chose, so other "
        "queries may find less"
    )
    if search.digital and taken.recall.found:
        yield Sentence(
            "R@1 of the same queries, with their right items in the gallery: "
            f"{taken.recall.found.value:.1%}; of the exact scores of all items "
            f"{search.digital.value:.1%}"
        )


def _share(one: Change) -> str:
    return f"{one.value:.1%} [{one.low:.1%}, {one.high:.1%}]"


def _taken(found: ProgrammedBundle) -> Iterator[str]:
    """The arrays, chips and writes that a gallery takes, and the accuracy of its score."""
    use, accuracy = found.use, found.accuracy
    chips = "arrays a chip: not given"
    if use.arrays_per_chip is not None and use.chips is not None:
        chips = f"{use.arrays_per_chip:,} a chip: {counted(use.chips, 'chip')}"
    yield f"{counted(use.arrays, 'array')} for the gallery; {chips}"
    items = "not given"
    if use.items_per_chip is not None:
        items = f"{use.items_per_chip:,} in as many slices as the values need"
        if use.items_at_one_weight is not None:
            items += f", {use.items_at_one_weight:,} at one weight a value"
    yield f"items per chip: {items}"
    if found.gallery.changes:
        yield _written_by_change(found)
    else:
        pulses = "; pulses a cell: not given"
        if use.writes is not None:
            pulses = f" in {use.writes:,.0f} pulses ({use.pulses:g} a cell)"
        endurance = "endurance: not given"
        if use.programmings is not None:
            endurance = f"a cell stands {use.programmings:,.0f} such programmings"
        yield f"{use.cells:,} cells are written{pulses}; {endurance}"
    if found.left_out:
        left_out = ", ".join(found.left_out)
        yield f"left out, their mean over the calibration queries added: {left_out}"
    if accuracy.logit_rmse is None or accuracy.top1_agreement is None:
        yield f"{_shortlisted(accuracy)}, on {accuracy.queries} calibration queries"
    else:
        yield (
            f"against the digital score: logit RMSE {accuracy.logit_rmse:.4g}, top-1 agreement "
            f"{accuracy.top1_agreement:.1%}, on {accuracy.queries} calibration queries"
        )


def _written_by_change(found: ProgrammedBundle | ProgrammedCam) -> str:
    """The cells that a change wrote, all cells written so far, and the most written cell."""
    ledger, programmings = found.ledger, found.use.programmings
    most = counted(ledger.most_written, "time")
    most += "" if programmings is None else f" of {programmings:,.0f}"
    return (
        f"{found.cells_written:,} cells are written by this change, {ledger.cells_written:,} since "
        f"the first programming; the most written cell: {most}"
    )


def _shortlisted(accuracy: Accuracy) -> str:
    """The share of best items that a shortlist holds."""
    return (
        f"the shortlist holds the best item of {accuracy.shortlist_top1:.1%} of the queries and "
        f"{accuracy.shortlist_top10:.1%} of their best ten"
    )
