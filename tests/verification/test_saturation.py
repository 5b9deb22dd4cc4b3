from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cimtool.bundle.bundle import Bundle, read_bundle
from cimtool.ir.arithmetic import Arrange, scalar
from cimtool.ir.heads.pcme_poly import PcmePoly
from cimtool.ir.integer import Quantize, Requant
from cimtool.ir.program import Builder
from cimtool.ir.surrogate import FittedRange, Polynomial
from cimtool.ir.types import real as real_type
from cimtool.loading.embeddings import Embeddings, embeddings_of, unit_rows
from cimtool.simulation.simulator import Simulator
from cimtool.verification.answers import saturation_sentences
from cimtool.verification.report import Report
from cimtool.verification.run import verify_bundle
from cimtool.verification.saturation import (
    ClippedRows,
    Domain,
    clipped_count,
    clipped_rows,
    lost_shares,
    score_and_domains,
    stored_values,
)
from cimtool.verification.stages import encode

from .conftest import POLYNOMIAL, D, MakeBundle, pairs, two_branch

LIMITED = {"ed": "ed", "vd": "vd"}


def lowered(bundle: Bundle) -> Simulator:
    return Simulator(next(s.program for s in bundle.stages if s.name == "lowered"))


def test_pairs_outside_the_domain_are_counted(bundle: Bundle) -> None:
    wide = pairs(9, seed=5)
    wide["text"][0] *= 40  # one text far from all videos, its right one too
    data = embeddings_of(wide)
    simulator = lowered(bundle)
    features = encode(simulator, data)
    scores, (ed, vd) = score_and_domains(simulator, "lowered", features, data.truth, LIMITED)
    parts = [v["ed"] for _, v in simulator.iter_score(*features.values(), ["ed"])]
    values = np.concatenate(parts)
    outside = (values < ed.lo) | (values > ed.hi)
    np.testing.assert_array_equal(scores, simulator.score(*features.values()))
    assert (ed.statistic, vd.statistic) == ("ed", "vd")
    assert outside[0].all()
    assert ed.outside == outside.mean()
    assert ed.right_outside == np.count_nonzero(np.diag(outside)) >= 1
    assert (ed.seen_lo, ed.seen_hi) == (pytest.approx(values.min()), pytest.approx(values.max()))


def test_the_compiled_program_has_the_same_domain(bundle: Bundle, data: Embeddings) -> None:
    found = []
    for simulator in (lowered(bundle), Simulator(bundle.program)):
        found.append(
            score_and_domains(simulator, "any", encode(simulator, data), data.truth, LIMITED)[1]
        )
    for real, integer in zip(*found, strict=True):
        span = real.hi - real.lo
        for end in ("lo", "hi"):
            assert getattr(integer, end) == pytest.approx(getattr(real, end), abs=1e-4 * span)
        for end in ("seen_lo", "seen_hi"):
            assert getattr(integer, end) == pytest.approx(getattr(real, end), abs=0.05 * span)


def test_a_right_pair_that_saturates_is_a_warning() -> None:
    assert Domain("lowered", "ed", 0, 1, -1, 2, 0.5, 0, 10).warning() is None
    warning = Domain("lowered", "ed", 0, 1, -1, 2, 0.5, 3, 10).warning()
    assert warning is not None
    assert "lowered: 3 of 10 right pairs have ed outside [0, 1]" in warning


@pytest.mark.thorough("a bundle more")
def test_the_domain_that_is_reported_is_that_of_the_fit_as_well(
    make_bundle: MakeBundle, bundle: Bundle, data: Embeddings
) -> None:
    """A polynomial that was fitted on the nearer half of the pairs is a guess on the others."""
    nothing = "no pair is outside the domain of the compiled score"
    known = (
        ("narrow", FittedRange((0.0, 60.0), (0.0, 1e6))),
        ("wide", FittedRange((-1e6, 1e6), (-1e6, 1e6))),
    )
    narrow, wide = (
        verify_bundle(make_bundle(name, replace(POLYNOMIAL, domain=domain)), data)
        for name, domain in known
    )
    ed, vd, *_ = narrow.saturation.domains
    assert (ed.stage, ed.statistic, ed.lo, ed.hi, ed.fitted) == ("polynomial", "ed", 0, 60, True)
    # The bundle keeps what its polynomial's file said; ed is that of the trained program.
    simulator = Simulator(bundle.stages[0].program)
    features = encode(simulator, data)
    blocks = [v["ed"] for _, v in simulator.iter_score(*features.values(), ["ed"])]
    values = np.concatenate(blocks)
    assert 0 < ed.outside == np.mean((values < 0) | (values > 60)) < 1
    assert vd.outside == 0
    said = saturation_sentences(narrow)
    assert not any(nothing in one for one in said)
    assert (
        f"polynomial: ed in [0, 60], the range it was fitted on: {ed.outside:.3%} of the pairs are "
        "outside and extrapolated, "
    ) in said[0]
    assert saturation_sentences(wide)[0] == f"{nothing} or the range that it was fitted on"
    unknown = verify_bundle(bundle, data)
    assert not unknown.saturation.fit_known
    assert saturation_sentences(unknown)[-1] == (
        "the range of ed and vd that the polynomial was fitted on is not known: its file does not "
        "say"
    )


def test_pairs_beside_the_band_of_the_fit_are_outside_of_it(
    make_bundle: MakeBundle, bundle: Bundle, data: Embeddings
) -> None:
    """The rectangle of ed and vd holds all pairs; the band around a line, on which it was fitted,
    does not."""
    simulator = Simulator(bundle.stages[0].program)
    features = encode(simulator, data)
    parts = [(v["ed"], v["vd"]) for _, v in simulator.iter_score(*features.values(), ["ed", "vd"])]
    eds, vds = (np.concatenate(values) for values in zip(*parts, strict=True))
    beside = vds - (1.0 + 0.5 * eds)
    low, high = map(float, np.quantile(beside, [0.25, 1.0]))
    wide = (-1e6, 1e6)
    fitted = FittedRange(wide, wide, (1.0, 0.5), (low, high + 1.0))
    made = make_bundle("banded", replace(POLYNOMIAL, domain=fitted))
    head = read_bundle(made.folder).model.head
    assert isinstance(head, PcmePoly)
    assert head.polynomial.domain == fitted
    report = verify_bundle(made, data)
    ed, band = (one for one in report.saturation.domains if one.fitted)
    assert ed.outside == 0
    assert band.statistic == "vd_beside_line"
    assert band.outside == np.mean(beside < low)
    assert 0.2 < band.outside < 0.3
    assert "polynomial: vd_beside_line in [" in saturation_sentences(report)[0]


def test_a_right_pair_outside_the_fit_is_a_warning() -> None:
    warning = Domain("polynomial", "ed", 0, 1, -1, 2, 0.5, 3, 10, fitted=True).warning()
    assert warning is not None
    assert "have ed outside [0, 1], the range it was fitted on, and are extrapolated" in warning
    assert "saturate" not in warning


def test_a_layout_that_divides_the_statistics_divides_the_range_of_the_fit(
    make_bundle: MakeBundle,
) -> None:
    own = FittedRange((1.0, 2.0), (3.0, 4.0), (5.0, -6.0), (-7.0, 8.0))
    rows = {name: unit_rows(x) for name, x in pairs(64, D).items()}
    made = make_bundle("divided", replace(POLYNOMIAL, domain=own), two_branch, calibration=rows)
    head = made.model.head
    assert isinstance(head, PcmePoly)
    square = D**2
    assert head.polynomial.domain == FittedRange(
        (D, 2.0 * D),
        (3.0 * square, 4.0 * square),
        (5.0 * square, -6.0 * D),
        (-7.0 * square, 8.0 * square),
    )
    assert read_bundle(made.folder).model.head == head


def test_clipped_elements_are_counted() -> None:
    rows = np.float32([[0.25, 9.0, -9.0, 1.0]])
    assert np.divide(*clipped_count(Quantize(scalar(0.25), -7, 7), rows)) == 0.5
    one, two = np.array(2**15), np.array(16)  # divides by two
    values = np.array([[-20, 6, 16, 40]])
    signed = Requant(one, two, -8, 7, scalar(1.0))
    unsigned = Requant(one, two, 0, 7, scalar(1.0))
    assert np.divide(*clipped_count(signed, values)) == 0.75
    assert np.divide(*clipped_count(unsigned, values)) == 0.5  # what ReLU cuts is not clipped


def test_every_stored_value_is_listed(bundle: Bundle, data: Embeddings) -> None:
    found = stored_values(lowered(bundle).program, Simulator(bundle.program), data)
    assert {(one.value, one.role) for one in found} >= {
        ("text.x.stored", "input"),
        ("video.relu1.stored", "activation"),
        ("text.mu_stored", "mu"),
    }
    assert all(0 <= one.clipped < 0.1 for one in found)
    far = embeddings_of({name: 100 * rows for name, rows in pairs(8).items()})
    worst = stored_values(lowered(bundle).program, Simulator(bundle.program), far)
    assert max(one.clipped for one in worst) > 0.5


def test_a_statistic_that_the_polynomial_does_not_use_has_no_domain(
    make_bundle: MakeBundle, data: Embeddings
) -> None:
    simulator = lowered(make_bundle("ed-only", Polynomial(1, (-0.1, 0.0), 0.0, a=0.1, b=0.0)))
    features = encode(simulator, data)
    _, found = score_and_domains(simulator, "lowered", features, data.truth, LIMITED)
    assert [domain.statistic for domain in found] == ["ed"]


def test_the_pair_furthest_outside_is_named(bundle: Bundle) -> None:
    wide = pairs(9, seed=5)
    wide["text"][4] *= 40
    data = embeddings_of(wide)
    simulator = lowered(bundle)
    _, (ed, *_) = score_and_domains(
        simulator, "lowered", encode(simulator, data), data.truth, LIMITED
    )
    features = encode(simulator, data).values()
    values = np.concatenate([v["ed"] for _, v in simulator.iter_score(*features, ["ed"])])
    place = np.unravel_index(np.maximum(ed.lo - values, values - ed.hi).argmax(), values.shape)
    assert ed.furthest == tuple(map(int, place))
    assert ed.furthest[0] == 4
    assert f"rows 4 and {ed.furthest[1]} are furthest outside" in ed.sentence()
    inside = embeddings_of(pairs(9, seed=5))
    _, (ed, *_) = score_and_domains(
        simulator, "lowered", encode(simulator, inside), inside.truth, LIMITED
    )
    assert (ed.outside, ed.furthest) == (0, None)


def test_the_share_of_a_row_that_its_limits_take_off() -> None:
    builder = Builder("text", {"x": real_type(("n", 3))})
    graph = builder.graph({"x": builder.add("stored", Quantize(scalar(0.5), -4, 4), "x")})
    rows = np.float32([[2, -2, 1], [2.25, 0, 0], [4, 0, 0], [0, -5, 4], [0, 0, 0]])
    # 2.25 rounds to the limit 2.
    expected = [0, 0, 4 / 16, (9 + 4) / 41, 0]
    np.testing.assert_allclose(lost_shares(graph, rows), expected)


@pytest.mark.parametrize("limits", [(4, 100), (100, 4)])
def test_of_several_stores_of_a_row_the_one_that_loses_most_counts(limits: tuple[int, int]) -> None:
    builder = Builder("text", {"x": real_type(("n", 3))})
    stored = {
        f"stored {limit}": builder.add(f"stored {limit}", Quantize(scalar(0.5), -limit, limit), "x")
        for limit in limits
    }
    shares = lost_shares(builder.graph(stored), np.float32([[2, -2, 1], [4, 0, 0]]))
    np.testing.assert_allclose(shares, [0, 4 / 16])


def test_a_row_of_tokens_loses_what_its_worst_token_does() -> None:
    builder = Builder("text", {"x": real_type(("n", 4))})
    tokens = builder.add("tokens", Arrange(1, np.arange(4).reshape(2, 2)), "x")
    graph = builder.graph({"x": builder.add("stored", Quantize(scalar(0.5), -4, 4), tokens)})
    rows = np.float32([[2, -2, 1, 0], [1, 0, 0, 4]])
    np.testing.assert_allclose(lost_shares(graph, rows), [0, 4 / 16])


def test_rows_whose_input_clips_are_counted_and_the_worst_is_named(bundle: Bundle) -> None:
    rows = pairs(20, seed=3)
    text, video = clipped_rows(bundle.program, embeddings_of(rows))
    assert (text.of, text.large, video.of, video.large) == (20, 0, 20, 0)
    rows["video"][[3, 7]] *= [[6], [12]]
    found = clipped_rows(bundle.program, embeddings_of(rows))
    assert found[0] == text
    (_, video) = found
    assert (video.rows, video.worst, video.large) == (2, 7, 2)
    assert 0.2 < video.lost < 1
    said = video.sentence("image")
    assert said == (
        "image: the input of 2 of 20 rows clips, most of row 7, which loses "
        f"{video.lost:.2%} of its squared norm"
    )
    warning = video.warning("image")
    assert warning is not None
    assert "2 lose 1% or more, and their scores are wrong" in warning


def test_a_row_that_clips_is_in_the_report(bundle: Bundle, report: Report) -> None:
    assert all(one.warning(one.modality) is None for one in report.saturation.clipped_rows)
    rows = pairs(20, seed=3)
    rows["text"][5] *= 9
    said = verify_bundle(bundle, embeddings_of(rows))
    (sentence,) = (one for one in saturation_sentences(said) if "input of" in one)
    assert sentence.startswith("text: the input of 1 of 20 rows clips, most of row 5")
    assert any(one.startswith(sentence) for one in said.warnings)
    assert said.to_json()["clipped_rows"][0]["worst"] == 5


def test_a_small_loss_is_no_warning() -> None:
    found = ClippedRows("text", 3, 100, 7, 0.009, 0)
    assert found.warning("text") is None
    assert ClippedRows("text", 0, 100, None, 0.0, 0).sentence("text").endswith("100 rows clips")
