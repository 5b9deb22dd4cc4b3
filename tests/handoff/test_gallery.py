"""Hand-offs of a gallery: what `cimtool program` put into the arrays, read back and driven."""

from __future__ import annotations

from pathlib import Path

import pytest
from c_tools import make
from handoff_runs import TAPS, counts, run_goal

from cimtool import api
from cimtool.base.errors import CimError
from cimtool.bundle.bundle import Bundle, read_bundle
from cimtool.bundle.exporters import Request, export_bundle
from cimtool.demo.data import DemoFiles
from cimtool.handoff.written import describe_handoff


@pytest.fixture(scope="module", params=["in-memory", "hybrid", "components"])
def programmed(
    request: pytest.FixtureRequest, tiny_trunk: DemoFiles, tmp_path_factory: pytest.TempPathFactory
) -> Bundle:
    folder = tmp_path_factory.mktemp(request.param)
    mapping, stored = request.param, {}
    if mapping == "components":
        mapping, stored = "hybrid", {"shortlist_bits": 2, "shortlist_dimensions": 5}
    api.compile(
        tiny_trunk.projectors, tiny_trunk.poly, calibration=tiny_trunk.calibration,
        target="isaac-rram-128", array="32x32", adc_bits=4,
        score_mapping=mapping, output=folder / "empty",
    )  # fmt: skip
    wanted, empty = Request(gallery=True), read_bundle(folder / "empty")
    with pytest.raises(CimError, match="empty holds none; expected a bundle that `cimtool prog"):
        export_bundle(empty, "handoff", folder / "handoff", wanted)
    assert not (folder / "handoff").exists()
    return api.program(folder / "empty", tiny_trunk.eval, output=folder / "full", **stored).bundle


@pytest.mark.thorough("the bench of a gallery reads them too")
def test_stored_items_are_handed_off_and_read_back(programmed: Bundle, tmp_path: Path) -> None:
    export_bundle(programmed, "handoff", tmp_path / "here", Request(gallery=True))
    layers = describe_handoff(tmp_path / "here")["layers"]
    stored = set(layers) - {f"{m}.{n}" for m in ("text", "video") for n in LAYERS}
    if programmed.gallery is not None and programmed.gallery.shortlist is not None:
        reduced = "shortlist.components" in stored
        assert stored - {"shortlist.components"} == {"shortlist.mu.mu"}
        expected = "5 x 40" if reduced else "6 x 40"
        assert layers["shortlist.mu.mu"].startswith(f"{expected} weights read back (arrays: ")
    else:
        assert stored == {"score.mu.mu", "score.mu.mus", "score.s.mu2", "score.s.s_mu2.s"}
    assert make(tmp_path / "here").returncode == 0


LAYERS = ("fc1", "fc2", "mu", "logvar")


@pytest.mark.thorough("more circuits and faults; each simulator has one in the first tier")
def test_arrays_of_a_gallery_agree_in_the_bench(programmed: Bundle, tmp_path: Path) -> None:
    """Products of items beside those of encoders, of which some are of another kind."""
    export_bundle(programmed, "handoff", tmp_path / "here", Request(gallery=True))
    done = run_goal(tmp_path / "here", "icarus")
    assert (done.returncode, done.stderr) == (0, "")
    found = counts(done.stdout)
    assert tuple(found) == TAPS
    assert all(compared > 100 and differ == 0 for compared, differ in found.values())
    steps = [line.split() for line in (tmp_path / "here/steps.txt").read_text("utf-8").splitlines()]
    driven = [one[1] for one in steps if one[0] == "layer"]
    assert ("score.mus.mu" in driven) == ("score.mu.mu" in driven)
    if "score.mus.mu" in driven:
        assert not (tmp_path / "here/images/score.mus.mu").exists()
        assert (tmp_path / "here/taps/score.mus.mu/r0.c0/g0.sums.hex").exists()
        after = steps[[one[:2] for one in steps].index(["layer", "score.mus.mu"]) :]
        assert next(one for one in after if one[0] == "program")[1] == "score.mu.mu/r0.c0"
