"""Shortlists of few bits: the same integers everywhere, right about an item, and of little loss."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from shortlist_case import ShortlistCase, distances
from threadpoolctl import threadpool_limits

from cimtool.base.errors import ArgumentError
from cimtool.emit.onnx import file_bytes, onnx_model
from cimtool.emit.runtime import Session
from cimtool.galleries.few_bits import FewBitShortlist, PrincipalComponents, quotients
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.settings import Settings, resolve
from cimtool.hardware.target import load_target, target_names
from cimtool.ir.program import Graph
from cimtool.passes.gallery import ShortlistBits, fit_gallery
from cimtool.simulation.simulator import Runner

FEATURE_BITS = 8


class Case(ShortlistCase):
    """The small program with its shortlists in few bits."""

    def shortlist(self, target: str = "ideal", **flags: object) -> FewBitShortlist:
        own: Settings = resolve(load_target(target), None, flags)
        return FewBitShortlist(self.program.score, self.examples, own)

    def graph(self, bits: ShortlistBits, target: str = "ideal", **flags: object) -> Graph:
        made = self.shortlist(target, **flags)
        return fit_gallery(made.graph(bits, self.video), self.text)


@pytest.fixture(scope="module")
def case(models: SimpleNamespace) -> Case:
    return Case(models)


@pytest.mark.thorough(
    "each target; one of a kind is in the first tier",
    quick=("isaac-rram-128-3", "dcim-28nm-isscc23-None"),
)
@pytest.mark.parametrize("dimensions", [None, 3])
@pytest.mark.parametrize("target", target_names())
def test_all_implementations_agree_on_every_target(
    case: Case, target: str, dimensions: int | None
) -> None:
    for bits in range(1, 9):
        graph = case.graph(ShortlistBits(bits, 2 + (bits + 5) % 7, dimensions), target)
        expected = distances(graph, case.text)
        fast = Runner(graph).run({"text.mu": case.text["mu"]})["ed"]
        np.testing.assert_array_equal(fast, expected)
        model = onnx_model(graph)
        feeds = {"text_mu": case.text["mu"].astype(np.int8)}
        onnx = Session(file_bytes(model)).run(feeds)["ed"]
        np.testing.assert_array_equal(onnx, expected)
        (evaluated,) = ReferenceEvaluator(model).run(None, feeds)
        np.testing.assert_array_equal(evaluated, expected)


@pytest.mark.parametrize("encoding", ["offset", "differential", "twos-complement"])
@pytest.mark.parametrize("bits", range(1, 9))
def test_items_take_as_many_bits_as_are_asked(case: Case, encoding: str, bits: int) -> None:
    graph = case.graph(ShortlistBits(bits, FEATURE_BITS), encoding=encoding, adc_bits="lossless")
    op = graph.by_name["mu.mu"].op
    assert isinstance(op, CrossbarMvm)
    weight = op.weight
    assert op.crossbar.weights.bits == max(bits, 1 + (encoding == "differential"))
    levels = len(np.unique(weight))
    assert levels <= (2**bits - (encoding == "differential") if bits > 1 else 2)
    assert levels > 2 ** (bits - 1) or bits > 6
    if bits == 1:
        x = case.video["mu"] - case.shortlist().of_item
        np.testing.assert_array_equal((0 if encoding != "differential" else 1) <= weight.T, x >= 0)


def test_components_are_those_of_the_rows_of_both_sides_in_real_units(case: Case) -> None:
    made = case.shortlist()
    text = (case.examples.text - made.of_query) * float(made.query.unit)
    video = (case.examples.video - made.of_item) * float(made.item.unit)
    _, _, expected = np.linalg.svd(np.concatenate([text, video]), full_matrices=False)
    overlap = np.abs(expected @ made.principal.directions)
    np.testing.assert_allclose(overlap, np.eye(len(overlap)), atol=1e-6)


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_an_item_is_right_about_itself(case: Case, bits: int) -> None:
    """(|x|^2 / x.r) x.r is |x|^2: the distance of an item to itself is that of whole features."""
    made = case.shortlist()
    graph = made.graph(ShortlistBits(bits, FEATURE_BITS), case.video)
    step = float(graph.types["ed"].unit)
    itself = distances(graph, case.video).diagonal() * step
    score = case.program.score
    unit = float(score.inputs["video.mu"].unit) ** 2
    x = case.video["mu"] - made.of_item
    own = case.video["ed_self"] * float(score.inputs["video.ed_self"].unit)
    own = own - 2 * unit * (case.video["mu"] @ made.of_query)
    whole = own - own.min() - 2 * unit * (x * x).sum(axis=1)
    kind = made.whole.codes(bits)
    held = (x * kind.values(kind.codes(x))).sum(axis=1)
    # A factor is rounded to half a step of the result, and so is the constant.
    assert np.all(np.abs(whole - itself) <= step * (held + 1) / 2)


def test_more_bits_order_items_more_as_the_exact_distance_does(case: Case) -> None:
    lost = []
    for bits in (1, 2, 3, 4, 6, 8):
        found = distances(case.graph(ShortlistBits(bits, FEATURE_BITS)), case.text)
        pairs = zip(found, case.exact, strict=True)
        lost.append(1 - np.mean([np.corrcoef(*rows)[0, 1] for rows in pairs]))
    assert lost == sorted(lost, reverse=True)
    assert lost[0] < 0.2
    assert lost[-1] < 1e-4


def test_fewer_bits_of_a_query_lose_more(case: Case) -> None:
    lost = []
    for bits in (2, 4, FEATURE_BITS):
        found = distances(case.graph(ShortlistBits(8, bits)), case.text)
        pairs = zip(found, case.exact, strict=True)
        lost.append(1 - np.mean([np.corrcoef(*rows)[0, 1] for rows in pairs]))
    assert lost == sorted(lost, reverse=True)
    assert lost[0] < 0.2


def test_an_item_that_is_the_centre_has_no_factor() -> None:
    x = np.array([[0, 0, 0], [3, -1, 0]])
    found = quotients(x, np.array([[1, 1, 1], [1, -1, 1]]))
    np.testing.assert_allclose(found, [0, 10 / 4])


def test_components_keep_more_the_more_of_them_there_are(case: Case) -> None:
    width = case.video["mu"].shape[1]
    lost = []
    for dimensions in (1, width // 4, width // 2, width - 1):
        found = distances(case.graph(ShortlistBits(8, FEATURE_BITS, dimensions)), case.text)
        assert case.graph(ShortlistBits(8, 8, dimensions)).by_name["mu.mu"].op.weight.shape == (
            dimensions,
            len(case.video["mu"]),
        )
        pairs = zip(found, case.exact, strict=True)
        lost.append(1 - np.mean([np.corrcoef(*rows)[0, 1] for rows in pairs]))
    assert lost == sorted(lost, reverse=True)
    assert lost[-1] < 0.02


def test_more_components_than_rows_differ_in_are_refused(case: Case) -> None:
    made = case.shortlist()
    made.text, made.video = made.text[:2], made.video[:2]
    with pytest.raises(ArgumentError, match="in which the calibration features differ"):
        made.reduced(5)
    width = case.video["mu"].shape[1]
    with pytest.raises(ArgumentError, match="fewer than their"):
        case.shortlist().reduced(width)


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    rng = np.random.default_rng(2)
    spread = 2.0 ** -np.arange(12)
    return rng.normal(size=(300, 12)) * spread @ np.linalg.qr(rng.normal(size=(12, 12)))[0]


@pytest.mark.parametrize("dimensions", [1, 5, 11])
def test_a_map_is_orthonormal_but_for_the_rounding_of_its_weights(
    rows: np.ndarray, dimensions: int
) -> None:
    found = PrincipalComponents(rows).of(dimensions, 8)
    assert np.abs(found.weight).max() == 127
    weight = found.weight * found.step
    np.testing.assert_allclose(weight.T @ weight, np.eye(dimensions), atol=0.03)


def test_the_largest_components_hold_most_and_are_spread_evenly(rows: np.ndarray) -> None:
    found = PrincipalComponents(rows).of(4, 12)
    mapped = rows @ (found.weight * found.step)
    held = (mapped**2).sum() / (rows**2).sum()
    best = np.sort(np.linalg.eigvalsh(rows.T @ rows))[::-1]
    assert held == pytest.approx(best[:4].sum() / best.sum(), rel=1e-3)
    variances, own = (mapped**2).mean(axis=0), (rows**2).mean(axis=0)
    assert variances.max() / variances.min() < own.max() / own.min()


def test_integer_rows_are_mapped_exactly(rows: np.ndarray) -> None:
    found = PrincipalComponents(rows).of(6, 8)
    codes = np.random.default_rng(3).integers(-127, 128, (9, 12))
    np.testing.assert_array_equal(found.of(codes), codes @ found.weight)


def test_a_map_is_the_same_whatever_the_threads(rows: np.ndarray) -> None:
    def weight(threads: int) -> np.ndarray:
        with threadpool_limits(threads):
            return PrincipalComponents(np.tile(rows, (1, 20))).of(8, 8).weight

    np.testing.assert_array_equal(weight(1), weight(2))


@pytest.mark.parametrize("dimensions", [0, 4, 12])
def test_no_more_components_than_rows_differ_in(rows: np.ndarray, dimensions: int) -> None:
    with pytest.raises(ArgumentError, match=r"is .*; expected 1 to 3, in which"):
        PrincipalComponents(rows[:3]).of(dimensions, 8)
