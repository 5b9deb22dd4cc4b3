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
from cimtool.bundle.bundle import previous_of, read_bundle
from cimtool.costs.bundle_cost import bundle_cost
from cimtool.demo.data import DemoFiles
from cimtool.galleries.cam_shortlist import SEARCH
from cimtool.hardware.cell_distance import CellDistance

ITEMS, LENGTH = 40, 7
CAM = "fefet-mcam"


def compiled(files: DemoFiles, folder: Path, mapping: str) -> Path:
    api.compile(
        files.projectors,
        files.poly,
        calibration=files.calibration,
        drift="given",
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
    cost = bundle_cost(bundle, samples=1).score
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


def stored_codes(folder: Path) -> np.ndarray:
    shortlist = read_bundle(folder).program.shortlist
    assert shortlist is not None
    return shortlist.operations(CellDistance)[SEARCH].stored


@pytest.mark.thorough("a change of a CAM; one of arrays is in the first tier")
@pytest.mark.parametrize("cam", [CAM, "fefet2-tcam-45nm"])
def test_a_change_is_bit_for_bit_programming_anew(
    cam: str, made: SimpleNamespace, tmp_path: Path
) -> None:
    data = np.load(made.files.eval)
    video, place = data["video"], tmp_path / "place"
    api.program_cam(made.hybrid, {"video": video[:12]}, cam, shortlist=LENGTH, output=place)
    changed = api.change_gallery(
        place,
        remove=[2, 5, 11],
        replace=([3], {"video": video[30:31]}),
        add={"video": video[20:21]},
    )
    columns, ids = [0, 1, 20, 30, 4, 10, 6, 7, 8, 9], [0, 1, 12, 3, 4, 10, 6, 7, 8, 9]
    again = api.program_cam(
        made.hybrid, {"video": video[columns]}, cam, shortlist=LENGTH, output=tmp_path / "anew"
    )
    first, other = (
        {name: sha for name, sha in one.bundle.manifest["files"].items() if "ledger" not in name}
        for one in (changed, again)
    )
    assert first == other
    bundle = read_bundle(place)
    assert bundle.items.tolist() == ids
    assert bundle.gallery == changed.gallery
    # Of three columns with other items, those cells are written that differ.
    old, new = stored_codes(previous_of(place)), stored_codes(place)
    assert changed.cells_written == (old[:10] != new).sum()
    assert changed.ledger.cells_written == 12 * 16 + changed.cells_written
    assert changed.ledger.most_written == 2
    top = api.simulate(place, {"text": data["text"]}, top=3)["top_index"]
    assert not {2, 5, 11} & set(top.ravel().tolist())
    held = {"text": data["text"][columns], "video": video[columns]}
    assert not api.verify(place, held).failures


def test_chips_are_no_measure_of_a_cam(made: SimpleNamespace) -> None:
    with pytest.raises(CimError, match=f"chips is 2; the items of .* are in {CAM}, whose arrays"):
        api.change_gallery(made.programmed.bundle.folder, remove=[3], chips=2)


def test_a_change_beyond_the_endurance_of_a_cam_is_refused(
    made: SimpleNamespace, tmp_path: Path
) -> None:
    file, video = tmp_path / "own.toml", np.load(made.files.eval)["video"]
    endured = (
        '[[figures]]\nquantity = "endurance"\nunit = "1"\nvalue = 1\nscope = "array"\n'
        'source = "a test"\nstatus = "assumed"\n'
    )
    shipped = Path(__file__).parents[2] / "targets" / "cam" / f"{CAM}.toml"
    file.write_text(shipped.read_text() + endured)
    place = api.program_cam(
        made.hybrid, {"video": video[:9]}, file, output=tmp_path / "p", shortlist=3
    )
    with pytest.raises(CimError, match=r"would be written 2 times; expected at most 1, by endur"):
        api.change_gallery(place.bundle.folder, replace=([4], {"video": video[20:21]}))
