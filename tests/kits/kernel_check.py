"""Kernels on random layers, each under all instruction sets that this CPU has.

    python tests/kits/kernel_check.py [--layers N] [--rows N] [--set NAME ...] [--kernel NAME ...]
    qemu-x86_64 -cpu Haswell python tests/kits/kernel_check.py --here

compares each kernel's integers with those of the readable operation, in a process of its own for
each instruction set: `NUMBA_CPU_FEATURES` switches those beyond it off for the compiled kernels,
`OPENBLAS_CORETYPE` for the products of floats. A CPU without AMX has its tile instructions emulated
in one more process, where there is gcc; QEMU emulates the CPU of one process. Prints a row a set
and kernel; status 1 where a value differs or a kernel is left out as wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from crossbars import at_steps, crossbar_of
from llvmlite import binding
from random_crossbars import ENCODINGS, INPUTS, ROUNDINGS, drawn, input_limits, weight_limits

from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.stored import StoredWeights
from cimtool.ir.types import integer
from cimtool.simulation.kernels import choice, popcount
from cimtool.simulation.kernels.operations import fast_kernel

LAYERS, ROWS = 720, 7

Counts = dict[str, dict[str, int]]

NEWER = "avx", "amx", "fma", "f16c", "vaes", "vpclmulqdq", "xop"

SETS = {
    "all": ((), ""),
    "no AMX": (("amx",), ""),
    "no VNNI": (("amx", "avx512vnni", "avxvnni"), ""),
    "AVX2": (("amx", "avx512", "avxvnni"), "Haswell"),
    "AVX": (("amx", "avx512", "avxvnni", "avx2", "fma"), "Sandybridge"),
    "SSE4.2": (NEWER, "Nehalem"),
    "SSE2": ((*NEWER, "sse3", "ssse3", "sse4", "popcnt"), "Nehalem"),
}
"""Features that each set switches off, by their beginnings, and OpenBLAS's name of the rest."""

EMULATED = "emulated AMX"

EVERY = *choice.KERNELS, "portable"


def environment(name: str, folder: Path) -> dict[str, str]:
    """The variables that leave an instruction set, none for all of them; a folder for a library."""
    if name == EMULATED:
        return emulated_amx(folder)
    beginnings, core = SETS[name]
    features = binding.get_host_cpu_features()
    off = [one for one, has in features.items() if has and one.startswith(beginnings)]
    found = {}
    if off:
        kept = [f"{'-' if one in off else '+'}{one}" for one, has in features.items() if has]
        found["NUMBA_CPU_FEATURES"] = ",".join(kept)
    return found | ({"OPENBLAS_CORETYPE": core} if core else {})


def emulated_amx(folder: Path) -> dict[str, str]:
    """The variables of a process in which `amx.c`, compiled into a folder, stands for AMX."""
    source, library = Path(__file__).with_name("amx.c"), folder / "amx.so"
    flags = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
    subprocess.run(["gcc", *flags, source, "-o", library], check=True)
    features = binding.get_host_cpu_features()
    features["amx-tile"] = features["amx-int8"] = True
    return {"LD_PRELOAD": str(library), "NUMBA_CPU_FEATURES": features.flatten()}


def random_crossbar(rng: np.random.Generator) -> Crossbar:
    """Any array of the contract that converts, or none."""
    bits = int(rng.integers(1, 11)) if rng.random() < 0.8 else None
    rows = int(rng.integers(4, 140))
    return crossbar_of(
        rows=rows,
        rows_active=None if rng.random() < 0.7 else int(rng.integers(1, rows + 1)),
        cell_bits=int(rng.integers(1, 9)),
        dac_bits=int(rng.integers(1, 9)),
        encoding=str(rng.choice(ENCODINGS[:4])),
        weight_bits=int(rng.integers(2, 9)),
        input_encoding=str(rng.choice(INPUTS)),
        input_bits=int(rng.integers(2, 9)),
        adc_bits=bits,
        rounding=None if bits is None else str(rng.choice(ROUNDINGS)),
        adc_on=str(rng.choice(["difference", "polarity"])),
        shift_add=str(rng.choice(["digital", "analog"])),
        offset_sum=str(rng.choice(["digital", "unit-column"])),
        unused_rows=str(rng.choice(["off", "driven"])),
        accumulator_bits=62,
    )


def random_layers(count: int, rows: int) -> Iterator[tuple[CrossbarMvm, np.ndarray]]:
    """Layers and inputs, the same in every process."""
    for seed in range(count):
        rng = np.random.default_rng(seed)
        hardware = random_crossbar(rng)
        shape = int(rng.integers(1, 300)), int(rng.integers(1, 70))
        weight = drawn(rng, weight_limits(hardware), shape)
        steps = [
            None if hardware.law is None else int(s) for s in rng.integers(0, 8, hardware.slices)
        ]
        unit = int(rng.integers(4)) if hardware.unit_column and hardware.law else None
        references = at_steps(hardware, steps, unit)
        stored, bias = StoredWeights(weight, hardware), rng.integers(-999, 999, shape[1])
        op = CrossbarMvm(stored, bias, np.ones(shape[1]), references)
        yield op, drawn(rng, input_limits(hardware), (rows, shape[0]))


def counted(layers: int, rows: int, kernels: Iterable[str]) -> Counts:
    """Layers, values and differing values of each of the kernels in this process."""
    every = dict(choice.KERNELS)
    popcount.MOST_PLANES = 99
    found = {name: {"layers": 0, "values": 0, "differing": 0} for name in kernels}
    taken: list[str] = []
    for name, module in every.items():
        module.run = _noted(name, module.run, taken)
    warnings.simplefilter("error", RuntimeWarning)  # a kernel that is left out as wrong
    for op, x in random_layers(layers, rows):
        expected = op.run(x)
        known = integer(("n", x.shape[1]), *input_limits(op.crossbar), 1.0)
        for name, counts in found.items():
            choice.KERNELS.clear()
            choice.KERNELS.update({name: every[name]} if name in every else {})
            taken.clear()
            result = fast_kernel(op, (known,))(x)
            if name in every and name not in taken:
                continue
            counts["layers"] += 1
            counts["values"] += expected.size
            counts["differing"] += int(np.count_nonzero(result != expected))
    return found


def _noted(name: str, run: object, taken: list[str]) -> object:
    def noting(*arguments: object) -> None:
        taken.append(name)
        run(*arguments)  # type: ignore[operator]

    return noting


def elsewhere(
    name: str, variables: Mapping[str, str], layers: int, rows: int, kernels: Iterable[str]
) -> Counts:
    """The counts of a process with an instruction set; SystemExit where it fails."""
    command = [sys.executable, __file__, "--layers", str(layers), "--rows", str(rows), "--here"]
    for kernel in kernels:
        command += ["--kernel", kernel]
    environ = {**os.environ, **variables}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{name}: {done.stderr[-2000:]}")
    found: Counts = json.loads(done.stdout)
    return found


def main() -> int:
    """Count in a process for each set, or in this one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=LAYERS)
    parser.add_argument("--rows", type=int, default=ROWS, help="inputs of a layer")
    for option, choices in (("--set", (*SETS, EMULATED)), ("--kernel", EVERY)):
        parser.add_argument(option, action="append", choices=choices, help="default: all")
    parser.add_argument("--here", action="store_true", help="count in this process, in JSON")
    given = parser.parse_args()
    kernels = given.kernel or EVERY
    if given.here:
        print(json.dumps(counted(given.layers, given.rows, kernels)))
        return 0
    print("| instructions | kernel | layers | values | differing |\n|---|---|---|---|---|")
    known: Mapping[str, bool] = binding.get_host_cpu_features()
    worst, seen = 0, set()
    with TemporaryDirectory() as folder:
        for name in given.set or (*SETS, EMULATED):
            if name == EMULATED and (known.get("amx-int8") or not shutil.which("gcc")):
                continue
            variables = environment(name, Path(folder))
            key = variables.get("NUMBA_CPU_FEATURES", "")
            if key in seen or not known:
                continue  # nothing of what it switches off is there
            seen.add(key)
            for kernel, counts in elsewhere(
                name, variables, given.layers, given.rows, kernels
            ).items():
                worst += counts["differing"]
                numbers = " | ".join(f"{one:,}" for one in counts.values())
                print(f"| {name} | {kernel} | {numbers} |", flush=True)
    return int(worst > 0)


if __name__ == "__main__":
    sys.exit(main())
