"""A teacher's fit: which pairs it sees, what it says of the others, and in which statistics."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from threads import threads_of

from cimtool.base.errors import CimError
from cimtool.training.arguments import FormOptions
from cimtool.training.degrees import FORMS
from cimtool.training.fit import fit_teacher
from cimtool.training.items import gaussian_items
from cimtool.training.teacher import Labels, TeacherSigmoid
from cimtool.training.teacher_file import LabelKind, Teacher, make_teacher


def teacher(kind: LabelKind = "exact", pairs: int = 1500, rows: int = 60) -> Teacher:
    rng = np.random.default_rng(2)
    text = rng.normal(size=(rows, 48))
    given = {
        "text_mu": text,
        "video_mu": text + 0.8 * rng.normal(size=text.shape),
        "text_logvar": rng.normal(size=text.shape) * 0.2 - 2.5,
        "video_logvar": rng.normal(size=text.shape) * 0.2 - 2.5,
    }
    return make_teacher(
        gaussian_items(given), pairs, 0.5, kind, TeacherSigmoid(0.1, 0.0, 6), seed=1
    )


def test_the_fit_of_exact_labels_is_within_a_hundredth_on_pairs_it_did_not_see() -> None:
    found = fit_teacher(teacher(rows=120))
    assert [one.group for one in found.errors] == ["all pairs", "right pairs", "wrong pairs"]
    assert found.errors[0].rmse < 0.01
    assert found.errors[0].pairs == len(found.held) == sum(one.pairs for one in found.errors[1:])
    assert found.notes == ()


def test_errors_are_those_of_the_held_out_labels() -> None:
    found = fit_teacher(teacher("mc"), FormOptions(degree=2))
    off = found.polynomial.evaluate(found.held.ed, found.held.vd) - found.held.logit
    whole, right, _ = found.errors
    assert whole.rmse == pytest.approx(np.sqrt(np.mean(off**2)))
    assert (whole.bias, whole.worst) == pytest.approx((off.mean(), np.abs(off).max()))
    assert found.matched is not None
    assert right.bias == pytest.approx(off[found.matched].mean())
    assert found.held.standard_error is not None
    assert whole.noise == pytest.approx(np.sqrt(np.mean(found.held.standard_error**2)))


def test_a_pair_that_was_drawn_again_is_in_one_part_only() -> None:
    made = teacher("mc", pairs=900, rows=20)
    found = fit_teacher(made, FormOptions(degree=2, seed=3))
    kept = np.isin(made.labels.ed, found.held.ed)
    distinct = len(np.unique(made.labels.ed))
    assert distinct < 450  # so most pairs are drawn more than once
    assert len(np.unique(found.held.ed)) == round(distinct / 10)
    assert kept.sum() == len(found.held) == len(made) - found.fitted


def test_another_seed_holds_out_other_pairs() -> None:
    made = teacher()
    parts = [set(fit_teacher(made, FormOptions(degree=1, seed=seed)).held.ed) for seed in (0, 0, 1)]
    assert parts[0] == parts[1] != parts[2]


def test_the_domain_is_that_of_the_fitted_pairs() -> None:
    made = teacher()
    found = fit_teacher(made, FormOptions(degree=1))
    seen = ~np.isin(made.labels.ed, found.held.ed)
    for name, values in (("ed", made.labels.ed[seen]), ("vd", made.labels.vd[seen])):
        assert getattr(found.polynomial.domain, name) == (values.min(), values.max())


def test_divisors_are_the_teachers_or_those_given() -> None:
    made = teacher()
    divided = replace(made, scale_ed=48.0, scale_vd=48.0**2)
    own, given = (
        fit_teacher(divided),
        fit_teacher(made, FormOptions(scale_ed=48.0, scale_vd=48.0**2)),
    )
    assert own.polynomial == given.polynomial
    raw = fit_teacher(made)
    small, large = given.polynomial.domain, raw.polynomial.domain
    assert small is not None
    assert large is not None
    assert small.ed == pytest.approx(np.array(large.ed) / 48)
    assert small.vd == pytest.approx(np.array(large.vd) / 48**2)
    np.testing.assert_allclose(
        own.polynomial.evaluate(made.labels.ed / 48, made.labels.vd / 48**2),
        raw.polynomial.evaluate(made.labels.ed, made.labels.vd),
        atol=1e-9,
    )
    assert (
        fit_teacher(divided, FormOptions(scale_ed=1.0, scale_vd=1.0)).polynomial == raw.polynomial
    )


def test_what_is_known_of_the_teacher_goes_into_the_polynomial() -> None:
    fitted = fit_teacher(teacher("mc")).polynomial
    assert (fitted.a, fitted.b, fitted.K, fitted.fit_logit) == (0.1, 0.0, 6, True)
    assert fit_teacher(teacher()).polynomial.K is None


def test_noisy_labels_weigh_less() -> None:
    made = teacher("mc")
    known = made.labels
    # What is wrong by 5 at large ed is said to be noisy there.
    far = known.ed > np.median(known.ed)
    spoilt = replace(known, log_p=np.where(far, known.log_p + 5, known.log_p))
    told = replace(spoilt, standard_error=np.exp((known.ed - known.ed.mean()) / known.ed.std() * 4))
    untold = replace(spoilt, standard_error=None)

    def error(labels: Labels) -> float:
        fitted = fit_teacher(replace(made, labels=labels), FormOptions(degree=2)).polynomial
        off = fitted.evaluate(known.ed, known.vd) - known.logit
        return float(np.sqrt(np.mean(off[~far] ** 2)))

    assert error(told) < 0.5 * error(untold)


def test_what_cannot_be_known_is_said() -> None:
    noted = " ".join(fit_teacher(teacher("mc")).notes)
    assert "the labels are Monte Carlo, so the errors include their noise" in noted
    assert "and is off the exact logit by -" in noted
    known = teacher().labels
    bare = Labels(known.ed, known.vd, known.log_p, known.log_1mp)
    found = fit_teacher(Teacher(bare, clipped=500))
    assert found.notes[0].startswith("warning: 500 labels (25.0%) are probabilities clipped at 1e-")
    assert "how the labels were made is not known" in found.notes[1]
    assert "a and b are not in the file" in found.notes[2]
    assert [one.group for one in found.errors] == ["all pairs"]
    assert found.errors[0].noise is None


def test_what_is_taken_for_probabilities_is_said() -> None:
    made = teacher()
    said = [fit_teacher(replace(made, probabilities=taken)).notes for taken in (True, False)]
    assert said[1] == ()
    assert len(said[0]) == 1
    assert said[0][0].startswith("warning: all of y lies in [0, 1] and is taken for probabilities")


def test_the_offset_of_monte_carlo_labels_is_about_what_is_said() -> None:
    made, exact = teacher("mc"), teacher()
    off = float(np.mean(made.labels.logit - exact.labels.logit))
    (text,) = (note for note in fit_teacher(made).notes if "off the exact logit by" in note)
    assert float(text.split(" by ")[1].split()[0]) == pytest.approx(off, rel=0.5)


@pytest.mark.parametrize(
    ("scale", "sentence"),
    [(0.0, "scale_ed is 0; expected a number"), (np.inf, "scale_ed is inf; expected a number")],
)
def test_divisors_that_cannot_be_are_refused(scale: float, sentence: str) -> None:
    with pytest.raises(CimError, match=f"^{sentence}"):
        fit_teacher(teacher(), FormOptions(scale_ed=scale))


def test_no_degree_at_all_is_refused() -> None:
    with pytest.raises(CimError, match="degree is empty; expected one degree or more"):
        fit_teacher(teacher(), FormOptions(degree=[]))


@pytest.mark.parametrize("pairs", [0, 1, 2, 16])
def test_too_few_pairs_are_refused_with_the_files_name(pairs: int) -> None:
    made = replace(teacher(), file="few.npz")
    few = replace(made, labels=made.labels.of(np.arange(pairs)), matched=None)
    with pytest.raises(CimError, match=r"^few\.npz: there are \d+ pairs to fit; .* has 15 coeff"):
        fit_teacher(few, FormOptions(degree=4))


def test_without_a_degree_all_are_tried_for_which_there_are_pairs() -> None:
    found = fit_teacher(teacher())
    tried = {one.form for one in found.comparison.candidates if one.form is not None}
    assert tried == set(FORMS.values())
    assert (found.form, found.asked) == (found.comparison.enough, False)
    made = replace(teacher(), file="few.npz")
    few = fit_teacher(replace(made, labels=made.labels.of(np.arange(16)), matched=None))
    assert {one.form.degree for one in few.comparison.candidates if one.form} == {1, 2, 3}
    assert any(
        one.startswith("degree 4 is left out: there are 14 pairs to fit") for one in few.notes
    )
    with pytest.raises(CimError, match=r"^few\.npz: there are 1 pairs to fit; .* has 3 coeff"):
        fit_teacher(replace(made, labels=made.labels.of(np.arange(2)), matched=None))


def test_bits_do_not_depend_on_threads() -> None:
    ed, vd, off = np.random.default_rng(0).uniform(size=(3, 20000))
    logit = -ed - ed * vd**2
    made = Teacher(Labels(ed, vd, logit, np.zeros(20000), off))
    said = []
    for threads in (1, 2):
        with threads_of(threads):
            found = fit_teacher(made)
        said.append([x.hex() for x in (*found.polynomial.coeff, found.condition)])
    assert said[0] == said[1] != []
