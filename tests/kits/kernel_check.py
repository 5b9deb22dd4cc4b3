"""Kernels on random layers, each under all instruction sets that this CPU has.

    python tests/kits/kernel_check.py [--layers N] [--rows N] [--set NAME ...] [--kernel NAME ...]
    qemu-x86_64 -cpu Haswell python tests/kits/kernel_check.py --here

compares each kernel's integers with those of the readable operation, in a process of its own for
each instruction set: `NUMBA_CPU_FEATURES` switches those beyond it off for the compiled kernels,
`OPENBLAS_CORETYPE` for the products of floats. Sets that leave out one feature alone take a quarter
of the layers. A CPU without AMX or AVX-VNNI has these instructions emulated in one more process
each, where there is gcc; QEMU emulates the CPU of one process. Prints a row a set and kernel;
status 1 where a value differs or a kernel is left out as wrong.
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
from typing import Any

import numpy as np
from crossbars import at_steps, changed, crossbar_of
from kernel_cases import CASES
from llvmlite import binding
from random_crossbars import (
    ENCODINGS,
    FORMS,
    INPUTS,
    ROUNDINGS,
    drawn,
    input_limits,
    random_transfer,
    weight_limits,
    weights_of_form,
)
from random_layers import random_references

from cimtool.base import compiled
from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.stored import StoredWeights
from cimtool.ir.types import integer
from cimtool.simulation.kernels import choice, paired, popcount, tiles
from cimtool.simulation.kernels.operations import fast_kernel

LAYERS, ROWS = 720, 7

FEWER, FEWEST = 4, 24
"""A set that leaves out one feature takes one of so many layers, and the emulated AVX-VNNI, of
which each instruction is a signal."""

Counts = dict[str, dict[str, int]]

SETS = {
    "all": ("", ""),
    "no AMX": ("-amx-tile", ""),
    "no VNNI": ("-amx-tile,-avx512vnni,-avxvnni", ""),
    "no AVX-512": ("-amx-tile,-avx512f", "Haswell"),
    "AVX2": ("-amx-tile,-avx512f,-avxvnni", "Haswell"),
    "AVX": ("-amx-tile,-avx2,-fma", "Sandybridge"),
    "SSE4.2": ("-amx-tile,-avx", "Nehalem"),
    "SSE2": ("-amx-tile,-sse3,-popcnt", "Nehalem"),
}
"""The words that each set switches off, with what needs them, and OpenBLAS's name of the rest."""

ALONE = (
    *("amx-int8", "avx512vnni", "avxvnni"),
    *("avx512bw", "avx512vpopcntdq", "avx2", "fma"),
)
"""Features that are switched off one by one: those that kernels look for, and some of LLVM's."""

SETS |= {f"no {name}": (f"-{name}", "") for name in ALONE}

EMULATED = {
    "emulated AMX": ("amx-int8", "+amx-int8"),
    "emulated AVX-VNNI": ("avxvnni", "-avx512f,+avxvnni"),
}
"""The feature that a CPU may lack, and the words of a process in which it is emulated."""

EVERY = *choice.FUSED_KERNELS, "portable", *CASES


def environment(name: str, folder: Path) -> dict[str, str]:
    """The variables that leave an instruction set, none for all of them; a folder for a library."""
    if name in EMULATED:
        return emulated(name, folder)
    words, core = SETS[name]
    named = {compiled.VARIABLE: words} if words else {}
    return named | ({"OPENBLAS_CORETYPE": core} if core else {})


def emulated(name: str, folder: Path) -> dict[str, str]:
    """The variables of a process in which `instructions.c`, compiled into a folder, runs some."""
    source, library = Path(__file__).with_name("instructions.c"), folder / "instructions.so"
    flags = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
    subprocess.run(["gcc", *flags, source, "-o", library], check=True)
    return {"LD_PRELOAD": str(library), compiled.VARIABLE: EMULATED[name][1]}


def left_on(words: str) -> frozenset[str]:
    """The sets of this CPU that are on after the words."""
    host = binding.get_host_cpu_features().flatten()
    return compiled.evaluated(filter(None, f"{host},{words}".split(",")))


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


REFERENCES = "fixed", "slice", "column", "gain", "cycle", "levels"


def varied(rng: np.random.Generator, hardware: Crossbar) -> Crossbar:
    """The array, every other one with a measured converter or references of their own."""
    bits = hardware.converter.bits
    if bits is None or rng.random() < 0.5:
        return hardware
    keys: dict[str, object] = {"references": str(rng.choice(REFERENCES))}
    if rng.random() < 0.5:
        keys |= {"rounding": None, "transfer": random_transfer(rng, bits)}
    return changed(hardware, **keys)


def random_layers(count: int, rows: int) -> Iterator[tuple[CrossbarMvm, np.ndarray]]:
    """Layers and inputs, the same in every process; every other layer is of the next form."""
    for seed in range(count):
        rng, more = np.random.default_rng(seed), np.random.default_rng((seed, 1))
        hardware = varied(more, random_crossbar(rng))
        extents = int(rng.integers(1, 300)), int(rng.integers(1, 70))
        form = FORMS[seed // 2 % len(FORMS)] if seed % 2 else FORMS[0]
        weight = weights_of_form(rng, form, weight_limits(hardware), extents)
        shape = weight.shape
        steps = [
            None if hardware.law is None else int(s) for s in rng.integers(0, 8, hardware.slices)
        ]
        unit = int(rng.integers(4)) if hardware.unit_column and hardware.law else None
        references = at_steps(hardware, steps, unit)
        if hardware.reference_bits:
            references = random_references(more, references, hardware, *shape)
        stored, bias = StoredWeights(weight, hardware), rng.integers(-999, 999, shape[1])
        op = CrossbarMvm(stored, bias, np.ones(shape[1]), references)
        yield op, drawn(rng, input_limits(hardware), (rows, shape[0]))


def counted(layers: int, rows: int, kernels: Iterable[str]) -> Counts:
    """Layers, values and differing values of each of the kernels in this process."""
    every = dict(choice.FUSED_KERNELS)
    popcount.MOST_PLANES, paired.FASTER = 99, tiles.SHORT_SUMS
    found = {name: {"layers": 0, "values": 0, "differing": 0} for name in kernels}
    fused = [name for name in found if name not in CASES]
    taken: list[str] = []
    for name, module in every.items():
        module.run = _noted(name, module.run, taken)
    warnings.simplefilter("error", RuntimeWarning)  # a kernel that is left out as wrong
    for i, (op, x) in enumerate(random_layers(layers, rows)):
        expected = op.run(x) if fused else x
        known = integer(("n", x.shape[1]), *input_limits(op.crossbar), 1.0)
        for name in fused:
            choice.FUSED_KERNELS.clear()
            choice.FUSED_KERNELS.update({name: every[name]} if name in every else {})
            taken.clear()
            result = fast_kernel(op, (known,))(x)
            if name not in every or name in taken:
                _count(found[name], result, expected)
        choice.FUSED_KERNELS.update(every)
        for name in CASES.keys() & found.keys():
            made = CASES[name](op, x, np.random.default_rng((i, 2)))
            if made is not None:
                _count(found[name], *made)
    return found


def _count(counts: dict[str, int], result: np.ndarray, expected: np.ndarray) -> None:
    counts["layers"] += 1
    counts["values"] += expected.size
    counts["differing"] += int(np.count_nonzero(result != expected))


def _noted(name: str, run: Any, taken: list[str]) -> Any:
    def noting(*arguments: object) -> None:
        taken.append(name)
        run(*arguments)

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
    for option, choices in (("--set", (*SETS, *EMULATED)), ("--kernel", EVERY)):
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
        for name in given.set or (*SETS, *EMULATED):
            feature, words = EMULATED[name] if name in EMULATED else ("", SETS[name][0])
            here = left_on(words)
            if not known or here in seen or known.get(feature):
                continue  # nothing of what it switches off is there, or nothing to emulate
            if feature and not shutil.which("gcc"):
                continue
            seen.add(here)
            part = FEWER if name in map("no {}".format, ALONE) else 1
            layers = given.layers // (FEWEST if feature == "avxvnni" else part)
            variables = environment(name, Path(folder))
            for kernel, counts in elsewhere(name, variables, layers, given.rows, kernels).items():
                worst += counts["differing"]
                numbers = " | ".join(f"{one:,}" for one in counts.values())
                print(f"| {name} | {kernel} | {numbers} |", flush=True)
    return int(worst > 0)


if __name__ == "__main__":
    sys.exit(main())
