"""Bundles whose gallery a CAM holds: written, simulated, verified and costed, or refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cimtool import api
from cimtool.base.errors import CimError
from cimtool.bundle.bundle import read_bundle
from cimtool.emit.c.model import c_model
from cimtool.training.demo_data import DemoFiles

ITEMS, LENGTH = 40, 7
CAM = "fefet-mcam"


def compiled(files: DemoFiles, folder: Path, mapping: str) -> Path:
    api.compile(
        files.projectors,
        files.poly,
        calibration=files.calibration,
        target="ideal",
        score_mapping=mapping,  # type: ignore[arg-type]
        output=folder,
    )
    return folder


@pytest.fixture(scope="module")
def made(small_trunk: DemoFiles, tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A hybrid bundle, and one programmed into a CAM."""
    folder = tmp_path_factory.mktemp("cams")
    hybrid = compiled(small_trunk, folder / "hybrid", "hybrid")
    programmed = api.program_cam(hybrid, small_trunk.eval, CAM, shortlist=LENGTH)
    return SimpleNamespace(files=small_trunk, folder=folder, hybrid=hybrid, programmed=programmed)


def test_the_bundle_holds_the_cam(made: SimpleNamespace) -> None:
    found = made.programmed
    bundle = read_bundle(found.bundle.folder)
    assert bundle.folder == made.folder / "hybrid+eval"
    assert bundle.gallery == found.gallery
    assert bundle.gallery is not None
    assert bundle.gallery.cam is not None
    assert (bundle.gallery.cam.name, bundle.gallery.items) == (CAM, ITEMS)
    use = found.use
    assert use.cells == ITEMS * use.width
    assert bundle.ledger.cells_written == use.cells
    assert sum(map(len, bundle.ledger.matrices.values())) == use.arrays
    json.dumps(found.to_json(), default=str)


def test_a_shortlist_is_scored_exactly(made: SimpleNamespace) -> None:
    found = api.simulate(made.programmed.bundle.folder, made.files.eval)
    exact = api.simulate(made.hybrid, made.files.eval)["scores"]
    assert found["top_index"].shape == (ITEMS, LENGTH)
    np.testing.assert_array_equal(
        found["top_score"], np.take_along_axis(exact, found["top_index"], axis=1)
    )


def test_verify_counts_no_difference(made: SimpleNamespace) -> None:
    report = api.verify(made.programmed.bundle.folder, made.files.eval)
    assert not report.failures
    assert [one.output for one in report.checks.bits].count("shortlist.ed") == 2


def test_a_query_costs_a_search_and_its_exact_scores(made: SimpleNamespace) -> None:
    bundle = read_bundle(made.programmed.bundle.folder)
    cost = bundle.estimate(samples=1).score
    assert cost is not None
    assert cost.energy_pj.value == made.programmed.score.energy_pj.value
    use = made.programmed.use
    assert cost.conversions == use.words
    assert "converters of words" in cost.energy_pj.missing
    assert cost.parts["arrays"].energy.value == use.energy_pj.value


def test_fewer_bits_than_a_cell_has(made: SimpleNamespace) -> None:
    found = api.program_cam(
        made.hybrid, made.files.eval, CAM, shortlist_bits=1, output=made.folder / "one"
    )
    assert found.gallery.bits is not None
    assert (found.gallery.bits.item, found.gallery.bits.query) == (1, 1)


def test_what_is_refused(made: SimpleNamespace) -> None:
    before = sorted(made.folder.iterdir())
    memory = compiled(made.files, made.folder / "memory", "in-memory")
    digital = compiled(made.files, made.folder / "digital", "digital")
    for bundle, said in (
        (memory, f"cam is {CAM}; memory was compiled with score_mapping = in-memory"),
        (digital, "was compiled with score_mapping = digital"),
        (made.programmed.bundle.folder, "holds the gallery eval.npz already"),
    ):
        with pytest.raises(CimError, match=re.escape(said)):
            api.program_cam(bundle, made.files.eval, CAM)
    for options, said in (
        ({"cam": "fefet-mcams"}, 'CAM "fefet-mcams" is not known'),
        (
            {"shortlist_bits": 4},
            f"shortlist_bits is 4; expected 1 to 3, the bits of a cell of {CAM}",
        ),
        ({"shortlist": ITEMS + 1}, f"shortlist is {ITEMS + 1}; expected 1 to {ITEMS}"),
    ):
        with pytest.raises(CimError, match=re.escape(said)):
            api.program_cam(made.hybrid, made.files.eval, **{"cam": CAM, **options})  # type: ignore[arg-type]
    assert sorted(made.folder.iterdir()) == sorted([*before, memory, digital])


def test_items_of_a_cam_are_not_changed(made: SimpleNamespace) -> None:
    with pytest.raises(CimError, match=f"its gallery is in a content-addressable memory, {CAM}"):
        api.change_gallery(made.programmed.bundle.folder, remove=[3])


def test_the_c_model_refuses_a_cam(made: SimpleNamespace) -> None:
    program = read_bundle(made.programmed.bundle.folder).program
    with pytest.raises(CimError, match="the C model has no content-addressable memory"):
        c_model(program, "small")
