from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from cimtool.base.arrays import FloatArray
from cimtool.base.errors import CimError
from cimtool.base.intervals import Change
from cimtool.base.modality_names import TEXT_VIDEO
from cimtool.reference.metrics import ReferenceScores, on_grid
from cimtool.reference.queries import Queries, compared
from cimtool.reference.retrieval import retrieved
from cimtool.reference.truth import Truth, truth_of
from cimtool.verification import drift as kept
from cimtool.verification.drift import KEPT, KeptQueries, KeptRun, kept_rows
from cimtool.verification.paired import (
    Comparison,
    EarlierRun,
    PairedFigure,
    ThisRun,
    compare_runs,
    require_alike,
)

N = 64
TRUTH = truth_of(np.arange(N), None, N)
SEEDS = range(100)


def scores(seed: int, noise: float = 0.6) -> tuple[FloatArray, FloatArray]:
    """The exact scores of pairs, and those of a build with errors."""
    rng = np.random.default_rng(seed)
    text = rng.normal(size=(N, 8))
    exact = text @ (text + 0.8 * rng.normal(size=text.shape)).T
    return exact, exact + noise * rng.normal(size=exact.shape)


def measured(exact: FloatArray, built: FloatArray) -> Queries:
    built = on_grid(built)
    return retrieved(built, TRUTH).merged(compared(built, ReferenceScores(exact))).only(KEPT)


def kept_of(queries: Queries) -> KeptQueries:
    sides = (queries.text, queries.video)
    return KeptQueries(*({k: tuple(map(float, v)) for k, v in side.items()} for side in sides))


def beside(
    now: Queries,
    before: Queries,
    tolerances: Mapping[str, float] | None = None,
    truth: Truth = TRUTH,
    **changed: str,
) -> Comparison:
    nothing = KeptQueries({}, {})
    run = ThisRun(KeptRun(kept_of(now), nothing), truth, "logit", "exact", {}, TEXT_VIDEO)
    earlier = EarlierRun("r.json", "b", "t", "d", "logit", "exact", before, Queries(), {})
    return compare_runs(run, replace(earlier, **changed), tolerances or {}, seed=0)


@pytest.mark.thorough("many draws")
def test_equal_builds_pass_on_100_draws_of_the_data_and_a_degraded_one_fails() -> None:
    found = 0
    for seed in SEEDS:
        exact, built = scores(seed)
        before = measured(exact, built)
        same = beside(before, before)
        assert same.decisive
        assert all(one.verdict == "no difference" for one in same.figures)
        assert {(one.loss, one.failed) for one in same.figures} == {(Change(0, 0, 0), False)}
        if seed % 10 == 0:  # a bootstrap each
            worse = beside(measured(*scores(seed, noise=3.0)), before)
            found += any(failures for _, failures in worse.decisive)
    assert found == 10


@pytest.mark.thorough("many draws")
def test_builds_as_good_as_each_other_seldom_fail() -> None:
    """Errors of the same size and other draws of them: of 2 ways 2.5% each, and agreement."""
    failed = 0
    for seed in SEEDS:
        exact, first = scores(seed)
        second = exact + 0.6 * np.random.default_rng(1000 + seed).normal(size=exact.shape)
        found = beside(measured(exact, second), measured(exact, first))
        failed += any(failures for _, failures in found.decisive)
    assert failed <= 12  # 5% of 100, and what chance adds to it in 1 of 500 runs


@pytest.mark.parametrize(
    ("now", "before", "said"),
    [
        ([1.0, 2.0, np.nan], [1.0, np.nan, np.nan], r"rank\[1\] is null; expected a number, as"),
        ([1.0, np.nan, 1.0], [1.0, 2.0, 1.0], r"rank\[1\] is a number; expected null, as"),
        ([1.0, 2.0], [np.nan, np.nan], r"rank\[0\] is null; expected a number"),
    ],
)
def test_what_is_no_query_is_the_same_in_both(
    now: list[float], before: list[float], said: str
) -> None:
    own, other = (Queries({}, {"rank": np.array(one)}) for one in (now, before))
    require_alike(own, own, "earlier.json")
    with pytest.raises(CimError, match=rf"^earlier\.json: queries\.video\.{said}"):
        require_alike(own, other, "earlier.json")


def figure(loss: Change, tolerance: float | None) -> PairedFigure:
    kind = ("r1_text_to_video", "R@1 text to video", "r1_loss", False, True)
    return PairedFigure(*kind, now=0.5 - loss.value, before=0.5, loss=loss, tolerance=tolerance)


@pytest.mark.parametrize(
    ("loss", "tolerance", "verdict", "failed"),
    [
        (Change(0.02, 0.01, 0.03), 0.0, "worse", True),
        (Change(0.02, 0.01, 0.03), 0.01, "worse", False),
        (Change(0.02, 0.01, 0.03), 0.005, "worse", True),
        (Change(0.02, 0.01, 0.03), None, "worse", False),
        (Change(0.02, 0.0, 0.03), 0.0, "no difference", False),
        (Change(1e-7, 1e-8, 2e-7), 0.0, "no difference", False),
        (Change(-0.02, -0.03, -0.01), 0.0, "better", False),
        (Change(np.nan, np.nan, np.nan), 0.0, "no difference", False),
    ],
)
def test_worse_is_an_interval_above_the_tolerance(
    loss: Change, tolerance: float | None, verdict: str, failed: bool
) -> None:
    found = figure(loss, tolerance)
    assert (found.verdict, found.failed) == (verdict, failed)


def test_the_loss_that_shows_in_80_percent_is_of_the_interval() -> None:
    # 2.8 standard errors; an interval is 3.92 of them wide.
    assert figure(Change(0.0, -0.0392, 0.0392), 0.0).detectable == pytest.approx(0.056, rel=1e-2)
    assert figure(Change(0.0, 0.0, 0.0), 0.0).detectable is None


def test_figures_are_those_of_the_queries() -> None:
    exact, built = scores(3)
    before = measured(exact, built)
    now = measured(exact, built + np.random.default_rng(9).normal(size=exact.shape))
    found = {one.name: one for one in beside(now, before).figures}
    recall = found["r1_text_to_video"]
    assert recall.now == (now.text["rank"] <= 1).mean()
    assert recall.loss.value == pytest.approx(recall.before - recall.now)
    assert recall.loss.low <= recall.loss.value <= recall.loss.high
    centred = found["centred_rmse"]
    sides = (now.text["centred_squares"].mean(), now.video["centred_squares"].mean())
    assert centred.now == pytest.approx(np.sqrt(max(sides)))
    assert (centred.verdict, centred.failed) == ("worse", True)
    rmse = found["logit_rmse"]
    assert rmse.now == pytest.approx(np.sqrt(now.text["logit_squares"].mean()))
    assert rmse.loss.value == pytest.approx(rmse.now - rmse.before)
    assert rmse.tolerance == pytest.approx(rmse.before / 2, rel=1e-5)
    assert (rmse.verdict, rmse.failed) == ("worse", True)
    agreement = found["top1_agreement"]
    assert (agreement.tolerance, agreement.share) == (0.05, True)


def test_a_tolerance_makes_a_figure_decide() -> None:
    exact, built = scores(3)
    before = measured(exact, built)
    now = measured(exact, built + np.random.default_rng(9).normal(size=exact.shape))
    found = beside(now, before, {"logit_rmse": 0.0, "r5_loss": 1.0, "r1_loss": 1.0})
    tolerated = {one.name: one.tolerance for one in found.figures}
    before_error = next(one.before for one in found.figures if one.name == "centred_rmse")
    assert tolerated == {
        "r1_text_to_video": 1.0,
        "r1_video_to_text": 1.0,
        "r5_text_to_video": 1.0,
        "r5_video_to_text": 1.0,
        "centred_rmse": pytest.approx(before_error / 2, rel=1e-5),
        "logit_rmse": 0.0,
        "top1_agreement": 0.05,
    }
    failures = [sentence for _, own in found.decisive for sentence in own]
    labels = ["centred logit RMSE", "logit RMSE", "top-1 agreement"]
    assert [one.split(" is ")[0] for one in failures] == labels[: len(failures)]


def test_where_classes_are_known_map_decides() -> None:
    labels = np.arange(N) % 5
    truth = Truth(np.arange(N), N, (labels, labels))
    exact, built = scores(1)
    built = on_grid(built)
    own = retrieved(built, truth).merged(compared(built, ReferenceScores(exact))).only(KEPT)
    found = beside(own, own, truth=truth)
    decisive = [one.name for one, _ in found.decisive]
    errors = ["centred_rmse", "logit_rmse", "top1_agreement"]
    assert decisive == ["map_text_to_video", "map_video_to_text", *errors]
    assert "r1_text_to_video" in [one.name for one in found.figures]


def test_other_references_are_not_compared() -> None:
    own = measured(*scores(0))
    found = beside(own, own, reference="polynomial")
    assert {one.name for one in found.figures} == {"r1_text_to_video", "r1_video_to_text"}
    assert found.notes == (
        "centred logit RMSE, logit RMSE and top-1 agreement are not compared: they are of a logit "
        "from exact here, and of a logit from polynomial in r.json",
    )
    with pytest.raises(CimError, match=r"^tolerance logit_rmse: differences are of a logit from"):
        beside(own, own, {"logit_rmse": 0.1}, reference="polynomial")


def test_nothing_in_common_is_no_pass() -> None:
    own = measured(*scores(0)).only(["centred_squares", "logit_squares", "same_best"])
    known = {"centred_rmse", "logit_rmse", "top1_agreement"}
    assert {one.name for one in beside(own, own).figures} == known
    with pytest.raises(CimError, match=r"^r\.json: has no figure in common with this run: "):
        beside(own, own, reference="polynomial")


def test_other_measurements_are_refused() -> None:
    own = measured(*scores(0))
    fewer = Queries({name: values[:-1] for name, values in own.text.items()}, own.video)
    said = r"^r\.json: queries\.text has rank \[63\], .*expected rank \[64\]"
    with pytest.raises(CimError, match=said):
        beside(own, fewer)
    with pytest.raises(CimError, match=r"^r\.json: queries\.video has nothing; expected rank"):
        beside(own, Queries(own.text))


def test_of_many_queries_a_draw_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST_QUERIES", 40)
    rows = kept_rows(TRUTH)
    assert (len(rows.texts), len(set(rows.texts)), len(rows.videos)) == (40, 40, 40)
    assert list(rows.texts) == sorted(kept_rows(TRUTH).texts)
    own = measured(*scores(0)).of(rows)
    found = beside(own, own)
    assert (found.texts, found.videos) == (40, 40)
    assert not any(one.failed for one in found.figures)
