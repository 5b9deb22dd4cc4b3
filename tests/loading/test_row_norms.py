"""Rows of another scale than those that calibrated a bundle are warned of, by every command."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cimtool import api
from cimtool.base.arrays import Array
from cimtool.demo.data import DemoFiles
from cimtool.loading.row_norms import median_norm


def arrays(file: Path) -> dict[str, Array]:
    with np.load(file) as held:
        return dict(held)


def scaled(file: Path, output: Path, **by: float) -> Path:
    """The rows of a file, each modality `by` so much larger."""
    np.savez(output, **{name: rows * by.get(name, 1) for name, rows in arrays(file).items()})
    return output


def test_the_median_norm_is_of_rows_that_are_not_zero() -> None:
    rows = np.array([[3, 4], [0, 0], [0, 1], [6, 8]], np.float32)
    assert median_norm(rows) == 5.0
    assert median_norm(np.zeros((3, 2), np.float32)) == 0.0


def test_a_bundle_keeps_the_norms_of_its_calibration(
    small_bundle: Path, small_trunk: DemoFiles
) -> None:
    found = api.load(small_bundle).bundle.model.row_norms
    rows = arrays(small_trunk.calibration)
    assert found == (median_norm(rows["text"]), median_norm(rows["video"]))


def test_four_times_are_taken_as_they_are(
    small_bundle: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    for by in (0.3, 3.5):
        data = scaled(small_trunk.eval, tmp_path / "d.npz", text=by, video=by)
        api.load(small_bundle).scores(data)


def test_rows_of_unit_norm_have_no_scale(small_two_branch: DemoFiles, tmp_path: Path) -> None:
    bundle = api.compile(
        small_two_branch.projectors,
        calibration=small_two_branch.calibration,
        drift="given",
        target="ideal",
        output=tmp_path / "b",
        a=0.1,
        b=0.0,
    )
    data = scaled(small_two_branch.eval, tmp_path / "d.npz", text=127, video=127)
    api.load(bundle.folder).scores(data)
