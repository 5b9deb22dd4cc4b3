"""Outputs of cimtool's array model beside CrossSim's and aihwkit's in matched configurations.

    benchmarks/agreement.py --crosssim PYTHON --aihwkit PYTHON

`PYTHON` is an interpreter that has the simulator. Weights and inputs are the same integers; noise
is compared by its moments, which lie within 3 standard errors where two models are the same.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from crosssim import error, parameters

from cimtool.base.arrays import FloatArray, IntArray
from cimtool.hardware.contract import Convert, layer_mvm
from cimtool.hardware.converters import Formula, Lossless, UniformLaw
from cimtool.hardware.crossbar import LEAK_BITS, Crossbar, leak_of
from cimtool.hardware.input_codes import InputCode
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.noise.die import Arrays, Devices, Die
from cimtool.hardware.noise.mechanisms.devices import ConductanceDrift, Flicker
from cimtool.hardware.noise.model import DeviceNoise, DeviceState
from cimtool.hardware.noise.spec import Noise, load_noise
from cimtool.hardware.references import AdcReferences
from cimtool.hardware.stored import StoredWeights
from cimtool.hardware.weight_codes import WeightCode
from cimtool.ir.types import integer
from cimtool.simulation.die_program import Conditions, LayerOnArrays, noisy_layer

HERE = Path(__file__).parent
ROWS, COLUMNS, INPUTS, FEW = 64, 32, 40, 6
HALF = 0.5 + 0.01
"""Added to CrossSim's outputs before rounding down: halves go up, with what PUSH took from them."""

COUNT = 100_000
"""Devices of each target whose moments are compared."""


@dataclass(frozen=True)
class Case:
    """A configuration of both models: weights in cells, inputs in cycles, converters.

    `step` is the exponent of the converters' step, in digits. `trials` chips of the `noise` are
    made, or none; `cause` says by which definition two models differ, where they do, and `theirs`
    converts by the other one.
    """

    name: str
    weights: str = "offset"
    weight_bits: int = 8
    cell_bits: int = 2
    inputs: str = "unsigned"
    input_bits: int = 8
    dac_bits: int = 1
    adc_bits: int | None = None
    step: int = 0
    ratio: float | None = None
    more: Mapping[str, Any] = field(default_factory=dict)
    crosssim: Mapping[str, Any] = field(default_factory=dict)
    noise: Mapping[str, Any] | None = None
    trials: int = 1
    cause: str = ""
    theirs: Callable[[Case], Convert] | None = None

    @property
    def crossbar(self) -> Crossbar:
        """The arrays in cimtool's contract."""
        return Crossbar(
            WeightCode.named(self.weights, "encoding")(self.weight_bits, self.cell_bits),
            InputCode.named(self.inputs, "encoding")(self.input_bits, self.dac_bits),
            62,
            Lossless() if self.adc_bits is None else Formula(self.adc_bits, "half-up"),
            leak=leak_of(self.ratio, self.cell_bits),
            **self.more,
        )

    @property
    def layer(self) -> CrossbarMvm:
        """The layer of random weights."""
        rng, top = np.random.default_rng(0), (1 << self.weight_bits - 1) - 1
        weight = rng.integers(-top, top + 1, (ROWS, COLUMNS))
        weight[0, 0] = top  # CrossSim takes the largest for its full scale
        fine = LEAK_BITS if self.crossbar.column_leak else 0
        one = None if self.adc_bits is None else AdcReferences.from_zero(1 << self.step + fine)
        references = (one,) * len(self.crossbar.no_references)
        stored = StoredWeights(weight, self.crossbar)
        return CrossbarMvm(stored, np.zeros(COLUMNS, np.int64), np.ones(COLUMNS), references)

    @property
    def rows(self) -> IntArray:
        """The inputs [n, K]."""
        lo, hi = self.crossbar.inputs.limits(self.input_bits)
        count = INPUTS if self.trials == 1 else FEW
        return np.random.default_rng(1).integers(lo, hi, (count, ROWS), endpoint=True)

    @property
    def output_step(self) -> int:
        """One code of the dearest conversion in the outputs."""
        if self.adc_bits is None:
            return 1
        shift = max(s.shift for s in self.layer.stored.slices)
        return 1 << self.step + shift + max(cycle.shift for cycle in self.crossbar.cycles)

    @property
    def parameters(self) -> dict[str, Any]:
        """The same as CrossSim's parameters, by dotted names."""
        values = parameters(self.crossbar, self.step, ROWS, COLUMNS + 1, self.ratio)
        return values | dict(self.crosssim)


def noise(**tables: Any) -> dict[str, Any]:
    """A noise model of devices of up to 10 uS."""
    return {"source": "agreement", "g_max": 10.0, **tables}


SIGNED_END = "the lowest of 2^b codes: CrossSim's signed converter has 2^b - 1, symmetric about 0"
NODAL = "first order in the wires here, a nodal solve there"
UNIT_COLUMN = "the unit column holds 1 here, there 2^(w-1) in the cells of the top slice"


def symmetric(case: Case) -> Convert:
    """Conversions whose lowest code is the highest one's opposite."""
    last = (1 << (case.adc_bits or 1) - 1) - 1
    law = UniformLaw(-last, last, "half-up")

    def convert(p: IntArray, group: int, k: int, cycle: int) -> IntArray:
        return law.values(law.codes(p, 1 << case.step), 1 << case.step)

    return convert


def half_scale(case: Case) -> Convert:
    """Conversions of a unit column whose cells hold half of the top slice's digits."""
    crossbar, half = case.crossbar, 1 << case.cell_bits - 1
    references = AdcReferences.from_zero(1 << case.step)

    def convert(p: IntArray, group: int, k: int, cycle: int) -> IntArray:
        if k < crossbar.slices:
            return crossbar.read(p, references, 0)
        return crossbar.read(half * p, references, 0) // half

    return convert


EXACT = (
    Case("offset, 1-bit cells, inputs bit by bit, lossless", cell_bits=1),
    Case("offset, 2-bit cells, 8-bit converters", adc_bits=8),
    Case("offset, 2-bit cells, 6-bit converters that round", adc_bits=6, step=1),
    Case("offset, 2-bit cells, 5-bit converters that clip", adc_bits=5, step=1),
    Case("offset, 2-bit cells, 4-bit converters", adc_bits=4, step=3),
    Case("offset, 4-bit cells, 6-bit converters", cell_bits=4, adc_bits=6, step=3),
    Case("offset, inputs of 2 bits a cycle, 7 bits", dac_bits=2, adc_bits=7, step=2),
    Case("offset, inputs of 3 bits a cycle, 9 bits", input_bits=6, dac_bits=3, adc_bits=9, step=1),
    Case("cycles added before the converter, 8 bits", adc_bits=8, step=7,
         more={"shift_add": "analog"}),
    Case("pairs of cells, 2-bit slices, lossless", weights="differential"),
    Case("pairs of cells, signed inputs, lossless", weights="differential", inputs="bipolar"),
    Case("pairs of cells, 8-bit converters of the difference", weights="differential", adc_bits=8),
    Case("pairs of cells, 5-bit converters that clip", weights="differential", adc_bits=5,
         cause=SIGNED_END, theirs=symmetric),
    Case("offset subtracted by a unit column, lossless", more={"offset_sum": "unit-column"},
         crosssim={"core.offset.style": "UNIT_COLUMN_SUBTRACTION"}),
    Case("offset subtracted by a unit column, 6 bits", more={"offset_sum": "unit-column"},
         crosssim={"core.offset.style": "UNIT_COLUMN_SUBTRACTION"}, adc_bits=6, step=1,
         cause=UNIT_COLUMN, theirs=half_scale),
    Case("on/off ratio of 13, 8-bit converters", ratio=13.0, adc_bits=8),
    Case("on/off ratio of 13, 6-bit converters", ratio=13.0, adc_bits=6, step=1),
)  # fmt: skip

PLAIN: dict[str, Any] = {"ratio": 4.0, "trials": 300}
NOISY = (
    Case("programming error of 2% of g_max", **PLAIN, noise=noise(programming={"sigma": [0.2]}),
         crosssim=error("programming_error", "NormalIndependentDevice", 0.02)),
    Case("programming error of 3% of g", **PLAIN,
         noise=noise(programming={"sigma": [0.0, 0.3]}),
         crosssim=error("programming_error", "NormalProportionalDevice", 0.03)),
    Case("read noise of 2% of g, each cycle", **PLAIN,
         noise=noise(read={"sigma": 0.02, "redraw": "cycle"}),
         crosssim=error("read_noise", "NormalProportionalDevice", 0.02)),
    Case("programming error of 20% of g_max, cut off at 0", trials=300,
         noise=noise(programming={"sigma": [2.0]}),
         crosssim=error("programming_error", "NormalIndependentDevice", 0.2)),
)  # fmt: skip

WIRES = Case(
    "IR drop, 1 ohm a cell at 100 kohm, 4-bit cells", weight_bits=4, cell_bits=4, input_bits=4,
    dac_bits=4, noise=noise(ir_drop={"wire_resistance": 1.0}), cause=NODAL,
    crosssim={"xbar.array.parasitics.enable": True, "xbar.array.parasitics.Rp_row": 1.0,
              "xbar.array.parasitics.Rp_col": 1.0, "xbar.device.Rmin": 1e5,
              "xbar.array.parasitics.disable_slices": [False], "simulation.Verr_th_mvm": 1e-8},
)  # fmt: skip


def own_outputs(case: Case) -> FloatArray:
    """Outputs [trials, n, N] of cimtool's readable reference."""
    layer, rows = case.layer, case.rows
    if case.noise is None:
        return layer.run(rows)[None].astype(np.float64)
    lo, hi = case.crossbar.inputs.limits(case.input_bits)
    known, noise = integer(("n", ROWS), lo, hi, 1.0), Noise.model_validate(case.noise)
    conditions = Conditions(noise, 0.0)
    place = LayerOnArrays("layer", "layer", Arrays(None, "columns", case.ratio))
    found = []
    for index in range(case.trials):
        die = noisy_layer(layer, known, place, conditions, Die(0, index, 0.0))
        limits = np.full(COLUMNS, 1 << 40)  # a die may leave the range that perfect cells prove
        found.append(replace(die, lo=-limits, hi=limits).run(rows))
    return np.array(found, np.float64)


def run_peer(python: str, script: str, folder: Path) -> None:
    """Run a peer on the cases of a folder."""
    subprocess.run([python, str(HERE / script), str(folder)], check=True)


def crosssim_rows(python: str) -> Iterator[tuple[str, ...]]:
    """Yield the table's rows against CrossSim."""
    cases = (*EXACT, *NOISY, WIRES)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for index, case in enumerate(cases):
            values = {"parameters": case.parameters, "trials": case.trials}
            (folder / f"{index:02}.json").write_text(json.dumps(values))
            np.savez(folder / f"{index:02}.npz", weight=case.layer.weight, inputs=case.rows)
        run_peer(python, "crosssim_peer.py", folder)
        for index, case in enumerate(cases):
            theirs, own = np.load(folder / f"{index:02}.out.npy"), own_outputs(case)
            if case.trials > 1:
                exact = case.rows @ case.layer.weight
                yield moments_row(case.name, own - exact, theirs - exact, case.cause)
            else:
                yield equal_row(case, own, theirs)


def equal_row(case: Case, own: FloatArray, theirs: FloatArray) -> tuple[str, ...]:
    """The shares of outputs that are equal, and within a step of a converter."""
    rounded = np.floor(theirs + HALF)
    off = np.abs(own - rounded)
    equal, near = (off == 0).mean(), (off <= case.output_step).mean()
    told = f"largest difference {off.max():.0f}, of outputs up to {np.abs(theirs).max():,.0f}"
    if case is WIRES:
        lost = case.rows @ case.layer.weight - theirs[0]
        told += f", {off.max() / np.abs(lost).max():.1%} of the largest loss by wires"
    cause = case.cause
    if case.theirs is not None:
        found = layer_mvm(case.rows, case.layer.layer, case.theirs(case))
        same = (found == rounded).mean()
        cause += f"; by that definition {same:.1%} are equal"
    return case.name, f"{equal:.1%}", f"{near:.1%}", told if off.any() else "", cause


def moments_row(name: str, own: FloatArray, theirs: FloatArray, cause: str) -> tuple[str, ...]:
    """Mean and deviation of errors [trials, ...] of both, and their distance in standard errors."""
    cells = []
    for label, moment in (("mean", np.mean), ("deviation", np.std)):
        values, errors = zip(*(_moment(one, moment) for one in (own, theirs)), strict=True)
        apart = (values[0] - values[1]) / float(np.hypot(*errors))
        told = " / ".join(f"{v:.5g} ± {1.96 * e:.2g}" for v, e in zip(values, errors, strict=True))
        cells.append(f"{label} {told}: {apart:+.1f} SE")
    return name, "", "", "; ".join(cells), cause


def _moment(values: FloatArray, moment: Any) -> tuple[float, float]:
    """A moment over all values, and its standard error over trials, which are independent."""
    each = np.array([moment(one) for one in values])
    return float(each.mean()), float(each.std(ddof=1) / np.sqrt(len(each)))


PCM = ("pcm-generic", "PCMLikeNoiseModel", {"g_max": 25.0}, 25)
RERAM = ("neurram", "ReRamWan2022NoiseModel", {"g_max": 40.0}, 40)
FLICKER = (
    "1/f noise is taken at the target's conductance here, at the programmed one there, where nu is "
    "an absolute value and a reading is cut off at 0"
)
TIMES = (
    (PCM, "after 0 s", 0.0), (PCM, "1 hour", 3600.0), (PCM, "1 year", 31_557_600.0),
    (RERAM, "1 s", 1.0), (RERAM, "1 day", 86_400.0), (RERAM, "2 days", 172_800.0),
)  # fmt: skip
SHARES = (0.04, 0.2, 0.4, 0.6, 0.8, 1.0)


def aihwkit_rows(python: str) -> Iterator[tuple[str, ...]]:
    """Yield the table's rows against aihwkit."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for index, ((_, model, arguments, top), _, seconds) in enumerate(TIMES):
            case = {
                "model": model, "arguments": arguments, "count": COUNT, "seconds": seconds,
                "targets": [round(share * top) for share in SHARES],
            }  # fmt: skip
            (folder / f"{index:02}.json").write_text(json.dumps(case))
        own, sums = _quantized(folder)
        run_peer(python, "aihwkit_devices.py", folder)
        theirs = np.load(folder / "product.out.npy")
        yield _quantized_row(own, sums, theirs)
        for index, ((preset, _, _, top), when, seconds) in enumerate(TIMES):
            found = np.load(folder / f"{index:02}.out.npy").astype(np.float64)
            yield from _device_rows(preset, when, seconds, top, found)


def _device_rows(
    preset: str, when: str, seconds: float, top: int, theirs: FloatArray
) -> Iterator[tuple[str, ...]]:
    noise = load_noise(preset)
    devices = Devices(noise, top, None, Die(0, 0, seconds))
    targets = np.array([round(share * top) for share in SHARES])
    own = devices.conductances(np.repeat(targets[:, None], COUNT, axis=1), "layer")
    told, cause = [], ""
    for target, ours, other in zip(targets, own, theirs, strict=True):
        spread = np.hypot(ours.std(), other.std()) / np.sqrt(COUNT)
        mean = (ours.mean() - other.mean()) / spread
        apart = (ours.std() - other.std()) / (spread / np.sqrt(2))
        both = f"{ours.mean():.3f} / {other.mean():.3f}, {ours.std():.3f} / {other.std():.3f}"
        told.append(f"{target} uS: {both} ({mean:+.1f}, {apart:+.1f} SE)")
        if abs(apart) > 3 and noise.of(Flicker):
            same = (_by_programmed(noise, target, seconds).std() - other.std()) / spread
            cause = f"{FLICKER}; by that definition {same * np.sqrt(2):+.1f} SE at {target} uS"
    yield f"`{preset}`, {when}", "", "", "; ".join(told), cause


def _by_programmed(noise: Noise, target: int, seconds: float) -> FloatArray:
    """Devices of a target by aihwkit's definitions: FLICKER."""
    g = np.full(COUNT, float(target))
    digits, x = np.arange(COUNT), g / noise.g_max
    programmed = x
    for index, one in enumerate(noise.of(DeviceNoise)):
        share = programmed if isinstance(one, Flicker) else x
        rng = np.random.default_rng(index)
        if isinstance(one, ConductanceDrift):
            nu = np.abs(one.mean.at(x) + one.sigma.at(x) * rng.standard_normal(COUNT))
            g = g * one.factor(nu, seconds, noise.t0 or 1.0)
        else:
            g = one.effective(g, DeviceState(digits, share, noise.g_max, seconds, noise.t0, rng))
        if index == 0:  # the programming error
            programmed = g / noise.g_max
    found: FloatArray = np.maximum(g, 0)
    return found


def _quantized(folder: Path) -> tuple[IntArray, IntArray]:
    """Write a product of 7-bit inputs and an 8-bit output; return cimtool's codes, and the sums."""
    rng = np.random.default_rng(0)
    weight = rng.integers(-127, 128, (ROWS, COLUMNS))
    x = rng.integers(-63, 64, (INPUTS, ROWS))
    # A step of the output is 2^10 of the products: out_bound is 127 such steps.
    case = {"input_bits": 7, "output_bits": 8, "out_bound": 127 * 2**10 / (127 * 63)}
    (folder / "product.json").write_text(json.dumps(case))
    np.savez(folder / "product.npz", weight=weight / 127, inputs=x / 63)
    crossbar = Crossbar(
        WeightCode.named("differential", "encoding")(8, 7),
        InputCode.named("bipolar", "encoding")(7, 6),
        62,
        Formula(8, "half-even"),
    )
    stored = StoredWeights(weight, crossbar)
    references = (AdcReferences.from_zero(1 << 10),)
    layer = CrossbarMvm(stored, np.zeros(COLUMNS, np.int64), np.ones(COLUMNS), references)
    return np.asarray(layer.run(x)) >> 10, x @ weight


def _quantized_row(own: IntArray, sums: IntArray, theirs: FloatArray) -> tuple[str, ...]:
    codes = np.rint(theirs * 127 * 63 / 2**10)
    off = np.abs(own - codes)
    told = f"largest difference {off.max():.0f} of {np.abs(own).max()} codes" if off.any() else ""
    name = "one pair of cells, 7-bit inputs at once, 8-bit output"
    ties = off.any() and (sums[off != 0] % 2**10 == 2**9).all()
    cause = "those that differ are halves, which float32 takes for more or less" if ties else ""
    return name, f"{(off == 0).mean():.1%}", f"{(off <= 1).mean():.1%}", told, cause


def table(rows: Iterator[tuple[str, ...]], other: str) -> None:
    """Print a Markdown table."""
    print(f"\n| cimtool / {other} | equal | within a step | differences or moments | cause |")
    print("|---|---|---|---|---|", flush=True)
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)


def main() -> None:
    """Print a table for each simulator."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--crosssim", metavar="PYTHON", help="interpreter that has CrossSim")
    parser.add_argument("--aihwkit", metavar="PYTHON", help="interpreter that has aihwkit")
    options = parser.parse_args()
    if options.crosssim:
        table(crosssim_rows(options.crosssim), "CrossSim")
    if options.aihwkit:
        table(aihwkit_rows(options.aihwkit), "aihwkit")


if __name__ == "__main__":
    main()
