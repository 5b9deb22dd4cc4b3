"""A document as Markdown: the verdict, shown blocks, and folded details."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from cimtool.base.escapes import markdown_text, visible
from cimtool.report.document import Block, Document, FactList, Note, Section, Sentence
from cimtool.report.table import Table


def markdown(document: Document) -> str:
    """Write a document; users' names are escaped, and invisible characters become U+FFFD."""
    blocks = sorted(document.blocks, key=lambda one: one.level != "verdict")
    lines = [f"# {markdown_text(document.heading)}", *_lines(blocks, "##", fold=True)]
    return visible("\n".join(lines)) + "\n"


def _lines(blocks: Iterable[Block], mark: str, fold: bool) -> Iterator[str]:
    """The lines of blocks under headings of `mark`; with `fold`, details are folded."""

    def folded(block: Block) -> Block | bool:
        """The block itself if it makes a fold, True if it is part of a fold, otherwise False."""
        if not fold or block.level != "detail":
            return False
        return block if isinstance(block, Section | Table) else True

    for by, group in groupby(blocks, folded):
        run = list(group)
        if isinstance(by, Section):
            yield from _fold(by.title, _lines(by.blocks, mark, False))
        elif by is False:
            yield from _listed(run, mark, fold)
        else:
            title = by.title if isinstance(by, Table) else "More"
            yield from _fold(title, _listed(run, mark, False))


def _fold(title: str, lines: Iterable[str]) -> Iterator[str]:
    yield from ("", "<details>", f"<summary>{markdown_text(title)}</summary>")
    yield from lines
    yield from ("", "</details>")


def _listed(blocks: Iterable[Block], mark: str, fold: bool) -> Iterator[str]:
    """The lines of blocks as they are; an empty line before each, except within a list."""
    before: Block | None = None
    for block in blocks:
        if not (isinstance(block, Note) and isinstance(before, Note)):
            yield ""
        match block:
            case Section(title=title):
                yield f"{mark} {markdown_text(title)}"
                yield from _lines(block.blocks, f"{mark}#", fold)
            case Table():
                yield from _table(block, fold)
            case Sentence(text=text):
                strong = "**" * (block.level == "verdict" or block.tone == "bad")
                yield f"{'* ' * isinstance(block, Note)}{strong}{markdown_text(text)}{strong}"
            case FactList(pairs=pairs):
                for name, value in pairs:
                    yield f"* {markdown_text(name)}: {markdown_text(value)}"
        before = block


def _table(table: Table, help_: bool) -> Iterator[str]:
    """A table under its title; with `help_`, the meanings of the columns follow below it."""
    numeric = [column.numeric for column in table.columns]
    rows = [[markdown_text(column.title) for column in table.columns]]
    for row in table.rows:
        texts = (cell.line for cell in row.cells)
        rows.append([x if of else markdown_text(x) for x, of in zip(texts, numeric, strict=True)])
    first, *others = [f"| {' | '.join(row)} |" for row in rows]
    rule = "|".join("---:" if one else "---" for one in numeric)
    yield from (f"**{markdown_text(table.title)}**", "", first, f"|{rule}|", *others)
    yield from (line for note in table.footnotes for line in ("", markdown_text(note)))
    meant = [(one.title, one.help) for one in table.columns if one.help] if help_ else []
    if meant:
        yield from _fold("What the columns mean", _listed([FactList(tuple(meant))], "", False))
