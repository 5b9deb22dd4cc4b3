"""Published figures held against what geometry and cycle time give for a fully used array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cimtool.base.errors import CimError
from cimtool.costs.rates import Rates, rates_at
from cimtool.hardware.figures import Figure, OperatingPoint, holding, origins, unsaid
from cimtool.hardware.input_codes import InputCode
from cimtool.hardware.placement import Placement, placed
from cimtool.hardware.settings import Settings
from cimtool.hardware.target import Target

AGREE = 0.02
"""Largest relative difference of a published figure and the computed one."""


@dataclass(frozen=True)
class RecomputedFigure:
    """A published figure beside what follows from geometry and the other figures at its point.

    `computed` is None, with the reason in `why`, where they do not suffice. `by_construction` are
    the figures among them that were derived from the published one: they confirm nothing.
    Neither do those `unsaid`: derived, and the file does not say from what.
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
        """True where both are the same within 2%, or nothing could be computed."""
        return self.computed is None or abs(self.computed / self.published - 1) <= AGREE

    def sentence(self) -> str:
        """The comparison for a reader."""
        published = f"{self.quantity} {self.published:g} {self.unit} at {self.point}"
        if self.computed is None:
            return f"{published}: not recomputed, {self.why}"
        difference = self.computed / self.published - 1
        found = f"{published}: {self.computed:.4g} from {self.why} ({difference:+.1%})"
        return found + construction_text(self.by_construction, self.unsaid)


def construction_text(derived: Sequence[str], unsaid: Sequence[str]) -> str:
    """The clause of a comparison with what was derived from the published figure, or may have been.

    Empty without either.
    """
    text = ""
    if derived:
        were = "was" if len(derived) == 1 else "were"
        text = f", consistent by construction: {' and '.join(derived)} {were} derived from it"
    if unsaid:
        are = "is" if len(unsaid) == 1 else "are"
        text += f", not confirmed: {' and '.join(unsaid)} {are} derived; the file does not say "
        text += "from what"
    return text


def compare_published(target: Target) -> tuple[RecomputedFigure, ...]:
    """Recompute throughput, efficiency and density of every operating point of a target."""
    found = []
    for point in target.operating_points:
        for figure in target.figures:
            if figure.at == point.name and figure.quantity in RECOMPUTED:
                rates = rates_at(target, point.name)
                value, why, used = RECOMPUTED[figure.quantity](rates, figure)
                published = point.name, figure.quantity, figure.unit, figure.value
                derived = _derived(target, point, figure.quantity, used)
                known = holding(target.figures, point.name)
                unknown = dict.fromkeys(name for one in used for name in unsaid(one, known))
                found.append(RecomputedFigure(*published, value, why, derived, tuple(unknown)))
    return tuple(found)


def _derived(
    target: Target, point: OperatingPoint, quantity: str, used: Sequence[str]
) -> tuple[str, ...]:
    """Those of the `used` figures that were derived from `quantity`, and the point if it was."""
    known = holding(target.figures, point.name)
    derived = tuple(one for one in used if quantity in origins(one, known))
    if used and quantity in (point.derived_from or ()):
        return (*derived, "the precision of the point")
    return derived


def check_published(target: Target, where: str) -> tuple[RecomputedFigure, ...]:
    """Compare as `compare_published`; CimError starting with `where` if one is off by over 2%."""
    compared = compare_published(target)
    for one in compared:
        if not one.agrees:
            raise CimError(
                f"{where}: {one.quantity} = {one.published:g} {one.unit} at operating point "
                f'"{one.point}": recomputed from {one.why} it is {one.computed:.4g} {one.unit}, '
                f"expected within {AGREE:.0%}"
            )
    return compared


def full_array(rates: Rates) -> tuple[Placement, Settings]:
    """A layer of the point's bits that uses every weight of one array.

    Raises CimError where the array is unlimited or there is no operating point.
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
"""A quantity, what it follows from, and the figures used; None, and why not, if none suffice."""


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
        read = "clock" if rates.value("read_latency") is None else "read_latency"
        used = (read, "adc_rate", "adc_count") if rates.conversion_time(layer) else (read,)
    return 2 * layer.macs * arrays / latency / 1000, why, used


def _efficiency(rates: Rates, figure: Figure) -> Computed:
    whole = rates.figure("mvm_energy", "mac_energy")
    energy = None if whole is None else rates.mac_energy_pj()
    if energy is not None and whole is not None:
        return 2 / energy, f"the {whole.quantity} of {whole.text()}", (whole.quantity,)
    if rates.weights is not None:
        layer, settings = full_array(rates)
        parts = rates.parts(layer, settings)
        if parts.macs is not None and parts.conversions is not None:
            total = parts.macs + parts.conversions
            used = ("column_energy", "adc_energy")
            return 2 * layer.macs / total, "the energies of columns and conversions", used
    return None, "there is no energy of whole products or of all their parts at this point", ()


def _density(rates: Rates, figure: Figure) -> Computed:
    area, throughput = rates.figure("area"), rates.figure("throughput")
    if area is None or throughput is None or area.scope != throughput.scope:
        return None, "there is no throughput and area of one scope at this point", ()
    why = f"throughput of {throughput.text()} and area of {area.text()}"
    return throughput.value / area.value, why, ("throughput", "area")


RECOMPUTED = {"throughput": _throughput, "efficiency": _efficiency, "density": _density}
"""The rules by which each quantity follows from the other figures at its point."""
