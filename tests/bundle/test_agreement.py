"""A manifest agrees with its program, also where terms of its polynomial vanish beside others."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from snapshots import CHECKPOINTS

from cimtool import api
from cimtool.bundle.agreement import program_differences
from cimtool.bundle.bundle import read_bundle
from cimtool.demo.data import DemoFiles
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.program import Builder, Node, rewrite_each


@pytest.mark.parametrize("coeff", [(-0.5, 1e-20), (-0.5, 1e-310), (1e-30, 1e-30), (1e-320, 1e-320)])
def test_terms_that_vanish_leave_a_bundle_that_is_read(
    small_trunk: DemoFiles, coeff: tuple[float, float], tmp_path: Path
) -> None:
    poly = tmp_path / "poly.json"
    scales = {"scale_ed": 64.0, "scale_vd": 64.0}
    poly.write_text(
        json.dumps({"degree": 1, "coeff": coeff, "bias": 0.5, "a": 0.1, "b": 0, **scales})
    )
    api.compile(
        small_trunk.projectors, poly, calibration=small_trunk.calibration, drift="given",
        target="ideal", output=tmp_path / "bundle",
    )  # fmt: skip
    assert read_bundle(tmp_path / "bundle").program.score.nodes


def test_converters_may_leave_fewer_bits_than_a_layer_was_tiled_for(tmp_path: Path) -> None:
    """The first layer then gives numbers of 7 bits; the arrays behind it are driven with 8."""
    labels = np.arange(64) % 4
    rows = np.random.RandomState(9).normal(size=(4, 12))[labels]
    rows = (rows + np.random.RandomState(0).normal(size=rows.shape)).astype(np.float32)
    made = api.compile(
        CHECKPOINTS / "autoencoder.pth", calibration={"rows": rows, "labels": labels},
        drift="given", target="neurram-rram-130nm", adc_bits=6, output=tmp_path / "bundle",
    )  # fmt: skip
    bundle = read_bundle(made.folder)
    program, op = bundle.program, bundle.program.text.by_name["mu"].op
    assert program.text.types["act1.stored"].hi.max() < 128
    assert isinstance(op, CrossbarMvm)
    assert op.crossbar.inputs.bits == 8
    for bits, wrong in ((6, True), (7, False), (8, False), (9, True)):
        crossbar = replace(op.crossbar, inputs=replace(op.crossbar.inputs, bits=bits))
        driven = replace(op, stored=replace(op.stored, crossbar=crossbar))

        def changed(builder: Builder, op: CrossbarMvm, node: Node, inputs: tuple[str, ...]) -> str:
            return builder.add(node.name, driven if node.name == "mu" else op, *inputs)  # noqa: B023

        text = rewrite_each(program.text, CrossbarMvm, changed)
        forged = program.with_projectors(text, program.video)
        differences = program_differences(bundle.model, bundle.settings, forged, "program.json")
        found = [one.key for one in differences if one.key.endswith("text.mu")]
        assert found == ["settings: inputs.bits of text.mu"] * wrong, bits
