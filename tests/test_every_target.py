"""Every shipped target, end to end: compiled, simulated, and the same bits in ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cimtool import api
from cimtool.hardware.target import target_names
from cimtool.training.demo_data import DemoFiles

MAPPINGS = ("digital",)


@pytest.mark.parametrize("target", target_names())
def test_no_value_differs(target: str, small_trunk: DemoFiles, tmp_path: Path) -> None:
    bundle = api.compile(
        small_trunk.projectors,
        small_trunk.poly,
        calibration=small_trunk.calibration,
        target=target,
        output=tmp_path / target,
    )
    report = api.verify(bundle.folder, small_trunk.eval, report=tmp_path)
    assert report.bits
    assert [count for count in report.bits if count.differing] == []


@pytest.mark.parametrize("target", target_names())
def test_torch_computes_the_same_scores(
    target: str, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    bundle = api.compile(
        small_trunk.projectors,
        small_trunk.poly,
        calibration=small_trunk.calibration,
        target=target,
        output=tmp_path / target,
    )
    scores = [
        api.simulate(bundle.folder, small_trunk.eval, device=device)["scores"]
        for device in (None, "cpu")
    ]
    np.testing.assert_array_equal(*scores)
