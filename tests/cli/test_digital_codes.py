"""Codes of digital arrays from compilation to the report: every backend has the same integers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cimtool.bundle.bundle import read_bundle
from cimtool.demo.data import DemoFiles
from cimtool.hardware.mvm import CrossbarMvm

Run = Callable[..., Any]
TARGET = "dcim-28nm-isscc22"
CHOICES = [
    ("sign-magnitude", 4, "nearest"),
    ("mxint", 4, "gptq"),
    ("mxint", 8, "nearest"),
    ("mxfp", 4, "gptq"),
    ("mxfp", 6, "nearest"),
]


@pytest.fixture
def compiled(
    cimtool: Run, compiling: Callable[..., list[object]], small_trunk: DemoFiles, tmp_path: Path
) -> Run:
    """Compile the small model with settings; what the command said."""

    def compile_(**settings: object) -> Any:
        return cimtool(*compiling(small_trunk, tmp_path / "b", **{"target": TARGET, **settings}))

    return compile_


@pytest.mark.thorough("every code by the same way", quick=("mxfp-6-nearest",))
@pytest.mark.parametrize(("encoding", "bits", "rounding"), CHOICES)
def test_a_model_is_compiled_and_verified(
    encoding: str,
    bits: int,
    rounding: str,
    compiled: Run,
    cimtool: Run,
    small_trunk: DemoFiles,
    tmp_path: Path,
) -> None:
    own = {"weight_bits": bits, "weight_rounding": rounding, "input_encoding": "bipolar"}
    ran = compiled(encoding=encoding, **own)
    assert ran.status == 0, ran.err
    said = f"{bits}-bit weights take {bits + 0.25} bits with the 8 bits of an exponent"
    noted = " ".join(read_bundle(tmp_path / "b").manifest["notes"])
    assert (said in noted) == encoding.startswith("mx")
    for graph in (program := read_bundle(tmp_path / "b").program).text, program.video:
        for op in graph.operations(CrossbarMvm).values():
            assert op.crossbar.weights.name == encoding
            assert op.stored.slices  # checked: they make up the weights
    ran = cimtool(
        "verify", tmp_path / "b", "--data", small_trunk.eval, "--report", tmp_path / "report"
    )
    assert ran.status == 0, ran.err
    report = json.loads((tmp_path / "report" / "report.json").read_text("utf-8"))
    assert {one["differing"] for one in report["bits"]} == {0}


@pytest.mark.parametrize("kind", ["handoff", "testvectors"])
def test_what_describes_cells_is_refused(
    kind: str, compiled: Run, cimtool: Run, tmp_path: Path
) -> None:
    assert compiled(encoding="mxint", weight_bits=4).status == 0
    ran = cimtool("export", tmp_path / "b", "--format", kind, "-o", tmp_path / "out")
    assert ran.status == 2
    assert ran.sentence.startswith(
        'encoding = "mxint": an array makes its digits of what cells hold'
    )
    assert not (tmp_path / "out").exists()


def test_analog_arrays_refuse_them(compiled: Run, tmp_path: Path) -> None:
    ran = compiled(target="isaac-rram-128", encoding="mxfp", weight_bits=4)
    assert ran.status == 2
    assert ran.sentence.startswith('settings for target "isaac-rram-128": encoding = "mxfp": its ')
    assert not (tmp_path / "b").exists()
