"""Every shipped target, end to end: compiled, simulated, and the same bits in ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from c_tools import differing as of_handoff

from cimtool import api
from cimtool.bundle.bundle import Bundle
from cimtool.bundle.exporters import Request, export_bundle
from cimtool.demo.data import DemoFiles
from cimtool.hardware.target import target_names
from cimtool.loading.embeddings import read_embeddings


def compiled(target: str, files: DemoFiles, folder: Path, **choices: object) -> Bundle:
    return api.compile(
        files.projectors,
        files.poly,
        calibration=files.calibration,
        drift="given",
        target=target,
        output=folder / target,
        **choices,
    )


def differing(bundle: Path, files: DemoFiles, folder: Path) -> list[object]:
    report = api.verify(bundle, files.eval, report=folder)
    assert {"ONNX Runtime", "the NumPy reference"} <= {
        count.implementation for count in report.checks.bits
    }
    return [count for count in report.checks.bits if count.differing]


@pytest.fixture(scope="module", params=target_names())
def bundle(
    request: pytest.FixtureRequest, small_trunk: DemoFiles, tmp_path_factory: pytest.TempPathFactory
) -> Bundle:
    return compiled(request.param, small_trunk, tmp_path_factory.mktemp("targets"))


@pytest.mark.thorough(
    "each target; one of a kind is in the first tier",
    quick=("isaac-rram-128",),
)
def test_no_value_differs(bundle: Bundle, small_trunk: DemoFiles, tmp_path: Path) -> None:
    assert differing(bundle.folder, small_trunk, tmp_path) == []


def of_c_model(bundle: Bundle, files: DemoFiles, folder: Path) -> tuple[int, int]:
    """Count the values that the golden model compares, and those that differ."""
    request = Request(inputs=read_embeddings(files.eval))
    export_bundle(bundle, "handoff", folder / "handoff", request)
    return of_handoff(folder / "handoff")


@pytest.mark.thorough(
    "each target; one of a kind is in the first tier", quick=("dcim-28nm-isscc23",)
)
def test_no_value_of_the_c_model_differs(
    bundle: Bundle, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    compared, wrong = of_c_model(bundle, small_trunk, tmp_path)
    assert (compared > 10_000, wrong) == (True, 0)


@pytest.mark.thorough(
    "each target; one of a kind is in the first tier",
    quick=("charge-65nm-princeton", "dcim-28nm-isscc23", "hermes-pcm-14nm", "isaac-rram-128"),
)
def test_torch_computes_the_same_scores(bundle: Bundle, small_trunk: DemoFiles) -> None:
    scores = [
        api.simulate(bundle.folder, small_trunk.eval, device=device)["scores"]
        for device in (None, "cpu")
    ]
    np.testing.assert_array_equal(*scores)


@pytest.mark.thorough("each target; one of a kind is in the first tier", quick=("isaac-rram-128",))
@pytest.mark.parametrize("target", target_names())
def test_no_value_differs_with_the_score_in_the_memory(
    target: str, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    bundle = compiled(target, small_trunk, tmp_path, score_mapping="in-memory", accumulator_bits=48)
    programmed = api.program(bundle.folder, small_trunk.eval)
    assert differing(programmed.bundle.folder, small_trunk, tmp_path) == []
    compared, wrong = of_c_model(programmed.bundle, small_trunk, tmp_path)
    assert (compared > 10_000, wrong) == (True, 0)
