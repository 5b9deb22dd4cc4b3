"""The library's function of this room, and the view of its result."""

from __future__ import annotations

from cimtool.costs import render as _render  # noqa: F401
from cimtool.costs.estimate import cost as cost
