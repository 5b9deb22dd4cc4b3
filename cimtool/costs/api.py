"""The library's function of this room."""

from __future__ import annotations

from cimtool.costs.estimate import cost as cost
