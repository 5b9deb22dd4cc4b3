"""The cost of a bundle on its target."""

from __future__ import annotations

from cimtool.base.errors import Argument, ArgumentError
from cimtool.bundle.bundle import Bundle
from cimtool.costs.estimate import Estimate, estimate


def estimate_bundle(
    bundle: Bundle, samples: int, gallery: int | None = None, operating_point: str | None = None
) -> Estimate:
    """Estimate a bundle's cost, and with `gallery` that of a query against so many items.

    Raises CimError for a number below 1 and an operating point that the target does not have.
    """
    for name, value in (("gallery", gallery), ("samples", samples)):
        if value is not None and value < 1:
            raise ArgumentError("{} is {}; expected at least 1", Argument(name), value)
    return estimate(
        bundle.program,
        bundle.settings,
        bundle.target,
        samples=samples,
        dimension=bundle.model.dimension,
        gallery=gallery,
        shortlist=None if bundle.gallery is None else bundle.gallery.shortlist,
        operating_point=operating_point,
    )
