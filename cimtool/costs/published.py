"""Published figures, recomputed from geometry, cycle time and other figures for `targets check`.

These are throughput, efficiency and density of a fully used array, whole retrievals, and the
search energy of a content-addressable memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cimtool.base.errors import CimError
from cimtool.costs.rates import Rates, rates_at
from cimtool.hardware.cam import Cam
from cimtool.hardware.figures import Figure, Retrieval, holding, origins, unsaid
from cimtool.hardware.input_codes import InputCode
from cimtool.hardware.placement import Placement, placed
from cimtool.hardware.recomputed import Recomputation
from cimtool.hardware.settings import Settings
from cimtool.hardware.target import Target

AGREE = 0.02
"""Largest relative difference of a published figure and the computed one."""

LATENCY_AGREE = 0.15
"""The same for a retrieval's latency; we do not count norms and the search for the best."""

MEGABYTE_BITS = 8 << 20


@dataclass(frozen=True)
class RecomputedFigure:
    """A published figure beside the value that geometry and other figures at its point give.

    If they do not suffice, `computed` is None and `why` has the reason. `by_construction` names
    figures that were derived from the published one, so they confirm nothing. Neither do the
    `unsaid` figures: they are derived, but the file does not name their source.
    """

    point: str
    quantity: str
    unit: str
    published: float
    computed: float | None
    why: str
    by_construction: tuple[str, ...] = ()
    unsaid: tuple[str, ...] = ()

    @property
    def agrees(self) -> bool:
        """True if both are the same within 2%, or if nothing could be computed."""
        return self.computed is None or abs(self.computed / self.published - 1) <= AGREE

    def sentence(self) -> str:
        """The comparison for a reader."""
        published = f"{self.quantity} {self.published:g} {self.unit} at {self.point}"
        if self.computed is None:
            return f"{published}: not recomputed, {self.why}"
        difference = self.computed / self.published - 1
        found = f"{published}: {self.computed:.4g} from {self.why} ({difference:+.1%})"
        return found + _construction_text(self.by_construction, self.unsaid)


def _construction_text(derived: Sequence[str], unsaid: Sequence[str]) -> str:
    """The clause on figures that were derived from the published one, or may have been."""
    text = ""
    if derived:
        were = "was" if len(derived) == 1 else "were"
        text = f", consistent by construction: {' and '.join(derived)} {were} derived from it"
    if unsaid:
        are = "is" if len(unsaid) == 1 else "are"
        text += f", not confirmed: {' and '.join(unsaid)} {are} derived; the file does not say "
        text += "from what"
    return text


class Published(Recomputation, name="published"):
    """Throughput, efficiency and density, from geometry and other figures."""

    @classmethod
    def check(cls, target: Target | Cam, where: str) -> tuple[RecomputedFigure, ...]:
        """The figures of a target; CimError starting with `where` if a figure is off by over 2%."""
        compared = compare_published(target) if isinstance(target, Target) else ()
        for one in compared:
            if not one.agrees:
                raise CimError(
                    f"{where}: {one.quantity} = {one.published:g} {one.unit} at operating point "
                    f'"{one.point}": recomputed from {one.why} it is {one.computed:.4g} '
                    f"{one.unit}, expected within {AGREE:.0%}"
                )
        return compared


def compare_published(target: Target) -> tuple[RecomputedFigure, ...]:
    """Recompute throughput, efficiency and density of every operating point of a target."""
    found = []
    for point in target.operating_points:
        known = holding(target.figures, point.name)
        for figure in target.figures:
            if figure.at == point.name and figure.quantity in RECOMPUTED:
                rates = rates_at(target, point.name)
                value, why, used = RECOMPUTED[figure.quantity](rates, figure)
                published = point.name, figure.quantity, figure.unit, figure.value
                derived = [one for one in used if figure.quantity in origins(one, known)]
                if used and figure.quantity in (point.derived_from or ()):
                    derived.append("the precision of the point")
                unknown = dict.fromkeys(name for one in used for name in unsaid(one, known))
                of = tuple(derived), tuple(unknown)
                found.append(RecomputedFigure(*published, value, why, *of))
    return tuple(found)


def full_array(rates: Rates) -> tuple[Placement, Settings]:
    """A layer of the point's bits that uses every weight of one array.

    Raises CimError if the array is unlimited or there is no operating point.
    """
    point, own = rates.point, rates.own
    height = own.weight_rows
    if point is None or height is None or own.columns is None:
        raise CimError(f"{rates.target.name}: has no operating point, or an array without limits")
    weight_bits, input_bits = point.weight_bits, point.input_bits
    own = own.model_copy(update={"weight_bits": weight_bits, "input_bits": input_bits})
    inputs = InputCode.named(own.input_encoding, "input_encoding")(input_bits, own.dac_bits)
    shape = height, own.weights_across or 0
    return placed("array", "array", shape, own.crossbar(inputs), own), own


Computed = tuple[float | None, str, tuple[str, ...]]
"""(value, its derivation, the figures used); (None, the reason, none) if figures are missing."""


def _throughput(rates: Rates, figure: Figure) -> Computed:
    arrays = rates.arrays_in(figure.scope)
    if rates.weights is None or arrays is None:
        return None, f"the size of a {figure.scope} is not given", ()
    layer, settings = full_array(rates)
    latency = rates.latency(layer, settings)
    if latency is None:
        return None, "there is no latency or clock at this point", ()
    many = f"{arrays:,} arrays of " if arrays > 1 else ""
    why = f"{many}{layer.rows} x {layer.columns} weights in {latency:.4g} ns"
    used: tuple[str, ...] = ("mvm_latency",)
    if rates.value("mvm_latency") is None:
        used = ("read_latency",)
        if rates.value("read_latency") is None:
            used = ("clock", "drive_clocks") if rates.value("drive_clocks") else ("clock",)
        used += ("adc_rate", "adc_count") if rates.conversion_time(layer) else ()
    return 2 * layer.macs * arrays / latency / 1000, why, used


def _efficiency(rates: Rates, figure: Figure) -> Computed:
    whole = rates.figure("mvm_energy", "mac_energy")
    energy = None if whole is None else rates.mac_energy()
    if whole is not None and energy is not None and energy.value is not None:
        return 2 / energy.value, f"the {whole.quantity} of {whole.text()}", (whole.quantity,)
    if rates.weights is not None:
        layer, settings = full_array(rates)
        parts = rates.part_energies(layer, settings)
        columns, conversions = parts["arrays"], parts["converters"]
        if columns is not None and conversions is not None:
            used = ("column_energy", "adc_energy")
            return (
                2 * layer.macs / (columns + conversions),
                "the energies of columns and conversions",
                used,
            )
    return None, "there is no energy of whole products or of all their parts at this point", ()


def _density(rates: Rates, figure: Figure) -> Computed:
    area, throughput = rates.figure("area"), rates.figure("throughput")
    if area is None or throughput is None or area.scope != throughput.scope:
        return None, "there is no throughput and area of one scope at this point", ()
    why = f"throughput of {throughput.text()} and area of {area.text()}"
    return throughput.value / area.value, why, ("throughput", "area")


RECOMPUTED = {"throughput": _throughput, "efficiency": _efficiency, "density": _density}
"""The rules by which each quantity follows from the other figures at its point."""


@dataclass(frozen=True, kw_only=True)
class RecomputedRetrieval:
    """A published figure of a retrieval beside the computed one; `agree` bounds the difference.

    `unsaid` is as in a RecomputedFigure.
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
        ) + _construction_text((), self.unsaid)


class Retrievals(Recomputation, name="retrievals"):
    """Whole retrievals that a paper publishes.

    Latency is the time to sense and multiply all stored bits, all arrays side by side. Energy is
    the energy of the target's first retrieval, in proportion to the stored bytes.
    """

    @classmethod
    def check(cls, target: Target | Cam, where: str) -> tuple[RecomputedRetrieval, ...]:
        """The retrievals of a target; CimError starting with `where` if a figure is too far off."""
        found = tuple(_retrievals(target)) if isinstance(target, Target) else ()
        for one in found:
            if abs(one.difference) > one.agree:
                raise CimError(
                    f'{where}: {one.quantity} = {one.published:g} {one.unit} of retrieval "'
                    f'{one.retrieval}": recomputed from {one.why} it is {one.computed:.4g} '
                    f"{one.unit}, expected within {one.agree:.0%}"
                )
        return found


def _retrievals(target: Target) -> Iterator[RecomputedRetrieval]:
    known = {one.quantity: one for one in reversed(target.figures)}  # the first of each
    clock = known["clock"].value if "clock" in known else None
    if clock is not None and "drive_clocks" in known:
        clock /= known["drive_clocks"].value
    for one in target.retrievals:
        cycles = _cycles(target, one)
        if cycles is not None and clock is not None:
            why = f"{cycles:.0f} cycles of {1000 / clock:g} ns"
            latency = cycles / clock
            yield RecomputedRetrieval(
                retrieval=one.name,
                quantity="latency",
                unit="us",
                published=one.latency,
                computed=latency,
                agree=LATENCY_AGREE,
                why=why,
                unsaid=unsaid("clock", known),
            )
    for one in target.retrievals[1:]:
        first = target.retrievals[0]
        energy = first.energy * one.megabytes / first.megabytes
        why = f"the {first.energy:g} uJ of {first.name} by what is stored"
        yield RecomputedRetrieval(
            retrieval=one.name,
            quantity="energy",
            unit="uJ",
            published=one.energy,
            computed=energy,
            agree=AGREE,
            why=why,
        )


def _cycles(target: Target, one: Retrieval) -> float | None:
    """Cycles of a retrieval; None if the size of the chip or of its arrays is not given."""
    keys, arrays = target.keys, target.hierarchy.arrays
    if arrays is None or keys.rows is None or keys.columns is None:
        return None
    loads = one.megabytes * MEGABYTE_BITS / (arrays * keys.rows * keys.columns * keys.cell_bits)
    return loads * (one.load_cycles + one.input_bits / keys.dac_bits)


@dataclass(frozen=True)
class RecomputedSearch:
    """A published energy of a search in pJ beside the sum over its cells.

    `by_construction` and `unsaid` are as in a RecomputedFigure.
    """

    published: float
    computed: float
    why: str
    by_construction: tuple[str, ...] = ()
    unsaid: tuple[str, ...] = ()

    def sentence(self) -> str:
        """The comparison for a reader."""
        difference = self.computed / self.published - 1
        return (
            f"search_energy {self.published:g} pJ: {self.computed:.4g} from {self.why} "
            f"({difference:+.1%})" + _construction_text(self.by_construction, self.unsaid)
        )


class Searches(Recomputation, name="searches"):
    """The search energy of a content-addressable memory, from the energy of one cell."""

    @classmethod
    def check(cls, target: Target | Cam, where: str) -> tuple[RecomputedSearch, ...]:
        """The search of a CAM with both figures; CimError starting with `where` if over 2% off."""
        if not isinstance(target, Cam):
            return ()
        whole, cell = target.figure("search_energy"), target.figure("search_cell_energy")
        if whole is None or cell is None:
            return ()
        why = f"{target.array.words} x {target.array.cells} cells of {cell.text()}"
        known = holding(target.figures, None)
        solved = whole.quantity in origins(cell.quantity, known)
        found = RecomputedSearch(
            whole.value,
            target.cells_energy(cell),
            why,
            (cell.quantity,) if solved else (),
            unsaid(cell.quantity, known),
        )
        if abs(found.computed / found.published - 1) > AGREE:
            raise CimError(
                f"{where}: search_energy = {whole.text()}: recomputed from {why} it is "
                f"{found.computed:.4g} pJ, expected within {AGREE:.0%}"
            )
        return (found,)
