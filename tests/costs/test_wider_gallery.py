"""A gallery in the arrays that is larger than the one that is programmed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cimtool import api
from cimtool.costs.wider_gallery import GalleryPair
from cimtool.demo.data import DemoFiles
from cimtool.hardware.placement import placements


@pytest.mark.thorough("one target stands for the others", quick=("isaac",))
@pytest.mark.parametrize("target", ["isaac-rram-128", "dcim-28nm-isscc22", "ideal"])
def test_two_galleries_tell_the_cost_of_a_third(
    target: str, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    """Of items with the same bits: the evaluation rows once, twice and three times."""
    files = small_trunk
    bundle = api.compile(
        files.projectors, files.poly, calibration=files.calibration, target=target,
        score_mapping="in-memory", accumulator_bits=48, output=tmp_path / "bundle",
    ).folder  # fmt: skip
    with np.load(files.eval) as held:
        video = held["video"]
    found = []
    for copies in (1, 2, 3):
        rows = {"text": video[:2], "video": np.concatenate([video] * copies)}
        output = tmp_path / str(copies)
        programmed = api.program(bundle, rows, output=output).bundle
        found.append(api.cost(programmed.folder))
    one, two, three = found
    items = 3 * len(video)
    told = GalleryPair(one, two).at(items)
    assert told.gallery == items == three.gallery
    assert told.floorplan == three.floorplan
    assert told.placements == placements(told.program, told.settings, {"score": items})
    assert told.query is not None
    assert three.query is not None
    assert told.query.conversions == three.query.conversions
    assert told.query.digital.total == three.query.digital.total
    for name in ("energy_pj", "latency_ns"):
        own, other = getattr(told.query, name), getattr(three.query, name)
        assert (own.value, own.low, own.high) == pytest.approx(
            (other.value, other.low, other.high), rel=1e-9
        )
