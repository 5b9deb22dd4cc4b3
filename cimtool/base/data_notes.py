"""Notes on the data files that a command read; each sentence is said once per command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass
class DataNotes:
    """Notes on data: the arrays that no read took, by file, and other sentences."""

    unread: dict[str, tuple[str, ...]] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)

    @property
    def sentences(self) -> list[str]:
        """All notes as sentences, without repeats."""
        left = (sentence for file, names in self.unread.items() for sentence in unread(file, names))
        return list(dict.fromkeys([*left, *self.said]))


_NOTES: ContextVar[DataNotes | None] = ContextVar("data notes", default=None)


@contextmanager
def data_noted() -> Iterator[DataNotes]:
    """Collect the notes of all reads inside the `with` block."""
    token = _NOTES.set(notes := DataNotes())
    try:
        yield notes
    finally:
        _NOTES.reset(token)


def note_unread(file: str, names: Sequence[str]) -> None:
    """Note the arrays of a file that a read did not take; arrays that another read took are not."""
    if (notes := _NOTES.get()) is not None:
        before = notes.unread.get(file, names)
        notes.unread[file] = tuple(name for name in names if name in before)


def note_data(sentence: str) -> None:
    """Note a sentence."""
    if (notes := _NOTES.get()) is not None:
        notes.said.append(sentence)


def unread(file: str, names: Sequence[str]) -> tuple[str, ...]:
    """The sentence on arrays of a file that are not read; empty if there are none."""
    if not names:
        return ()
    return (f"{file}: {', '.join(names)} {'is' if len(names) == 1 else 'are'} not read",)
