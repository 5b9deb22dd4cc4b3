"""AMX kernels: on a CPU without tile registers a handler of signals stands for them."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from c_tools import c_compiler
from kernel_check import emulated
from llvmlite import binding
from numba import config

from cimtool.base import compiled
from cimtool.base.arrays import Array
from cimtool.simulation.kernels import amx, dot, tiles
from cimtool.simulation.kernels.choice import exact_product

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def with_tiles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process that has tile registers, its own or emulated ones.

    The CPU has them even if they are switched off here, and would not leave all to the emulation.
    """
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        pytest.skip("tile registers are emulated on Linux, on x86-64")
    if binding.get_host_cpu_features().get("amx-int8"):
        return {name: value for name, value in os.environ.items() if name != compiled.VARIABLE}
    c_compiler("gcc")
    return {**os.environ, **emulated("emulated AMX", tmp_path_factory.mktemp("emulated"))}


def done(command: list[str], environment: dict[str, str]) -> str:
    """The last line that a command prints; it must succeed."""
    run = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    return run.stdout.splitlines()[-1]


@pytest.mark.thorough("kernels are compiled for an emulated CPU")
@pytest.mark.parametrize(
    ("layers", "rows", "values"), [(40, 7, 8932), (30, 35, 29575)], ids=["a tile", "two tiles"]
)
def test_random_layers_have_the_integers_of_the_reference(
    with_tiles: dict[str, str], layers: int, rows: int, values: int
) -> None:
    """Cycles that share a tile, and those that have their own; codes of 16 bits, and wider ones."""
    counting = ["tests/kits/kernel_check.py", "--here", "--kernel", "AMX"]
    found = done([*counting, "--layers", str(layers), "--rows", str(rows)], with_tiles)
    assert found == f'{{"AMX": {{"layers": {layers}, "values": {values}, "differing": 0}}}}'


@pytest.mark.thorough("random layers stand for these")
def test_cells_of_dies_and_references_that_are_set(with_tiles: dict[str, str]) -> None:
    """Tests of all kernels, which skip this one where its registers are emulated."""
    names = "AMX and (of_a_die or any_step and centred)"
    # pytest's handler of faults would take the place of the emulation's.
    alone = ["-p", "no:faulthandler", "-p", "no:cacheprovider"]
    tests = ["-m", "pytest", "tests/simulation/test_kernels.py", "-k", names, *alone]
    assert done(tests, with_tiles).startswith("13 passed")


def test_features_that_are_switched_off_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "CPU_FEATURES", "+avx2,+amx-tile,-amx-int8,+avx512vnni")
    assert not amx.allowed()
    assert tiles.vnni_bits() == 512
    monkeypatch.setattr(config, "CPU_FEATURES", "-avxvnni,-avx512f")
    assert tiles.vnni_bits() == 0
    monkeypatch.setattr(config, "CPU_FEATURES", None)
    monkeypatch.setattr(config, "CPU_NAME", "znver4")
    assert tiles.vnni_bits() == 0


@pytest.mark.parametrize(("system", "answer"), [("Linux", 0), ("Linux", -1), ("Windows", 0)])
def test_tile_registers_are_used_where_linux_grants_them(
    monkeypatch: pytest.MonkeyPatch, system: str, answer: int
) -> None:
    monkeypatch.setattr(config, "CPU_FEATURES", "+amx-tile,+amx-int8")
    monkeypatch.setattr(platform, "system", lambda: system)
    library = SimpleNamespace(syscall=lambda *numbers: answer)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    assert amx.allowed() == (system == "Linux" and answer == 0)


def test_it_is_taken_before_the_other_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []

    def noted(name: str):
        def run(*arguments):
            taken.append(name)
            made(*arguments)

        return run

    made = dot.run  # of the same bytes
    monkeypatch.setattr(amx, "ALLOWED", True)
    monkeypatch.setattr(amx, "run", noted("AMX"))
    monkeypatch.setattr(dot, "run", noted("dot product"))
    rng = np.random.default_rng(0)
    weight: Array = rng.integers(-127, 128, (300, 50))
    kernel = exact_product(weight, np.arange(50), (0, 255))
    assert kernel is not None
    x = rng.integers(0, 256, (7, 300))
    np.testing.assert_array_equal(kernel(x), x @ weight + np.arange(50))
    assert set(taken) == {"AMX"}
