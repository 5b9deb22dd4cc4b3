"""Parts of a hand-off: each writes one subfolder, and says what lies there and what checks it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cimtool.bundle.bundle import Bundle
from cimtool.emit.exporter import Request


@dataclass(frozen=True)
class HandoffPart:
    """One subfolder of a hand-off.

    `write(bundle, request, folder)` fills the new folder, or raises CimError. `files` says what
    each file is, by name or pattern; `uncovered` what the part leaves out, in sentences. `checks`
    are the commands of the goal `check`, and `goals` those of the part's own, run in the hand-off's
    folder; `settings` are variables that they read, with their defaults.
    """

    folder: str
    title: str
    write: Callable[[Bundle, Request, Path], None]
    files: Mapping[str, str]
    uncovered: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    goals: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
