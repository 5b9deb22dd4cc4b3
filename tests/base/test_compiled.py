"""Compiling kernels, also where numba cannot keep its code; instruction sets switched off."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
from llvmlite import binding
from numba import config

from cimtool.base import compiled
from cimtool.base.arrays import Array
from cimtool.base.errors import CimError


def test_kernels_run_where_numba_cannot_keep_its_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    plain_njit = numba.njit

    def njit(*functions: object, **options: object) -> object:
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return plain_njit(*functions, **options)

    monkeypatch.setattr(numba, "njit", njit)
    assert compiled.jit(lambda x: x + 1)(1) == 2


def test_wide_vectors_are_the_widest_of_the_cpu_and_change_no_sum_of_integers() -> None:
    def total(values: Array) -> int:
        found = 0
        for value in values:
            found += value * value
        return found

    def wide_total(values: Array) -> int:
        compiled.wide_vectors()
        found = 0
        for value in values:
            found += value * value
        return found

    narrow, wide = numba.njit(total), numba.njit(wide_total)
    values = np.arange(1000)
    assert narrow(values) == wide(values) == wide_total(values) == 332833500
    if compiled.cpu_has("avx512f"):
        assert "zmm" in "".join(wide.inspect_asm().values())


def test_a_kernel_is_named_by_the_sources_that_it_is_made_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own, what that imports as a module or by name, and what those import; no others."""
    made_of = {
        "kernels.py": "from cimtool.room import steps\nfrom cimtool.room.limits import (\n L,\n)\n",
        "room/__init__.py": "",
        "room/steps.py": "from cimtool.deep import D\n",
        "room/limits.py": "L = 1\n",
        "deep.py": "D = 1\n",
    }
    (tmp_path / "room").mkdir()
    for name, text in (made_of | {"room/other.py": ""}).items():
        (tmp_path / name).write_text(text, "utf-8")
    monkeypatch.setattr(compiled, "PACKAGE", tmp_path)

    def stamp_after(changed: str) -> str:
        (tmp_path / changed).write_text(f"{made_of.get(changed, '')}# changed\n", "utf-8")
        compiled._sources.cache_clear()
        compiled.stamp.cache_clear()
        return compiled.stamp(tmp_path / "kernels.py")

    stamps = [stamp_after(name) for name in made_of]
    assert len(set(stamps)) == len(made_of)
    assert stamp_after("room/other.py") == stamps[-1]


def test_no_kernel_calls_another_whose_sums_are_in_any_order_unless_it_is_a_part_of_it() -> None:
    """Two copies of such a kernel add in two orders, and chance decides which of them runs.

    Code that was just compiled had other last bits than the same code kept from an earlier run.
    """
    alone, calls = set(), {}
    for file in compiled.PACKAGE.rglob("*.py"):
        for function in ast.walk(ast.parse(file.read_text("utf-8"))):
            if not isinstance(function, ast.FunctionDef):
                continue
            ways = {ast.unparse(way) for way in function.decorator_list}
            if ways & {"jit", "jit_inlined", "jit_sums", "jit_summand"}:
                called = [one.func for one in ast.walk(function) if isinstance(one, ast.Call)]
                calls[function.name] = {one.id for one in called if isinstance(one, ast.Name)}
            if "jit_sums" in ways:
                alone.add(function.name)
    assert "log_probabilities" in alone
    assert "log_expectation" in calls["log_probabilities"]
    assert {name: found for name, called in calls.items() if (found := called & alone)} == {}


ROOT = Path(__file__).parents[2]
HOST = binding.get_host_cpu_features()

PRODUCT = """
import numpy as np
from cimtool.simulation.kernels import choice, dot, tiles
weight = np.resize(np.arange(-127, 128), (130, 40))
kernel = choice.exact_product(weight, np.zeros(40, int), (0, 255))
x = np.resize(np.arange(256), (5, 130))
assert (kernel is not None) == dot.fits(choice.exact_layer(weight, weight[0], (0, 255)))
assert kernel is None or (kernel(x) == x @ weight).all()
print(tiles.VNNI_BITS, tiles.DOT_BITS)
"""


def started(words: str, *command: str) -> subprocess.CompletedProcess[str]:
    """A Python process that was started with these words."""
    environ = {**os.environ, compiled.VARIABLE: words}
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environ, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


@pytest.mark.thorough("loads the compiler for each set")
@pytest.mark.skipif(not HOST.get("avx512vnni"), reason="this CPU has no VNNI of 512 bits")
@pytest.mark.parametrize("off", ["avx512vnni", "avx512f", "fma", "sse4.2", "avx512bw"])
@pytest.mark.parametrize("before", ["", HOST.flatten() + ","], ids=["alone", "behind all"])
def test_a_set_that_is_switched_off_takes_those_along_that_need_it(off: str, before: str) -> None:
    """LLVM ends a process that asks for an instruction of a set that is off."""
    done = started(f"{before}-{off},-amx-tile", "-c", PRODUCT)
    narrow = 256 if HOST["avxvnni"] else 0
    vectors = {"avx512vnni": narrow or 512, "avx512f": 256, "fma": 256, "sse4.2": 0}
    vnni = {"avx512vnni": narrow, "avx512f": narrow, "fma": narrow, "sse4.2": 0}
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == [str(widths.get(off, 512)) for widths in (vnni, vectors)]


@pytest.mark.parametrize(
    ("words", "on"),
    [
        ("+avx2,-avx2,+avx512vnni", {"avx512vnni", "avx512f", "avx2"}),
        ("+avx512vnni,-avx512vnni", {"avx512f", "avx2"}),
        ("+avx512vnni,+avxvnni,-avx512f", {"avxvnni", "avx2"}),
        ("+avx512vnni,+avxvnni,-fma", {"avxvnni", "avx2"}),
        ("+avx512vnni,+avxvnni,-avx", set()),
        ("+amx-int8,-amx-tile", set()),
        ("+amx-int8", {"amx-tile", "amx-int8"}),
        ("-amx-tile,+amx-tile", {"amx-tile"}),
    ],
)
def test_the_last_word_holds(words: str, on: set[str]) -> None:
    looked_for = {"avx512vnni", "avx512f", "avxvnni", "avx2", "amx-tile", "amx-int8"}
    assert compiled.evaluated(words.split(",")) & looked_for == on


@pytest.mark.skipif(not HOST.get("avx2"), reason="the words are those of x86-64")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("garbage", 'holds "garbage"; expected words like -avx512f, with commas'),
        ("-avx2, -fma", 'holds " -fma"; expected words'),
        ("+", r'holds "\+"; expected words'),
        ("-avx512-vnni", 'no instruction set; did you mean "avx512vnni"'),
        ("-avx2,-sse2", 'holds "-sse2", which compiled code needs'),
    ],
)
def test_words_that_llvm_would_die_of_or_overlook_are_refused(
    monkeypatch: pytest.MonkeyPatch, words: str, expected: str
) -> None:
    monkeypatch.setattr(config, "CPU_FEATURES", words)
    with pytest.raises(CimError, match=f"^NUMBA_CPU_FEATURES .*{expected}"):
        compiled.settle()


def test_llvm_is_given_the_words_behind_those_of_this_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sets that LLVM knows by the CPU's name may be more than a virtual machine shows."""
    monkeypatch.setattr(compiled, "get_host_cpu_features", lambda: "+sse2,+avx2,-avx512f,+fma")
    monkeypatch.setattr(config, "CPU_FEATURES", "-fma")
    compiled.settle()
    assert config.CPU_FEATURES == "+sse2,+avx2,-avx512f,+fma,-fma"
    assert not compiled.cpu_has("fma")
    assert compiled.cpu_has("avx2")


def test_a_malformed_word_ends_a_command_with_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "in.npz").touch()
    bundle = "exports/reference-small@isaac-rram-128"
    files = ("--inputs", str(tmp_path / "in.npz"), "-o", str(tmp_path / "out.npz"))
    done = started("garbage", "-m", "cimtool", "simulate", bundle, *files)
    assert done.returncode == 2
    assert done.stderr.startswith('cimtool: error: NUMBA_CPU_FEATURES holds "garbage"; expected ')
    assert len(done.stderr.splitlines()) == 1


ONCE = """
import sys
import numpy as np
from pathlib import Path
from cimtool.base import compiled
from cimtool.base.arrays import Array

@compiled.jit
def scaled(x, factor):
    total = 0.0
    for i in range(len(x)):
        total += x[i] * factor
    return total

Path(sys.argv[1]).touch()
while not Path(sys.argv[2]).exists():
    pass
assert scaled(np.ones(3), 2.0) == 6
print(sum(scaled.stats.cache_misses.values()))
"""


@pytest.mark.thorough("loads the compiler in two processes")
def test_two_processes_that_start_together_compile_a_kernel_once(tmp_path: Path) -> None:
    """Each waits until the other is ready; the second finds the code that the first has kept."""
    (tmp_path / "kernel.py").write_text(ONCE, "utf-8")
    environ = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    ready = [str(tmp_path / name) for name in ("one", "two")]
    processes = [
        subprocess.Popen(
            [sys.executable, str(tmp_path / "kernel.py"), *places],
            env=environ, stdout=subprocess.PIPE, text=True,
        )
        for places in (ready, ready[::-1])
    ]  # fmt: skip
    said = [one.communicate(timeout=120)[0] for one in processes]
    assert [one.returncode for one in processes] == [0, 0]
    assert sorted(said) == ["0\n", "1\n"]
