"""Kernels under instruction sets of other CPUs: what `kernel_check.py` runs by hand, in small."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import kernel_check
import pytest
from c_tools import c_compiler
from llvmlite import binding

from cimtool.base import compiled
from cimtool.hardware.converters import StaircaseLaw

ROOT = Path(__file__).parents[2]
KERNELS = ROOT / "cimtool/simulation/kernels"


def counted(environ: dict[str, str], layers: int, *kernels: str) -> kernel_check.Counts:
    """The counts of random layers in a process with these variables."""
    named = [word for name in kernels for word in ("--kernel", name)]
    command = [sys.executable, "tests/kits/kernel_check.py", "--here", "--layers", str(layers)]
    done = subprocess.run(
        [*command, *named], cwd=ROOT, env={**os.environ, **environ}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found: kernel_check.Counts = json.loads(done.stdout)
    return found


@pytest.mark.thorough("emulates other instruction sets")
def test_products_of_bytes_in_vectors_of_256_bits(tmp_path: Path) -> None:
    """AVX-VNNI, which CPUs have without AVX-512; a handler of signals stands for it elsewhere."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        pytest.skip("it is emulated on Linux, on x86-64")
    known = binding.get_host_cpu_features()
    if not known.get("avx2"):
        pytest.skip("this CPU has no vectors of 256 bits")
    environ = {compiled.VARIABLE: "-amx-tile,-avx512f"}
    if not known["avxvnni"]:
        c_compiler("gcc")
        environ = kernel_check.emulated("emulated AVX-VNNI", tmp_path)
    expected = {
        "dot product": (12, 2072), "conversions": (9, 1316), "pair products": (12, 3017),
    }  # fmt: skip
    assert counted(environ, 12, *expected) == {
        name: {"layers": layers, "values": values, "differing": 0}
        for name, (layers, values) in expected.items()
    }


@pytest.mark.thorough("emulates other instruction sets")
@pytest.mark.parametrize("words", ["-amx-tile,-avx512vnni,-avxvnni", "-amx-tile,-avx512f,-avxvnni"])
def test_products_of_bytes_without_vnni(words: str) -> None:
    """They are added in 16 bits there; a kernel that is wrong ends the process."""
    if not binding.get_host_cpu_features().get("avx2"):
        pytest.skip("this CPU has no vectors of 256 bits")
    expected = {
        "dot product": (60, 14329), "two cycles": (1, 7), "noisy": (28, 6622),
        "pair products": (60, 13391), "bit-serial": (5, 1337),
    }  # fmt: skip
    assert counted({compiled.VARIABLE: words}, 60, *expected) == {
        name: {"layers": layers, "values": values, "differing": 0}
        for name, (layers, values) in expected.items()
    }


def test_each_feature_that_kernels_look_for_is_left_out_alone() -> None:
    sources = [file.read_text("utf-8") for file in KERNELS.glob("*.py")]
    looked_for = {name for text in sources for name in re.findall(r'cpu_has\("(.*?)"\)', text)}
    assert {"avx512vnni", "avxvnni", "amx-int8"} <= looked_for
    for name in looked_for - {"amx-tile"}:
        assert kernel_check.SETS[f"no {name}"] == (f"-{name}", "")
    assert kernel_check.SETS["no AMX"] == ("-amx-tile", "")


def test_random_layers_have_measured_converters_and_every_kind_of_references() -> None:
    kinds, laws = set(), set()
    for op, _ in kernel_check.random_layers(60, 1):
        kinds.add(op.crossbar.references)
        laws.add(type(op.crossbar.law))
    assert kinds == set(kernel_check.REFERENCES)
    assert StaircaseLaw in laws
