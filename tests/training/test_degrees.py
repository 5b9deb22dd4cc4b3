"""Degrees side by side: which is enough, what R@1 is of, what statistics of all pairs are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cimtool.base.errors import CimError
from cimtool.base.intervals import Change
from cimtool.reference.bootstrap import counted_share
from cimtool.reference.metrics import RAW
from cimtool.reference.statistics import Gaussians, distance_variance, expected_distance
from cimtool.reference.truth import Judgements
from cimtool.training.arguments import FormOptions
from cimtool.training.degrees import OF_SPREAD, Form, forms_of, pair_statistics, sampling_scatter
from cimtool.training.fit import fit_teacher
from cimtool.training.fit_page import (
    advice,
    comparison_values,
    degree_table,
    raw_sentence,
)
from cimtool.training.items import Items, gaussian_items
from cimtool.training.teacher import Labels, TeacherSigmoid
from cimtool.training.teacher_file import LabelKind, Teacher, make_teacher

D = 24


def items(rows: int = 60, seed: int = 2) -> Items:
    rng = np.random.default_rng(seed)
    text = rng.normal(size=(rows, D))
    given = {
        "text_mu": text,
        "video_mu": text + 0.8 * rng.normal(size=text.shape),
        "text_logvar": rng.normal(size=text.shape) * 0.2 - 2.5,
        "video_logvar": rng.normal(size=text.shape) * 0.2 - 2.5,
    }
    return gaussian_items(given)


def teacher(kind: LabelKind = "exact", pairs: int = 1500) -> Teacher:
    return make_teacher(items(), pairs, 0.5, kind, TeacherSigmoid(0.1, 0.0, 10), seed=1)


def of_curve(noise: float = 0.0) -> Teacher:
    """Labels that are a parabola in ed, and say nothing of vd."""
    rng = np.random.default_rng(3)
    ed, vd = rng.uniform(50, 150, 3000), rng.uniform(10, 30, 3000)
    logit = -0.1 * ed + 0.0005 * (ed - 100) ** 2 + noise * rng.normal(size=3000)
    error = np.full(3000, noise) if noise else None
    return Teacher(Labels(ed, vd, logit, np.zeros(3000), error), text=np.arange(3000) % 300)


def test_the_cheapest_form_that_is_not_surely_worse_is_enough() -> None:
    found = fit_teacher(of_curve(0.05), FormOptions(degree=[1, 2, 3, 4]))
    assert found.form == found.comparison.enough == Form(2, ed_alone=True)
    assert not found.polynomial.reads_vd
    assert not found.asked
    worse = found.comparison.of(Form(1, True)).less_best
    assert worse is not None
    assert worse.low > 0
    assert "not surely above" in advice(found.comparison, found.form, found.asked) or (
        found.comparison.best == found.form
    )


def test_a_tolerance_lets_a_lower_degree_be_enough() -> None:
    made = of_curve()
    assert fit_teacher(made, FormOptions(degree=[1, 2, 3])).form == Form(2, True)
    error = fit_teacher(made, FormOptions(degree=1, ed_alone=True)).errors[0].rmse
    assert fit_teacher(made, FormOptions(degree=[1, 2, 3], tolerance=1.2 * error)).form == Form(
        1, True
    )
    with pytest.raises(CimError, match="tolerance is -1; expected a finite number, 0 or more"):
        fit_teacher(made, FormOptions(tolerance=-1.0))


def test_errors_are_compared_in_the_mean_square() -> None:
    """A form with twice the error adds 1.7 times the best's to it, not once."""
    found = fit_teacher(of_curve(0.05), FormOptions(degree=[1, 2, 3]))
    best = found.comparison.of(found.comparison.best).rmse
    assert best is not None
    for one in found.comparison.candidates:
        if one.form is None:
            continue
        assert one.rmse is not None
        assert one.less_best is not None
        more = one.rmse.value**2 - best.value**2
        assert one.less_best.value == pytest.approx(np.sign(more) * abs(more) ** 0.5)
        assert one.less_best.low <= one.less_best.value <= one.less_best.high


def test_what_ranks_nothing_is_not_enough_where_labels_spread_by_less_than_samples() -> None:
    made = of_curve()
    flat = replace(made.labels, log_p=1e-3 * made.labels.log_p)
    error = np.full(len(made), 1.0)  # samples scatter by 1, and the labels spread by far less
    found = fit_teacher(
        replace(made, labels=replace(flat, standard_error=error)), FormOptions(degree=[1, 2, 3])
    )
    spread = found.comparison.spread
    assert found.comparison.tolerance == OF_SPREAD * spread < 0.001
    assert found.errors[0].rmse < 0.2 * spread


def test_one_degree_is_kept_whatever_is_enough() -> None:
    found = fit_teacher(of_curve(), FormOptions(degree=4))
    assert (found.form, found.comparison.enough) == (Form(4), Form(2, True))
    said = advice(found.comparison, found.form, found.asked)
    assert said.startswith("Degree 2, ed alone is enough: ")
    assert said.endswith("1 matrix product per query in place of 6.")


def test_vd_is_taken_where_it_is_needed() -> None:
    found = fit_teacher(teacher(), FormOptions(degree=[1, 2], tolerance=0.0))
    assert not found.form.ed_alone
    assert found.polynomial.reads_vd


def test_the_scatter_of_samples_is_what_labels_scatter_by() -> None:
    exact, sampled = (sampling_scatter(teacher(kind)) for kind in ("exact", "mc"))
    assert exact[1] == sampled[1] == 10
    assert exact[0] == pytest.approx(sampled[0], rel=0.15)
    assert sampling_scatter(of_curve()) == (None, 10)


def test_statistics_of_all_pairs_are_those_of_aligned_rows() -> None:
    made = items(7)
    ed, vd = pair_statistics(made.text, made.video)
    for i in range(7):
        again = Gaussians(np.repeat(made.text.mu[[i]], 7, 0), np.repeat(made.text.s[[i]], 7, 0))
        np.testing.assert_allclose(ed[i], expected_distance(again, made.video), rtol=1e-12)
        np.testing.assert_allclose(vd[i], distance_variance(again, made.video), rtol=1e-12)


def test_recall_is_counted_on_the_items_given_and_can_refuse_a_form() -> None:
    seen = items(40, seed=9)
    found = fit_teacher(teacher(), FormOptions(degree=[1, 2]), items=seen)
    ed, _ = pair_statistics(seen.text, seen.video)
    best = float(np.mean(ed.argmin(axis=1) == np.arange(40)))
    plain = {one.name: one for one in found.comparison.candidates}
    assert plain["-ed"].recall["text_to_video"].value == pytest.approx(best)
    table = degree_table(found.comparison, found.form)
    assert "R@1 text to video, %" in [column.title for column in table.columns]
    assert found.comparison.items == (40, 40)
    from cimtool.training.degrees import _suffices

    one = found.comparison.of(found.form)
    lost = replace(one, recall_less_best={"text_to_video": Change(-0.1, -0.2, -0.05)})
    assert _suffices(one, 1.0)
    assert not _suffices(lost, 1.0)


def test_any_item_that_is_judged_right_counts_in_recall() -> None:
    seen = items(40, seed=9)
    ed, _ = pair_statistics(seen.text, seen.video)
    nearest, second = ed.argsort(axis=1)[:, :2].T
    text = np.concatenate([np.arange(40), np.arange(10)])
    video = np.concatenate([second, nearest[:10]])
    several = replace(seen, judged=Judgements(text, video, np.ones(50, np.int64)))
    found = fit_teacher(teacher(), FormOptions(degree=[1]), items=several).comparison
    plain = {one.name: one for one in found.candidates}
    assert plain["-ed"].recall["text_to_video"].value == 10 / 40


def test_raw_embeddings_are_ranked_by_their_cosine_where_widths_agree() -> None:
    seen, rng = items(40, seed=9), np.random.default_rng(4)
    rows = rng.normal(size=(40, 6))
    without = fit_teacher(teacher(), FormOptions(degree=[1]), items=seen).comparison
    wider = replace(seen, rows=(rows, rng.normal(size=(40, 7))))
    for found in (without, fit_teacher(teacher(), FormOptions(degree=[1]), items=wider).comparison):
        assert [one.name for one in found.candidates][:2] == ["csd", "-ed"]
        assert raw_sentence(found) is None
    # Equal rows on both sides: nothing that projects them ranks better.
    alike = fit_teacher(
        teacher(), FormOptions(degree=[1]), items=replace(seen, rows=(rows, rows))
    ).comparison
    raw = alike.candidates[0]
    assert (raw.name, raw.cost, raw.rmse, raw.in_memory) == (RAW, None, None, None)
    assert {*raw.recall.values()} == {counted_share(40, 40)}
    assert [one.recall for one in alike.candidates[1:]] == [
        one.recall for one in without.candidates
    ]
    best = alike.of(alike.best).recall["text_to_video"].value
    said = raw_sentence(alike)
    assert said is not None
    how = "BETTER" if raw.recall_less_best["text_to_video"].low > 0 else "as well"
    assert said.startswith(f"Raw embeddings retrieve {how}")
    assert f"100.0% by their cosine, {100 * best:.1f}% by {alike.best.name}" in said
    table = degree_table(alike, alike.enough)
    texts = [cell.text for cell in table.rows[0].cells]
    assert texts[:4] == [RAW, "-", "-", "-"]
    assert texts[-2:] == ["-", "-"]
    values = comparison_values(alike)["candidates"][0]
    assert (values["name"], values["ed_alone"], values["multiplications"]) == (RAW, None, None)
    # Rows that tell nothing are worse than any score, and no sentence says anything of them.
    noise = replace(seen, rows=(rows, rng.normal(size=(40, 6))))
    assert (
        raw_sentence(fit_teacher(teacher(), FormOptions(degree=[1]), items=noise).comparison)
        is None
    )


def test_forms_come_from_the_cheapest() -> None:
    assert forms_of([3, 1, 3], False) == [Form(1, True), Form(3, True), Form(1), Form(3)]
    assert forms_of([2], True) == [Form(2, True)]
    assert (Form(4).terms, Form(4, True).terms) == (14, 4)
