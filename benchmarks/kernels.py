"""Speed of every kernel that can take a layer, with the instruction sets of several CPUs.

One layer of 1024 x 512 weights on arrays of 128 rows, 128 inputs, one thread. A process for each
kind of CPU switches off the instruction sets that such a CPU lacks. The kernels of a layer are
called in turns; their outputs must be equal. `portable` multiplies floats by BLAS and runs
everywhere, `torch` is what `simulate --device cpu` computes with. Triton compiles for GPUs only:
`device.py` measures it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

import numpy as np
from dies import die_operations
from harness import Row, parser, print_table, report, use_threads

from cimtool.base import compiled
from cimtool.base.arrays import Array
from cimtool.gpu.plugin import TorchDevice
from cimtool.hardware.converters import LOSSLESS, Converter, Formula
from cimtool.hardware.crossbar import Crossbar, RowTiling
from cimtool.hardware.input_codes import Unsigned
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.noise.mvm import NoisyMvm
from cimtool.hardware.noise.spec import Noise
from cimtool.hardware.references import AdcReferences
from cimtool.hardware.stored import StoredWeights
from cimtool.hardware.weight_codes import Differential, Offset, TwosComplement, WeightCode
from cimtool.ir.types import INT_LIMIT, Type, integer
from cimtool.simulation.kernels import choice, paired, popcount, products, tiles
from cimtool.simulation.kernels.conversions import ConversionKernel
from cimtool.simulation.kernels.fused import exact_layer
from cimtool.simulation.kernels.noisy import noisy_cells

ROWS, COLUMNS, ITEMS, BITS = 1024, 512, 128, 8
CONVERTER = Formula(BITS, "half-up")

CPUS = {
    "AMX": ("", ""),
    "AVX-512 VNNI": ("-amx-tile", ""),
    "AVX-512 VNNI, no VPOPCNTDQ": ("-amx-tile,-avx512vpopcntdq,-avx512bitalg", ""),
    "AVX-512, no VNNI": ("-amx-tile,-avx512vnni,-avxvnni,-avx512vpopcntdq,-avx512bitalg", ""),
    "AVX-VNNI": ("-amx-tile,-avx512f", "AVX2"),
    "AVX2": ("-amx-tile,-avx512f,-avxvnni", "AVX2"),
    "SSE4.2": ("-amx-tile,-avx", "SSE4.2"),
}
"""The words that leave a kind of CPU its sets, and what its floats may use (`FLOATS`)."""

FLOATS = {
    "": {},
    "AVX2": {
        "OPENBLAS_CORETYPE": "Haswell",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "ATEN_CPU_CAPABILITY": "avx2",
    },
    "SSE4.2": {
        "OPENBLAS_CORETYPE": "Nehalem",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
        "ATEN_CPU_CAPABILITY": "default",
    },
}
"""The variables that hold NumPy's and torch's products to an instruction set."""


@dataclass(frozen=True)
class Build:
    """A kind of array: cells, inputs, converters, and the references of each slice."""

    weights: WeightCode
    dac_bits: int
    converter: Converter = CONVERTER
    read: str | None = None  # fresh read noise, drawn for each `cycle` or product (`mvm`)

    def layer(self) -> CrossbarMvm:
        """A layer of random weights, whose steps let half of the sums that there can be pass."""
        inputs = Unsigned(BITS, self.dac_bits)
        crossbar = Crossbar(self.weights, inputs, 62, self.converter, RowTiling(128))
        full = 128 * ((1 << self.weights.cell_bits) - 1) * ((1 << self.dac_bits) - 1)
        step = 1 << max((full >> BITS).bit_length() - 1, 0)
        lossless = self.converter is LOSSLESS
        references = [None if lossless else AdcReferences.from_zero(step)] * crossbar.slices
        weight = np.random.default_rng(0).integers(-127, 128, (ROWS, COLUMNS))
        stored = StoredWeights(weight, crossbar)
        return CrossbarMvm(stored, np.zeros(COLUMNS, np.int64), np.ones(COLUMNS), tuple(references))


BUILDS = {
    "1-bit cells, 1-bit inputs": Build(Offset(BITS, 1), 1),
    "2-bit cells, 1-bit inputs": Build(Offset(BITS, 2), 1),
    "3-bit cells, 1-bit inputs": Build(Offset(9, 3), 1),
    "4-bit cells, 1-bit inputs": Build(Offset(BITS, 4), 1),
    "2-bit cells, 2-bit inputs": Build(Offset(BITS, 2), 2),
    "4-bit cells, 4-bit inputs": Build(Offset(BITS, 4), 4),
    "2-bit cells, 8-bit inputs": Build(Offset(BITS, 2), 8),
    "8-bit cells, 1-bit inputs": Build(Differential(BITS, BITS), 1),
    "8-bit cells, 8-bit inputs": Build(Differential(BITS, BITS), 8),
    "2-bit cells, 1-bit inputs, read noise a cycle": Build(Offset(BITS, 2), 1, read="cycle"),
    "2-bit cells, 1-bit inputs, read noise a product": Build(Offset(BITS, 2), 1, read="mvm"),
    "8-bit cells, 8-bit inputs, read noise a product": Build(
        Differential(BITS, BITS), 8, read="mvm"
    ),
    "lossless, 8 bits": Build(TwosComplement(BITS, BITS), 8, LOSSLESS),
}


def forms(op: CrossbarMvm, read: str | None) -> dict[str, choice.Kernel]:
    """Every kernel that can take the layer on this CPU, by name, whether or not it is chosen."""
    known = integer(("n", ROWS), 0, 255, 1.0)
    if read is not None:
        noise = {"source": "a benchmark", "g_max": 25.0, "read": {"sigma": 0.01, "redraw": read}}
        (noisy,), _ = die_operations([op], Noise.model_validate(noise))
        fused = noisy_cells(noisy)
        return {"portable": ConversionKernel(noisy)} | ({} if fused is None else {"noisy": fused})
    if op.exact:
        layer = exact_layer(op.weight, op.bias, (0, 255))
        reach = np.abs(op.weight) * products.Factor.of(known).reach[:, None]
        portable: choice.Kernel = products.by_blas(op.weight, reach, np.int32)
    else:
        reached = op.infer(known)
        candidate = choice.candidate_of(op.layer, (reached.lo, reached.hi))
        assert candidate is not None
        layer, limits = candidate.layer, np.array([-INT_LIMIT, INT_LIMIT])
        portable = ConversionKernel(NoisyMvm(op, op.layer, *limits))
    popcount.MOST_PLANES, paired.FASTER = 9, tiles.SHORT_SUMS  # where they are not chosen too
    return {"portable": portable, "torch": on_torch(op, known)} | {
        name: choice.fused(kernel, layer, np.int32)
        for name, kernel in choice.FUSED_KERNELS.items()
        if kernel.fits(layer)
    }


def on_torch(op: CrossbarMvm, known: Type) -> choice.Kernel:
    """The layer by torch on this CPU."""
    device = TorchDevice("cpu")
    reached = op.infer(known)
    kernel = device.prepare(op, (known,), reached)
    return lambda x: device.leave(kernel(device.enter(x.astype(np.int64))), reached)


def measured(build: Build, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each kernel in each round, in turns; the integers are compared first."""
    x = np.random.default_rng(1).integers(0, 256, (ITEMS, ROWS)).astype(np.int32)
    kernels = forms(build.layer(), build.read)
    found = {name: kernel(x) for name, kernel in kernels.items()}
    for name, values in found.items():
        assert np.array_equal(values, found["portable"]), name
    taken: dict[str, list[float]] = {name: [] for name in kernels}
    for _ in range(rounds):
        for name, kernel in kernels.items():
            taken[name].append(_milliseconds(kernel, x))
    return taken


def _milliseconds(kernel: Callable[[Array], Array], x: Array) -> float:
    start = time.perf_counter()
    kernel(x)
    return 1e3 * (time.perf_counter() - start)


def here(rounds: int, only: str) -> dict[str, dict[str, list[float]]]:
    """The times of every array with the instruction sets of this process."""
    return {name: measured(build, rounds) for name, build in BUILDS.items() if only in name}


def elsewhere(cpu: str, rounds: int, only: str) -> dict[str, dict[str, list[float]]]:
    """The times of a process with the instruction sets of a kind of CPU."""
    words, floats = CPUS[cpu]
    environ: Mapping[str, str] = os.environ | {
        "OMP_NUM_THREADS": "1",
        **({compiled.VARIABLE: words} if words else {}),
        **FLOATS[floats],
    }
    command = [sys.executable, __file__, "--here", "--rounds", str(rounds), "--only", only]
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, check=True)
    found: dict[str, dict[str, list[float]]] = json.loads(done.stdout)
    return found


def row(cpu: str, array: str, times: Mapping[str, list[float]]) -> Row:
    """The kernels' times of an array."""
    found = {name: f"{median(times[name]):.3g}" if name in times else "" for name in KERNELS}
    return {"CPU": cpu, "array": array, **found}


def ratios(times: Mapping[str, list[float]]) -> dict[str, float]:
    """The rate of each kernel over that of the fastest of the others, the median of the rounds."""
    order = sorted(times, key=lambda name: median(times[name]))
    found = {}
    for name in order:
        other = next((one for one in order if one != name), name)
        pairs = zip(times[name], times[other], strict=True)
        found[name] = median(theirs / own for own, theirs in pairs)
    return found


KERNELS = (*choice.FUSED_KERNELS, "noisy", "portable", "torch")


def main() -> None:
    own: argparse.ArgumentParser = parser(str(__doc__), rounds=11)
    own.add_argument("--cpu", action="append", choices=CPUS, help="default: all")
    own.add_argument("--only", metavar="TEXT", default="", help="arrays whose name has this")
    own.add_argument("--here", action="store_true", help="the times of this process, in JSON")
    options = own.parse_args()
    if options.here:
        use_threads(1)
        print(json.dumps(here(options.rounds, options.only)))
        return
    cpus = options.cpu or list(CPUS)
    times = {cpu: elsewhere(cpu, options.rounds, options.only) for cpu in cpus}
    rows = [row(cpu, array, taken) for cpu in cpus for array, taken in times[cpu].items()]
    print_table(by_kernel(times))
    report("kernels", rows, options.json, ["milliseconds, the medians of the rounds"])


def by_kernel(times: Mapping[str, Mapping[str, Mapping[str, list[float]]]]) -> list[Row]:
    """A row per array and kernel: on each kind of CPU its rate over that of the best other."""
    found: list[Row] = []
    for array in next(iter(times.values())):
        rates = {cpu: ratios(arrays[array]) for cpu, arrays in times.items()}
        for name in KERNELS:
            cells = {cpu: f"{one[name]:.2g}" for cpu, one in rates.items() if name in one}
            if cells:
                shown = {cpu: cells.get(cpu, "") for cpu in times}
                found.append({"array": array, "kernel": name, **shown})
    return found


if __name__ == "__main__":
    main()
