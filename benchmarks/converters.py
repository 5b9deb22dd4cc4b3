"""Speed of kernels whose converters have references that are set, or are measured, in pairs.

Beside converters of a formula, with fixed references. One layer of 1024 x 2048 weights on arrays of
128 rows. The two are called in turns, and the speed is the median of the ratios of neighbouring
calls: all else that the machine does slows both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from harness import Row, arguments, report, seconds, use_threads

from cimtool.base.arrays import Array
from cimtool.hardware.converters import Converter, Formula, Measured
from cimtool.hardware.crossbar import Crossbar, RowTiling
from cimtool.hardware.input_codes import InputCode
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.references import REFERENCE_BITS, AdcReferenceKind, AdcReferences
from cimtool.hardware.stored import StoredWeights
from cimtool.hardware.weight_codes import WeightCode
from cimtool.ir.types import integer
from cimtool.simulation.kernels.choice import Kernel
from cimtool.simulation.kernels.operations import fast_kernel

ROWS, COLUMNS, ITEMS = 1024, 2048, 256
LEAST = 0.9
"""Of the speed with fixed references, but for look-ups in tables, which take more than is left."""


@dataclass(frozen=True)
class Build:
    """The keys of an array that decide which kernel takes it."""

    cell_bits: int
    dac_bits: int
    adc_bits: int
    encoding: str = "offset-flip"
    inputs: str = "twos-complement"

    def crossbar(self, measured: bool = False) -> Crossbar:
        """The array, with fixed references, of converters that are measured or of a formula."""
        converter: Converter = Formula(self.adc_bits, "half-up")
        if measured:
            edges = range((1 << self.adc_bits) - 1)
            converter = Measured(self.adc_bits, tuple(16 * k + 8 + 3 * k % 5 for k in edges))
        weights = WeightCode.named(self.encoding, "encoding")(8, self.cell_bits)
        inputs = InputCode.named(self.inputs, "encoding")(8, self.dac_bits)
        return Crossbar(weights, inputs, 32, converter, RowTiling(128))


BUILDS = {
    "2-bit cells, 1-bit inputs": Build(2, 1, 6),
    "1-bit cells, 1-bit inputs": Build(1, 1, 5),
    "4-bit cells, 2-bit inputs": Build(4, 2, 8),
    "8-bit cells and inputs": Build(8, 8, 8, "differential", "bipolar"),
}


Kind = AdcReferenceKind | Literal["measured"]
"""References, or `measured`: steps that count from zero, of a table of thresholds."""


def layer(build: Build, kind: Kind) -> CrossbarMvm:
    """A layer of random weights; steps let half of the sums that there can be pass."""
    rng, crossbar = np.random.default_rng(0), build.crossbar(measured=kind == "measured")
    if kind != "measured":
        crossbar = replace(crossbar, references=kind)
    stored = StoredWeights(rng.integers(-127, 128, (ROWS, COLUMNS)), crossbar)
    full = 128 * ((1 << build.cell_bits) - 1) * ((1 << build.dac_bits) - 1)
    exponent = max((full >> build.adc_bits).bit_length() - 1, 0)
    references = [AdcReferences.from_zero(1 << exponent)] * len(crossbar.no_references)
    if kind not in ("fixed", "measured"):
        shape = (len(stored.groups), COLUMNS) if crossbar.scope.columns else (1, 1)
        references = [
            AdcReferences.alike(5 << exponent, rng.integers(0, full // 2, shape) << REFERENCE_BITS)
            for _ in references
        ]
    if crossbar.scope.levels and crossbar.law is not None:
        references = [one.with_equal_levels(crossbar.law) for one in references]
    bias, scale = np.zeros(COLUMNS, np.int64), np.ones(COLUMNS)
    return CrossbarMvm(stored, bias, scale, tuple(references))


def measured(name: str, kind: Kind, rounds: int) -> Row:
    """Both on the same inputs, checked against the readable operation first."""
    build = BUILDS[name]
    x = np.random.default_rng(1).integers(-127, 128, (ITEMS, ROWS)).astype(np.int8)
    ops = [layer(build, "fixed"), layer(build, kind)]
    kernels = [fast_kernel(op, (integer(("n", ROWS), -127, 127, 1.0),)) for op in ops]
    for op, kernel in zip(ops, kernels, strict=True):
        np.testing.assert_array_equal(kernel(x[:3]), op.run(x[:3].astype(np.int64)))
        kernel(x)
    taken = np.array([[seconds(_call(kernel, x)) for kernel in kernels] for _ in range(rounds)])
    ratios = taken[:, 0] / taken[:, 1]
    return {
        "array": name,
        "references": kind,
        "fixed ms": float(np.median(taken[:, 0]) * 1e3),
        "set ms": float(np.median(taken[:, 1]) * 1e3),
        "of the speed": float(np.median(ratios)),
        "from": float(ratios.min()),
        "to": float(ratios.max()),
        "at least": LEAST if kind not in ("levels", "measured") else "",
    }


def _call(kernel: Kernel, x: Array) -> Callable[[], object]:
    return lambda: kernel(x)


if __name__ == "__main__":
    given = arguments(__doc__.splitlines()[0], rounds=15)
    use_threads()
    kinds: tuple[Kind, ...] = ("slice", "column", "cycle", "levels", "measured")
    rows = [measured(name, kind, given.rounds) for kind in kinds for name in BUILDS]
    report("converters", rows, given.json)
