from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from cimtool import api
from cimtool.api import read_data
from cimtool.base.arrays import Array
from cimtool.base.errors import CheckFailed, CimError
from cimtool.bundle.bundle import IN_MEMORY, Bundle, read_bundle
from cimtool.bundle.dies import NoiseOptions
from cimtool.emit.runtime import Session
from cimtool.ir.surrogate import Polynomial
from cimtool.loading.embeddings import Embeddings, embeddings_of, read_embeddings, unit_rows
from cimtool.reference.limits import LIMITS, UNRANKED_LIMITS
from cimtool.reference.measures import RANKINGS
from cimtool.reference.truth import all_equal
from cimtool.report.document import sentences
from cimtool.report.html import html
from cimtool.report.terminal import terminal
from cimtool.verification import api as verification_api
from cimtool.verification.notes import NOT_CHECKED
from cimtool.verification.options import DriftOptions
from cimtool.verification.references import References
from cimtool.verification.report import Report, VerificationFailed
from cimtool.verification.run import verify_bundle
from cimtool.verification.tables import survival_table

from .conftest import (
    POLYNOMIAL,
    D,
    MakeBundle,
    many_texts,
    pairs,
    rewritten,
    trunk,
    two_branch,
)

STAGES = (
    "exact",
    "Monte Carlo (K=10)",
    "raw embeddings",
    "raw rows, int8",
    "-ed",
    "polynomial",
    "float.onnx",
    "folded",
    "lowered",
    "quantized",
    "tiled",
    "converters fitted",
    "ONNX Runtime",
)
CORRECTED = {"target": "isaac-rram-128", "weight_bits": 2}
"""Settings with which the mean error of ed is taken off."""

FLICKR = (
    Path(__file__).resolve().parents[2] / "../shared/data/flickr8k_clip_vitb32_100img_500cap.npz"
)


def test_distances_that_are_corrected_have_a_stage_a_row_and_a_note(
    make_bundle: MakeBundle, data: Embeddings
) -> None:
    bundle = make_bundle("corrected", **CORRECTED)
    *_, before, after = bundle.stages
    assert (before.name, after.name) == ("converters fitted", "distances corrected")
    assert after.program is bundle.program
    (note,) = (one for one in bundle.manifest["notes"] if "the mean error of rounding" in one)
    assert " in ed " in note
    report = verify_bundle(bundle, data)
    assert sum(count.differing for count in report.checks.bits) == 0
    rows = {row.stage: row for row in report.drift.rows}
    assert list(rows)[-3:] == [before.name, after.name, "ONNX Runtime"]
    errors = [rows[stage.name].get("float_rmse") for stage in (before, after)]
    assert errors[1] < 0.95 * errors[0]
    off = make_bundle("not-corrected", **CORRECTED, bias_correction=False)
    assert off.stages[-1].name == "converters fitted"


def test_a_variance_that_is_the_same_for_all_items_moves_no_score_in_few_bits(
    make_bundle: MakeBundle, tmp_path: Path
) -> None:
    """It is off by the same for all items, and so is vd, in arrays and files to the last bit."""

    def module() -> torch.nn.Module:
        made = two_branch()
        torch.nn.init.zeros_(made.logvar_proj[3].weight)
        torch.nn.init.constant_(made.logvar_proj[3].bias, -1.3)
        return made

    steep = Polynomial(2, (-5.0, 5.0, 0.0, 0.0, 0.0), 0.05, a=5.0, b=2.0)
    bits = {"variance_bits": 3, "feature_bits": 12, "target": "isaac-rram-128"}
    made = partial(
        make_bundle, polynomial=steep, module=module, calibration=many_texts(32, 2, D), **bits
    )
    bundle = made("one-variance")
    (note,) = (one for one in bundle.manifest["notes"] if "the mean error of rounding" in one)
    assert " in vd takes off " in note
    report = verify_bundle(bundle, embeddings_of(many_texts(24, 2, D, seed=5)))
    assert sum(count.differing for count in report.checks.bits) == 0
    before, after = (row.get("float_rmse") for row in report.drift.rows[-3:-1])
    assert after < 0.7 * before
    mapped = made("one-variance-memory", score_mapping="in-memory", accumulator_bits=48)
    items = many_texts(20, 1, D, seed=6)
    found = api.program(mapped.folder, items, output=tmp_path / "programmed")
    assert found.accuracy.logit_rmse == 0


def test_a_gallery_in_the_arrays_keeps_the_constant_of_ed(
    make_bundle: MakeBundle, tmp_path: Path
) -> None:
    bundle = make_bundle("corrected-memory", **CORRECTED, score_mapping="in-memory")
    assert bundle.stages[-1].name == "distances corrected"
    found = api.program(bundle.folder, pairs(20, seed=3), output=tmp_path / "programmed")
    names = [stage.name for stage in read_bundle(found.bundle.folder).stages]
    assert names[-2:] == ["distances corrected", IN_MEMORY]
    assert found.accuracy.logit_rmse == 0


def test_one_row_a_stage_and_no_bit_differs(bundle: Bundle, data: Embeddings) -> None:
    report = verify_bundle(bundle, data)
    assert tuple(row.stage for row in report.drift.rows) == STAGES
    assert sum(count.differing for count in report.checks.bits) == 0
    # mu and s, both self terms and 40 x 40 logits of all rows, then of 32 rows.
    rows = [2 * (2 * n * D + 2 * n) + n * n for n in (40, 32)]
    assert sum(count.compared for count in report.checks.bits) == sum(rows)
    by_name = {row.stage: row for row in report.drift.rows}
    assert by_name["folded"].get("step_rmse") == pytest.approx(0, abs=1e-5)
    assert 0.01 < (by_name["quantized"].get("step_rmse") or 0) < 0.3
    assert by_name["ONNX Runtime"].get("step_rmse") == 0
    # The file of real numbers is near the float score, and no step to the next row.
    assert by_name["float.onnx"].get("step_rmse") is None
    assert 0 < (by_name["float.onnx"].get("float_rmse") or 0) < 1e-4
    assert "float.onnx" not in [row.stage for row in report.drift.compiled_rows]
    # This polynomial is made up, and costs more than rounding; sampling would not tell.
    assert report.headline.cause == "polynomial"
    assert report.headline.float_centred_rmse < (report.headline.surrogate_centred_rmse or 0)
    assert report.drift.scatter is not None
    assert report.drift.scatter.rmse is not None
    ratio = report.drift.scatter.rmse / report.drift.final.metrics["logit_rmse"]
    assert report.headline.equal_samples == pytest.approx(10 * ratio**2)
    centred = report.drift.scatter.centred_error / report.drift.final.metrics["centred_rmse"]
    assert report.headline.equal_samples_centred == pytest.approx(10 * centred**2)
    assert report.drift.final.metrics["r1_text_to_video"] > 0.8
    assert set(report.checks.metrics) == set(LIMITS)
    assert any("only 40 texts" in note for note in report.notes)
    assert not report.failures


@pytest.mark.thorough("a bundle more")
def test_converters_that_clip_are_the_cause(make_bundle: MakeBundle, data: Embeddings) -> None:
    coarse = make_bundle("coarse", target="isaac-rram-128", adc_bits=2)
    report = verify_bundle(coarse, data)
    assert report.headline.cause == "converters fitted"
    assert report.headline.cause_before == "tiled"
    assert sum(count.differing for count in report.checks.bits) == 0


@pytest.mark.thorough("more of the same kind")
def test_more_samples_scatter_less(bundle: Bundle, data: Embeddings) -> None:
    few, many = (verify_bundle(bundle, data, References("mc", k)) for k in (5, 80))
    assert many.drift.reference == "Monte Carlo (K=80)"
    assert many.drift.rows[0].stage == many.drift.reference
    assert few.drift.scatter is not None
    assert many.drift.scatter is not None
    assert many.drift.scatter.standard_error < few.drift.scatter.standard_error / 2
    assert many.drift.scatter.rmse is None
    assert few.headline.cause == "quantized"
    # However little so many samples scatter: that is no fault of the polynomial.
    assert (many.headline.cause, many.headline.surrogate_broken) == ("quantized", False)


@pytest.mark.thorough("more of the same kind")
def test_monte_carlo_is_as_far_from_the_exact_score_as_its_standard_error_says(
    bundle: Bundle, data: Embeddings
) -> None:
    report = verify_bundle(bundle, data)
    scatter = report.drift.scatter
    assert scatter is not None
    assert scatter.floor is not None
    assert scatter.rmse == pytest.approx(scatter.standard_error, rel=0.3)
    assert scatter.floor.rmse == pytest.approx(scatter.rmse, rel=0.3)
    sampled = report.drift.rows[1].metrics
    assert sampled["logit_rmse"] == pytest.approx(scatter.rmse)
    assert sampled["centred_rmse"] == pytest.approx(scatter.centred_error)
    assert scatter.centred_error < scatter.rmse
    assert scatter.floor.centred_rmse == pytest.approx(scatter.centred_error, rel=0.3)
    assert sampled["top1_agreement"] == scatter.top1_agreement
    # Without the exact score it is what seeds differ by.
    alone = verify_bundle(bundle, data, References("mc")).drift.scatter
    assert alone is not None
    assert alone.centred_error == pytest.approx(scatter.centred_error, rel=0.3)


def test_metrics_have_intervals_and_losses(bundle: Bundle, data: Embeddings) -> None:
    report = verify_bundle(bundle, data)
    compiled = report.drift.final
    interval = compiled.intervals["logit_rmse"]
    assert interval.low <= compiled.metrics["logit_rmse"] <= interval.high
    assert compiled.intervals["spearman"].low < compiled.intervals["spearman"].high
    assert report.headline.r1_loss == compiled.losses["r1_loss"]
    assert report.checks.metrics["r1_loss"] == compiled.losses["r1_loss"].value
    assert report.drift.rows[0].losses["r1_loss"].value == 0


def test_rows_that_calibrated_are_refused_unless_asked(bundle: Bundle) -> None:
    seen = embeddings_of(pairs(64), "calibration")
    with pytest.raises(CimError, match=r"expected unseen rows, calibration_rows drop or allow"):
        verify_bundle(bundle, seen, say=pytest.fail)
    allowed = DriftOptions(calibration_rows="allow")
    assert verify_bundle(bundle, seen, options=allowed).subject.data.texts == 64


def test_without_a_and_b_drift_is_against_the_polynomial(
    make_bundle: MakeBundle, data: Embeddings
) -> None:
    report = verify_bundle(make_bundle("unknown", replace(POLYNOMIAL, a=None, b=None)), data)
    assert [row.stage for row in report.drift.rows[:2]] == ["exact", "Monte Carlo (K=10)"]
    unknown, polynomial = report.drift.rows[1:3]
    assert unknown.metrics == {}
    assert "logit_rmse" not in polynomial.metrics
    assert report.drift.reference == "polynomial"
    assert report.checks.metrics["logit_rmse"] == report.drift.final.get("float_rmse")
    assert any("a and b are not known" in note for note in report.notes)


@pytest.mark.thorough("a bundle more")
def test_a_polynomial_of_p_is_compared_with_p(make_bundle: MakeBundle, data: Embeddings) -> None:
    # p at the right pairs' distances, straight down to nothing where the wrong ones are.
    straight = replace(POLYNOMIAL, coeff=(-0.002, 0.0, 0.0, 0.0, 0.0), bias=0.3, fit_logit=False)
    report = verify_bundle(make_bundle("probability", straight), data)
    assert report.drift.score == "score"
    surrogate = report.drift.compiled_rows[0]
    assert surrogate.metrics["max_abs"] < 2
    assert surrogate.metrics["spread"] < 0.5
    assert report.drift.scatter is not None
    assert report.drift.scatter.standard_error < 0.25


@pytest.mark.thorough("a bundle more")
def test_a_constant_polynomial_is_a_warning(make_bundle: MakeBundle, data: Embeddings) -> None:
    constant = replace(POLYNOMIAL, coeff=(0.0,) * 5)
    report = verify_bundle(make_bundle("constant", constant), data)
    assert any("the polynomial is constant" in note for note in report.notes)
    assert any("before any hardware" in note for note in report.notes)
    assert report.headline.cause == "polynomial"
    assert report.headline.float_rmse < 1e-6
    assert report.causes.advice == (
        "fit another polynomial: no hardware setting improves the surrogate",
    )
    assert report.drift.final.metrics["r1_text_to_video"] == 0


RIDGE_ON_RAW_FEATURES = Polynomial(
    4,
    (
        *(-5.195072490485673e-11, 4.5504731031854026e-05, 0.00014349894615878683),
        *(-2.4894222428989516e-05, -3.8572662515263884e-05, -5.2473654698425834e-05),
        *(-0.011295228165391849, 4.208911867357434e-05, -4.055952226433102e-08),
        *(-0.000771735214990534, 1.5154049135082676e-05, -6.340469649656711e-08),
        *(9.910320874514173e-11, -5.252277179259606e-14),
    ),
    771792600.6328906,
    a=0.001,
    b=0.0,
    K=10,
)
"""Degree 4 on raw monomials of ed and vd, as the seed's code fits them by `Ridge(alpha=1.0)`.

They are collinear where ed varies by under 1%: the rounding of a BLAS decides their shares. These
are those of one; another's rank the right pairs first by chance.
"""


@pytest.mark.thorough("a bundle more")
def test_a_fit_on_raw_features_is_blamed_on_the_surrogate(make_bundle: MakeBundle) -> None:
    def wide() -> torch.nn.Module:
        module = trunk()
        torch.nn.init.zeros_(module.logvar.weight)
        torch.nn.init.constant_(module.logvar.bias, np.log(100.0))
        return module

    made = make_bundle("raw-features", RIDGE_ON_RAW_FEATURES, wide, target="isaac-rram-128")
    report = verify_bundle(made, embeddings_of(pairs(240, seed=7)))
    assert report.headline.surrogate_broken
    assert (report.headline.cause, report.headline.cause_before) == ("polynomial", "exact")
    assert any("The surrogate is BROKEN" in sentence for sentence in report.headline.sentences)
    assert any("terms are large and cancel" in note for note in report.notes)
    assert report.drift.compiled_rows[0].losses["r1_loss"].is_real
    assert report.causes.advice[0].startswith("fit another polynomial")


@pytest.mark.thorough("a bundle more")
def test_a_fit_to_clipped_labels_costs_in_its_own_row_alone(
    make_bundle: MakeBundle, data: Embeddings
) -> None:
    """A surrogate that is flat where the pairs are: nothing is left for the compiler to lose."""
    flat = replace(POLYNOMIAL, coeff=(-0.001, 0.0, 0.0, 0.0, 0.0), bias=-1.0)
    report = verify_bundle(make_bundle("flat", flat), data)
    by_name = {row.stage: row for row in report.drift.rows}
    surrogate = by_name["polynomial"].metrics
    later = [row.get("step_rmse") or 0.0 for row in report.drift.compiled_rows[1:]]
    assert max(later) < 0.01 * surrogate["logit_rmse"]
    assert report.headline.cause == "polynomial"
    # It has 1% of the exact score's slope, and the same order.
    assert report.drift.final.metrics["top1_agreement"] == 1
    assert not report.headline.surrogate_broken
    assert any("the polynomial itself is " in note for note in report.notes)


@pytest.mark.thorough("more of the same kind")
def test_a_two_branch_polynomial_of_raw_statistics_gets_a_hint(make_bundle: MakeBundle) -> None:
    raw = Polynomial(2, (-0.1, 0.005, 0.0, 0.0, 0.0), 0.0, a=0.1, b=0.0, K=10)
    own = replace(raw, scale_ed=1 / D, scale_vd=1 / D**2)
    rows = {name: unit_rows(x) for name, x in pairs(64, D).items()}
    said = f"layout two-branch: the polynomial takes ed/{D} and vd/{D**2}, "
    for polynomial, wrong in ((raw, True), (own, False)):
        made = make_bundle(f"statistics-{wrong}", polynomial, two_branch, calibration=rows)
        assert any(note.startswith(said) for note in made.manifest["notes"])
        report = verify_bundle(made, read_data(pairs(240, D, seed=7), made.model))
        assert not report.headline.surrogate_broken, "it ranks as well, 1.7 too high"
        assert any("off on average (bias)" in one for one in report.headline.sentences) == wrong
        assert any(f"warning: {said}" in note for note in report.notes) == wrong


def offset(by: float) -> Polynomial:
    return replace(POLYNOMIAL, bias=POLYNOMIAL.bias + by)


@pytest.mark.thorough("more of the same kind")
def test_an_offset_of_all_scores_is_bias_and_no_verdict(
    make_bundle: MakeBundle, bundle: Bundle, data: Embeddings
) -> None:
    own, off = (verify_bundle(one, data) for one in (bundle, make_bundle("offset", offset(25.0))))
    assert not off.headline.surrogate_broken
    assert not any("BROKEN" in sentence for sentence in off.headline.sentences)
    assert any("off on average (bias)" in one for one in off.headline.sentences)
    for row, other in zip(own.drift.compiled_rows, off.drift.compiled_rows, strict=True):
        centred, shifted = (one.metrics["centred_rmse"] for one in (row, other))
        # Of the first the float score alone: more bits go to the offset of an integer score.
        tolerance = 1e-6 if row.stage == "polynomial" else 0.05
        assert shifted == pytest.approx(centred, rel=tolerance)
        assert other.metrics["bias"] - row.metrics["bias"] == pytest.approx(25, abs=0.05)
    assert off.drift.compiled_rows[0].metrics["logit_rmse"] > 24


@pytest.mark.thorough("a bundle more")
def test_a_closed_form_is_a_score_of_its_own(make_bundle: MakeBundle, data: Embeddings) -> None:
    made = make_bundle("closed", None, head="csd", a=0.1, b=5.0)
    report = verify_bundle(
        made, data, options=DriftOptions(max_drift={"centred_rmse": 1.0, "logit_rmse": 1.0})
    )
    assert not report.failures
    with pytest.raises(
        VerificationFailed, match=r"^centred_rmse is 0\.\d+ .*; the limit is 1e-06$"
    ):
        verify_bundle(made, data, options=DriftOptions(max_drift={"centred_rmse": 1e-6}))
    assert report.drift.reference == "csd"
    assert report.drift.scatter is None
    assert not report.headline.surrogate_broken
    assert report.headline.cause == "quantized"
    said = [*report.headline.sentences, *report.causes.advice, *report.notes]
    assert not any("BROKEN" in one or "fit a" in one or "NOT CHECKED" in one for one in said)
    by_name = {row.stage: row for row in report.drift.rows}
    # The matching probability beside it: what a mean of sigmoids is off the sigmoid of the mean.
    probability = by_name["exact"].metrics
    assert probability["logit_rmse"] > probability["centred_rmse"] > 0
    assert "step_rmse" not in probability
    assert "Monte Carlo (K=10)" in by_name
    assert "exact" in [row.stage for row in report.drift.survivors]
    assert "logit_rmse" not in by_name["csd"].metrics
    assert by_name["quantized"].metrics["logit_rmse"] == by_name["quantized"].metrics["float_rmse"]


def test_rows_that_are_all_the_same_are_not_blamed_on_the_polynomial(bundle: Bundle) -> None:
    same = {name: np.repeat(x, 40, axis=0) for name, x in pairs(1, seed=7).items()}
    report = verify_bundle(bundle, embeddings_of(same, "same.npz"))
    alike = "same.npz: all pairs have the same ed and vd"
    assert report.notes[0] == f"warning: {alike}, so every pair gets the same score"
    assert report.causes.advice == (f"measure on other data: {alike}",)
    assert not any("fit another" in note for note in report.notes)


def test_rows_that_overflow_are_refused_by_file(bundle: Bundle) -> None:
    rows = pairs(40, seed=7)
    huge = embeddings_of({name: 1e6 * x for name, x in rows.items()}, "huge.npz")
    with pytest.raises(CimError, match=r"^huge\.npz: text rows are too large: s is beyond float64"):
        verify_bundle(bundle, huge)


@pytest.mark.thorough("a bundle more")
def test_compiled_scores_that_areall_equal_are_a_warning(bundle: Bundle, data: Embeddings) -> None:
    same = np.repeat(data.text[:1], len(data.text), axis=0)
    report = verify_bundle(bundle, replace(data, text=same))
    assert not any("the polynomial is constant" in note for note in report.notes)
    said = "warning: the compiled scores are all equal within 100.0% of the queries (videos), so"
    assert any(note.startswith(said) for note in report.notes)
    one = replace(data, text=same, video=np.repeat(data.video[:1], len(data.video), axis=0))
    notes = verify_bundle(bundle, one).notes
    assert any("every pair gets the same score" in note for note in notes)


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        (np.ones((3, 2)), "every pair gets the same score"),
        (np.ones((3, 1)), "every pair gets the same score"),
        (np.array([[1.0, 1], [2, 2], [3, 4]]), r"equal within 66\.7% of the queries \(texts\)"),
        (np.array([[1.0, 2, 3], [1, 2, 4]]), r"equal within 66\.7% of the queries \(videos\)"),
    ],
)
def test_what_ranks_nothing(scores: np.ndarray, said: str) -> None:
    (sentence,) = all_equal(scores)
    assert re.search(said, sentence)


@pytest.mark.parametrize("scores", [[[1.0]], [[1.0], [2.0]], [[1.0, 1.0], [2.0, 3.0]]])
def test_what_ranks_something(scores: list[list[float]]) -> None:
    assert all_equal(np.array(scores)) == []


def test_a_limit_that_is_exceeded_fails_after_the_report_is_written(
    bundle: Bundle, data: Embeddings, tmp_path: Path
) -> None:
    with pytest.raises(
        VerificationFailed, match=r"^logit_rmse is 0\.\d+ \(0\.\d+ to 0\.\d+\); the limit is 1e-06$"
    ) as e:
        verify_bundle(
            bundle,
            data,
            options=DriftOptions(max_drift={"logit_rmse": 1e-6, "r1_loss": 1}),
            folder=tmp_path,
        )
    assert (e.value.exit_status, isinstance(e.value, CheckFailed)) == (1, True)
    written = json.loads((tmp_path / "report.json").read_text())
    assert [limit["kept"] for limit in written["limits"]] == [False, True]
    assert written["passed"] is False


def test_an_unknown_metric_is_refused_before_any_work(bundle: Bundle, data: Embeddings) -> None:
    with pytest.raises(CimError, match='did you mean "r10_loss"') as found:
        verify_bundle(bundle, data, options=DriftOptions(max_drift={"r10_los": 1}), say=pytest.fail)
    assert found.value.exit_status == 2


def test_a_bit_that_differs_fails(
    make_bundle: MakeBundle,
    bundle: Bundle,
    data: Embeddings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = make_bundle("other", weight_bits=7)
    changed = rewritten(bundle, tmp_path / "changed")
    (changed.folder / "video.onnx").write_bytes((other.folder / "video.onnx").read_bytes())
    with pytest.raises(
        CimError, match=r"video\.onnx: is not the file that cimtool writes for program"
    ):
        verify_bundle(changed, data)
    # An error of the emitter: the file is the program's own, and does not compute what it does.
    monkeypatch.setattr("cimtool.verification.bits.require_own_file", lambda file, graph: None)
    with pytest.raises(VerificationFailed, match=r"video.mu: \d+ of 400 values differ") as found:
        verify_bundle(changed, data)
    bits = found.value.report.checks.bits
    counts = {c.output: c for c in bits if c.implementation == "ONNX Runtime"}
    assert counts["text.mu"].differing == 0
    assert counts["video.mu"].first_index is not None
    assert counts["logit"].differing > 0


@pytest.mark.thorough("a bundle more")
def test_many_texts_to_one_video(make_bundle: MakeBundle) -> None:
    made = make_bundle("branches", module=two_branch, calibration=many_texts(20, 4, D, seed=2))
    data = read_data(many_texts(9, 5, D), made.model)
    report = verify_bundle(made, data)
    found = report.drift.final
    assert found.queries == {"text_to_video": 45, "video_to_text": 9}
    assert found.metrics["r1_text_to_video"] > 0.9
    assert any("only 9 videos" in note for note in report.notes)
    assert "logit_rmse" in report.drift.rows[-1].metrics


def test_labels_give_a_mean_precision(bundle: Bundle) -> None:
    rows = pairs(12, seed=8)
    labelled = embeddings_of(rows | {"labels": np.arange(12) % 3})
    report = verify_bundle(bundle, labelled)
    assert report.headline.class_loss == report.drift.final.losses["map_loss"]
    assert survival_table(report.drift).columns[1].heading.startswith("mAP")
    maps = [row.get("map_text_to_video") for row in report.drift.rows[1:]]
    assert all(0.3 < share <= 1 for share in maps if share is not None)
    assert maps[-1] is not None
    clash = {**rows, "text_to_video": np.zeros(12, np.int64), "labels": np.arange(12)}
    report = verify_bundle(bundle, embeddings_of(clash))
    assert not report.drift.by_class
    assert any("mAP and nDCG go by pairs" in note for note in report.notes)


@pytest.mark.thorough("a report of other rows; labels and texts are in the first tier")
def test_judgements_say_what_is_right(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, qrels = pairs(14, seed=8), tmp_path / "q.txt"
    rows["video"] = rows["video"][:12]  # and no text_to_video
    qrels.write_text("".join(f"{i} 0 {j} {1 + (i == j)}\n" for i in range(12) for j in (i, 11 - i)))
    report = api.verify(bundle.folder, rows, qrels=qrels, report=tmp_path, seed=1)
    assert any(f"{qrels} grades above 0, 24 pairs of 12 texts" in note for note in report.notes)
    found = report.drift.final
    assert found.queries == {"text_to_video": 12, "video_to_text": 12}
    (said,) = [note for note in report.notes if "answer AUROC" in note]
    assert said.startswith("2 texts have no right item: ")
    assert said.endswith("of the other 12 with theirs; below 200 it means little")
    best = api.simulate(bundle.folder, rows)["scores"].max(axis=1)
    higher = best[:12, None] > best[12:]
    assert found.metrics["answer_auroc_text_to_video"] == pytest.approx(higher.mean())
    score = api.evaluate(rows, bundle.folder, qrels=qrels, seed=1).scores[0]
    for name, value in score.metrics.items():
        assert value == found.metrics[name], name
        assert score.intervals[name] == found.intervals[name]
    assert report.headline.class_loss == found.losses["map_loss"]
    monkeypatch.setattr(verification_api, "compare_bundles", lambda bundles, data, *others: data)
    for one in api.compare([bundle.folder] * 2, rows, qrels=qrels):  # type: ignore[attr-defined]
        assert isinstance(one, Embeddings)
        assert one.judged is not None
        assert one.judged.file == str(qrels)


def test_one_text_and_one_video_are_refused(bundle: Bundle) -> None:
    with pytest.raises(CimError, match="text has 1 row; expected at least 2"):
        verify_bundle(bundle, embeddings_of(pairs(1, seed=9)), say=pytest.fail)


@pytest.mark.thorough("a report of the smallest data")
def test_two_texts_and_two_videos(bundle: Bundle) -> None:
    report = verify_bundle(bundle, embeddings_of(pairs(2, seed=9)))
    assert report.drift.final.metrics["r1_text_to_video"] == 1
    assert None not in [report.to_json()["metrics"][name] for name in LIMITS]
    assert "inf" not in terminal(report.document())
    assert not any("compiled scores" in note for note in report.notes)


@pytest.mark.thorough("more of the same kind")
@pytest.mark.skipif(not FLICKR.exists(), reason="the shared data is not here")
def test_five_hundred_captions_of_a_hundred_images(make_bundle: MakeBundle) -> None:
    from cimtool.training.models.two_branch import TwoBranchProjector

    def wide() -> torch.nn.Module:
        torch.manual_seed(0)
        return TwoBranchProjector(512, 32).eval()

    read = read_embeddings(FLICKR)
    rows = {"text": read.text, "video": read.video, "text_to_video": read.text_to_video}
    poly = replace(POLYNOMIAL, coeff=(-0.1, 0.0, 0.0, 0.0, 0.0), a=0.1)
    made = make_bundle("flickr", poly, wide, calibration=rows)
    report = verify_bundle(
        made,
        read_data(read, made.model),
        References("mc", 3),
        options=DriftOptions(calibration_rows="allow"),
    )
    assert (report.subject.data.texts, report.subject.data.videos) == (500, 100)
    assert sum(count.differing for count in report.checks.bits) == 0
    assert report.headline.float_top1 >= 0.9


def test_items_of_one_modality_are_ranked_without_themselves(bundle: Bundle) -> None:
    rng = np.random.default_rng(3)
    labels = np.arange(60) % 20
    rows = (rng.normal(size=(20, 12))[labels] + 0.6 * rng.normal(size=(60, 12))).astype(np.float32)
    data = embeddings_of({"rows": rows, "labels": labels})
    report = verify_bundle(bundle, data)
    row = report.drift.final
    assert 0.3 < row.metrics["r1_text_to_video"] < 1
    assert 0.3 < row.metrics["map_text_to_video"] < 1
    score, _ = api.evaluate({"rows": rows, "labels": labels}, bundle.folder).scores
    for way in ("text_to_video", "video_to_text"):
        for name in ("r1", "r5", "map"):
            assert score.metrics[f"{name}_{way}"] == row.metrics[f"{name}_{way}"]
    assert score.metrics["cosine_gap"] == row.metrics["cosine_gap"]
    assert any("does not find itself; the others" in note for note in report.notes)


@pytest.mark.thorough("reports of other rows; items with labels are in the first tier")
def test_items_without_labels_have_errors_and_no_ranks(bundle: Bundle, tmp_path: Path) -> None:
    data = embeddings_of({"rows": pairs(30, seed=4)["text"]}, "r.npz")
    report = verify_bundle(
        bundle, data, options=DriftOptions(max_drift={"logit_rmse": 9.0}), folder=tmp_path
    )
    assert report.drift.final.metrics["logit_rmse"] > 0
    assert tuple(report.checks.metrics) == UNRANKED_LIMITS
    assert any("so nothing is ranked" in note for note in report.notes)
    with pytest.raises(CimError, match=r"max_drift r1_loss: r\.npz holds items of one modality"):
        verify_bundle(bundle, data, options=DriftOptions(max_drift={"r1_loss": 0.5}))
    noisy = verify_bundle(
        bundle, data, options=DriftOptions(noise=NoiseOptions(trials=2, model="neurram"))
    )
    assert "The loss of R@1 is not known" in html(noisy.document())


def test_a_float_file_that_is_not_finite_fails(
    bundle: Bundle, data: Embeddings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def score_rows(self: Session, text: Array, video: Array, most: int) -> Array:
        logits = np.zeros((len(text), len(video)), np.float32)
        logits[0, :3] = (np.inf, np.nan, -np.inf)
        return logits

    monkeypatch.setattr(Session, "score_rows", score_rows)
    with pytest.raises(
        VerificationFailed, match=r"^float\.onnx: 3 of 1600 logits are not finite$"
    ) as found:
        verify_bundle(bundle, data, folder=tmp_path)
    report = found.value.report
    row = next(row for row in report.drift.rows if row.stage == "float.onnx")
    assert row.metrics == {}
    assert "not finite" in terminal(report.document(), verbose=True)
    assert report.drift.final.metrics["float_rmse"] < 1


def test_baselines_have_retrieval_alone(bundle: Bundle, data: Embeddings) -> None:
    report = verify_bundle(bundle, data)
    raw, distance = (row for row in report.drift.rows if row.stage in ("raw embeddings", "-ed"))
    (score,) = api.evaluate({"text": data.text, "video": data.video}).scores
    for row in (raw, distance):
        assert "r1_text_to_video" in row.metrics
        assert "logit_rmse" not in row.metrics
        assert row.losses["r1_loss"].low <= row.losses["r1_loss"].high
    assert "nll" in distance.metrics
    assert "nll" not in raw.metrics
    of_scores = [one for one in RANKINGS if one.of_means is None and not one.of_logit]
    for metric in of_scores:
        for key in metric.keys.values():
            assert raw.metrics[key] == score.metrics[key]
    # What projectors at random make of pairs that are nearly equal is worse than these are.
    first = report.headline.sentences[0]
    assert first.startswith("Raw embeddings retrieve ")
    assert "raw embeddings" in [row.stage for row in report.drift.survivors]


@pytest.mark.thorough("more of the same kind")
def test_a_broken_surrogate_is_told_without_a_and_b(
    make_bundle: MakeBundle, data: Embeddings, unknown_report: Report
) -> None:
    # Of two terms the larger ed, the better the score: the worst item of each query is first.
    broken = make_bundle("reversed", Polynomial(2, (0.1, 0.0, 0.0, 0.0, 0.0), 0.05))
    report = verify_bundle(broken, data)
    assert report.drift.scatter is None
    assert report.headline.surrogate_broken
    assert (report.headline.cause, report.headline.cause_before) == ("polynomial", None)
    assert any("against -ed, the plain distance" in note for note in report.notes)
    assert NOT_CHECKED in report.headline.sentences[:2]
    assert "improves the surrogate" in report.causes.advice[0]
    assert "BROKEN" in html(report.document())
    assert NOT_CHECKED in unknown_report.headline.sentences[:2]
    assert not unknown_report.headline.surrogate_broken


@pytest.mark.thorough("more of the same kind")
def test_no_limit_against_a_broken_surrogate_is_kept(
    make_bundle: MakeBundle, data: Embeddings
) -> None:
    broken = make_bundle("backwards", Polynomial(1, (0.1, 0.0), 0.05))
    with pytest.raises(VerificationFailed) as caught:
        verify_bundle(
            broken, data, options=DriftOptions(max_drift={"logit_rmse": 100.0, "r1_loss": 1.0})
        )
    sentence = str(caught.value)
    assert sentence.startswith("logit_rmse is ")
    assert "against a float score that is BROKEN, so no limit is kept" in sentence
    assert "itself loses" in sentence
    report = caught.value.report
    assert [limit["kept"] for limit in report.to_json()["limits"]] == [False, False]
    assert "NOT KEPT, against a broken float score: r1_loss" in terminal(
        report.document(), verbose=True
    )
    assert verify_bundle(broken, data).failures == (), "without limits nothing is held"
    # With a and b the limit is against the exact score, which tells by itself.
    known = make_bundle("known", Polynomial(1, (0.1, 0.0), 0.05, a=0.1, b=0.0))
    with pytest.raises(VerificationFailed, match=r"^r1_loss is .*; the limit is 0\.1$"):
        verify_bundle(
            known, data, options=DriftOptions(max_drift={"r1_loss": 0.1, "logit_rmse": 1e6})
        )


@pytest.mark.thorough("the verdict's own tests stand for it")
def test_distractors_are_items_that_are_right_for_no_text(
    bundle: Bundle, data: Embeddings, tmp_path: Path
) -> None:
    more = pairs(60, seed=9)
    verify = verification_api.verify
    alone = verify(bundle.folder, data, report=tmp_path / "alone")
    report = verify(bundle.folder, data, distractors=more, report=tmp_path / "more")
    assert (report.subject.data.texts, report.subject.data.videos) == (40, 100)
    worth, other = report.drift.worth, alone.drift.worth
    assert (worth.items, other.items) == (100, 40)
    assert worth.of_raw is not None
    assert other.of_raw is not None
    r1 = [one.drift.final.metrics["r1_text_to_video"] for one in (report, alone)]
    assert r1[0] <= r1[1]
    assert report.drift.final.queries == {"text_to_video": 40, "video_to_text": 40}
    with pytest.raises(CimError) as error:
        verify(bundle.folder, data, distractors=pairs(5, width=7), report=tmp_path / "bad")
    assert str(error.value) == "embeddings: video rows have 7 numbers; model expects 12"
    assert not (tmp_path / "bad").exists()


def test_a_larger_gallery_is_extrapolated_to_and_a_smaller_one_refused(
    bundle: Bundle, data: Embeddings
) -> None:
    report = verify_bundle(bundle, data, options=DriftOptions(gallery=4000))
    larger = report.drift.worth.larger
    assert larger is not None
    assert larger.gain is not None
    assert larger.compiled.value <= report.drift.final.metrics["r1_text_to_video"] + larger.missed
    assert larger.sentence in sentences(report.document().blocks)
    assert "among 4,000 items" in terminal(report.document())
    with pytest.raises(CimError, match="gallery is 30; expected at least 40, the number of videos"):
        verify_bundle(bundle, data, options=DriftOptions(gallery=30))
