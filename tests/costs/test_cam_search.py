"""Use and cost of a CAM by a gallery, and published energies held against those of cells."""

from __future__ import annotations

import pytest

from cimtool.base.errors import CimError
from cimtool.costs.cam_search import CamUse, check_search, search_cost
from cimtool.hardware.cam import Cam, cam_origins, load_cam


def with_energy(value: float) -> Cam:
    cam = load_cam("fefet2-tcam-45nm")
    figures = tuple(
        one.model_copy(update={"value": value}) if one.quantity == "search_energy" else one
        for one in cam.figures
    )
    return cam.model_copy(update={"figures": figures})


def test_words_and_arrays_of_items() -> None:
    use = CamUse(load_cam("fefet2-tcam-45nm"), items=130, width=100)
    assert (use.words_per_item, use.words, use.cells, use.arrays) == (2, 260, 13_000, 6)
    assert use.energy_pj.value == pytest.approx(1.5 * 13_000 / 4096)
    assert use.latency_ns.value == 0.35


def test_what_is_not_given_is_missing() -> None:
    use = CamUse(load_cam("rram-l1-sapiens"), items=10, width=64)
    assert use.energy_pj.value is None
    cost = search_cost(use)
    assert cost.conversions == 10
    assert cost.energy_pj.missing == ("the search", "converters of words")
    assert cost.latency_ns.value == 5
    assert cost.latency_ns.lower_bound


@pytest.mark.parametrize("name", cam_origins())
def test_published_energies_agree_with_those_of_cells(name: str) -> None:
    assert all(
        abs(one.computed / one.published - 1) < 0.02 for one in check_search(load_cam(name), name)
    )


def test_an_energy_that_disagrees_is_refused() -> None:
    (found,) = check_search(load_cam("fefet2-tcam-45nm"), "here")
    assert found.sentence() == (
        "search_energy 1.5 pJ: 1.516 from 64 x 64 cells of 0.37 fJ (+1.0%), consistent by "
        "construction: search_cell_energy was derived from it"
    )
    cam = load_cam("fefet2-tcam-45nm")
    figures = tuple(one.model_copy(update={"derived_from": None}) for one in cam.figures)
    (found,) = check_search(cam.model_copy(update={"figures": figures}), "here")
    assert found.sentence().endswith(
        "(+1.0%), not confirmed: search_cell_energy is derived; the file does not say from what"
    )
    with pytest.raises(
        CimError, match=r"here: search_energy = 1.6 pJ: recomputed from .* within 2%"
    ):
        check_search(with_energy(1.6), "here")
