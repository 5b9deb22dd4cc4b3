"""Run the tests of kernels once more with the instruction sets of other CPUs.

    python tests/other_cpus.py [options of pytest]

Switches off what such a CPU lacks: for compiled kernels by `NUMBA_CPU_FEATURES`, for products of
floats by `OPENBLAS_CORETYPE`. A kind of CPU that this one is, and one of which it lacks a feature,
is named and left out: `make test` covers the first, and QEMU emulates no AVX-512 for the second.
Exit status 1 where a test fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests/kits"))

from kernel_check import SETS, environment, left_on  # noqa: E402

CPUS = {
    "AVX2 alone": ("AVX2", "avx2"),
    "AVX-512 without VNNI": ("no VNNI", "avx512f"),
    "AVX-512 with VNNI": ("no AMX", "avx512vnni"),
}
"""Kinds of CPU: the set of `kernel_check` that leaves what they have, and a feature of it."""

TESTS = ("tests/simulation", "tests/test_same_integers.py")

ELSEWHERE = (
    "tests/simulation/test_instruction_sets.py",
    "tests/simulation/test_amx.py::test_random_layers_have_the_integers_of_the_reference",
    "tests/simulation/test_amx.py::test_cells_of_dies_and_references_that_are_set",
)
"""Tests that switch sets off, or emulate them, in processes of their own: the same on every CPU."""


def obstacle(words: str, feature: str) -> str | None:
    """The reason why this CPU does not stand for one of a kind; None if it does."""
    if feature not in left_on(""):
        return f"left out, since this CPU has no {feature}"
    if left_on(words) == left_on(""):
        return "left out, since this CPU is one: make test covers it"
    return None


def main() -> int:
    """Run pytest for each kind of CPU, with the options that were given."""
    worst = 0
    for kind, (name, feature) in CPUS.items():
        words, _ = SETS[name]
        reason = obstacle(words, feature)
        print(f"{kind}: {reason or words}", flush=True)
        if reason is None:
            environ = os.environ | environment(name, ROOT)
            left_out = [word for name in ELSEWHERE for word in ("--deselect", name)]
            command = [sys.executable, "-m", "pytest", "-rs", *sys.argv[1:], *left_out, *TESTS]
            worst |= subprocess.run(command, cwd=ROOT, env=environ, check=False).returncode
    return int(worst != 0)


if __name__ == "__main__":
    sys.exit(main())
