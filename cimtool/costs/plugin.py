"""Recomputations of published figures, for `targets check`, and the costs in a report."""

from __future__ import annotations

import cimtool.costs.published  # noqa: F401
from cimtool.costs.section import CostSection as CostSection
