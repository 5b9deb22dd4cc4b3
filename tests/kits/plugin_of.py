"""The classes of a test module as those of a plug-in."""

from __future__ import annotations

import pytest

from cimtool.base import plugins


def as_plugin(monkeypatch: pytest.MonkeyPatch, module: str, origin: str, point: str) -> str:
    """Take a module for that of a plug-in; return how sentences name it."""
    packages = frozenset({module.partition(".")[0]})
    plugin = plugins.Plugin(origin, f'plug-in "{point}" ({point})', packages)
    monkeypatch.setattr(plugins, "_loaded", [plugin])
    return str(plugin)
