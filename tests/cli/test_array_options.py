"""Ternary cells and skipped work, from a target's file to the report and the costs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cimtool.bundle.bundle import read_bundle
from cimtool.demo.data import DemoFiles

Run = Callable[..., Any]
SKIPPING = """
name = "skipping"
title = "ISAAC that skips"
base = "isaac-rram-128"

[array]
skips = ["zero-inputs", "zero-slices"]
"""


@pytest.fixture
def compiled(
    cimtool: Run, compiling: Callable[..., list[object]], small_trunk: DemoFiles, tmp_path: Path
) -> Callable[..., Path]:
    """A bundle of the small model with settings."""

    def compile_(name: str, **settings: object) -> Path:
        ran = cimtool(*compiling(small_trunk, tmp_path / name, **settings))
        assert ran.status == 0, ran.err
        return tmp_path / name

    return compile_


@pytest.mark.thorough("random layers have ternary cells, too")
def test_ternary_cells_are_verified(
    compiled: Callable[..., Path], cimtool: Run, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    bundle = compiled(
        "b", target="isaac-rram-128", encoding="ternary", cell_bits=1, weight_bits=5, adc_bits=4
    )
    report = tmp_path / "report"
    ran = cimtool("verify", bundle, "--data", small_trunk.eval, "--report", report)
    assert ran.status == 0, ran.err
    bits = json.loads((report / "report.json").read_text("utf-8"))["bits"]
    assert {one["differing"] for one in bits} == {0}


def test_what_is_skipped_changes_costs_and_no_integer(
    compiled: Callable[..., Path], cimtool: Run, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    (tmp_path / "own.toml").write_text(SKIPPING, "utf-8")
    keep = {"weight_bits": 8, "drift": "given"}
    plain = compiled("plain", target="isaac-rram-128", **keep)
    skipping = compiled("skipping", target=tmp_path / "own.toml", **keep)
    found = []
    for bundle in (plain, skipping):
        cimtool("simulate", bundle, "--inputs", small_trunk.eval, "-o", bundle.with_suffix(".npz"))
        ran = cimtool("cost", bundle, "--json")
        assert ran.status == 0, ran.err
        costs = json.loads(ran.out)
        with np.load(bundle.with_suffix(".npz")) as scores:
            found.append((scores["scores"], costs))
    (scores, dense), (same, sparse) = found
    np.testing.assert_array_equal(scores, same)
    before, after = ({one["layer"]: one for one in costs["layers"]} for costs in (dense, sparse))
    assert any("activity" in one for one in after.values())
    for layer, one in after.items():
        assert "activity" not in before[layer]
        assert one["conversions"] <= before[layer]["conversions"]
    energies = [costs["text"]["energy_pj"]["value"] for costs in (dense, sparse)]
    assert energies[1] < energies[0]
    assert any("skipped: " in text for text in sparse["assumptions"])
    assert not any("skipped: " in text for text in dense["assumptions"])
    for one in read_bundle(skipping).program.text.nodes:
        assert len(getattr(one.op, "driven", (1.0, 1.0))) == 2
