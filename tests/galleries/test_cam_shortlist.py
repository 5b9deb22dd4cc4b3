"""Shortlists of CAMs: the same integers everywhere, and an order that the exact one decides."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from shortlist_case import ShortlistCase, distances

from cimtool.emit.onnx import file_bytes, onnx_model
from cimtool.emit.runtime import Session
from cimtool.galleries.cam_shortlist import CamShortlist, CellCodes, LineFit
from cimtool.hardware.cam import Cam, cam_origins, load_cam
from cimtool.hardware.cell_distance import DONT_CARE, CellDistance, DistanceName
from cimtool.ir.program import Graph
from cimtool.simulation.simulator import Runner


class Case(ShortlistCase):
    """The small program with its shortlists of CAMs."""

    def shortlist(self, cam: Cam, bits: int) -> CamShortlist:
        return CamShortlist(self.program.score, self.examples, cam, bits)


@pytest.fixture(scope="module")
def case(models: SimpleNamespace) -> Case:
    return Case(models)


def ideal(distance: DistanceName, dont_care: bool = False) -> Cam:
    """A CAM that senses every distance, of as many bits as any."""
    cam = load_cam("fefet-mcam")
    bits = 1 if dont_care else 3
    own = {"distance": distance, "dont_care": dont_care, "cell_bits": bits}
    array = cam.array.model_copy(update=own)
    sense = cam.sense.model_copy(update={"step": 1, "levels": None})
    return cam.model_copy(update={"array": array, "sense": sense})


def search_of(graph: Graph) -> CellDistance:
    return graph.operations(CellDistance)["search"]


@pytest.mark.parametrize("name", cam_origins())
def test_all_implementations_agree_on_every_cam(case: Case, name: str) -> None:
    cam = load_cam(name)
    for bits in range(1, cam.array.cell_bits + 1):
        graph = case.shortlist(cam, bits).graph(case.video)
        expected = distances(graph, case.text)
        fast = Runner(graph).run({"text.mu": case.text["mu"]})["ed"]
        np.testing.assert_array_equal(fast, expected)
        torch = Runner(graph, device="cpu").run({"text.mu": case.text["mu"]})["ed"]
        np.testing.assert_array_equal(torch, expected)
        model = onnx_model(graph)
        feeds = {"text_mu": case.text["mu"].astype(np.int8)}
        np.testing.assert_array_equal(Session(file_bytes(model)).run(feeds)["ed"], expected)
        (evaluated,) = ReferenceEvaluator(model).run(None, feeds)
        np.testing.assert_array_equal(evaluated, expected)


@pytest.mark.parametrize("bits", [1, 2, 3])
def test_both_sides_are_rounded_to_the_same_levels(case: Case, bits: int) -> None:
    made = case.shortlist(ideal("l1"), bits)
    graph = made.graph(case.video)
    query = Runner(graph).values({"text.mu": case.text["mu"]}, ["query"])["query"]
    np.testing.assert_array_equal(query, made.codes.of(case.text["mu"] - made.of_query))
    stored = search_of(graph).stored
    np.testing.assert_array_equal(stored, made.codes.of(case.video["mu"] - made.of_item))
    assert len(np.unique(stored)) == 1 << bits


def test_one_bit_is_the_sign() -> None:
    codes = CellCodes(1, 2)
    np.testing.assert_array_equal(codes.of(np.array([-5, -1, 0, 1, 7])), [0, 0, 1, 1, 1])
    unsure = CellCodes(1, 2, unsure=1.5)
    np.testing.assert_array_equal(
        unsure.stored(np.array([-5, -1, 0, 2])), [0, DONT_CARE, DONT_CARE, 1]
    )


def test_only_a_cam_with_dont_care_stores_it(case: Case) -> None:
    for dont_care in (False, True):
        made = case.shortlist(ideal("hamming", dont_care), 1)
        stored = search_of(made.graph(case.video)).stored
        assert (made.codes.unsure > 0) == np.any(stored == DONT_CARE)
        assert dont_care or not made.codes.unsure


def test_more_bits_order_items_more_as_the_exact_distance_does(case: Case) -> None:
    lost = []
    for bits in (1, 2, 3):
        found = distances(case.shortlist(ideal("squared"), bits).graph(case.video), case.text)
        pairs = zip(found, case.exact, strict=True)
        lost.append(1 - np.mean([np.corrcoef(*rows)[0, 1] for rows in pairs]))
    assert lost == sorted(lost, reverse=True)
    assert lost[0] < 0.2
    assert lost[-1] < 0.02


def test_lines_are_those_of_least_error() -> None:
    rng = np.random.default_rng(5)
    x = rng.integers(0, 50, (4000, 3))
    queries = rng.normal(0, 30, (4000, 1))
    y = x * np.array([2.0, 3.0, 5.0]) + np.array([7.0, -1.0, 0.0])
    found = LineFit(np.zeros((4000, 1)), queries, 1.0).lines(x, y + queries)
    np.testing.assert_allclose(found.factor, [2, 3, 5], rtol=0.01)
    np.testing.assert_allclose(found.offset, [7, -1, 0], atol=3)


def test_one_query_gives_the_slope_of_squared_levels() -> None:
    found = LineFit(np.ones((1, 2)), np.ones((1, 2)), 9.0).lines(np.ones((1, 2)), np.ones((1, 2)))
    np.testing.assert_array_equal(found.factor, [9, 9])
