"""The library's function of this room."""

from __future__ import annotations

from cimtool.costs.bundle_cost import cost as cost
