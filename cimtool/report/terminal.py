"""A document for a terminal or a pipe: plain text, without colours."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from rich import box, table
from rich.console import Console
from rich.text import Text

from cimtool.report.document import (
    Block,
    Document,
    FactList,
    Note,
    Picture,
    Section,
    Sentence,
    Verbatim,
    Written,
)
from cimtool.report.formats import counted
from cimtool.report.table import BlockLevel, Column, Row, Table

UNLIMITED = 10_000
"""More columns than any table has."""

LINES, FEWEST_ROWS = 15, 2
"""Lines of a first screen, and rows that its table has at least."""


def terminal(
    document: Document, width: int = UNLIMITED, verbose: bool = False, wrap: bool = True
) -> str:
    """Write all of a document if `verbose`, else its first screen.

    Tables take at most `width` columns if possible. With `wrap`, sentences are broken into lines of
    that width; without, each stays one line.
    """
    blocks = list(document.blocks) if verbose else first_screen(document)
    blocks.sort(key=lambda one: one.level != "verdict")
    heading = [Sentence(document.heading)] if document.heading else []
    return "\n".join(_lines([*heading, *blocks], width, verbose, wrap))


def first_screen(document: Document) -> list[Block]:
    """The blocks that a terminal shows at once.

    These are the sentences and facts outside sections but for details, and verdicts anywhere: a
    table only if it is one, with its essential rows and first footnote, and a section only with
    its own.
    """
    return list(_first(document.blocks, ("verdict", "shown")))


def _first(blocks: Iterable[Block], levels: Sequence[BlockLevel]) -> Iterator[Block]:
    for block in blocks:
        match block:
            case Section(title=title):
                for one in _first(block.blocks, ("verdict",)):
                    if isinstance(one, Sentence):
                        yield replace(one, text=f"{title} {one.text}".strip())
                    else:
                        yield one
            case Picture():
                pass
            case Table():
                if block.level == "verdict":
                    rows = tuple(one for one in block.rows if one.essential)
                    yield replace(block, rows=rows, footnotes=block.footnotes[:1])
            case _ if block.level in levels:
                yield block


def fitted(document: Document, width: int, lines: int = LINES) -> Document:
    """The document with what makes its first screen longer than so many `lines` as details.

    Notes go first, from the last one on, then verdicts of sections, warnings, and rows of the table
    behind the first two.
    """
    while len(terminal(document, width).splitlines()) > lines:
        ranks = {
            (rank, -index): index
            for index, one in enumerate(document.blocks)
            if (rank := _rank(one)) is not None
        }
        if not ranks:
            break
        first, blocks = ranks[min(ranks)], list(document.blocks)
        blocks[first] = _detailed(blocks[first])
        document = replace(document, blocks=tuple(blocks))
    return document


def _rank(block: Block) -> int | None:
    """The order in which blocks leave a first screen that is too long; None if one stays."""
    if isinstance(block, Section):
        return 1 if next(_first(block.blocks, ("verdict",)), None) is not None else None
    if isinstance(block, Note) and block.level == "shown":
        return 2 if block.warns else 0
    if isinstance(block, Table) and block.level == "verdict":
        return 3 if sum(row.essential for row in block.rows) > FEWEST_ROWS else None
    return None


def _detailed(block: Block) -> Block:
    """A note or section as a detail, and the last essential row of a table."""
    match block:
        case Section():
            return replace(block, blocks=tuple(map(_as_detail, block.blocks)))
        case Table():
            kept = [index for index, row in enumerate(block.rows) if row.essential][:-1]
            return block.keeping(index in kept for index in range(len(block.rows)))
    return _as_detail(block)


def _as_detail(block: Block) -> Block:
    if isinstance(block, Section):
        return _detailed(block)
    return replace(block, level="detail")


def left_out(document: Document, width: int) -> str:
    """A few words on what the first screen leaves out; empty if it is nothing."""
    parts = [one for one in document.blocks if isinstance(one, Section | Table)]
    tables = [one for one in parts if isinstance(one, Table) and one.level == "verdict"]
    others = len(parts) - len(tables)
    said = [one for one in document.blocks if isinstance(one, Sentence) and one.level == "detail"]
    warnings = sum(isinstance(one, Note) and one.warns for one in said)
    cut = any(is_narrowed(one, width) or not all(r.essential for r in one.rows) for one in tables)
    parts_left = {
        counted(warnings, "warning"): warnings,
        counted(others, "section"): others,
        counted(len(said) - warnings, "note"): len(said) - warnings,
        "all rows and columns": cut,
    }
    return ", ".join(text for text, is_left in parts_left.items() if is_left)


def _lines(blocks: Iterable[Block], width: int, verbose: bool, wrap: bool) -> Iterator[str]:
    """The lines of blocks, with empty lines around tables and sections.

    On the first screen there are none.
    """
    whole = UNLIMITED if not wrap else width
    apart = first = True
    for block in blocks:
        alone = verbose and isinstance(block, Table | Section)
        match block:
            case Table():
                said = wrapped([block.title], whole) if block.title else ""
                notes = [wrapped([note], whole) for note in block.footnotes]
                drawn = table_text(block, width, fold=wrap, every=verbose)
                text = "\n".join(filter(None, [said, drawn, *notes]))
            case Section(title=title, blocks=inner):
                lines = list(_lines(inner, width, verbose, wrap))
                if not lines:
                    continue  # only pictures
                text = "\n".join([*[title] * bool(title), *lines])
                if len(lines) == 1 and type(inner[0]) is Sentence:
                    one_line = f"{title} {lines[0]}"
                    alone = "\n" in one_line or len(one_line) > whole
                    text = text if alone else one_line
            case Written() if not verbose:
                text = block.within(whole)
            case Verbatim(text=text):
                pass
            case Sentence(text=text):
                text = wrapped([f"{'* ' * isinstance(block, Note)}{text}"], whole)
            case FactList(pairs=pairs):
                text = wrapped([f"{name}: {value}" for name, value in pairs], whole)
            case _:
                continue  # pictures
        if not first and (alone or apart):
            yield ""
        yield text
        apart, first = alone, False


def table_text(made: Table, width: int = UNLIMITED, fold: bool = True, every: bool = False) -> str:
    """Write a table without its title and footnotes.

    If it does not fit into `width`, only the essential columns stay, then notes go below their
    figures, and at last cells are folded; without `fold` they keep their width. With `every`, the
    columns that do not fit follow in more tables, each with the first column.
    """
    for gap in (2, 1):
        text = _drawn(made.columns, made.rows, gap)
        if _widest(text) <= width:
            return text
    if every and is_narrowed(made, width):
        return "\n\n".join(_parts(made, width))
    kept = [index for index, column in enumerate(made.columns) if column.essential]
    columns, rows = _chosen(made, kept)
    for notes_below in (False, True):
        text = _drawn(columns, rows, 1, notes_below)
        if _widest(text) <= width:
            return text
    return _drawn(columns, rows, 1, True, width) if fold else _drawn(columns, rows, 2)


def is_narrowed(made: Table, width: int) -> bool:
    """True if `table_text` leaves columns out to fit into `width`."""
    several = not all(column.essential for column in made.columns)
    return several and _widest(_drawn(made.columns, made.rows, 1)) > width


def _chosen(made: Table, kept: Sequence[int]) -> tuple[list[Column], list[Row]]:
    """The columns with these numbers, and their cells."""
    rows = [Row(tuple(row.cells[index] for index in kept)) for row in made.rows]
    return [made.columns[index] for index in kept], rows


def _parts(made: Table, width: int) -> Iterator[str]:
    """The table in parts of at most `width` columns if possible, each with the first column."""
    part, text = [0], ""
    for index in range(1, len(made.columns)):
        wider = _drawn(*_chosen(made, [*part, index]), 1)
        if _widest(wider) > width and len(part) > 1:
            yield text
            part, wider = [0], _drawn(*_chosen(made, [0, index]), 1)
        part, text = [*part, index], wider
    yield text


def _drawn(
    columns: Sequence[Column],
    rows: Iterable[Row],
    gap: int,
    notes_below: bool = False,
    width: int | None = None,
) -> str:
    drawn = table.Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, gap - 1, 0, 0))
    for column in columns:
        drawn.add_column(
            Text(column.lines),
            justify="right" if column.numeric else "left",
            vertical="bottom",
            no_wrap=width is None,
            overflow="fold",
        )
    for row in rows:
        below = notes_below and any(cell.note for cell in row.cells)
        texts = [f"{cell.text}\n{cell.note}" if below else cell.line for cell in row.cells]
        drawn.add_row(*map(Text, texts))
    return _printed([drawn], width or UNLIMITED).strip("\n")


def _widest(text: str) -> int:
    return max(map(len, text.splitlines()))


def wrapped(sentences: Iterable[str], width: int) -> str:
    """Sentences below each other, in lines of at most `width` columns."""
    return _printed(map(Text, sentences), width)


def _printed(parts: Iterable[table.Table | Text], width: int) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width, color_system=None, highlight=False)
    for part in parts:
        console.print(part)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())
