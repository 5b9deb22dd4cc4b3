"""Published retrievals held against geometry and clock, and against one another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cimtool.base.errors import CimError
from cimtool.costs.published import AGREE, construction_text
from cimtool.hardware.figures import Retrieval, unsaid
from cimtool.hardware.target import Target

LATENCY_AGREE = 0.15
"""Largest relative difference of a latency: norms and the search for the best are not counted."""

MEGABYTE_BITS = 8 << 20


@dataclass(frozen=True)
class RecomputedRetrieval:
    """A figure of a published retrieval beside what follows from others, within `agree` of it.

    `unsaid` is as a RecomputedFigure has it.
    """

    retrieval: str
    quantity: str
    unit: str
    published: float
    computed: float
    agree: float
    why: str
    unsaid: tuple[str, ...] = ()

    @property
    def difference(self) -> float:
        """The relative difference of the computed figure."""
        return self.computed / self.published - 1

    def sentence(self) -> str:
        """The comparison for a reader."""
        return (
            f"{self.quantity} {self.published:g} {self.unit} of retrieval {self.retrieval}: "
            f"{self.computed:.4g} from {self.why} ({self.difference:+.1%}, within {self.agree:.0%})"
        ) + construction_text((), self.unsaid)


def check_retrievals(target: Target, where: str) -> tuple[RecomputedRetrieval, ...]:
    """Recompute the published retrievals of a target.

    Latency is that of sensing and multiplying all stored bits, array by array side by side; energy
    that of the target's first retrieval in proportion to what is stored. CimError starting with
    `where` if one is off by more than its share.
    """
    found = tuple(_recomputed(target))
    for one in found:
        if abs(one.difference) > one.agree:
            raise CimError(
                f'{where}: {one.quantity} = {one.published:g} {one.unit} of retrieval "'
                f'{one.retrieval}": recomputed from {one.why} it is {one.computed:.4g} {one.unit}, '
                f"expected within {one.agree:.0%}"
            )
    return found


def _recomputed(target: Target) -> Iterator[RecomputedRetrieval]:
    known = {one.quantity: one for one in reversed(target.figures)}  # the first of each
    for one in target.retrievals:
        cycles, clock = _cycles(target, one), _clock(target)
        if cycles is not None and clock is not None:
            why = f"{cycles:.0f} cycles of {1000 / clock:g} ns"
            latency = cycles / clock
            yield RecomputedRetrieval(
                one.name, "latency", "us", one.latency, latency, LATENCY_AGREE, why,
                unsaid("clock", known),
            )  # fmt: skip
    for one in target.retrievals[1:]:
        first = target.retrievals[0]
        energy = first.energy * one.megabytes / first.megabytes
        why = f"the {first.energy:g} uJ of {first.name} by what is stored"
        yield RecomputedRetrieval(one.name, "energy", "uJ", one.energy, energy, AGREE, why)


def _cycles(target: Target, one: Retrieval) -> float | None:
    """Cycles of a retrieval; None where the size of the chip or of its arrays is not given."""
    keys, arrays = target.keys, target.hierarchy.arrays
    if arrays is None or keys.rows is None or keys.columns is None:
        return None
    loads = one.megabytes * MEGABYTE_BITS / (arrays * keys.rows * keys.columns * keys.cell_bits)
    return loads * (one.load_cycles + one.input_bits / keys.dac_bits)


def _clock(target: Target) -> float | None:
    return next((one.value for one in target.figures if one.quantity == "clock"), None)
