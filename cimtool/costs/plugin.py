"""Recomputations of published figures, for `targets check`, and the costs in a report."""

from __future__ import annotations

from cimtool.costs.cam_search import RecomputedSearch, check_search
from cimtool.costs.published import RecomputedFigure, check_published
from cimtool.costs.retrievals import RecomputedRetrieval, check_retrievals
from cimtool.costs.section import CostSection as CostSection
from cimtool.hardware.cam import Cam
from cimtool.hardware.recomputed import Recomputation
from cimtool.hardware.target import Target


class Published(Recomputation, name="published"):
    """Throughput, efficiency and density, from geometry and other figures."""

    @classmethod
    def check(cls, target: Target | Cam, where: str) -> tuple[RecomputedFigure, ...]:
        """The figures of a target."""
        return check_published(target, where) if isinstance(target, Target) else ()


class Retrievals(Recomputation, name="retrievals"):
    """Whole retrievals that a paper publishes."""

    @classmethod
    def check(cls, target: Target | Cam, where: str) -> tuple[RecomputedRetrieval, ...]:
        """The retrievals of a target."""
        return check_retrievals(target, where) if isinstance(target, Target) else ()


class Searches(Recomputation, name="searches"):
    """The energy of a search of a content-addressable memory."""

    @classmethod
    def check(cls, target: Target | Cam, where: str) -> tuple[RecomputedSearch, ...]:
        """The searches of a CAM."""
        return check_search(target, where) if isinstance(target, Cam) else ()
