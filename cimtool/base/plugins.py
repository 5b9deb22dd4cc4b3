"""Plug-ins: packages that add classes, rules and targets through Python entry points.

An entry point of the group `cimtool.plugins` names a module. Importing it registers what it holds,
and its attribute `TARGETS`, if it has one, is a folder of targets with noise models in `noise/`.
Nothing is imported before a name is asked for that cimtool does not know itself, or all names are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "cimtool.plugins"
"""The group of entry points."""


@dataclass(frozen=True)
class Plugin:
    """An entry point of a package; `broken` says in one sentence why it brings nothing."""

    origin: str
    targets: Path | None = None
    broken: str | None = None


_loaded: list[Plugin] | None = None
_undo: list[Callable[[], object]] | None = None


def load_plugins() -> tuple[Plugin, ...]:
    """Import every plug-in, once a process; one that raises is left out and says why."""
    global _loaded
    if _loaded is None:
        from importlib.metadata import entry_points

        _loaded = []  # a plug-in that asks for an unknown name while it is imported finds none
        for point in sorted(entry_points(group=GROUP), key=lambda one: (one.name, one.value)):
            _loaded.append(_imported(point))
    return tuple(_loaded)


def broken_plugins() -> list[str]:
    """A sentence for each plug-in that was tried and is broken."""
    return [one.broken for one in _loaded or () if one.broken is not None]


def plugin_files(folder: str = "") -> dict[str, tuple[Path, str]]:
    """TOML files in the plug-ins' folders of targets, or in `folder` there, with their origins."""
    return {
        file.stem: (file, one.origin)
        for one in load_plugins()
        if one.targets is not None
        for file in sorted((one.targets / folder).glob("*.toml"))
    }


def registered(module: str, undo: Callable[[], object]) -> None:
    """Note what a module registered, for the case that the plug-in it belongs to is broken."""
    if _undo is not None and module.partition(".")[0] != "cimtool":
        _undo.append(undo)


def _imported(point: EntryPoint) -> Plugin:
    """Import one plug-in; what a broken one had registered by then is taken back."""
    global _undo
    package = point.dist
    origin = "a package" if package is None else f"{package.name} {package.version}"
    _undo = []
    try:
        targets = getattr(point.load(), "TARGETS", None)
        return Plugin(origin, None if targets is None else Path(targets))
    except Exception as error:  # whatever it is, it is the plug-in's and not cimtool's
        for undo in reversed(_undo):
            undo()
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        sentence = f'{origin}: plug-in "{point.name}" ({point.value}) is left out: {reason}'
        return Plugin(origin, broken=sentence)
    finally:
        _undo = None
