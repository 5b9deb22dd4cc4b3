"""A document: the output of a result or a command as plain blocks, for every medium.

`terminal`, `markdown` and `html` write it. Each block has a level. A `verdict` comes first. `shown`
blocks are open in Markdown and on pages; a `detail` is folded there. A terminal shows verdicts and
`shown` sentences at once, and the rest with an option.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from cimtool.base.files import check_output, replace_files, text_bytes
from cimtool.report.page import picture_url, render_fragment
from cimtool.report.svg import as_file
from cimtool.report.table import BlockLevel, Table

WARNING = "warning: "
"""The first word of a note that warns."""

Tone = Literal["", "good", "bad", "soft"]
"""A class of the page's style."""


@dataclass(frozen=True)
class Sentence:
    """A sentence, or a paragraph of sentences."""

    text: str
    level: BlockLevel = "shown"
    tone: Tone = ""


@dataclass(frozen=True)
class Note(Sentence):
    """A sentence of a list: a warning, a remark."""

    @property
    def warns(self) -> bool:
        """True if it says that it is a warning."""
        return self.text[: len(WARNING)] == WARNING


@dataclass(frozen=True)
class Verbatim(Sentence):
    """A path or a command to copy, which no medium breaks into lines."""


@dataclass(frozen=True)
class Written(Verbatim):
    """The line on written `files`; a first screen leaves some out to keep it one line."""

    files: tuple[str, ...] = ()

    def within(self, width: int) -> str:
        """The line with the first files that fit, and the number of the others."""
        for left in range(1, len(self.files)):
            if len(self.text) <= width:
                break
            text = f"wrote {', '.join(self.files[:-left])} and {left} more"
            if len(text) <= width or left == len(self.files) - 1:
                return text
        return self.text


@dataclass(frozen=True)
class FactList:
    """Names and values below each other; `many` short ones stand side by side on a page."""

    pairs: tuple[tuple[str, str], ...]
    level: BlockLevel = "shown"
    many: bool = False


@dataclass(frozen=True)
class Picture:
    """A picture as an SVG document, which a notebook shows and `save` writes, and its caption."""

    name: str
    svg: str
    caption: str = ""
    level: BlockLevel = "shown"

    def __repr__(self) -> str:
        """The name and the size, not the text."""
        return f'<Picture "{self.name}", SVG, {len(self.svg):,} characters>'

    def _repr_html_(self) -> str:
        """An image, so that its style does not affect the page."""
        return render_fragment("picture.html", name=self.name, url=picture_url(as_file(self.svg)))

    def save(self, file: Path | str) -> Path:
        """Write the picture to a `.svg`; CimError for another suffix, or if writing fails."""
        path = Path(file)
        check_output(path, ".svg")
        replace_files(path.parent, {path.name: text_bytes(as_file(self.svg))}, "the picture")
        return path


@dataclass(frozen=True)
class Section:
    """Blocks under a heading. On a page, `id` is its address; a section with `span` is a card.

    Cards stand side by side before all other sections, `span` sixths of the page wide.
    """

    title: str
    blocks: tuple[Block, ...]
    id: str = ""
    span: int = 0

    @property
    def level(self) -> BlockLevel:
        """`detail` if all its blocks are details."""
        return "detail" if all(one.level == "detail" for one in self.blocks) else "shown"


Block = Sentence | FactList | Table | Picture | Section


@dataclass(frozen=True)
class Document:
    """A result for display: a `title` of one line, its `outcome` in a few words, and blocks.

    `values` give the whole result as plain values, for JSON.
    """

    title: str
    blocks: tuple[Block, ...] = ()
    values: Callable[[], Mapping[str, Any]] = dict
    outcome: Sentence | None = None

    @property
    def heading(self) -> str:
        """Title and outcome in one line."""
        return self.title if self.outcome is None else f"{self.title}: {self.outcome.text}"

    @property
    def tables(self) -> dict[str, Table]:
        """The tables that have a name."""
        return {one.name: one for one in walk(self.blocks) if isinstance(one, Table) and one.name}

    @property
    def pictures(self) -> dict[str, Picture]:
        """The pictures by name."""
        return {one.name: one for one in walk(self.blocks) if isinstance(one, Picture)}

    def plus(self, *blocks: Block, **values: Any) -> Document:
        """The document with more blocks at its end, and more values."""
        own = self.values
        return replace(self, blocks=(*self.blocks, *blocks), values=lambda: {**own(), **values})

    def wrote(self, files: Iterable[Path], *next_: str) -> Document:
        """The document with the files that were written, and the commands to run next.

        Of a file beside the one before it, the line has the name alone.
        """
        written = list(files)
        folders = [None, *(one.parent for one in written)]
        names = [
            one.name if one.parent == before else f"{one}"
            for one, before in zip(written, folders, strict=False)
        ]
        line = Written(f"wrote {', '.join(names)}", files=tuple(names))
        return self.plus(line, *(Verbatim(f"next: {one}") for one in next_), written=written)


def walk(blocks: Iterable[Block]) -> Iterator[Block]:
    """All blocks, also inside sections."""
    for block in blocks:
        yield block
        if isinstance(block, Section):
            yield from walk(block.blocks)


def sentences(blocks: Iterable[Block]) -> list[str]:
    """The texts of all sentences, the verdict's first."""
    said = [
        one for one in walk(blocks) if isinstance(one, Sentence) and not isinstance(one, Verbatim)
    ]
    return [one.text for one in sorted(said, key=lambda one: one.level != "verdict")]


def notes(texts: Iterable[str | None], level: BlockLevel = "shown") -> tuple[Note, ...]:
    """A list of sentences; empty texts and None are left out."""
    return tuple(Note(text, level) for text in texts if text)


def noted(texts: Sequence[str], first: int) -> tuple[Note, ...]:
    """A list of sentences, the `first` ones shown and the rest as details."""
    return (*notes(texts[:first]), *notes(texts[first:], "detail"))


def wrote_arrays(file: Path, shapes: Mapping[str, Sequence[int]]) -> Verbatim:
    """The line that reports a written file of arrays."""
    return Verbatim(
        f"wrote {file}: {', '.join(f'{name} {shape}' for name, shape in shapes.items())}"
    )
