"""A manifest agrees with its program, also where terms of its polynomial vanish beside others."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from snapshots import CHECKPOINTS

from cimtool import api
from cimtool.bundle.bundle import read_bundle
from cimtool.demo.data import DemoFiles
from cimtool.hardware.mvm import CrossbarMvm


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
        small_trunk.projectors, poly, calibration=small_trunk.calibration,
        target="ideal", output=tmp_path / "bundle",
    )  # fmt: skip
    assert read_bundle(tmp_path / "bundle").program.score.nodes


def test_converters_may_leave_fewer_bits_than_a_layer_was_tiled_for(tmp_path: Path) -> None:
    """What the first layer gives then needs 7 bits; the arrays behind it are driven with 8."""
    labels = np.arange(64) % 4
    rows = np.random.RandomState(9).normal(size=(4, 12))[labels]
    rows = (rows + np.random.RandomState(0).normal(size=rows.shape)).astype(np.float32)
    made = api.compile(
        CHECKPOINTS / "autoencoder.pth", calibration={"rows": rows, "labels": labels},
        target="neurram-rram-130nm", adc_bits=6, output=tmp_path / "bundle",
    )  # fmt: skip
    graph = read_bundle(made.folder).program.text
    node = graph.by_name["mu"]
    assert graph.types[node.inputs[0]].hi.max() < 128
    assert isinstance(node.op, CrossbarMvm)
    assert node.op.crossbar.inputs.bits == 8
