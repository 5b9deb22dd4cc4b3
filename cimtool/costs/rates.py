"""Energy and latency of one product on a target's arrays, by its figures at an operating point.

A figure is used only for the array and the bits that it was taken at. Figures of whole products
(`mvm_energy`, `mac_energy`, `efficiency`, `mvm_latency`) come before figures of parts
(`column_energy`, `adc_energy`, `shift_add_energy`, `read_latency`, `clock`), which they contain.
A part without a figure gets its reference price.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from cimtool.base.errors import CimError
from cimtool.base.named import unknown
from cimtool.costs.prices import Prices, reference
from cimtool.costs.silicon import (
    ArrayKind,
    ErrorWidth,
    array_kind,
    converter_width,
    error_width,
    measured_width,
)
from cimtool.costs.totals import NOTHING, Quantity
from cimtool.hardware.figures import Figure, OperatingPoint
from cimtool.hardware.placement import Placement
from cimtool.hardware.settings import Settings, resolve
from cimtool.hardware.target import Target

ARRAY_KEYS = (
    "rows", "columns", "cell_bits", "encoding", "pairs", "rows_active", "dac_bits", "adc_bits",
    "adc_on", "shift_add", "offset_sum",
)  # fmt: skip
"""Settings that, if changed, make the array differ from the target's."""


WHOLE_ENERGIES = ("mvm_energy", "mac_energy", "efficiency")
"""Figures of the energy of whole products, from the preferred on."""

PART_ENERGIES = {
    "arrays": "column_energy",
    "converters": "adc_energy",
    "shift-and-add": "shift_add_energy",
}
"""The figure that gives each part of a product its energy."""


@dataclass(frozen=True)
class Rates:
    """A target's figures at one operating point (None: it has none)."""

    target: Target
    point: OperatingPoint | None

    @cached_property
    def prices(self) -> Prices:
        """The prices of parts for which the target has no figure."""
        return Prices(self.target, self.point)

    @cached_property
    def own(self) -> Settings:
        """The target's own settings, with the converter of the point."""
        own = resolve(self.target, None, {})
        bits = None if self.point is None else self.point.adc_bits
        return own if bits is None else own.model_copy(update={"adc_bits": bits})

    @cached_property
    def kind(self) -> ArrayKind:
        """The kind of the target's arrays."""
        return array_kind(self.target)

    def figure(self, *quantities: str) -> Figure | None:
        """The first figure of the first of `quantities` that holds at the point."""
        at = (None, self.point.name if self.point else None)
        return next(
            (f for q in quantities for f in self.target.figures if f.quantity == q and f.at in at),
            None,
        )

    def value(self, quantity: str) -> float | None:
        """The value of a figure that holds at the point."""
        figure = self.figure(quantity)
        return None if figure is None else figure.value

    def arrays_in(self, scope: str) -> int | None:
        """Arrays in an array, macro, core or chip; None if the target does not say."""
        chip = self.target.hierarchy
        return {
            "array": 1,
            "macro": chip.arrays_per_macro,
            "core": chip.arrays_per_core,
            "chip": chip.arrays,
        }[scope]

    def changed(self, settings: Settings) -> tuple[str, ...]:
        """The settings in which a layer's array differs from the target's."""
        return tuple(k for k in ARRAY_KEYS if getattr(settings, k) != getattr(self.own, k))

    def mismatch(self, layer: Placement, settings: Settings) -> str | None:
        """The reason that whole-product figures do not fit this layer's array and bits, if any.

        Figures for the bits of one cycle and one cell are charged for each cycle and cell of the
        layer. Other figures hold only for layers of at most their bits.
        """
        changed, point = self.changed(settings), self.point
        if changed:
            return f"the target's figures are for other settings ({', '.join(changed)})"
        if point is None:
            return None
        for what, least, most, bits, own in (
            ("inputs", settings.dac_bits, settings.dac_bits, point.input_bits, layer.input_bits),
            (
                "weights",
                settings.cell_bits,
                self._most_in_one_slice(settings),
                point.weight_bits,
                layer.weight_bits,
            ),
        ):
            if not min(least, own) <= bits <= most and own > bits:
                return f"the target's figures are for {bits}-bit {what}, the layer has {own} bits"
        return None

    def _most_in_one_slice(self, settings: Settings) -> int:
        """The bits of the widest weight that one slice holds, with its sign if cells are paired."""
        wider = settings.cell_bits + 1
        return wider if settings.with_weights(wider).weight_code.slices == 1 else wider - 1

    def _products(self, layer: Placement, settings: Settings) -> tuple[int, float] | None:
        """Products in sequence, and cells of a weight, as multiples of the point's."""
        point = self.point
        if point is None or self.mismatch(layer, settings):
            return None
        cycles, cells = 1, 1.0
        if point.input_bits <= settings.dac_bits:
            cycles = layer.drive_cycles
        if point.weight_bits <= self._most_in_one_slice(settings):
            of_point = settings.with_weights(point.weight_bits)
            cells = layer.cells_per_weight / of_point.cells_per_weight
        return cycles, cells

    def energies(self, layer: Placement, settings: Settings) -> dict[str, Quantity | None]:
        """Energy of one product of a layer by part, in proportion to the cells that it uses.

        Parts are named as in PARTS. A part is None without a figure and a reference price. Its
        interval is as wide as such figures and prices were found to be (`silicon.py`).
        """
        one, products = self.mac_energy(), self._products(layer, settings)
        if one is not None and products is not None:
            cycles, cells = products
            within = {"converters": NOTHING, "shift-and-add": NOTHING}
            whole = self.width(*WHOLE_ENERGIES).widen(one)
            worked = layer.macs * cycles * cells * layer.worked
            return {"arrays": whole.times(worked), **within}
        prices = {
            "arrays": self._array_price,
            "converters": self._converter_price,
            "shift-and-add": self._shift_add_price,
        }
        found: dict[str, Quantity | None] = {}
        for part, own in self.part_energies(layer, settings).items():
            energy = prices[part](layer, settings) if own is None else Quantity(own, own=own)
            width = self.width(PART_ENERGIES[part])
            found[part] = None if energy is None else width.widen(energy)
        return found

    def width(self, *quantities: str) -> ErrorWidth:
        """The width of an energy by the figure of `quantities`, or by reference prices without it.

        A figure of a simulated design, or one that is not confirmed, is no better than a price.
        """
        figure = self.figure(*quantities)
        if figure is None:
            return error_width(self.kind)
        if self._measured(figure):
            return measured_width()
        return converter_width() if figure.quantity == "adc_energy" else error_width(self.kind)

    def _measured(self, figure: Figure) -> bool:
        """True for a figure of a chip that was read in its source or follows from such figures."""
        return not self.target.simulated and figure.is_known

    def time(self, nanoseconds: float) -> Quantity:
        """A time by the target's figures, as wide as published times were found to be."""
        figure = self.figure("mvm_latency", "read_latency", "clock")
        spread = reference().spread if figure is None else self._spread(figure)
        return Quantity(nanoseconds).times(1, 1 / spread, spread)

    def area(self, figure: Figure, amount: float) -> Quantity:
        """So many times the area of a figure, in its unit: as wide as its time would be."""
        spread, value = self._spread(figure), figure.value * amount
        low, high = (end * amount for end in figure.interval)
        return Quantity(value, (), low / spread, high * spread, own=value)

    def _spread(self, figure: Figure) -> float:
        """The factor each way within which a figure of time or area is taken to hold."""
        return reference().time_spread(self._measured(figure))

    def mac_energy(self) -> Quantity | None:
        """Energy of one MAC of the point's bits in pJ, converters included."""
        figure = self.figure(*WHOLE_ENERGIES)
        if figure is None or self.point is None:
            return None
        low, high = figure.interval
        if figure.quantity == "efficiency":
            ends = (2 / figure.value, 2 / high, 2 / low)
        else:
            arrays, weights, each = self.arrays_in(figure.scope), self.weights, 1.0
            if figure.quantity == "mvm_energy":
                if not (arrays and weights):
                    return None
                each = 1000 / (arrays * weights)
            ends = (figure.value * each, low * each, high * each)
        return Quantity(ends[0], (), ends[1], ends[2], own=ends[0])

    def _array_price(self, layer: Placement, settings: Settings) -> Quantity | None:
        """Reads of cells, or multiplications and additions if the arrays add digitally."""
        if not settings.weight_code.analog:
            bits = layer.weight_bits, layer.input_bits
            adder = sum(bits) + (layer.rows - 1).bit_length()
            many = (("multiplications", bits[0] * bits[1]), ("additions", adder))
            units = [(self.prices.unit(kind), size) for kind, size in many]
            total = NOTHING
            for unit, size in units:
                total += NOTHING if unit is None else unit.of(layer.macs * size * layer.worked)
            return total
        unit = self.prices.unit("cell_reads")
        if unit is None or self.target.process.memory is None:
            return None
        return unit.of(layer.cells * layer.drive_cycles * layer.worked)

    def _converter_price(self, layer: Placement, settings: Settings) -> Quantity | None:
        """Conversions along the reference ladder, from the target's own converter if it has one."""
        if layer.adc_bits is None:
            return NOTHING
        figure, own_bits = self.value("adc_energy"), self.own.adc_bits
        own = None if figure is None or own_bits is None else (figure, own_bits)
        one = self.prices.converter(layer.adc_bits, own)
        return None if one is None else one.times(layer.conversions)

    def _shift_add_price(self, layer: Placement, settings: Settings) -> Quantity | None:
        unit, adder = self.prices.unit("shifts"), self.prices.unit("additions")
        bits = layer.weight_bits + layer.input_bits + (layer.rows - 1).bit_length()
        if unit is None or adder is None:
            return None
        # A shared exponent shifts the sum of its rows once, after the last cycle.
        total = unit.of((layer.column_sums + layer.exponents) * bits)
        if not settings.weight_code.multiplies:
            return total
        # To go on from one digit to the next, 3 s is s + (s << 1).
        return total + adder.of(layer.column_sums * bits)

    @property
    def weights(self) -> int | None:
        """Weights of the point's bits that one array multiplies at a time; None if unlimited."""
        if self.point is None:
            return None
        of_point = self.own.with_weights(self.point.weight_bits)
        if of_point.weight_rows is None or of_point.weights_across is None:
            return None
        return of_point.weight_rows * of_point.weights_across

    def part_energies(self, layer: Placement, settings: Settings) -> dict[str, float | None]:
        """Energy in pJ of one product of a layer by part, from the figures of its parts alone."""
        column, adc, adder = map(self.value, PART_ENERGIES.values())
        same_adc = settings.adc_bits == self.own.adc_bits
        conversions = adc * layer.conversions if adc is not None and same_adc else None
        whole = None if column is None or self.changed(settings) else column * layer.column_sums
        return {
            "arrays": whole,
            "converters": 0.0 if layer.adc_bits is None else conversions,
            "shift-and-add": None if adder is None else adder * layer.column_sums,
        }

    def latency(self, layer: Placement, settings: Settings) -> float | None:
        """Time of one product of a layer in ns, all its arrays working side by side."""
        whole, products = self.value("mvm_latency"), self._products(layer, settings)
        if whole is not None and products is not None:
            return whole * products[0] * layer.activity.busiest
        read = self.drive_time
        if read is None or self.changed(settings):
            return None
        convert = self.conversion_time(layer)
        driving = layer.drive_cycles * read * layer.activity.busiest
        return layer.reads * max(driving, layer.cycles * convert)

    @property
    def drive_time(self) -> float | None:
        """Time of a drive cycle in ns, which takes `drive_clocks` of the clock; None if unknown."""
        read, clock = self.value("read_latency"), self.value("clock")
        if read is not None or clock is None:
            return read
        return 1000 / clock * (self.value("drive_clocks") or 1.0)

    def conversion_time(self, layer: Placement) -> float:
        """Time in ns that an array's converters take a cycle, in the mean; 0 if they keep up."""
        rate, count = self.figure("adc_rate"), self.figure("adc_count")
        if rate is None or count is None or layer.adc_bits is None:
            return 0.0
        shared = self.arrays_in(count.scope) or 1
        columns = min(layer.columns, layer.array_columns) * layer.slices + layer.unit_columns
        skipping = 1.0 if layer.cycles < layer.drive_cycles else layer.activity.busiest
        return columns * shared / (count.value * rate.value) * skipping


def rates_at(target: Target, name: str | None, settings: Settings | None = None) -> Rates:
    """The figures of a target at the operating point `name`.

    None takes the first point whose converter has the bits of the `settings`, or else the first.
    Raises CimError if the target has no point of that name.
    """
    points = {point.name: point for point in target.operating_points}
    if name is not None and not points:
        raise CimError(f'operating point "{name}": target {target.name} has no such point')
    if name is not None and name not in points:
        raise unknown(f"{target.name}: operating point", name, points)
    if name is not None:
        return Rates(target, points[name])
    found = [Rates(target, point) for point in points.values()] or [Rates(target, None)]
    alike = (one for one in found if settings and one.own.adc_bits == settings.adc_bits)
    return next(alike, found[0])
