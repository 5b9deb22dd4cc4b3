"""A manifest agrees with its program, also where terms of its polynomial vanish beside others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cimtool import api
from cimtool.bundle.bundle import read_bundle
from cimtool.demo.data import DemoFiles


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
